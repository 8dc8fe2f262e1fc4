"""Cells that count their steps: those that are shipped, and one that reads `t` in both ways."""

from __future__ import annotations

from tiny import cell

import rnnspec

BOTH = cell(
    "h[t] = tanh(0.5 * h[t-1] + x[t] * cos(t)) + t / 10 + 0.01 * time[t]",
    name="both",
    inputs="{x: H, time: []}",
    states="{h: H}",
    no_gradient="[time]",
    defaults="{time: t}",
)
SHIPPED = [name for name in rnnspec.spec_names() if rnnspec.load(name).counts]
COUNTING = [BOTH, *SHIPPED]
NAMES = {"ids": lambda n: n if "\n" not in n else "both"}
