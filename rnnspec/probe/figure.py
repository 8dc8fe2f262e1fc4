"""The figure of a probe: cells side by side. matplotlib is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.probe.measure import Probe
from rnnspec.show.figure import INK, QUIET, dress, new_figure
from rnnspec.storage import atomic

COLOURS = ("#4c78a8", "#e4572e", "#54a24b", "#b279a2", "#f2a541", "#72b7b2", "#9d755d", "#ff9da6")
DASHES = ("-", "--", "-.", (0, (1, 1)))
LOW, MIDDLE, HIGH = "#4c78a8", "#e3e3e3", "#e4572e"
FLOOR = 1e-16  # what float64 can tell from the rest of a gradient of 1


def draw(probes: Sequence[Probe], base: str | Path) -> list[Path]:
    """Writes base.png and base.svg: above, gradient norm against lag and the largest singular value
    of each step, all cells in one; below, for each cell the eigenvalues of a step in the complex
    plane, and its gates. Returns the paths."""
    count = len(probes)
    figure = new_figure((max(9.0, 3.1 * count), 10.5))
    grid = figure.add_gridspec(3, 1, height_ratios=(1.15, 1.1, 0.9))
    top = grid[0].subgridspec(1, 2)
    _lags(figure.add_subplot(top[0]), probes)
    _gains(figure.add_subplot(top[1]), probes)
    middle, bottom = (grid[i].subgridspec(1, count) for i in (1, 2))
    for i, probe in enumerate(probes):
        _plane(figure.add_subplot(middle[i]), probe, COLOURS[i % len(COLOURS)])
        _gates(figure.add_subplot(bottom[i]), probe, first=i == 0)
    paths = [Path(f"{base}.png"), Path(f"{base}.svg")]
    for path in paths:
        atomic.write(path, lambda file, kind=path.suffix[1:]: figure.savefig(file, format=kind))  # type: ignore[misc]
    return paths


def style(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th cell: unlike those of 31 others."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}


def _lags(axes: Any, probes: Sequence[Probe]) -> None:
    for i, probe in enumerate(probes):
        lags = np.arange(len(probe.norms))
        shown = np.isfinite(probe.norms) & (probe.norms > 0)
        axes.plot(lags[shown], probe.norms[shown], **style(i), linewidth=1.8, label=probe.name)
    axes.set_xlim(0, max(len(probe.norms) for probe in probes) - 1)
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(FLOOR, axes.get_ylim()[0]))
    dress(axes, "how far a gradient reaches", "lag k", "norm of dL / d state[T - k]")


def _gains(axes: Any, probes: Sequence[Probe]) -> None:
    for i, probe in enumerate(probes):
        axes.plot(
            np.arange(1, len(probe.gain) + 1), probe.gain, **style(i), linewidth=1.4
        )  # without a label: the legend is beside it
        axes.plot(
            np.arange(1, len(probe.radius) + 1),
            probe.radius,
            color=COLOURS[i % len(COLOURS)],
            linewidth=1.0,
            linestyle=":",
        )
    axes.axhline(1.0, color=QUIET, linewidth=0.8)
    dress(axes, "the Jacobian of each step", "step t", "largest singular value (dotted: spectral radius)")


def _plane(axes: Any, probe: Probe, colour: str) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color=QUIET, linewidth=0.8)
    values = probe.eigenvalues
    axes.scatter(values.real, values.imag, s=9, color=colour, alpha=0.5, linewidths=0)
    size = max(1.15, 1.08 * float(np.abs(values).max(initial=0)))
    axes.set_xlim(-size, size)
    axes.set_ylim(-size, size)
    axes.set_aspect("equal")
    dress(axes, probe.name, "", "")
    axes.set_xlabel("eigenvalues, middle step", color=INK)


def _gates(axes: Any, probe: Probe, *, first: bool) -> None:
    gates = probe.gates[::-1]
    if not gates:
        axes.text(0.5, 0.5, "no squashed values", ha="center", va="center", color=QUIET)
        axes.set_axis_off()
        return
    for row, gate in enumerate(gates):
        left = 0.0
        for share, colour in ((gate.low, LOW), (1 - gate.low - gate.high, MIDDLE), (gate.high, HIGH)):
            axes.barh(row, share, left=left, color=colour, height=0.7)
            left += share
    axes.set_yticks(range(len(gates)), [f"{gate.name} ({gate.function})" for gate in gates], fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.7, max(3.0, len(gates)) - 0.3)
    dress(axes, "", "lowest tenth | between | highest tenth" if first else "", "")
    axes.grid(False)
