"""Three steps of a cell in a row: the same cell at t-1, t and t+1, with what goes from one to the
next."""

from __future__ import annotations

import html
from collections.abc import Iterator

from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Ref, walk
from rnnspec.show.drawing.forward import step
from rnnspec.show.drawing.marks import LETTER, Mark, wrapped

STEPS = ("t-1", "t", "t+1")
BOX, GAP, ROW = 166.0, 62.0, 16.0
TOP, CIRCLE, PER_ROW, GATE = 62.0, 15.0, 4, 52.0  # gates in a row, and the height of a row
LEGEND = (
    "one cell at three steps, with the same parameters; "
    "green: what goes to the next step; blue: inputs; yellow: outputs; circles: gates, from 0 to 1 (yellow), and other "
    "functions (violet)"
)


def unrolled(spec: Spec) -> tuple[list[str], tuple[float, float], float, str]:
    """What is drawn, its span, its bottom, and the legend."""
    gates = [m for m in step(spec).values() if m.name and _is_shown(m)]
    named = {mark.name for mark in gates}
    values = wrapped([e.target for e in spec.equations if e.timed and e.target not in named], int((BOX - 20) / LETTER))
    weights = wrapped(list(spec.parameters), int((3 * BOX + 2 * GAP) / LETTER - 14))
    carried = _carried(spec)
    rows = -(-len(gates) // PER_ROW)
    tall = max(60.0, 34 + ROW * len(values) + GATE * rows, 26.0 * len(carried) + 20)
    parts: list[str] = []
    for number, time in enumerate(STEPS):
        x = number * (BOX + GAP)
        parts += _box(x, tall, f"{spec.name}, {time}", values, gates)
        parts += _ends(x, tall, spec, time)
        for at, state in enumerate(carried):
            y = TOP + tall * (at + 1) / (len(carried) + 1)
            parts += _arrow(x + BOX, y, x + BOX + GAP, y, "#15803d")
            parts.append(_text(x + BOX + GAP / 2, y - 5, f"{state}[{time}]", "#15803d"))
            if number == 0:
                parts += _arrow(x - GAP, y, x, y, "#15803d")
                parts.append(_text(x - GAP / 2, y - 5, f"{state}[t-2]", "#15803d"))
    bottom = TOP + tall + 86
    for number, line in enumerate(weights):
        start = "parameters: " if number == 0 else " " * 12
        parts.append(_text(-GAP, bottom + number * ROW, start + line, "#1d4ed8", "start"))
    return parts, (-GAP, 3 * BOX + 3 * GAP), bottom + len(weights) * ROW, LEGEND


def _is_shown(mark: Mark) -> bool:
    """Whether a mark is a gate, or a function of products with matrices as a gate is."""
    return mark.kind == "gate" or (mark.kind == "function" and "matrix" in mark.reads.values())


def _carried(spec: Spec) -> list[str]:
    """What a step hands to the next: states, and other values that are read at an earlier step."""
    earlier = [
        r.name
        for e in spec.equations
        for r in walk(e.value)
        if isinstance(r, Ref) and r.time is not None and r.time < 0
    ]
    return list(dict.fromkeys([*spec.states, *earlier]))


def _box(x: float, tall: float, title: str, values: tuple[str, ...], gates: list[Mark]) -> Iterator[str]:
    yield (
        f'<rect x="{x:.1f}" y="{TOP:.1f}" width="{BOX:.1f}" height="{tall:.1f}" rx="10" fill="#ffffff"'
        ' stroke="#1f2937"/>'
    )
    yield _text(x + BOX / 2, TOP + 17, title, "#1f2937", bold=True)
    for number, gate in enumerate(gates):
        function, fill = gate.text[0], "#fde68a" if gate.kind == "gate" else "#ddd6fe"
        row = gates[number - number % PER_ROW :][:PER_ROW]
        at = x + BOX / 2 + (number % PER_ROW - (len(row) - 1) / 2) * BOX / PER_ROW
        y = TOP + 44 + GATE * (number // PER_ROW)
        wide = max(2 * CIRCLE, len(function) * 5.6 + 8)
        yield (
            f'<rect x="{at - wide / 2:.1f}" y="{y - CIRCLE:.1f}" width="{wide:.1f}" height="{2 * CIRCLE:.1f}"'
            f' rx="{CIRCLE:.1f}" fill="{fill}" stroke="#1f2937"/>'
        )
        yield _text(at, y + 3.5, function, "#1f2937", size=9)
        yield _text(at, y + CIRCLE + 12, gate.name, "#1f2937")
    for number, line in enumerate(values):
        yield _text(x + BOX / 2, TOP + 36 + GATE * -(-len(gates) // PER_ROW) + number * ROW, line, "#1f2937")


def _ends(x: float, tall: float, spec: Spec, time: str) -> Iterator[str]:
    """Outputs above, inputs below."""
    for names, y0, y1, colour, fill in (
        (spec.outputs, TOP - 2, TOP - 32, "#a16207", "#fef3c7"),
        (tuple(spec.streams), TOP + tall + 34, TOP + tall + 2, "#1d4ed8", "#dbeafe"),
    ):
        lines = wrapped([f"{n}[{time}]" for n in names], int(BOX / LETTER), 2)
        if not lines:
            continue
        yield from _arrow(x + BOX / 2, y0, x + BOX / 2, y1, colour)
        wide, high = max(map(len, lines)) * LETTER + 14, len(lines) * 14 + 8
        top = y1 - high if y1 < TOP else y0
        yield (
            f'<rect x="{x + (BOX - wide) / 2:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high}" rx="5"'
            f' fill="{fill}" stroke="#1f2937"/>'
        )
        for number, line in enumerate(lines):
            yield _text(x + BOX / 2, top + 15 + number * 14, line, "#1f2937")


def _arrow(x0: float, y0: float, x1: float, y1: float, colour: str) -> Iterator[str]:
    yield f'<path d="M {x0:.1f} {y0:.1f} L {x1:.1f} {y1:.1f}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    if y0 == y1:
        head = f"M {x1 - 6:.1f} {y1 - 3.5:.1f} L {x1:.1f} {y1:.1f} L {x1 - 6:.1f} {y1 + 3.5:.1f}"
    else:
        head = f"M {x1 - 3.5:.1f} {y1 + 6:.1f} L {x1:.1f} {y1:.1f} L {x1 + 3.5:.1f} {y1 + 6:.1f}"
    yield f'<path d="{head}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, fill: str, anchor: str = "middle", bold: bool = False, size: int = 11) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="monospace" font-size="{size}" text-anchor="{anchor}" fill="{fill}"'
        f'{weight} xml:space="preserve">{html.escape(text)}</text>'
    )
