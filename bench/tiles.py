"""Products, weight gradients and moves of the CPU runtime on one thread: share of the multiply-add
peak, NumPy's BLAS beside it.

Values are compared before anything is timed. A time is the least of many: peak, ours and NumPy's
take turns, since the clock of a shared machine drifts. `--isa avx2` holds kernels, the peak and
OpenBLAS to 16 registers of 256 bits, where the machine has more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import groups, table

if TYPE_CHECKING:
    import numpy as np

EXAMPLE = "python -m bench tiles --isa avx2"
KINDS = ("product", "few rows", "one row", "small K", "outer", "pack", "gather")
HELD = {"avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma", "OPENBLAS_CORETYPE": "Haswell"}}
REPEATS = 8  # of small products in one measurement, as in a loop over time
ROUNDS, BUDGET = 6, 0.03  # seconds of each, in each round


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of lines: {', '.join(KINDS)} (all)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="(float32)")
    parser.add_argument("--isa", choices=tuple(HELD), help="instructions to hold everything to (this machine's)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of each line ({ROUNDS})")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        print(f"there are no lines of kind {', '.join(unknown)}; there are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    settings = {"kinds": args.kinds, "dtype": args.dtype, "isa": args.isa}
    os.environ.update(HELD.get(args.isa, {}))  # of the measuring process
    rows = _rows({"kinds": args.kinds or list(KINDS), "dtype": args.dtype, "rounds": args.rounds})
    return finish("tiles", settings, rows, render, args.json)


def _rows(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with progress(len(list(shapes(arguments["kinds"], 1)))) as done:
        for row in records("bench.tiles:measure", arguments, 1):
            done(row["what"])
            yield row


# --- what is measured


def shapes(kinds: Sequence[str], lanes: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(kind, sizes) of every line: of a product rows, K, vectors of a panel, panels; of an outer
    product rows, M, N; of pack units, K, which of them lies together; of gather D."""
    wide = 64 // lanes  # so that panels have the same bytes on all machines
    found: dict[str, list[tuple[Any, ...]]] = {
        "product": [(32, 256, v, 4) for v in (4, 3, 2, 1)] + [(r, k, 4, 4) for r, k in ((16, 256), (32, 1024))],
        "few rows": [(r, 256, v, 4) for r, v in ((2, 4), (2, 3), (3, 4), (4, 4), (5, 4))],
        "one row": [(1, k, v, 4 * wide // v) for k, v in ((32, 4), (128, 4), (256, 4), (256, 3), (256, 2), (256, 1))],
        "small K": [(r, k, 4, 4) for r, k in ((16, 32), (32, 32), (16, 16), (32, 128))],
        "outer": [(256, 1024, 256), (4096, 1024, 256), (2048, 4096, 1024), (2048, 512, 128), (2048, 128, 32)]
        + [(512, 256, 64), (32, 1024, 256)],
        "pack": [(n, n, layout) for n in (256, 1024) for layout in ("k", "units")],
        "gather": [(8,), (64,), (256,)],
    }
    for kind in kinds:
        yield from ((kind, sizes) for sizes in found[kind])


@dataclass(frozen=True)
class Work:
    """A line: what it is called, how much one call does, ours and NumPy's (None: it has no such
    thing), and the results of both, each made anew."""

    what: str
    flops: float
    moved: float  # bytes, where nothing is computed
    ours: Callable[[], object]
    numpys: Callable[[], object] | None
    results: Callable[[], tuple[np.ndarray, np.ndarray]]
    terms: int = 1


def measure(kinds: Sequence[str], dtype: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A record for each line. Raises ValueError where ours and NumPy's values differ."""
    from bench import tile_work
    from bench.peak import best, peak
    from rnnspec.backends.cpu.machine import host

    known, top = host(), peak(dtype)
    registers = {"registers": known.registers, "bits": 8 * known.register_bytes, "compiler_name": known.name}
    for kind, sizes in shapes(kinds, known.lanes[dtype]):
        work = tile_work.work(kind, sizes, dtype)
        _agree(work)
        times: dict[str, list[float]] = {"ours": [], "numpy": []}
        tops = []
        for _ in range(rounds):
            tops.append(top())
            for name, call in (("ours", work.ours), ("numpy", work.numpys)):
                if call:
                    times[name].append(best(call, BUDGET))
        least = {name: min(found) for name, found in times.items() if found}
        rate = work.flops / least["ours"] / 1e9
        yield (
            {"kind": kind, "what": work.what, "sizes": sizes, "dtype": dtype, **registers, "seconds": times}
            | (
                {"gflops": rate, "peak_gflops": max(tops), "share": rate / max(tops)}
                if work.flops
                else {"gigabytes": work.moved / least["ours"] / 1e9}
            )
            | ({"ratio": least["numpy"] / least["ours"]} if "numpy" in least else {})
        )


def _agree(work: Work) -> None:
    import numpy as np

    ours, wanted = work.results()
    room = 8 * (work.terms + 1) * np.finfo(ours.dtype).eps
    if not np.all(np.abs(ours - wanted) <= room):
        raise ValueError(f"{work.what}: values differ by {np.abs(ours - wanted).max():.2g}, more than {room:.2g}")


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    parts = [machine.line(report)]
    for (kind,), rows in groups(report["rows"], "kind").items():
        if parts[1:] == []:
            first = rows[0]
            parts.append(
                f"One thread, {first['dtype']}, kernels for {first['compiler_name']}: {first['registers']} registers of"
                f" {first['bits']} bits. Share: of the measured multiply-add peak; ratio: NumPy's time over ours."
            )
        computed = "share" in rows[0]
        head = [kind, "GFLOP/s", "of peak", "NumPy of peak", "ratio"] if computed else [kind, "GB/s"]
        parts.append(table(head, [_cells(row) for row in rows], as_markdown))
    return "\n\n".join(parts)


def _cells(row: dict[str, Any]) -> list[str]:
    if "share" not in row:
        return [row["what"], f"{row['gigabytes']:.1f}"]
    shares = [f"{100 * share:.0f} %" for share in (row["share"], row["share"] / row["ratio"])]
    return [row["what"], f"{row['gflops']:.1f}", *shares, f"{row['ratio']:.2f}"]
