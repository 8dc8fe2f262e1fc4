"""The loss curve of a run as a PNG. matplotlib is imported when it is drawn, not before, and without a display."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnspec.train.checkpoint import write_atomic
from rnnspec.train.loop import History

INK, QUIET, TRAIN, HELD_OUT = "#222222", "#8a8a8a", "#4c78a8", "#e4572e"


def loss_curve(path: str | Path, history: History, unigram_bits: float, title: str) -> None:
    """Writes a PNG: training loss of every step and its running mean, held-out points, and the unigram entropy, in bits per character."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bits = np.array(history.bits, np.float64)
    steps = np.arange(1, len(bits) + 1)
    axes.plot(steps, bits, color=TRAIN, alpha=0.25, linewidth=0.8)
    axes.plot(steps, running_mean(bits, max(1, len(bits) // 50)), color=TRAIN, linewidth=1.8, label="training")
    points = [(s["step"], s["bits"]) for s in history.snapshots if s["bits"] is not None and np.isfinite(s["bits"])]
    if points:
        axes.plot(*zip(*points, strict=True), color=HELD_OUT, marker="o", markersize=5, linewidth=1, label="held-out")
        step, value = points[-1]
        axes.annotate(
            f"{value:.2f}",
            (step, value),
            xytext=(0, -9),
            textcoords="offset points",
            ha="center",
            va="top",
            color=HELD_OUT,
            fontweight="bold",
        )
    axes.axhline(unigram_bits, color=QUIET, linestyle=(0, (5, 3)), linewidth=1.2, label=f"unigram entropy, {unigram_bits:.2f}")
    _dress(axes, title, bits, unigram_bits, [value for _, value in points])
    write_atomic(path, lambda file: figure.savefig(file, format="png"))


def _dress(axes, title: str, bits: np.ndarray, unigram_bits: float, held_out: list[float]) -> None:
    low = min([unigram_bits, *held_out, *bits[np.isfinite(bits)]])
    high = max([unigram_bits, *held_out])
    axes.set_ylim(max(0.0, low - 0.15 * (high - low) - 0.1), high + 0.05 * (high - low) + 0.1)
    axes.set_xlim(left=-0.01 * len(bits), right=1.03 * max(1, len(bits)))
    axes.set_title(title, loc="left", color=INK, fontsize=12, pad=10)
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("loss (bits per character)", color=INK)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, labelcolor=INK)


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of the `width` values around each one that are numbers (fewer at both ends): [N] to [N]."""
    good = np.isfinite(values)
    total, count = (np.concatenate([[0.0], np.cumsum(v)]) for v in (np.where(good, values, 0.0), good.astype(np.float64)))
    at = np.arange(len(values))
    begin, end = np.maximum(0, at - (width - 1) // 2), np.minimum(len(values), at + width // 2 + 1)
    with np.errstate(invalid="ignore"):
        return (total[end] - total[begin]) / (count[end] - count[begin])
