"""What papers on trained networks draw: psychometric curves, and ways in principal components.
matplotlib is imported when something is drawn, not before."""

from __future__ import annotations

from pathlib import Path

from rnnspec.show.figure import QUIET, dress, new_figure, save
from rnnspec.train.problem import Psychometric, Trajectories


def psychometric(path: str | Path, found: Psychometric, title: str) -> None:
    """Draws how often something is chosen at each strength of the evidence."""
    figure = new_figure((6.4, 4.4))
    axes = figure.add_subplot()
    axes.axhline(0.5, color=QUIET, linewidth=0.8, linestyle=(0, (5, 3)))
    axes.axvline(0, color=QUIET, linewidth=0.8, linestyle=(0, (5, 3)))
    for name, (strengths, shares) in found.curves.items():
        axes.plot(strengths, shares, marker="o", markersize=5, linewidth=1.4, label=name)
    axes.set_ylim(-0.03, 1.03)
    dress(axes, title, found.strength, found.share)
    save(figure, path)


def trajectories(path: str | Path, found: Trajectories, title: str) -> None:
    """Draws ways in the first two principal components, each from its start (a ring) to its end (a
    dot)."""
    figure = new_figure((6.4, 5.2))
    axes = figure.add_subplot()
    for name, way in found.paths.items():
        (line,) = axes.plot(way[:, 0], way[:, 1], linewidth=1.2, label=name)
        axes.plot(*way[0], marker="o", markersize=6, markerfacecolor="none", color=line.get_color())
        axes.plot(*way[-1], marker="o", markersize=6, color=line.get_color())
    first, second = (f"principal component {n} ({100 * s:.0f} %)" for n, s in enumerate(found.explained, 1))
    dress(axes, title, first, second)
    save(figure, path)
