"""The figures of a study's report.

In: Results. Out: a figure file each; matplotlib is imported when one is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.show.figure import INK, QUIET, dress, new_figure, save, whole_numbers
from rnnspec.study.errors import StudyError
from rnnspec.study.needed import needed
from rnnspec.study.results import GroupResults, Results, scores

COLOURS = (
    *("#4c78a8", "#e4572e", "#54a24b", "#b279a2", "#eeca3b", "#72b7b2", "#9d755d", "#ff9da6", "#79706e", "#2f4b7c"),
    *("#a05195", "#665191", "#003f5c", "#ffa600", "#488f31"),
)
CURVES, BOXES, PARALLEL, IMPORTANCE = "curves", "boxes", "parallel", "importance"
FAR = 6.0  # of a box: what is farther is drawn at the edge
LEAST = 5  # trials that an importance is computed from


def write_figures(results: Results, out: Path, kind: str, importance: bool) -> list[str]:
    """Draws what there are trials for into a folder; returns the names of the files."""
    made = []
    for task in results.tasks:
        groups = [group for group in results.of_task(task) if group.complete]
        if not groups:
            continue
        drawn = {CURVES: curves(results, groups), BOXES: boxes(groups)}
        if any(len(row.point) for group in groups for row in group.complete):
            drawn[PARALLEL] = parallel(groups)
        if importance and (found := importances(groups)):
            drawn[IMPORTANCE] = bars(task, found)
        for name, figure in drawn.items():
            made.append(f"{name}-{task}.{kind}")
            save(figure, out / made[-1])
    return made


def curves(results: Results, groups: Sequence[GroupResults]) -> Any:
    """Held-out scores of each cell's best point while it was trained: the median of its seeds, and
    a band from the worst to the best."""
    figure = new_figure((8, 4.6))
    axes = figure.add_subplot()
    for group, colour in zip(groups, _colours(groups)):
        steps, values = _together([dict(results.curve(row)) for row in group.best])
        axes.plot(steps, np.median(values, axis=0), color=colour, label=group.cell)
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    whole_numbers(axes.xaxis)
    metric = groups[0].metric
    dress(axes, f"{groups[0].task}: best points, median and range of seeds", "training step", metric.unit)
    return figure


def _together(runs: Sequence[Mapping[int, float]]) -> tuple[list[int], np.ndarray]:
    """The steps that all runs were looked at, and the scores there, [run, step]."""
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    return steps, np.array([[run[step] for step in steps] for run in runs])


def boxes(groups: Sequence[GroupResults]) -> Any:
    """The scores of all trials of each cell that ended well: quartiles, whiskers at 1.5 times their
    distance, and every trial as a point. Trials far from all others, as those that diverged, are
    triangles at the edge, with their number, so that the rest can be told apart."""
    figure = new_figure((max(5.0, 0.8 * len(groups) + 2), 4.6))
    axes = figure.add_subplot()
    values = [scores(group.complete) for group in groups]
    low, high = _near([value for found in values for value in found])
    drawn = axes.boxplot(values, showfliers=False, patch_artist=True, medianprops={"color": INK})
    spread = np.random.default_rng(0)
    for place, (found, colour, box) in enumerate(zip(values, _colours(groups), drawn["boxes"]), 1):
        box.set(facecolor=colour, alpha=0.35)
        near = [value for value in found if low <= value <= high]
        axes.plot(place + spread.uniform(-0.12, 0.12, len(near)), near, ".", color=colour, markersize=4)
        for mark, edge, far in (("^", high, sum(v > high for v in found)), ("v", low, sum(v < low for v in found))):
            if far:
                axes.plot([place], [edge], mark, color=colour, markersize=7, clip_on=False)
                axes.annotate(str(far), (place, edge), (7, 0), textcoords="offset points", va="center", color=INK)
    margin = 0.05 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xticks(range(1, len(groups) + 1), [group.cell for group in groups], rotation=30, ha="right")
    dress(axes, f"{groups[0].task}: all trials", "", groups[0].metric.unit)
    return figure


def _near(values: Sequence[float]) -> tuple[float, float]:
    """The least and greatest of the values that are no farther from the quartiles than FAR times
    their distance; a little around where all are the same."""
    first, last = np.quantile(values, (0.25, 0.75))
    room = FAR * (last - first)
    near = [value for value in values if first - room <= value <= last + room]
    low, high = min(near), max(near)
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))


def parallel(groups: Sequence[GroupResults]) -> Any:
    """A line for every trial, across an axis for each setting and one for the score; the better it
    is the darker."""
    rows = [row for group in groups for row in group.complete]
    names = list(dict.fromkeys(name for row in rows for name in row.point))
    columns: dict[str, list[Any]] = {"cell": [row.cell for row in rows]} if len(groups) > 1 else {}
    columns |= {name: [row.point.get(name) for row in rows] for name in names}
    found = np.array([row.score for row in rows], np.float64)
    places = np.array([*(_places(values) for values in (*columns.values(), list(map(float, found))))])
    figure = new_figure((max(6.0, 1.6 * len(places)), 4.6))
    axes = figure.add_subplot()
    rank = found.argsort().argsort() / max(1, len(found) - 1)
    good = 1 - rank if groups[0].metric.less else rank
    for line, share in sorted(zip(places.T, good), key=lambda pair: pair[1]):
        axes.plot(range(len(line)), line, color=COLOURS[0], alpha=0.08 + 0.8 * float(share) ** 3, linewidth=1)
    labels = [_label(name, values) for name, values in columns.items()]
    axes.set_xticks(range(len(places)), [*labels, f"score\n{found.min():.3g} to {found.max():.3g}"])
    axes.set_yticks([])
    for x in range(len(places)):
        axes.axvline(x, color=QUIET, linewidth=0.8)
    dress(axes, f"{groups[0].task}: every trial, the better the darker", "", "")
    return figure


def _label(name: str, values: Sequence[Any]) -> str:
    known = [v for v in values if v is not None]
    numbers = [v for v in known if isinstance(v, int | float)]
    if len(numbers) == len(known):
        return f"{name}\n{min(numbers):.3g} to {max(numbers):.3g}"
    return "\n".join([name, *sorted(dict.fromkeys(map(str, known)))][:8])


def _places(values: Sequence[Any]) -> np.ndarray:
    """Where values lie on an axis from 0 to 1: numbers by size, by their logarithm where they span
    more than a factor of 20; others in the order of their names."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values):
        found = np.array(numbers, np.float64)
        return _scaled(np.log(found) if found.min() > 0 and found.max() > 20 * found.min() else found)
    order = sorted(dict.fromkeys(map(str, values)))
    return _scaled(np.array([order.index(str(v)) for v in values], np.float64))


