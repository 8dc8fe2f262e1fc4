"""What the smaller subcommands share: a report of rows from measuring processes, printed, and
written as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench import machine
from bench.spawn import ChildFailed


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")


def finish(
    kind: str,
    settings: dict[str, Any],
    rows: Iterable[dict[str, Any]],
    render: Callable[[dict[str, Any]], str],
    file: Path | None,
) -> int:
    """Measures the rows (an iterator that runs processes), prints and writes them. The exit code: 1
    where a process failed."""
    report, code = machine.describe() | {"kind": kind, "settings": settings, "rows": []}, 0
    try:
        for row in rows:
            report["rows"].append(row)
    except ChildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    finally:
        if file:
            file.write_text(json.dumps(report) + "\n")
    print(render(report))
    return code
