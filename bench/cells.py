"""Forward and backward of every cell in specs/, T = 128, B = 32, all sizes 128, one thread, float32, the slowest first.

GFLOP/s count each weight matrix once per step and row, three times over forward and backward; share: of the multiply-add
peak of one core, measured beside each cell. stages: products that must wait for one another within a step.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table

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
    from rnnspec.language.sizes import size_names
    from rnnspec.pipeline import stages

    spec = rnnspec.load(name)
    kernel = rnnspec.compile(spec, threads=1)
    sizes = {n: SIZE for shape in [*spec.inputs.values(), *spec.shapes.values(), *spec.parameters.values()] for s in shape for n in size_names(s)}
    params = kernel.init(seed=0, **sizes)
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal((T, B, *_numbers(shape, sizes)), np.float32) for n, shape in spec.inputs.items()}
    dy = {n: rng.standard_normal((T, B, *_numbers(spec.shapes[n], sizes)), np.float32) for n in spec.outputs}

    def call() -> object:
        return kernel.backward(kernel.forward(params, inputs), dy)

    top = peak("float32")
    tops = [top()]
    call()
    many = repeats(call)
    times = [measured(call, many) for _ in range(TIMES)]
    tops.append(top())
    time = statistics.median(times)
    rate = 3 * 2 * T * B * sum(p.size for p in params.values() if p.ndim == 2) / time / 1e9
    return {"seconds": time, "all_seconds": times, "gflops": rate, "peak_gflops": max(tops), "share": rate / max(tops),
            "stages": stages(spec).forward.recurrent_stages()}


def _numbers(shape: Sequence[str], sizes: dict[str, int]) -> tuple[int, ...]:
    from rnnspec.language.sizes import evaluate_size

    return tuple(evaluate_size(s, sizes) for s in shape)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    timed = sorted((r for r in report["rows"] if "seconds" in r), key=lambda r: r["share"])
    lines = [[r["cell"], milliseconds(r["seconds"]), f"{r['gflops']:.1f}", f"{100 * r['share']:.0f} %", str(r["stages"])] for r in timed]
    parts = [machine.line(report), f"Forward and backward, T = {T}, B = {B}, all sizes {SIZE}, one thread, float32; the lowest share of the peak first.",
             table(["cell", "ms", "GFLOP/s", "of peak", "stages"], lines, as_markdown)]
    if rest := [r for r in report["rows"] if "seconds" not in r]:
        parts.append("\n".join(f"- {r['cell']}: {'not supported: ' + r['unsupported'] if 'unsupported' in r else r['error']}" for r in rest))
    return "\n\n".join(parts)
