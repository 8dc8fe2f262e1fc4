"""The tables of a study's report, as Markdown, LaTeX and CSV.

In: Results. Out: a `Table` of texts, and the lines of a file in each format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from rnnspec.study.plan import key
from rnnspec.study.results import GroupResults, Results, Row, scores
from rnnspec.study.statistics import deviation, holm, paired_test

NOTHING = "-"
PAIRS = ("seeds", "points")


@dataclass(frozen=True)
class Table:
    """A table. columns: their names. rows: their values; None is nothing. caption: a sentence."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *([cell_text(v) for v in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(str(v).replace('|', chr(92) + '|') for v in line)} |" for line in lines)

    def latex(self) -> str:
        head = " & ".join(map(escaped, self.columns))
        body = [" & ".join(escaped(cell_text(v)) for v in row) + r" \\" for row in self.rows]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{escaped(self.caption)}}}",
                rf"\begin{{tabular}}{{{'l' * len(self.columns)}}}",
                rf"\hline {head} \\ \hline",
                *body,
                r"\hline",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def csv(self) -> str:
        """Numbers in full."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if v is None else v for v in row] for row in self.rows])
        return out.getvalue()


def cell_text(value: Any) -> str:
    match value:
        case None:
            return NOTHING
        case float():
            return f"{value:.4g}"
        case int():
            return f"{value:,}"
    return str(value)


def escaped(text: str) -> str:
    """A text for LaTeX."""
    marks = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(marks.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def point_text(row: Row) -> str:
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.point.items())


def runs_text(rows: Sequence[Row]) -> str:
    """The run folders of trials: "runs/gru/adding/3, 7"."""
    return f"{rows[0].folder.parent.as_posix()}/{', '.join(str(row.number) for row in rows)}" if rows else ""


def summary_table(results: Results) -> Table:
    """A row for each cell on each task: its best point over its seeds."""
    columns = (
        *("task", "cell", "trials", "failed", "best point", "seeds", "mean", "deviation", "median", "best"),
        *("parameters", "FLOP a step", "seconds", "runs"),
    )
    return Table(
        columns,
        tuple(_summary(results, group) for group in results.groups),
        "Scores on held-out data of each cell's best point, over its seeds: mean, standard deviation, median and best."
        f" {units_text(results)} Trials and failed count all points. FLOP are of a step of a row of the recurrent"
        " layers; seconds are of training, the mean.",
    )


def units_text(results: Results) -> str:
    """What the scores of each task are."""
    parts = []
    for task in results.tasks:
        metric = results.of_task(task)[0].metric
        parts.append(f"{task}: {metric.name} ({metric.unit}), {metric.direction} is better")
    return "; ".join(parts) + "."


def _summary(results: Results, group: GroupResults) -> tuple[Any, ...]:
    rows, values = group.best, scores(group.best)
    ended = (len(group.rows), sum(row.state == "FAIL" for row in group.rows))
    if not rows:
        return (group.task, group.cell, *ended, *[None] * 10)
    best = min(values) if group.metric.less else max(values)
    return (
        *(group.task, group.cell, *ended, point_text(rows[0]) or NOTHING, len(rows)),
        *(fmean(values), deviation(values), median(values), best),
        *(rows[0].result.get("parameters"), results.flop(rows[0])),
        *(fmean(float(row.result.get("seconds", 0.0)) for row in rows), runs_text(rows)),
    )


def comparison_table(results: Results, against: str, test: str, pairs: str) -> Table:
    """Each cell beside the one it is compared with, on each task, with Holm's correction over the
    whole table."""
    rows: list[tuple[Any, ...]] = []
    for task in results.tasks:
        groups = {group.cell: group for group in results.of_task(task)}
        for cell, group in groups.items():
            if cell != against and against in groups:
                found = differences(group, groups[against], pairs)
                mean = fmean(found) if found else None
                rows.append((task, cell, len(found), mean, paired_test(found, test)))
    corrected = holm([row[-1] for row in rows])
    what = "its best point with the same seeds" if pairs == "seeds" else "the same points with the same seeds"
    return Table(
        ("task", "cell", "pairs", "mean difference", "p", "p (Holm)"),
        tuple((*row, p) for row, p in zip(rows, corrected)),
        f"Each cell against {against}: score minus that of {against}, each pair {what}. {test.capitalize()} test,"
        f" two-sided; p (Holm) is corrected for the {sum(p is not None for p in corrected)} tests of the table.",
    )


def differences(group: GroupResults, other: GroupResults, pairs: str) -> list[float]:
    """Scores of one minus those of the other, pair by pair."""

    def scored(of: GroupResults) -> dict[str, float]:
        rows: Iterable[Row] = of.best if pairs == "seeds" else of.complete
        names = ((str(r.seed) if pairs == "seeds" else key(r.point, r.seed), r.score) for r in rows)
        return {name: score for name, score in names if score is not None}

    mine, theirs = scored(group), scored(other)
    return [mine[name] - theirs[name] for name in mine if name in theirs]


def trials_table(results: Results) -> Table:
    """Every trial: its point, its score, and the folder that these are from."""
    names = list(dict.fromkeys(name for group in results.groups for row in group.rows for name in row.point))
    return Table(
        ("task", "cell", "number", "seed", *names, "state", "score", "step", "seconds", "parameters", "error", "run"),
        tuple(_trial(row, names) for group in results.groups for row in group.rows),
        "Every trial.",
    )


def _trial(row: Row, names: list[str]) -> tuple[Any, ...]:
    result = (row.result.get(name) for name in ("step", "seconds", "parameters", "error"))
    return (
        *(row.task, row.cell, row.number, row.seed, *(row.point.get(name) for name in names)),
        *(row.state, row.score, *result, row.folder.as_posix()),
    )
