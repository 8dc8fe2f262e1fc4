"""Seconds to the first result of a cell, forward and backward, in a fresh process with an empty
cache: in all, and by part.

What runs is what a user writes: rnnspec.Recurrent(cell, 8, 16), a call, a gradient. The parts are
in seconds of the processor, which other work on the machine changes least; the whole also by the
clock. With --against, another version's folder takes turns with this one, round by round, in one
run. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import ROOT, ChildFailed, environment, processors
from bench.tables import table

EXAMPLE = "python -m bench compile lstm gru --against ../before"
CHILD = Path(__file__).with_name("compile_parts.py")
WHOLE = {"clock": "in all, by the clock", "processor": "in all"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", default=["lstm"], metavar="CELL", help="whose input is x [D] (lstm)")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="of another version: where its rnnspec/ lies")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="cold processes of each version (5)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    folders = {"this": ROOT}
    if args.against is not None:
        if not (args.against / "rnnspec" / "__init__.py").is_file():
            print(f"--against {args.against}: there is no rnnspec/ in it", file=sys.stderr)
            return 2
        folders = {"before": args.against.resolve(), **folders}
    settings = {"cells": args.cells, "rounds": max(1, args.rounds), "versions": list(folders)}
    return finish("compile", settings, _rows(args.cells, folders, max(1, args.rounds)), render, args.json)


def _rows(cells: list[str], folders: dict[str, Path], rounds: int) -> Iterator[dict[str, Any]]:
    for folder in folders.values():  # Python's own files, not measured
        subprocess.run([sys.executable, "-m", "compileall", "-q", os.fspath(folder / "rnnspec")], check=True)
    with progress(len(cells) * rounds * len(folders)) as done:
        for cell in cells:
            runs: dict[str, list[dict[str, Any]]] = {version: [] for version in folders}
            for number in range(rounds):
                for version, folder in folders.items():
                    runs[version].append(once(cell, folder))
                    done(f"{cell}, {version}, round {number + 1}")
            yield {"cell": cell, "runs": runs}


def once(cell: str, folder: Path) -> dict[str, Any]:
    """Seconds of one fresh process that has the version of a folder and an empty cache."""
    with tempfile.TemporaryDirectory(prefix="rnnspec-bench-") as cache:
        own = {"PYTHONPATH": os.fspath(folder), "RNNSPEC_CACHE_DIR": cache}
        start = time.monotonic()  # one clock for all processes of the machine
        done = subprocess.run(
            [sys.executable, "-c", CHILD.read_text(), json.dumps([cell, processors(1)])],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(1) | own,
        )
    if done.returncode:
        raise ChildFailed(f"{cell} with the rnnspec of {folder} ended with exit code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"clock": found["end"] - start, "processor": found["processor"], "parts": found["parts"]}


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The whole, and each part of some runs, the dearest first."""
    whole = {text: statistics.median(run[key] for run in runs) for key, text in WHOLE.items()}
    parts = {
        name: statistics.median(run["parts"].get(name, 0.0) for run in runs) for run in runs for name in run["parts"]
    }
    return whole | dict(sorted(parts.items(), key=lambda pair: -pair[1]))


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    versions = report["settings"]["versions"]
    compared = len(versions) == 2
    head = ["", "", *([f"{v} s" for v in versions] if compared else ["s"]), *(["before / this"] if compared else [])]
    lines = []
    for row in report["rows"]:
        found = {version: medians(row["runs"][version]) for version in versions}
        for part in dict.fromkeys(name for each in found.values() for name in each):
            seconds = [found[version].get(part, 0.0) for version in versions]
            if max(seconds) < 0.005:
                continue
            ratio = [f"{seconds[0] / seconds[1]:.2f}" if seconds[1] else ""] if compared else []
            lines.append([row["cell"], part, *(f"{s:.2f}" for s in seconds), *ratio])
    about = (
        f"The first result of a fresh process with an empty cache, forward and backward, float32, one thread; medians"
        f" of {report['settings']['rounds']}. Seconds of the processor, but where the clock is named."
    )
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
