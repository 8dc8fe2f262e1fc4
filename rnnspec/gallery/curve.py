"""How far gradients reach, as a drawing: the norm of a gradient against the lag, on a logarithmic
axis.

In: numbers. Out: SVG as markup. Colours are those of the page, by classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnnspec.show.markup import Markup, tag

WIDE, TALL, LEFT, RIGHT, TOP, BOTTOM = 640, 280, 74, 14, 14, 44
DECADES = 12  # that are shown at most
TICKS = 5


def curve(norms: Sequence[float], title: str) -> Markup:
    """norms[k]: at lag k, from 1 on; those that are 0 or not finite are left out. title: what a
    screen reader says."""
    points = [(k, n) for k, n in enumerate(norms) if k and math.isfinite(n) and n > 0]
    if not points:
        return tag("p", "Nothing of the gradient is left at lag 1.")
    top = math.ceil(math.log10(max(n for _, n in points)) + 1e-9)
    bottom = max(math.floor(math.log10(min(n for _, n in points)) - 1e-9), top - DECADES)
    last = max(len(norms) - 1, 2)

    def x(lag: float) -> float:
        return LEFT + (lag - 1) / (last - 1) * (WIDE - LEFT - RIGHT)

    def y(power: float) -> float:
        return TOP + (top - max(power, bottom)) / (top - bottom) * (TALL - TOP - BOTTOM)

    parts = [tag("title", title)]
    step = max(1, math.ceil((top - bottom) / TICKS))
    for power in range(top, bottom - 1, -step):
        parts += [_line(LEFT, y(power), WIDE - RIGHT, y(power), "grid"), _power(LEFT - 10, y(power) + 5, power)]
    for lag in sorted({1, *range(10, last, 10), last} - ({last - last % 10} if 0 < last % 10 < 5 else set())):
        parts += [_line(x(lag), TALL - BOTTOM, x(lag), TALL - BOTTOM + 5, "axis"), _text(x(lag), TALL - 20, str(lag))]
    parts += [_line(LEFT, TALL - BOTTOM, WIDE - RIGHT, TALL - BOTTOM, "axis")]
    parts.append(_text((LEFT + WIDE - RIGHT) / 2, TALL - 3, "lag k, in steps back"))
    path = " ".join(f"{x(k):.1f},{y(math.log10(n)):.1f}" for k, n in points)
    parts.append(tag("polyline", points=path, class_="curve"))
    return tag("svg", *parts, viewBox=f"0 0 {WIDE} {TALL}", role="img", class_="plot", aria_label=title)


def _line(x0: float, y0: float, x1: float, y1: float, kind: str) -> Markup:
    return tag("line", x1=f"{x0:.1f}", y1=f"{y0:.1f}", x2=f"{x1:.1f}", y2=f"{y1:.1f}", class_=kind)


def _text(x: float, y: float, text: str) -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="middle")


def _power(x: float, y: float, power: int) -> Markup:
    """10 to a power; 1 and 10 as they are."""
    if power in (0, 1):
        return tag("text", str(10**power), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="end")
    raised = tag("tspan", str(power).replace("-", "−"), dy="-6", font_size="11")
    return tag("text", "10", raised, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor="end")
