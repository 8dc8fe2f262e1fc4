"""`rnnspec check`: the battery over cells, their accuracy, the accuracy of functions, and random
specs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnnspec.check.report import CellReport, Report, cell_line, cell_lines
from rnnspec.commands.output import say, say_marked
from rnnspec.commands.progress import counting
from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.load import load, spec_names

STYLES = {"ok": "green", "skipped": "yellow", "FAILED": "bold red"}
IN_FULL = 3  # cells whose properties have a line each; of more there is a line for each cell


def run(args: argparse.Namespace) -> int:
    """0 passed, 1 failed; what can't be read, and options that do not go together, are errors,
    2."""
    _refuse_mixtures(args)
    if args.random is not None:
        return _random(args)
    if args.functions:
        return _functions(args)
    cells = args.cells or spec_names()
    _load_all(cells, dict(args.choice))
    return _accuracy(args, cells) if args.accuracy else _battery(args, cells)


def _refuse_mixtures(args: argparse.Namespace) -> None:
    of_properties = [o for o in ("quick", "dtype", "property", "choice") if getattr(args, o)]
    if of_properties and (args.accuracy or args.random is not None):
        raise RnnspecError(f"--{of_properties[0]} is for the properties of cells: leave out --accuracy and --random")
    if args.quick and args.dtype:
        raise RnnspecError("--quick looks at no kernel, so it has no --dtype: leave one of them out")
    if args.choice and not args.cells:
        raise RnnspecError("--choice is of a cell: give the cell, as in rnnspec check rnn --choice phi=relu")
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
    """Prints each result as it comes. Ctrl-C ends it, and what was found until then is told."""
    from rnnspec.check.run import DTYPES, check_each

    junit = _junit(args)
    shown = None if args.json else _Table(one_each=len(cells) > IN_FULL)
    reports: list[CellReport] = []
    last, stopped = None, False
    dtypes = () if args.quick else args.dtype or DTYPES
    with counting("checking") as progress:
        each = check_each(cells, progress, dtypes, properties=args.property, settings=dict(args.choice))
        try:
            for variant, results in each:
                if variant is last:
                    results = (*reports.pop().results, *results)
                last = variant
                reports.append(CellReport(variant.name, results))
                if shown is not None:
                    shown.add(reports)
        except KeyboardInterrupt:
            stopped = True
    report = Report(tuple(reports), not stopped)
    if shown is None:
        say(report.to_json())
    else:
        shown.end(reports)
        say_marked(report.summary(), STYLES)
    if junit:
        from rnnspec.storage import atomic

        atomic.write(junit, report.to_junit().encode())
    return 130 if stopped else 0 if report.passed else 1


class _Table:
    """The lines of the battery, each said when it is known. one_each: one for a cell, not for a
    property."""

    def __init__(self, one_each: bool):
        self.one_each, self.cells, self.lines = one_each, 0, 0  # how many were said, of the last cell too

    def add(self, reports: Sequence[CellReport]) -> None:
        """Says what is new in the reports, of which the last may grow."""
        if self.one_each:
            self._one_each(reports[:-1])
            return
        if len(reports) > self.cells:
            self.cells, self.lines = len(reports), 0
        lines = cell_lines(reports[-1])
        say_marked("\n".join(lines[self.lines :]), STYLES)
        self.lines = len(lines)

    def end(self, reports: Sequence[CellReport]) -> None:
        if self.one_each:
            self._one_each(reports)

    def _one_each(self, reports: Sequence[CellReport]) -> None:
        for report in reports[self.cells :]:
            say_marked("\n".join(cell_line(report)), STYLES)
        self.cells = len(reports)


def _junit(args: argparse.Namespace) -> Path | None:
    """Where the report goes as JUnit XML; what can't be written is said now, not after an hour of
    checks."""
    junit = Path(args.junit) if args.junit else None
    if junit and (junit.is_dir() or not os.access(junit.absolute().parent, os.W_OK)):
        raise RnnspecError(f"--junit: '{junit}' can't be written. Give a file in a folder that exists.")
    return junit


def _accuracy(args: argparse.Namespace, cells: Sequence[str]) -> int:
    from rnnspec.check.accuracy.cells import measure_cells

    return _measured(args, lambda progress: measure_cells(cells, progress=progress))


def _functions(args: argparse.Namespace) -> int:
    from rnnspec.check.accuracy.functions import measure_functions

    return _measured(args, lambda progress: measure_functions(progress=progress))


def _measured(args: argparse.Namespace, measure: Callable[[Any], Any]) -> int:
    with counting("measuring") as progress:
        report = measure(progress)
    say(report.to_json() if args.json else report.to_text())
    return 0 if getattr(report, "passed", True) else 1


def _random(args: argparse.Namespace) -> int:
    from rnnspec.check.random.run import check_random

    with counting("checking random cells") as progress:
        report = check_random(args.random, args.compiled or 0, args.seed, progress)
    say(report.to_text())
    return 0 if report.passed else 1


def _load_all(cells: Sequence[str], settings: Mapping[str, str | float]) -> None:
    """Raises one SpecError with the faults of all the cells: a bad spec is bad use (2), not a
    failed check (1)."""
    problems: list[Problem] = []
    for cell in cells:
        try:
            load(cell, **settings)
        except SpecError as error:
            problems += error.errors
    if problems:
        raise SpecError(*problems)
