"""Loss curves, confusion matrices, predictions against what is true, as PNG, SVG or PDF by the
file's extension. matplotlib is imported when something is drawn, not before, and without a display.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.show.figure import HELD_OUT, INK, QUIET, TRAIN, WIDE, dress, new_figure, save, whole_numbers
from rnnspec.train.loop import History
from rnnspec.train.problem import Metric, Predictions, TrainingProblem

TALL = 3  # times what matters may be drawn, so that no loss is cut off


def loss_curve(path: str | Path, history: History, problem: TrainingProblem, title: str) -> None:
    """Writes `loss_figure`, in the format of the file's extension."""
    save(loss_figure(history, problem, title), path)


def loss_figure(history: History, problem: TrainingProblem, title: str) -> Any:
    """Draws the training loss of every step and its running mean, what can be had without reading
    the sequence, and every held-out score: in the same panel where they are in the loss's unit,
    else in a second one below."""
    metric = problem.metric
    shared = metric.unit == problem.loss_unit
    figure = new_figure((8, 4.6 if shared else 6.6))
    panels = [figure.add_subplot()] if shared else list(figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
    loss = np.array(history.loss, np.float64)
    points = held_out(history, metric)
    _curve(panels[0], loss, problem)
    if shared:
        _limits(panels[0], loss, [problem.baseline[1]] if problem.baseline else [], [value for _, value in points])
    else:
        _limits(panels[0], loss, [problem.baseline[1]] if problem.baseline else [], [])
    panels[-1].set_xlim(left=-0.01 * len(loss), right=1.03 * max(1, len(loss)))
    whole_numbers(panels[-1].xaxis)
    if not shared and metric.is_share:
        top = 1.15 * max([0.05, *(value for _, value in points)])
        panels[1].set_ylim(-0.03 * top, top)
        panels[1].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    _points(panels[-1], points, metric)
    if not shared:
        dress(panels[1], "", "training step", metric.unit if metric.is_share else f"{metric.name}: {metric.unit}")
    dress(panels[0], title, "training step" if shared else "", f"loss ({problem.loss_unit})")
    return figure


def held_out(history: History, metric: Metric) -> list[tuple[int, float]]:
    """Every held-out score that is a number, 0 included, with its step."""
    scores = [(s["step"], s.get(metric.name)) for s in history.snapshots]
    return [(step, float(value)) for step, value in scores if value is not None and np.isfinite(value)]


def score_text(value: float, metric: Metric) -> str:
    """A score as it is read: "13 % of the strings right", "0.031 mean squared error"."""
    return f"{_score(value, metric)} {metric.unit}"


def _score(value: float, metric: Metric) -> str:
    if not metric.is_share or not np.isfinite(value):
        return shown(value)
    return f"{100 * value:.0f} %" if 0.01 <= value <= 0.99 or value in (0, 1) else f"{100 * value:.3g} %"


def prediction(path: str | Path, found: Predictions, title: str) -> None:
    """Draws predictions against what is true: points around the diagonal, or both over steps."""
    figure = new_figure((8, 4.2) if found.over_steps else (5.6, 5.2))
    axes = figure.add_subplot()
    true, predicted = found.true.astype(np.float64), found.predicted.astype(np.float64)
    if found.over_steps:
        steps = np.arange(len(true))
        alone = "." if np.isnan(true).any() else None  # a step between two without a target has no line
        axes.plot(steps, true, color=QUIET, linewidth=1.6, marker=alone, label="true")
        axes.plot(steps, predicted, color=HELD_OUT, linewidth=1.2, label="predicted")
        axes.set_xlim(0, max(1, len(true) - 1))
        whole_numbers(axes.xaxis)
        dress(axes, title, found.axis, found.unit)
    else:
        values = np.concatenate([true, predicted])
        low, high = (float(values.min()), float(values.max())) if np.isfinite(values).all() else (0.0, 1.0)
        room = 0.05 * (high - low) or 0.5
        limits = (low - room, high + room)
        axes.plot(limits, limits, color=QUIET, linewidth=1.2, linestyle=(0, (5, 3)), label="predicted = true")
        axes.scatter(true, predicted, s=10, color=HELD_OUT, alpha=0.5, linewidths=0, label="held-out sequences")
        axes.set_xlim(limits)
        axes.set_ylim(limits)
        axes.set_aspect("equal")
        dress(axes, title, f"true {found.unit}", f"predicted {found.unit}")
    save(figure, path)


def confusion_matrix(path: str | Path, names: list[str], counts: np.ndarray, title: str) -> None:
    """Draws counts [true, predicted], shaded by the share of the true class."""
    figure = new_figure((max(4.5, 0.5 + 0.075 * len(title), 1.5 + 0.9 * len(names)), max(4.0, 1.2 + 0.75 * len(names))))
    axes = figure.add_subplot()
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (i, j), count in np.ndenumerate(counts):
        axes.text(
            j, i, f"{count:,}", ha="center", va="center", color="white" if shares[i, j] > 0.5 else INK, fontsize=9
        )
    axes.set_xticks(range(len(names)), names, rotation=30 if max(map(len, names)) > 6 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted", color=INK)
    axes.set_ylabel("true", color=INK)
    figure.suptitle(title, x=0.03, horizontalalignment="left", color=INK, fontsize=10)  # wider than few classes are
    axes.tick_params(colors=INK, length=0)
    save(figure, path)


def _curve(axes: Any, loss: np.ndarray, problem: TrainingProblem) -> None:
    steps = np.arange(1, len(loss) + 1)
    axes.plot(steps, loss, color=TRAIN, alpha=0.25, linewidth=0.8)
    axes.plot(steps, running_mean(loss, max(1, len(loss) // 50)), color=TRAIN, linewidth=1.8, label="training")
    if problem.baseline:
        name, value = problem.baseline
        axes.axhline(value, color=QUIET, linestyle=(0, (5, 3)), linewidth=1.2, label=f"{name}, {shown(value)}")


def _points(axes: Any, points: list[tuple[int, float]], metric: Metric) -> None:
    """All held-out scores; the last is written at its point, inside the axes."""
    if not points:
        return
    axes.plot(*zip(*points, strict=True), color=HELD_OUT, marker="o", markersize=5, linewidth=1, label="held-out")
    step, value = points[-1]
    bottom, top = axes.get_ylim()
    below = value > (bottom + top) / 2 if axes.get_yscale() == "linear" else True
    where: Mapping[str, Any] = {"xytext": (2, -9 if below else 9), "va": "top" if below else "bottom", "ha": "right"}
    axes.annotate(
        _score(value, metric),
        (step, value),
        textcoords="offset points",
        color=HELD_OUT,
        fontweight="bold",
        annotation_clip=True,
        **where,
    )


def _limits(axes: Any, loss: np.ndarray, baseline: list[float], held_out: list[float]) -> None:
    """Losses of the first steps may be far above all that matters: then they are cut off, and it
    says so."""
    finite = loss[np.isfinite(loss)]
    if finite.size and np.quantile(finite, 0.02) > 0 and np.quantile(finite, 0.9) > WIDE * np.quantile(finite, 0.02):
        axes.set_yscale("log")
        return
    settled = np.quantile(finite, 0.98) if finite.size else 0.0
    values = [*baseline, *held_out, *([float(settled)] if not held_out and finite.size else [])] or [1.0]
    values = [value for value in values if np.isfinite(value)] or [1.0]
    low, high, highest = min([*values, *finite]), max(values), max([*values, *finite])
    if highest - low <= TALL * (high - low):
        high = highest
    top = high + 0.08 * (high - low) + 1e-9
    axes.set_ylim(max(0.0, low - 0.15 * (high - low)), top)
    if highest > top:
        text = f"cut off: losses up to {shown(highest)}"
        axes.text(0.5, 0.97, text, transform=axes.transAxes, color=QUIET, fontsize=8, ha="center", va="top")


def shown(value: float) -> str:
    """Three decimals; small numbers with two digits that count."""
    return f"{value:.3f}" if abs(value) >= 0.1 or value == 0 or not np.isfinite(value) else f"{value:.2g}"


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of the `width` values around each one that are numbers (fewer at both ends): [N] to
    [N]."""
    good = np.isfinite(values)
    total, count = (
        np.concatenate([[0.0], np.cumsum(v)]) for v in (np.where(good, values, 0.0), good.astype(np.float64))
    )
    at = np.arange(len(values))
    begin, end = np.maximum(0, at - (width - 1) // 2), np.minimum(len(values), at + width // 2 + 1)
    with np.errstate(invalid="ignore"):
        return (total[end] - total[begin]) / (count[end] - count[begin])
