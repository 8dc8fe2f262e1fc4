"""Figures of one style: their size, colours and frame, and the formats that they are written in."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from rnnspec.storage import atomic

FORMATS = ("png", "svg", "pdf")
WIDE = 50  # from a ratio of losses from here on the axis is logarithmic
LETTER = 5.6  # points that a letter of a label takes
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
    axes.set_title(title, loc="left", color=INK, fontsize=11, pad=10)
    axes.set_xlabel(x, color=INK)
    room = axes.get_position().height * axes.figure.get_figheight() * 72 / LETTER
    axes.set_ylabel(textwrap.fill(y, max(12, int(room))), color=INK)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=INK)


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone: of steps and lags there are no halves."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))


def format_of(path: str | Path) -> str:
    """The format that a file's extension says; ValueError for another."""
    found = Path(path).suffix.lower()[1:]
    if found not in FORMATS:
        raise ValueError(f"{path}: figures are written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return found


def save(figure: Any, path: str | Path) -> None:
    """Writes a figure, whole or not at all, in the format of the file's extension; the same figure
    gives the same bytes."""
    from matplotlib import rc_context

    kind = format_of(path)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}.get(kind)
    with rc_context({"svg.hashsalt": "rnnspec"}):
        atomic.write(path, lambda file: figure.savefig(file, format=kind, metadata=undated))
