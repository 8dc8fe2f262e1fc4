"""What a check found: plain data, and its texts."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from rnnspec.errors import visible
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
    cells: tuple[CellReport, ...]

    @property
    def passed(self) -> bool:
        return all(cell.passed for cell in self.cells)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON: numbers that are not finite are text."""
        cells = [
            {"name": c.name, "passed": c.passed, "results": [_plain(asdict(r)) for r in c.results]} for c in self.cells
        ]
        return {"passed": self.passed, "cells": cells}

    def to_json(self) -> str:
        return json_text(self.to_dict())

    def to_text(self) -> str:
        """A table of all properties, one line each; then what failed, in full."""
        return "\n".join([*(line for cell in self.cells for line in _cell_lines(cell)), self.summary()])

    def failures(self) -> list[tuple[str, Result]]:
        return [(cell.name, r) for cell in self.cells for r in cell.results if not r.passed]

    def summary(self) -> str:
        """How many passed, and what failed, in full."""
        results = [r for cell in self.cells for r in cell.results]
        skipped, failed = sum(r.skipped for r in results), len(self.failures())
        passed = len(results) - skipped - failed
        lines = [f"{passed} passed, {failed} failed, {skipped} skipped, in {sum(r.seconds for r in results):.0f} s"]
        return "\n".join(lines + [failure_text(name, r) for name, r in self.failures()])

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


def table(report: Report) -> Any:
    """The report as a rich Table."""
    from rich.table import Table
    from rich.text import Text

    made = Table("cell", "property", "dtype", "", "error of tolerance", "detail")
    styles = {"ok": "green", "skipped": "yellow", "FAILED": "bold red"}
    for cell in report.cells:
        for number, r in enumerate(cell.results):
            word = status(r)
            made.add_row(
                Text("" if number else visible(cell.name)),
                r.property,
                r.dtype,
                Text(word, styles[word]),
                numbers(r),
                Text(visible(r.detail)),
            )
    return made


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v if not isinstance(v, float) or abs(v) < float("inf") else str(v) for k, v in values.items()}


def _cell_lines(cell: CellReport) -> list[str]:
    lines = [cell.name]
    for r in cell.results:
        first = next(iter(r.detail.splitlines()), "")
        shown = first if len(first) <= 100 else first[:99] + "…"
        lines.append(
            f"  {status(r):<8}{r.property:<26}{r.dtype:<10}{numbers(r):<18}{r.seconds:6.1f} s  {shown}".rstrip()
        )
    return lines
