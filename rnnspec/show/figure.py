"""Figures of one style: their size, colours and frame."""

from __future__ import annotations

from typing import Any

WIDE = 50  # from a ratio of losses from here on the axis is logarithmic
INK, QUIET, TRAIN, HELD_OUT = "#222222", "#8a8a8a", "#4c78a8", "#e4572e"


def new_figure(size: tuple[float, float]) -> Any:
    """A figure that needs no display, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Any, title: str, x: str, y: str) -> None:
    """Titles, grid and legend as all our plots have them."""
    axes.set_title(title, loc="left", color=INK, fontsize=12, pad=10)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=INK)
