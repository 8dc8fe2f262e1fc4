"""Forward and backward of every cell in specs/, T = 128, B = 32, D = H = 128, one thread, float32,
the slowest first.

Other sizes are what a spec gives as their default, or 8. of roof: the least time in which one core
could do the cell's work, over the time it took (roof.py); bound by: what the roof is made of there,
arithmetic or memory. GFLOP/s count the products that the two programs do, weight gradients
included; of peak: of the multiply-add peak of one core, measured beside each cell. stages: products
that must wait for one another within a step; whole rows: nodes that need a whole row at once;
narrowest: the least size that a stage of the loop works on.
"""

from __future__ import annotations

import argparse
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


EXAMPLE = "python -m bench cells lstm gru mgu"
T, B, SIZE = 128, 32, 128
TIMES = 5
GOAL, WANTED = 0.6, 100  # of the roof, and of so many cells


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
    from bench.roof import roof
    from bench.timing import measure as measured
    from bench.timing import repeats
    from bench.work import work
    from rnnspec.language.sizes import evaluate_size
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
    made = stages(spec, fused=True)
    whole = work(made.forward, sizes) + work(made.backward, sizes)
    least = roof(whole, T * B, "float32", max(tops))
    rate = 2 * T * B * whole.multiply_adds / time / 1e9
    return {
        "seconds": time,
        "all_seconds": times,
        "gflops": rate,
        "peak_gflops": max(tops),
        "share": rate / max(tops),
        "roof_seconds": least.seconds,
        "bound": least.bound,
        "of_roof": least.seconds / time,
        "stages": made.forward.recurrent_stages(),
        "rowwise": sum(len(s.rowwise) for p in (made.forward, made.backward) for s in p.stages()),
        "narrowest": min(
            (evaluate_size(s.size, sizes) for p in (made.forward, made.backward) for s in p.loop), default=0
        ),
    }


def _uniform(rng: np.random.Generator, shape: Sequence[str], sizes: Mapping[str, int]) -> np.ndarray:
    """[T, B, ...] in (0, 1), where every function is defined."""
    import numpy as np

    from rnnspec.language.sizes import full_shape

    return rng.random((T, B, *full_shape(tuple(shape), sizes)), np.float32)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    timed = sorted((r for r in report["rows"] if "seconds" in r), key=lambda r: r["of_roof"])
    reached = sum(r["of_roof"] >= GOAL for r in timed)
    lines = [
        [
            r["cell"],
            milliseconds(r["seconds"]),
            f"{100 * r['of_roof']:.0f} %",
            r["bound"],
            f"{r['gflops']:.1f}",
            f"{100 * r['share']:.0f} %",
            *(str(r[n]) for n in ("stages", "rowwise", "narrowest")),
        ]
        for r in timed
    ]
    titles = ["cell", "ms", "of roof", "bound by", "GFLOP/s", "of peak", "stages", "whole rows", "narrowest"]
    parts = [
        machine.line(report),
        (
            f"Forward and backward, T = {T}, B = {B}, D = H = {SIZE}, one thread, float32; the farthest from its roof"
            " first."
        ),
        f"{reached} of {len(timed)} cells at {100 * GOAL:.0f} % of their roof or more (goal: {WANTED}).",
        table(titles, lines, as_markdown),
    ]
    if rest := [r for r in report["rows"] if "seconds" not in r]:
        parts.append(
            "\n".join(
                f"- {r['cell']}: {'not supported: ' + r['unsupported'] if 'unsupported' in r else r['error']}"
                for r in rest
            )
        )
    return "\n\n".join(parts)
