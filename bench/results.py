"""Writes bench/results.md from the JSON files that the other subcommands wrote: dated, the machine
named, the goals first.

Rows of `compare` from several files count together (a later file's row replaces an earlier one's),
so that float64 or a second half of the cells may be measured on its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from bench import goals
from bench.spawn import ROOT

EXAMPLE = "python -m bench compare --json full.json; python -m bench results full.json"
TITLES = {
    "compare": "Against other libraries",
    "memory": "Memory",
    "build": "Building and starting",
    "compile": "From an empty cache",
    "scaling": "Scaling",
    "tiles": "Products",
    "cells": "All cells",
    "gates": "What gates cost and bring",
    "layers": "Layers in PyTorch",
    "small": "Small calls",
    "threads": "Threads taken without being asked",
    "export": "Exported C",
    "by_row": "Gradients by row",
    "ltc": "LTC beside ncps",
    "adbench": "ADBench's LSTM",
    "derivatives": "Derivatives",
    "dynamics": "Exponents and fixed points",
    "online": "Learning step by step",
    "onnx_scan": "Cells without an operator of ONNX",
}
ROW = ("cell", "T", "B", "D", "H", "dtype", "mode", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="what compare, memory, build, scaling, cells wrote with --json",
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "bench" / "results.md", metavar="FILE", help="(bench/results.md)"
    )


def main(args: argparse.Namespace) -> int:
    try:
        reports = [json.loads(path.read_text()) for path in args.files]
    except (OSError, ValueError) as error:
        print(f"can't read a report: {error}", file=sys.stderr)
        return 2
    if bad := [
        path.name
        for path, report in zip(args.files, reports)
        if not isinstance(report, dict) or report.get("kind") not in TITLES
    ]:
        print(f"not written by python -m bench: {', '.join(bad)}", file=sys.stderr)
        return 2
    args.output.write_text(document(reports, [path.name for path in args.files]))
    return 0


def document(reports: list[dict[str, Any]], names: list[str]) -> str:
    """The whole of results.md."""
    parts = [
        "# Measured",
        (
            f"Written by `python -m bench results {' '.join(names)}`, not by hand; each file by the command named in"
            f" its section. Times are wall-clock times. Newest measurement: {max(r['date'] for r in reports)} UTC."
        ),
    ]
    if rows := merged([r for r in reports if r["kind"] == "compare"]):
        machines = {r["machine"]["cpu"] for r in reports if r["kind"] == "compare"}
        parts += [
            "## Goals",
            f"On {' and, in other rows, '.join(sorted(machines))}.",
            goals.summary(rows, as_markdown=True),
        ]
    for report in reports:
        parts += [f"## {TITLES[report['kind']]}", f"`{report['command']}`"]
        parts.append(
            importlib.import_module(f"bench.{report['kind']}").render(
                report, as_markdown=True, **_without_goals(report)
            )
        )
    return "\n\n".join(parts) + "\n"


def merged(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all reports, the later ones' where several have one."""
    return list({tuple(row[f] for f in ROW): row for report in reports for row in report["rows"]}.values())


def _without_goals(report: dict[str, Any]) -> dict[str, bool]:
    return {"with_goals": False} if report["kind"] == "compare" else {}
