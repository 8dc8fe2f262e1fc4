"""Forward and backward of every cell in specs/, T = 128, B = 32, D = H = 128, one thread, float32,
the slowest first.

Other sizes are what a spec gives as their default, or 8. GFLOP/s count the products that the two
programs do, weight gradients included; share: of the multiply-add peak of one core, measured beside
each cell. stages: products that must wait for one another within a step.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table

if TYPE_CHECKING:
    import numpy as np

    from rnnspec.lowering.program import Program

EXAMPLE = "python -m bench cells lstm gru mgu"
T, B, SIZE = 128, 32, 128
TIMES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="cells (all in specs/)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    import rnnspec

    known = rnnspec.spec_names()
    if unknown := [n for n in args.names if n not in known]:
        print(f"unknown cell {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return finish("cells", {"names": args.names}, _rows(args.names or list(known)), render, args.json)


def _rows(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    with progress(len(names)) as done:
        for row in records("bench.cells:measure", {"names": list(names)}, 1):
            done(row["cell"])
            yield row


def measure(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A record per cell: seconds a call, or what kernels can't do."""
    from rnnspec.errors import RnnspecError, UnsupportedError

    for name in names:
        try:
            yield {"cell": name} | one(name)
        except UnsupportedError as error:
            yield {"cell": name, "unsupported": str(error).splitlines()[0]}
        except RnnspecError as error:
            yield {"cell": name, "error": str(error).splitlines()[0]}


def one(name: str) -> dict[str, Any]:
    import numpy as np

    import rnnspec
    from bench.peak import peak
    from bench.timing import measure as measured
    from bench.timing import repeats
    from rnnspec.lowering.pipeline import stages
    from rnnspec.show.counts import known_sizes

    spec = rnnspec.load(name)
    kernel = rnnspec.compile(spec, threads=1)
    sizes = known_sizes(spec, SIZE)
    params = kernel.init(seed=0, **sizes)
    rng = np.random.default_rng(0)
    inputs = {n: _uniform(rng, shape, sizes) for n, shape in spec.inputs.items()}
    dy = {n: _uniform(rng, spec.shapes[n], sizes) for n in spec.outputs}

    def call() -> object:
        return kernel.backward(kernel.forward(params, inputs), dy)

    top = peak("float32")
    tops = [top()]
    call()
    many = repeats(call)
    times = [measured(call, many) for _ in range(TIMES)]
    tops.append(top())
    time = statistics.median(times)
    made = stages(spec)
    rate = T * B * (_flops(made.forward, sizes) + _flops(made.backward, sizes)) / time / 1e9
    return {
        "seconds": time,
        "all_seconds": times,
        "gflops": rate,
        "peak_gflops": max(tops),
        "share": rate / max(tops),
        "stages": made.forward.recurrent_stages(),
    }


def _flops(program: Program, sizes: Mapping[str, int]) -> int:
    """Of the products of one step and row: two for each multiply-add."""
    from rnnspec.language.sizes import full_shape
    from rnnspec.symbolic.graph import Outer, Product

    def count(name: str) -> int:
        return math.prod(full_shape(program.graph.shapes[name], sizes))

    total = sum(2 * count(o.left) * count(o.right) for o in program.outers)
    for name, node in program.graph.nodes.items():
        if isinstance(node, Product):
            columns = program.graph.shapes[node.vector][1:]
            total += 2 * count(node.matrix) * math.prod(full_shape(columns, sizes))
        elif isinstance(node, Outer):
            total += 2 * count(name)
    return total


def _uniform(rng: np.random.Generator, shape: Sequence[str], sizes: Mapping[str, int]) -> np.ndarray:
    """[T, B, ...] in (0, 1), where every function is defined."""
    import numpy as np

    from rnnspec.language.sizes import full_shape

    return rng.random((T, B, *full_shape(tuple(shape), sizes)), np.float32)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    timed = sorted((r for r in report["rows"] if "seconds" in r), key=lambda r: r["share"])
    lines = [
        [r["cell"], milliseconds(r["seconds"]), f"{r['gflops']:.1f}", f"{100 * r['share']:.0f} %", str(r["stages"])]
        for r in timed
    ]
    parts = [
        machine.line(report),
        (
            f"Forward and backward, T = {T}, B = {B}, D = H = {SIZE}, one thread, float32; the lowest share of the peak"
            " first."
        ),
        table(["cell", "ms", "GFLOP/s", "of peak", "stages"], lines, as_markdown),
    ]
    if rest := [r for r in report["rows"] if "seconds" not in r]:
        parts.append(
            "\n".join(
                f"- {r['cell']}: {'not supported: ' + r['unsupported'] if 'unsupported' in r else r['error']}"
                for r in rest
            )
        )
    return "\n\n".join(parts)
