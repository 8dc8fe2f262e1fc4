"""`rnnspec check`: the battery over cells, their accuracy, the accuracy of functions, and random
specs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnnspec.commands.output import say
from rnnspec.commands.progress import checking
from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.load import load, spec_names


def run(args: argparse.Namespace) -> int:
    """0 passed, 1 failed; what can't be read, and options that do not go together, are errors,
    2."""
    _refuse_mixtures(args)
    if args.random is not None:
        return _random(args)
    if args.functions:
        return _functions(args)
    cells = args.cells or spec_names()
    _load_all(cells)
    return _accuracy(args, cells) if args.accuracy else _battery(args, cells)


def _refuse_mixtures(args: argparse.Namespace) -> None:
    if args.functions and not args.accuracy:
        raise RnnspecError("--functions goes with --accuracy: rnnspec check --accuracy --functions")
    if args.functions and args.cells:
        raise RnnspecError(
            "--functions measures the functions of the language, which belong to no cell: leave the cells out"
        )
    if args.random is not None and (args.cells or args.accuracy or args.json):
        raise RnnspecError("--random N makes its own cells and prints text: leave cells, --accuracy and --json out")
    if args.compiled and args.random is None:
        raise RnnspecError("--compiled K goes with --random N: rnnspec check --random 100 --compiled 5")
    if args.junit and (args.accuracy or args.random is not None):
        raise RnnspecError(
            "--junit is for the properties of cells: leave out --accuracy and --random, or use --json with --accuracy"
        )


def _battery(args: argparse.Namespace, cells: Sequence[str]) -> int:
    from rnnspec.check import check_cells

    junit = Path(args.junit) if args.junit else None
    if junit and (
        junit.is_dir() or not os.access(junit.absolute().parent, os.W_OK)
    ):  # said now, not after an hour of checks
        raise RnnspecError(f"--junit: '{junit}' can't be written. Give a file in a folder that exists.")
    with checking() as progress:
        report = check_cells(cells, progress)
    if args.json:
        say(report.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        from rnnspec.check.report import table

        Console().print(table(report))
        say(report.summary())
    else:
        say(report.to_text())
    if junit:
        from rnnspec.storage import atomic

        atomic.write(junit, report.to_junit().encode())
    return 0 if report.passed else 1


def _accuracy(args: argparse.Namespace, cells: Sequence[str]) -> int:
    from rnnspec.check.accuracy.cells import measure_cells

    return _measured(args, lambda progress: measure_cells(cells, progress=progress))


def _functions(args: argparse.Namespace) -> int:
    from rnnspec.check.accuracy.functions import measure_functions

    return _measured(args, lambda progress: measure_functions(progress=progress))


def _measured(args: argparse.Namespace, measure: Callable[[Any], Any]) -> int:
    with checking() as progress:
        report = measure(progress)
    say(report.to_json() if args.json else report.to_text())
    return 0 if getattr(report, "passed", True) else 1


def _random(args: argparse.Namespace) -> int:
    from rnnspec.check.random.run import check_random

    with checking() as progress:
        report = check_random(args.random, args.compiled or 0, args.seed, progress)
    say(report.to_text())
    return 0 if report.passed else 1


def _load_all(cells: Sequence[str]) -> None:
    """Raises one SpecError with the faults of all the cells: a bad spec is bad use (2), not a
    failed check (1)."""
    problems: list[Problem] = []
    for cell in cells:
        try:
            load(cell)
        except SpecError as error:
            problems += error.errors
    if problems:
        raise SpecError(*problems)
