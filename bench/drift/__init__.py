"""Cells beside other people's implementations of them: outputs, final states and all gradients,
with the same weights, inputs and initial states, in float64 where the package can.

For each package that is installed; the others are named. A difference that the adapter explains is
printed with its reason; one that nothing explains, and a reason that no longer holds, make the exit
code 1. Adapters: bench/drift/packages/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import machine
from bench.drift.comparison import names
from bench.progress import progress
from bench.spawn import ChildFailed, records
from bench.tables import table

EXAMPLE = "python -m bench drift --packages torch flax --cells lstm gru"
HEAD = ("cell", "package", "theirs", "result", "values", "gradients", "why")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--packages", nargs="+", metavar="NAME", choices=names(), help=f"of {', '.join(names())}")
    parser.add_argument("--cells", nargs="+", metavar="CELL", default=[], help="these cells alone")
    parser.add_argument("--reference", action="store_true", help="ours is the definition, not compiled kernels")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there: .json every number, .md the table")


def main(args: argparse.Namespace) -> int:
    import rnnspec

    if unknown := sorted(set(args.cells) - set(rnnspec.spec_names())):
        print(f"unknown cell {', '.join(unknown)}; `rnnspec list` has them", file=sys.stderr)
        return 2
    if args.out and args.out.suffix not in (".json", ".md"):
        print(f"--out {args.out.name}: it ends in .json or .md", file=sys.stderr)
        return 2
    rows = list(_rows(args.packages or names(), args.cells, args.reference))
    report = machine.describe() | {"kind": "drift", "reference": args.reference, "rows": rows}
    if args.out:
        args.out.write_text(
            json.dumps(report, indent=1) + "\n" if args.out.suffix == ".json" else render(report, as_markdown=True)
        )
    print(render(report), end="")
    return 1 if any(map(wrong, rows)) else 0


def _rows(packages: Sequence[str], cells: Sequence[str], reference: bool) -> Iterator[dict[str, Any]]:
    with progress(len(packages)) as done:
        for package in packages:
            arguments = {"package": package, "cells": list(cells), "reference": reference}
            try:
                yield from records("bench.drift.measure:measure", arguments, 2)
            except ChildFailed as error:
                yield {"package": package, "adapter": package, "broken": str(error)}
            done(package)


def wrong(row: dict[str, Any]) -> str:
    """What makes the command fail, in words; empty where nothing does."""
    if "broken" in row:
        return str(row["broken"])
    if "verdict" not in row:  # not installed, or not to be imported here
        return ""
    if row["verdict"] == row["expected"]:
        return ""
    if row["verdict"] == "failed":
        return f"failed: {row['error']}"
    if row["differs"]:
        return f"{row['verdict']}, where {row['expected']} was expected ({row['differs']})"
    return f"unexplained: {row['where']}"


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    """The table, what was not installed, and the counts."""
    rows = [r for r in report["rows"] if "verdict" in r]
    shown = sorted(rows, key=lambda r: (r["cell"], r["package"], r["theirs"]))
    lines = [table(HEAD, [_shown(r) for r in shown], as_markdown)] if rows else []
    absent = sorted(r["package"] for r in report["rows"] if "not_installed" in r)
    lines += ["", f"not installed: {', '.join(absent)}"] if absent else []
    lines += [f"not run: {r['package']} {r['version']}, {r['not_run']}" for r in report["rows"] if "not_run" in r]
    counts = {
        verdict: sum(r["verdict"] == verdict for r in rows) for verdict in ("equal", "gradients differ", "different")
    }
    packages = {r["package"] for r in rows}
    ours = "the definition in float64" if report["reference"] else "kernels in float64"
    lines += [
        "",
        f"{len(rows)} comparisons of {len({r['cell'] for r in rows})} cells with {len(packages)} packages:"
        f" {', '.join(f'{n} {what}' for what, n in counts.items())}; ours: {ours}",
        "",
        machine.line(report),
    ]
    faults = [f"{r.get('cell', '')} {r['package']}: {what}".lstrip() for r in report["rows"] if (what := wrong(r))]
    lines += ["", *(f"WRONG {fault}" for fault in faults)] if faults else []
    return "\n".join(lines) + "\n"


def _shown(row: dict[str, Any]) -> list[str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1e}"

    name = f"{row['package']} {row['version']}" + (" (float32)" if row["dtype"] == "float32" else "")
    numbers = [number(row.get("values")), number(row.get("gradients"))]
    return [row["cell"], name, row["theirs"], row["verdict"], *numbers, wrong(row) or row["differs"]]
