"""What a check found: plain data, and its texts."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rnnspec.check.tolerances import REFERENCE
from rnnspec.storage.jsontext import json_text


@dataclass(frozen=True)
class Result:
    """One property of one cell. measured and tolerance: relative errors, None where the property is
    a yes or no. skipped: not applicable, `detail` says why; a skipped property counts as passed.
    repeat: of a failure, Python that repeats the smallest case that was found to fail."""

    property: str
    dtype: str
    passed: bool
    measured: float | None
    tolerance: float | None
    detail: str
    seconds: float
    skipped: bool = False
    repeat: str = ""


@dataclass(frozen=True)
class CellReport:
    """name: the cell and its choices, as in "rnn (phi=relu)"."""

    name: str
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        return all(r.passed for r in self.results)


@dataclass(frozen=True)
class Report:
    """complete: whether all that was asked for is in it; a check may have been stopped."""

    cells: tuple[CellReport, ...]
    complete: bool = True

    @property
    def passed(self) -> bool:
        return all(cell.passed for cell in self.cells)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON: numbers that are not finite are text."""
        cells = [
            {"name": c.name, "passed": c.passed, "results": [_plain(asdict(r)) for r in c.results]} for c in self.cells
        ]
        return {"passed": self.passed, "complete": self.complete, "cells": cells}

    def to_json(self) -> str:
        return json_text(self.to_dict())

    def to_text(self) -> str:
        """A table of all properties, one line each; then what failed, in full."""
        return "\n".join([*(line for cell in self.cells for line in cell_lines(cell)), self.summary()])

    def failures(self) -> list[tuple[str, Result]]:
        return [(cell.name, r) for cell in self.cells for r in cell.results if not r.passed]

    def summary(self) -> str:
        """What failed, in full; why others were skipped; how many passed."""
        results = [r for cell in self.cells for r in cell.results]
        skipped, failed = sum(r.skipped for r in results), len(self.failures())
        passed = len(results) - skipped - failed
        counts = f"{passed} passed, {failed} failed, {skipped} skipped, in {sum(r.seconds for r in results):.0f} s"
        rest = "" if self.complete else "; stopped before all was checked"
        return "\n".join([*(failure_text(name, r) for name, r in self.failures()), *_reasons(results), counts + rest])

    def to_junit(self) -> str:
        """The report as JUnit XML: a test suite for each cell, a test case for each property."""
        from xml.etree import ElementTree

        root = ElementTree.Element("testsuites")
        for cell in self.cells:
            counts = {
                "tests": len(cell.results),
                "failures": sum(not r.passed for r in cell.results),
                "skipped": sum(r.skipped for r in cell.results),
            }
            about = {"name": cell.name, "time": f"{sum(r.seconds for r in cell.results):.3f}"} | {
                k: str(v) for k, v in counts.items()
            }
            suite = ElementTree.SubElement(root, "testsuite", about)
            for r in cell.results:
                case = ElementTree.SubElement(
                    suite, "testcase", classname=cell.name, name=f"{r.property}[{r.dtype}]", time=f"{r.seconds:.3f}"
                )
                if r.skipped:
                    ElementTree.SubElement(case, "skipped", message=_printable(r.detail))
                elif not r.passed:
                    ElementTree.SubElement(case, "failure", message=_printable(r.detail)).text = _printable(
                        f"{r.detail}\n\n{r.repeat}"
                    )
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def failure_text(name: str, result: Result) -> str:
    """What failed, and how to repeat it."""
    text = f"FAILED {name}, {result.property}, {result.dtype}: {result.detail}"
    return text + (
        "\n\n" + "\n".join(f"    {line}".rstrip() for line in result.repeat.splitlines()) + "\n"
        if result.repeat
        else ""
    )


def _printable(text: str) -> str:
    """The text with a ? for every character that XML can't hold."""
    return re.sub("[^\\n\\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def status(result: Result) -> str:
    return "skipped" if result.skipped else "ok" if result.passed else "FAILED"


def numbers(result: Result) -> str:
    """ "3.1e-13 of 1e-09", "exact", or nothing: what is not finite stands in the detail."""
    if result.measured is None or result.tolerance is None or not math.isfinite(result.measured):
        return ""
    if result.measured == 0 and result.tolerance == 0:
        return "exact"
    return f"{result.measured:.1e} of {result.tolerance:.0e}"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v if not isinstance(v, float) or abs(v) < float("inf") else str(v) for k, v in values.items()}


# --- lines of at most 80 columns ---

WIDTH = 80
_NAME, _VALUE = 26, 24


def cell_lines(cell: CellReport) -> list[str]:
    """The table of one cell: a line for each property, a column for each dtype."""
    lines, kernels = [cell.name], False
    for _, group in groupby(cell.results, lambda r: (r.property, r.dtype == REFERENCE)):
        results = tuple(group)
        if results[0].dtype != REFERENCE and not kernels:
            kernels = True
            lines.append(kernel_head([r.dtype for r in results]))
        lines += property_lines(results)
    return lines


def kernel_head(dtypes: Sequence[str]) -> str:
    """The head of the columns of kernels."""
    return ("  kernels".ljust(_NAME) + "".join(d.ljust(_VALUE) for d in dtypes)).rstrip()


def property_lines(results: Sequence[Result]) -> list[str]:
    """One property in all dtypes: whether it holds, the error and what is allowed; below it, where
    it does not hold."""
    values = "".join(f"{f'{status(r):<8}{numbers(r)}':<{_VALUE - 1}} " for r in results)
    below = [f"    {r.dtype}: {_first_line(r.detail)}" for r in results if not r.passed]
    return [f"  {results[0].property}".ljust(_NAME) + values.rstrip(), *(shortened(line) for line in below)]


def cell_line(cell: CellReport) -> list[str]:
    """One cell: how many properties hold, and below it those that do not."""
    skipped, failed = sum(r.skipped for r in cell.results), sum(not r.passed for r in cell.results)
    passed, seconds = len(cell.results) - skipped - failed, sum(r.seconds for r in cell.results)
    counts = f"{passed:>4} passed {skipped:>4} skipped" + f" {failed:>4} FAILED" * (failed > 0)
    below = [f"  {r.property}, {r.dtype}: {_first_line(r.detail)}" for r in cell.results if not r.passed]
    return [f"{shortened(cell.name, 34):<34}{counts}  {seconds:6.1f} s", *(shortened(line) for line in below)]


def shortened(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def _reasons(results: Sequence[Result]) -> list[str]:
    """Why properties were skipped: each reason once, with the properties."""
    found: dict[str, list[Result]] = {}
    for r in results:
        if r.skipped:
            found.setdefault(r.detail, []).append(r)
    lines = []
    for reason, those in found.items():
        names = ", ".join(dict.fromkeys(r.property for r in those))
        lines += textwrap.wrap(
            f"{len(those)} skipped ({names}): {reason}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
    return lines
