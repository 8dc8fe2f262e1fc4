"""rnnspec against other libraries on the same work: `python -m bench compare`.

One process per number of threads and dtype, bound to as many processors; in it each row is measured
in alternating pairs of wall-clock times (their time over ours: above 1 we are faster; the median of
the pairs), after the values were compared. Weights count as changed at every training step, so that
packing them is part of the time; inference and single steps use weights packed once. GFLOP/s count
the matrix products alone, three times in training; the peak of one core is measured beside each
row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import goals, machine, peers
from bench.case import CELLS, MODES, SHAPES, Case, cases
from bench.progress import progress
from bench.spawn import ChildFailed, processors, records
from bench.tables import groups
from bench.timing import LEAST

EXAMPLE = "python -m bench compare lstm gru --shape 128,32,256 --threads 1 --mode training --peers torch,jax"
QUICK = {
    "cells": ["lstm", "gru", "rnn"],
    "shape": [(128, 32, 256)],
    "threads": [1],
    "dtype": ["float32"],
    "mode": ["inference", "training"],
    "peers": ["torch"],
}
FULL = {
    "cells": list(CELLS),
    "shape": list(SHAPES),
    "threads": [1, 2],
    "dtype": ["float32"],
    "mode": list(MODES),
    "peers": list(peers.NAMES),
}
IN_FLOAT64 = ("torch", "jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)} (all)")
    parser.add_argument("--shape", type=shape, nargs="+", metavar="T,B,D", help="steps, rows, and features = units")
    parser.add_argument("--threads", type=positive, nargs="+", metavar="N", help="numbers of threads (1 2)")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "float64"), help="(float32)")
    parser.add_argument("--mode", nargs="+", choices=MODES, help="(all three)")
    parser.add_argument("--pairs", type=positive, default=5, help="alternating measurements of each pair (5)")
    parser.add_argument(
        "--least",
        type=float,
        default=LEAST,
        metavar="SECONDS",
        help="short work is repeated for so long in one measurement (%(default)s)",
    )
    parser.add_argument(
        "--peers",
        type=peer_names,
        metavar="NAME,...",
        help=f"of {','.join(peers.NAMES)} (all that are installed; jax unasked only for cells that torch.nn has not)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables and the goals there")
    parser.add_argument("--quick", action="store_true", help="lstm, gru, rnn at 128,32,256, one thread, against torch")


def shape(text: str) -> tuple[int, int, int]:
    try:
        T, B, D = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape T,B,D such as 128,32,256") from None
    if min(T, B, D) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: sizes are at least 1")
    return T, B, D


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def peer_names(text: str) -> list[str]:
    names = [n for n in text.split(",") if n]
    if unknown := [n for n in names if n not in peers.NAMES]:
        raise argparse.ArgumentTypeError(f"unknown peer {', '.join(unknown)}; there are {', '.join(peers.NAMES)}")
    return names


def main(args: argparse.Namespace) -> int:
    settings = {name: getattr(args, name) or default for name, default in (QUICK if args.quick else FULL).items()}
    if unknown := [c for c in settings["cells"] if c not in CELLS]:
        print(f"unknown cell {', '.join(unknown)}; there are {', '.join(CELLS)}", file=sys.stderr)
        return 2
    settings |= {
        "sparing": not args.peers,
        "pairs": args.pairs,
        "least": args.least,
        "peers": installed(settings["peers"]),
    }
    for threads in settings["threads"]:
        if len(processors(threads)) < threads:
            print(
                f"warning: {threads} threads on {len(processors(threads))} processors: these times say nothing",
                file=sys.stderr,
            )
    report = machine.describe() | {"kind": "compare", "settings": settings, "rows": []}
    failures: list[str] = []
    try:
        for row in rows(settings, failures):
            report["rows"].append(row)
    finally:  # what was measured is kept when the rest is interrupted
        if args.json:
            args.json.write_text(json.dumps(report, indent=None) + "\n")
    print(render(report))
    if args.markdown:
        args.markdown.write_text(render(report, as_markdown=True) + "\n")
    failures += wrong(report["rows"])
    for text in failures:
        print(f"error: {text}", file=sys.stderr)
    return 1 if failures else 0


def installed(names: Sequence[str]) -> list[str]:
    for name in names:
        if absent := peers.missing(name):
            print(f"{name} is left out: {', '.join(absent)} not installed (pip install '.[bench]')", file=sys.stderr)
    return [n for n in names if not peers.missing(n)]


def rows(settings: dict[str, Any], failures: list[str]) -> Iterator[dict[str, Any]]:
    """Measured rows, process by process; one that dies loses its own rows only."""
    work = [
        (threads, dtype, cases(settings["cells"], settings["shape"], dtype, settings["mode"]))
        for dtype in settings["dtype"]
        for threads in settings["threads"]
    ]
    with progress(sum(len(todo) for *_, todo in work)) as done:
        for threads, dtype, todo in work:
            names = [n for n in settings["peers"] if dtype == "float32" or n in IN_FLOAT64]
            arguments = {
                "cases": [asdict(c) for c in todo],
                "names": names,
                "threads": threads,
                "count": settings["pairs"],
                "least": settings["least"],
                "sparing": settings["sparing"] and dtype == "float32",
            }
            try:
                for row in records("bench.rows:measure", arguments, threads):
                    done(f"{threads} thread{'s' * (threads > 1)}, {Case(**{f: row[f] for f in asdict(todo[0])})}")
                    yield row
            except ChildFailed as error:
                failures.append(f"{threads} threads, {dtype}: {error}")


def wrong(measured: Sequence[dict[str, Any]]) -> list[str]:
    """What failed, our own errors and the peers' mismatches among it."""
    return [f"{goals.label(r)}: {r['error']}" for r in measured if "error" in r] + goals.uncounted(measured)


def render(report: dict[str, Any], as_markdown: bool = False, with_goals: bool = True) -> str:
    """The tables, one per number of threads, dtype and mode, what failed or was too slow, and the
    goals."""
    mark = "### " if as_markdown else ""
    parts = [
        machine.line(report),
        (
            "Columns of peers: their time over ours, the median of alternating pairs. of peak: of the multiply-add peak"
            " of one core times the threads. odd: our time per useful FLOP over that at the next multiple of the lanes."
        ),
    ]
    for (threads, dtype, mode), found in groups(report["rows"], "threads", "dtype", "mode").items():
        parts.append(f"{mark}{mode}, {threads} thread{'s' * (threads > 1)}, {dtype}")
        parts.append(goals.row_table(found, peers.NAMES, as_markdown))
    slow = [
        f"{goals.label(r)}: {n} not measured, {p['skipped']}"
        for r in report["rows"]
        for n, p in r["peers"].items()
        if "skipped" in p
    ]
    if notes := wrong(report["rows"]) + slow:
        parts.append("\n".join(f"- {text}" for text in notes))
    if with_goals:
        parts += [f"{mark}Goals", goals.summary(report["rows"], as_markdown)]
    return "\n\n".join(parts)
