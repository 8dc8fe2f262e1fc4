"""The report of a study: tables as Markdown, LaTeX and CSV, and figures, in one folder.

In: the folder of a study. Out: the paths of the files. Every number is of a run folder that the
tables name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rnnspec.storage import atomic
from rnnspec.study.errors import StudyError
from rnnspec.study.figures import write_figures
from rnnspec.study.results import Results, read_results
from rnnspec.study.statistics import TESTS
from rnnspec.study.tables import PAIRS, Table, comparison_table, summary_table, trials_table

REPORT, LATEX = "report.md", "report.tex"


@dataclass(frozen=True)
class Asked:
    """How a report is made. against: the cell that the others are compared with, None for the
    first. test: of TESTS. pairs: of PAIRS. kind: the format of the figures. importance: True,
    False, or None where scikit-learn is installed."""

    against: str | None = None
    test: str = TESTS[0]
    pairs: str = PAIRS[0]
    kind: str = "png"
    importance: bool | None = None


def write_report(folder: Path, out: Path, asked: Asked) -> list[Path]:
    """Writes the report of a study into a folder; returns the files. The study may be running: it
    is of what has ended."""
    results = read_results(folder)
    against = asked.against or results.cells[0]
    if against not in results.cells:
        raise StudyError(f"there is no cell {against!r} in the study: it has {', '.join(results.cells)}")
    tables = {
        "summary": summary_table(results),
        "comparison": comparison_table(results, against, asked.test, asked.pairs),
        "trials": trials_table(results),
    }
    out.mkdir(parents=True, exist_ok=True)
    importance = find_spec("sklearn") is not None if asked.importance is None else asked.importance
    figures = write_figures(results, out, asked.kind, importance)
    texts = {f"{name}.csv": table.csv() for name, table in tables.items()}
    texts[LATEX] = "\n\n".join(tables[name].latex() for name in ("summary", "comparison")) + "\n"
    texts[REPORT] = markdown(results, tables, figures)
    atomic.write_all({out / name: text.encode() for name, text in texts.items()})
    return [out / name for name in (*texts, *figures)]


def markdown(results: Results, tables: dict[str, Table], figures: Sequence[str]) -> str:
    """The report to read."""
    ended = sum(row.state != "RUNNING" for group in results.groups for row in group.rows)
    parts = [f"# {results.name}", f"{ended} trials ended. Folders of runs are below `{results.folder}`."]
    for name in ("summary", "comparison"):
        if tables[name].rows:
            parts += [f"## {name.capitalize()}", tables[name].caption, tables[name].markdown()]
    if figures:
        parts += ["## Figures", *(f"![{name}]({name})" for name in figures)]
    failed = [row for group in results.groups for row in group.rows if row.state == "FAIL"]
    if failed:
        lines = [f"- `{row.folder.as_posix()}`: {row.result.get('error', '')}".replace("\n", " ") for row in failed]
        parts += ["## Failed trials", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