def _scaled(values: np.ndarray) -> np.ndarray:
    width = float(np.ptp(values)) if len(values) else 0.0
    return (values - values.min()) / width if width else np.full(len(values), 0.5)


def importances(groups: Sequence[GroupResults]) -> dict[str, dict[str, float]]:
    """The part of the variance of scores that each setting explains (fANOVA, Hutter et al. 2014),
    by cell; of groups with two settings and five trials at least. StudyError without
    scikit-learn."""
    needed("sklearn", "the importance of settings")
    importance = needed("optuna.importance", "a report")
    found = {}
    for group in groups:
        names = {name for row in group.complete for name in row.point}
        if len(names) > 1 and len(group.complete) >= LEAST and len(set(scores(group.complete))) > 1:
            evaluator = importance.FanovaImportanceEvaluator(seed=0)
            try:
                found[group.cell] = dict(importance.get_param_importances(group.inner, evaluator=evaluator))
            except (RuntimeError, ValueError) as error:
                raise StudyError(f"no importance for {group.cell} on {group.task}: {error}") from error
    return found


def bars(task: str, found: Mapping[str, Mapping[str, float]]) -> Any:
    """Importances as bars, a group of them for each setting."""
    names = list(dict.fromkeys(name for parts in found.values() for name in parts))
    figure = new_figure((max(5.0, 1.2 * len(names) + 2), 4.2))
    axes = figure.add_subplot()
    width = 0.8 / len(found)
    for place, (cell, parts) in enumerate(found.items()):
        at = np.arange(len(names)) + (place - (len(found) - 1) / 2) * width
        axes.bar(at, [parts.get(name, 0.0) for name in names], width, label=cell, color=COLOURS[place % len(COLOURS)])
    axes.set_xticks(range(len(names)), names)
    dress(axes, f"{task}: importance of settings (fANOVA)", "", "part of the variance explained")
    return figure


def _colours(groups: Sequence[GroupResults]) -> Iterator[str]:
    for number in range(len(groups)):
        yield COLOURS[number % len(COLOURS)]
