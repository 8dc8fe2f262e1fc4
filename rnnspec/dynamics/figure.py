"""The picture of a cell's dynamics. matplotlib is imported when it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.dynamics.portrait import Plane, Portrait, modes, plane
from rnnspec.show.figure import FORMATS, INK, QUIET, dress, new_figure, save, whole_numbers

STABLE, SADDLE, SLOW, PATH = "#4c78a8", "#e4572e", "#f2a541", "#b8bec8"
KINDS = {"fold": "o", "flip": "s", "neimark-sacker": "D", "branch": "X"}
MOST_PATHS, MOST_LINES = 24, 12  # trajectories, and exponents, that are drawn
JUMP = 0.08  # of the width of what is shown: states that go further in a step are dots, no line
ROOM = 0.08  # of the width of what is shown, beside it


def draw(portrait: Portrait, base: str | Path) -> list[Path]:
    """Writes base.png and base.svg, or the one file that an extension names (.png, .svg, .pdf).

    Left: trajectories in their first two principal components, with stable and unstable points and
    their slowest or most unstable modes. Right: eigenvalues; below them, where they were asked for,
    Lyapunov exponents over time and the branch. Returns the paths."""
    below = [part for part in (portrait.exponents, portrait.branch) if part is not None]
    figure = new_figure((12.5, 6.2 + 1.6 * bool(below)))
    figure.get_layout_engine().set(wspace=0.08)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.35, 1.0))
    right = grid[1].subgridspec(1 + bool(below), 1)
    _states(figure.add_subplot(grid[0]), portrait)
    _eigenvalues(figure.add_subplot(right[0]), portrait)
    if below:
        cells = right[1].subgridspec(1, len(below))
        for i, part in enumerate(below):
            (_exponents if part is portrait.exponents else _branch)(figure.add_subplot(cells[i]), portrait)
    paths = [Path(base)] if Path(base).suffix.lower()[1:] in FORMATS else [Path(f"{base}.png"), Path(f"{base}.svg")]
    for path in paths:
        save(figure, path)
    return paths


def _states(axes: Any, portrait: Portrait) -> None:
    trajectories, points = portrait.trajectories, portrait.points
    around = trajectories.reshape(-1, trajectories.shape[2])
    seen = plane(around if len(around) > 1 else points.orbit.reshape(-1, trajectories.shape[2]))
    shown = seen.of(trajectories[:, :MOST_PATHS])
    far = float(np.median(np.linalg.norm(np.diff(shown, axis=0), axis=2))) if len(shown) > 1 else 0.0
    jumps = far > JUMP * float(np.ptp(shown.reshape(-1, 2), axis=0).max())
    look = {"linestyle": "", "marker": ".", "markersize": 2.5} if jumps else {"linewidth": 0.8}
    for row in range(shown.shape[1]):
        axes.plot(*shown[:, row].T, color=PATH, zorder=1, label="trajectories" if row == 0 else None, **look)
    axes.scatter(*shown[0].T, s=9, color=QUIET, linewidths=0, zorder=2, label="their first states")
    orbit = seen.of(points.orbit.reshape(-1, trajectories.shape[2])).reshape(*points.orbit.shape[:2], 2)
    size = 0.07 * float(np.ptp(np.concatenate([shown.reshape(-1, 2), orbit.reshape(-1, 2)]), axis=0).max(initial=1e-9))
    for index in range(len(points)):
        _modes(axes, portrait, seen, index, size)
    stable = np.repeat(points.stable, points.period)
    flat, noun = orbit.reshape(-1, 2), "points" if points.period == 1 else f"{points.period}-cycles"
    axes.scatter(*flat[stable].T, s=52, color=STABLE, zorder=4, label=f"stable {noun} ({points.stable.sum()})")
    axes.scatter(
        *flat[~stable].T,
        s=44,
        facecolors="white",
        edgecolors=SADDLE,
        linewidths=1.6,
        zorder=4,
        label=f"others ({(~points.stable).sum()})",
    )
    if portrait.slow is not None:
        slow = seen.of(portrait.slow.vectors)
        axes.scatter(*slow.T, s=26, marker="D", color=SLOW, zorder=3, label=f"slow points ({len(slow)})")
    names = [f"component {i + 1} ({part:.0%} of the variance)" for i, part in enumerate(seen.part)]
    dress(axes, portrait.name, *names)
    axes.margins(ROOM)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=3)


def _modes(axes: Any, portrait: Portrait, seen: Plane, index: int, size: float) -> None:
    """Lines through a point along its modes, thick where they lead away from it."""
    directions, values = modes(portrait.points, index)
    middle = seen.of(portrait.points.vectors[index])
    for direction, value in zip(seen.turned(directions), values):
        ends = middle + size * np.outer((-1, 1), direction)
        away = abs(value) > 1
        axes.plot(*ends.T, color=SADDLE if away else STABLE, linewidth=1.8 if away else 0.9, zorder=3)


def _eigenvalues(axes: Any, portrait: Portrait) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color=QUIET, linewidth=0.8)
    points = portrait.points
    stable = points.eigenvalues[points.stable].reshape(-1)
    others = points.eigenvalues[~points.stable].reshape(-1)
    for values, colour in ((stable, STABLE), (others, SADDLE)):
        axes.scatter(values.real, values.imag, s=11, color=colour, alpha=0.6, linewidths=0)
    _square(axes, np.concatenate([stable, others]))
    what = "the Jacobian" if points.period == 1 else f"{points.period} steps"
    dress(axes, f"eigenvalues of {what} at the points", "real part", "imaginary part")


def _square(axes: Any, values: Array) -> None:
    """The circle, and all the eigenvalues, in the same units along both axes."""
    low, high = min(-1.0, values.real.min(initial=0)), max(1.0, values.real.max(initial=0))
    tall, room = max(1.0, np.abs(values.imag).max(initial=0)), ROOM * (high - low)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(-tall - room, tall + room)
    axes.set_aspect("equal")


def _exponents(axes: Any, portrait: Portrait) -> None:
    found = portrait.exponents
    assert found is not None
    for column in found.history.T[:MOST_LINES]:
        axes.plot(found.times, np.where(np.isfinite(column), column, np.nan), linewidth=1.2, color=STABLE)
    axes.axhline(0.0, color=QUIET, linewidth=0.8)
    finite = found.history[len(found.history) // 10 :, :MOST_LINES]
    finite = finite[np.isfinite(finite)]
    if len(finite):
        low, high = min(float(finite.min()), 0.0), max(float(finite.max()), 0.0)
        room = 0.15 * max(high - low, 1e-9)
        axes.set_ylim(low - room, high + room)
    whole_numbers(axes.xaxis)
    axes.locator_params(axis="x", nbins=4)
    shown = min(MOST_LINES, len(found.exponents))
    dress(axes, f"the {shown} largest exponents" if shown > 1 else "the largest exponent", "step", "per step")


def _branch(axes: Any, portrait: Portrait) -> None:
    branch = portrait.branch
    assert branch is not None
    seen = plane(branch.vectors)
    height = seen.of(branch.vectors)[:, 0]
    stable = branch.unstable == 0
    pieces = np.split(np.arange(len(branch)), np.flatnonzero(np.diff(stable)) + 1)
    for piece in pieces:
        ahead = np.append(piece, min(piece[-1] + 1, len(branch) - 1))  # lines meet where the kind changes
        line = "-" if stable[piece[0]] else "--"
        axes.plot(
            branch.values[ahead], height[ahead], line, color=STABLE if stable[piece[0]] else SADDLE, linewidth=1.6
        )
    for special in branch.special:
        at = seen.of(np.concatenate([a.reshape(-1) for a in special.states.values()]))[0]
        axes.scatter(special.value, at, s=30, marker=KINDS[special.kind], color=INK, zorder=3)
        axes.annotate(
            special.kind, (special.value, at), (5, 5), textcoords="offset points", fontsize=8, color=INK, clip_on=True
        )
    dress(axes, "fixed points", branch.label, "component 1 of the state")
    axes.margins(ROOM)
