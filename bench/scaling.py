"""Time of lstm against the number of steps (B = 1) and of rows (T = 32), H = D = 64, one thread,
float32.

Over T, time is linear where the time per step changes by at most 15 % from each length to the next;
the column "of T = 1000" is the time per step over that at 1000 steps. Over B the same is asked of
the time per row from where the machine is saturated: the first B whose time per row is within 15 %
of the least. Medians of five rounds over all points, so that a slow moment of the machine is no
point's alone; wall clock.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import machine
from bench.case import Case, Data
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import groups, milliseconds, table
from bench.timing import measure as measured
from bench.timing import repeats

EXAMPLE = "python -m bench scaling --plot scaling.png"
STEPS = (100, 1000, 10_000, 100_000)
ROWS = tuple(2**k for k in range(11))
HIDDEN, FIXED_T, REFERENCE = 64, 32, 1000
LINEAR = 0.15
TIMES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cell", default="lstm", help="one whose input is x [D] (lstm)")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=list(STEPS), metavar="T", help="(100 1000 10000 100000)"
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=list(ROWS), metavar="B", help="(the powers of two up to 1024)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw time per step and per row there")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    kept: list[dict[str, Any]] = []
    settings = {"cell": args.cell, "steps": args.steps, "rows": args.rows}
    code = finish("scaling", settings, _rows(args.cell, args.steps, args.rows, kept), render, args.json)
    if args.plot and kept:
        plot(kept, args.plot)
    return code


def _rows(cell: str, steps: Sequence[int], rows: Sequence[int], kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    with progress(2 * (len(steps) + len(rows))) as done:
        for row in records("bench.scaling:measure", {"cell": cell, "steps": list(steps), "rows": list(rows)}, 1):
            done(f"{row['mode']} T{row['T']} B{row['B']}")
            kept.append(row)
            yield row


def measure(cell: str, steps: Sequence[int], rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A record per mode and point: seconds a call, the median."""
    from bench.peers import ours

    for mode in ("inference", "training"):
        points = [("T", Case(cell, T, 1, HIDDEN, HIDDEN, mode=mode)) for T in sorted(steps)]
        points += [("B", Case(cell, FIXED_T, B, HIDDEN, HIDDEN, mode=mode)) for B in sorted(rows)]
        calls = [ours.prepare(case, Data(case), 1).call for _, case in points]
        for call in calls:
            call()
        many = [repeats(call) for call in calls]
        rounds = [[measured(call, count) for call, count in zip(calls, many)] for _ in range(TIMES)]
        for (axis, case), times in zip(points, zip(*rounds)):
            yield {
                "cell": cell,
                "mode": mode,
                "axis": axis,
                "T": case.T,
                "B": case.B,
                "H": HIDDEN,
                "seconds": statistics.median(times),
                "all_seconds": times,
            }


def unit(row: dict[str, Any]) -> float:
    """Seconds per step, or per row."""
    return row["seconds"] / row[row["axis"]]


def saturated(rows: Sequence[dict[str, Any]]) -> int:
    """The place of the first point near the least time per unit."""
    least = min(map(unit, rows))
    return next(k for k, r in enumerate(rows) if unit(r) <= least * (1 + LINEAR))


def deviation(rows: Sequence[dict[str, Any]]) -> float:
    """The largest change of the time per unit from one point to the next, as a fraction."""
    return max((abs(unit(b) / unit(a) - 1) for a, b in pairwise(rows)), default=0.0)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    parts = [
        machine.line(report),
        (
            f"H = D = {HIDDEN}, one thread, float32. Linear: the time per unit changes by at most {100 * LINEAR:.0f} % "
            "from each point to the next; over B from where the machine is saturated."
        ),
    ]
    for (mode, axis), rows in groups(report["rows"], "mode", "axis").items():
        reference = next((r for r in rows if r["T"] == REFERENCE), rows[0]) if axis == "T" else rows[-1]
        head = [
            axis,
            "ms",
            f"us per {'step' if axis == 'T' else f'row of {FIXED_T} steps'}",
            f"of {axis} = {reference[axis]}",
            "to the point before",
        ]
        before = [None, *rows[:-1]]
        lines = [
            [
                str(r[axis]),
                milliseconds(r["seconds"]),
                f"{1e6 * unit(r):.4g}",
                f"{unit(r) / unit(reference):.2f}",
                f"{100 * (unit(r) / unit(b) - 1):+.0f} %" if b else "",
            ]
            for r, b in zip(rows, before)
        ]
        counted = rows if axis == "T" else rows[saturated(rows) :]
        worst = deviation(counted)
        where = "" if axis == "T" else f" from B = {counted[0]['B']} on"
        parts += [
            f"{'### ' if as_markdown else ''}{report['settings']['cell']}, {mode}, over {axis}",
            table(head, lines, as_markdown),
            f"Largest change{where}: {100 * worst:.0f} %, {'linear' if worst <= LINEAR else 'not linear'}.",
        ]
    return "\n\n".join(parts)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    names = {
        "T": ("steps T (B = 1)", "us per step"),
        "B": (f"rows B (T = {FIXED_T})", f"us per row of {FIXED_T} steps"),
    }
    for place, (axis, (x, y)) in zip(axes, names.items()):
        for (mode,), found in groups([r for r in rows if r["axis"] == axis], "mode").items():
            place.loglog([r[axis] for r in found], [1e6 * unit(r) for r in found], "o-", label=mode)
        place.set(xlabel=x, ylabel=y)
        place.grid(True, which="both", alpha=0.3)
        place.legend()
    figure.suptitle(f"{rows[0]['cell']}, H = D = {HIDDEN}, one thread, float32")
    figure.savefig(path, dpi=120)
    plt.close(figure)
