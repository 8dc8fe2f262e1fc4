"""The figure of a probe: cells side by side. matplotlib is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.probe.measure import Probe
from rnnspec.show.figure import FORMATS, INK, QUIET, dress, new_figure, save, whole_numbers

COLOURS = ("#4c78a8", "#e4572e", "#54a24b", "#b279a2", "#f2a541", "#72b7b2", "#9d755d", "#ff9da6")
DASHES = ("-", "--", "-.", (0, (1, 1)))
LOW, MIDDLE, HIGH = "#1f2937", "#e3e3e3", "#9ca3af"  # no cell has one of them
TENTHS = {"lowest tenth": LOW, "between": MIDDLE, "highest tenth": HIGH}
FLOOR = 1e-16  # what float64 can tell from the rest of a gradient of 1


def draw(probes: Sequence[Probe], base: str | Path) -> list[Path]:
    """Writes base.png and base.svg, or the one file that an extension names (.png, .svg, .pdf):
    above, gradient norm against lag and the largest singular value of each step, all cells in one;
    below, for each cell the eigenvalues of a step in the complex plane, and its gates. Returns the
    paths."""
    count = len(probes)
    figure = new_figure((max(9.0, 3.1 * count), 10.5))
    grid = figure.add_gridspec(3, 1, height_ratios=(1.15, 1.1, 0.9))
    top = grid[0].subgridspec(1, 2)
    _lags(figure.add_subplot(top[0]), probes)
    _gains(figure.add_subplot(top[1]), probes)
    middle, bottom = (grid[i].subgridspec(1, count) for i in (1, 2))
    for i, probe in enumerate(probes):
        _plane(figure.add_subplot(middle[i]), probe, COLOURS[i % len(COLOURS)])
        _gates(figure.add_subplot(bottom[i]), probe)
    _gate_legend(figure)
    paths = paths_of(base)
    for path in paths:
        save(figure, path)
    return paths


def paths_of(base: str | Path) -> list[Path]:
    """Where a figure of this name is written."""
    if Path(base).suffix.lower()[1:] in FORMATS:
        return [Path(base)]
    return [Path(f"{base}.png"), Path(f"{base}.svg")]


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
    whole_numbers(axes.xaxis)
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
    for line, text in (("-", "largest singular value"), (":", "spectral radius")):
        axes.plot([], [], color=QUIET, linestyle=line, label=text)  # cells have their colours in the panel beside it
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top + 0.22 * (top - bottom))  # the legend lies on no line
    whole_numbers(axes.xaxis)
    dress(axes, "the Jacobian of each step", "step t", "of d state[t] / d state[t-1]")


def _plane(axes: Any, probe: Probe, colour: str) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color=QUIET, linewidth=0.8)
    values = probe.eigenvalues
    axes.scatter(values.real, values.imag, s=9, color=colour, alpha=0.5, linewidths=0)
    size = max(1.15, 1.08 * float(np.abs(values).max(initial=0)))
    axes.set_xlim(-size, size)
    axes.set_ylim(-size, size)
    axes.set_aspect("equal")
    dress(axes, f"{probe.name}: eigenvalues, middle step", "real part", "imaginary part")


def _gates(axes: Any, probe: Probe) -> None:
    gates = probe.gates[::-1]
    if not gates:
        axes.text(0.5, 0.5, "no squashed values", ha="center", va="center", color=QUIET)
        axes.set_axis_off()
        return
    for row, gate in enumerate(gates):
        left = 0.0
        for share, colour in zip((gate.low, 1 - gate.low - gate.high, gate.high), TENTHS.values()):
            axes.barh(row, share, left=left, color=colour, height=0.7)
            left += share
    axes.set_yticks(range(len(gates)), [f"{gate.name} ({gate.function})" for gate in gates], fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_ylim(-0.7, max(3.0, len(gates)) - 0.3)
    dress(axes, f"{probe.name}: where gates stay", "share of values", "")
    axes.grid(False)


def _gate_legend(figure: Any) -> None:
    """What the colours of gates mean, once for all cells, below them."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=text) for text, colour in TENTHS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK)
