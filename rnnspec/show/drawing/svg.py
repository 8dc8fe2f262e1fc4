"""Drawings as SVG: plain shapes and text, readable without any other file, no wider than a page.

In: a Spec and a view. Out: SVG text. From above: what a step reads, its gates and operations, what
it leaves; parameters stand at the edges of the marks that they belong to. A thick line goes through
a matrix. Names are those of the file.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rnnspec.language.lift import named_constants
from rnnspec.language.spec import Spec
from rnnspec.show.drawing import VIEWS
from rnnspec.show.drawing.forward import step
from rnnspec.show.drawing.layout import PAGE, placed
from rnnspec.show.drawing.marks import PAD, ROUND, ROW, Line, Mark
from rnnspec.show.drawing.unrolled import unrolled

COLOURS = {
    "input": "#dbeafe",
    "state": "#dcfce7",
    "once": "#f3f4f6",
    "gate": "#fde68a",
    "function": "#ddd6fe",
    "operation": "#fbcfe8",
    "box": "#ffffff",
    "gradient": "#ffffff",
    "output": "#fef3c7",
}
INK, QUIET, EDGE = "#1f2937", "#6b7280", "#1d4ed8"
THIN = f'stroke="{QUIET}" stroke-width="1.2"'
LINES: Mapping[Line, str] = {
    "thin": THIN,
    "minus": THIN,
    "divisor": THIN,
    "matrix": f'stroke="{EDGE}" stroke-width="2.2"',
    "once": f'stroke="{QUIET}" stroke-width="1" stroke-dasharray="3 3"',
}
HEADS: Mapping[Line, str] = {"minus": "−", "divisor": "÷"}  # signs at the ends of lines
MARGIN = 17.0
LEGENDS = {
    "step": "blue: inputs; green: values of the step before; yellow circles: gates, from 0 to 1; violet: other "
    "functions; pink: element by element; blue text: parameters; a thick line goes through a matrix, as does a point",
    "backward": "from the gradients of step t+1 (green) and of the outputs (blue) down to those of the step before and "
    "of the inputs (yellow); blue text: parameters whose gradients are summed from it",
}


def svg(spec: Spec, view: str = "step") -> str:
    """The drawing of a cell.

    view: "step", "backward" for the derived gradients, "unrolled" for three steps in a row. Raises
    ValueError for another.
    """
    if view == "unrolled":
        return page(f"{spec.name}: {spec.title}", *unrolled(spec))
    if view not in VIEWS:
        raise ValueError(f"there is no view {view!r}: choose {', '.join(VIEWS)}")
    marks = marks_of(spec, view)
    placed(marks)
    constants = ", ".join(f"{n} = {v:g}" for n, v in named_constants(spec).values.items()) if view == "step" else ""
    lines = [part for mark in marks.values() for part in _lines(mark, marks)]
    shapes = [part for mark in marks.values() if mark.kind for part in _shape(mark)]
    bottom = max(m.below for m in marks.values())
    left, right = (f(m.x - m.core / 2 + m.width * at for m in marks.values()) for f, at in ((min, 0), (max, 1)))
    return page(
        f"{spec.name}: {spec.title}",
        [*lines, *shapes],
        (left, right),
        bottom,
        LEGENDS[view] + (f"; {constants}" if constants else ""),
    )


def marks_of(spec: Spec, view: str) -> dict[str, Mark]:
    if view == "step":
        return step(named_constants(spec).spec)
    from rnnspec.show.drawing.backward import backward
    from rnnspec.show.reading import reading

    return backward(reading(spec))


def page(title: str, parts: Sequence[str], span: tuple[float, float], bottom: float, legend: str) -> str:
    """A whole SVG file. parts: what is drawn, from y = 0 down to `bottom`, from span[0] to
    span[1]."""
    wide = max(360.0, min(PAGE, span[1] - span[0]))
    heads = [(line, 14, INK, ' font-weight="bold"') for line in textwrap.wrap(title, int(wide / 8.0))]
    heads += [(line, 10, QUIET, "") for line in textwrap.wrap(legend, int(wide / 5.0))]
    x, top = min(span[0], (span[0] + span[1] - wide) / 2) - MARGIN, -18.0
    texts = []
    for line, size, colour, weight in reversed(heads):
        texts.append(
            f'<text x="{x + MARGIN:.1f}" y="{top:.1f}" font-family="sans-serif" font-size="{size}" fill="{colour}"'
            f"{weight}>{html.escape(line)}</text>"
        )
        top -= size + 5
    width, height = wide + 2 * MARGIN, bottom - top + MARGIN + 4
    frame = f'x="{x:.1f}" y="{top - 4:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="{x:.1f} {top - 4:.1f} {width:.1f} {height:.1f}">',
            f"<title>{html.escape(title)}</title>",
            f'<rect {frame} fill="white"/>',
            *reversed(texts),
            *parts,
            "</svg>",
            "",
        ]
    )


def text_at(
    x: float, y: float, text: str, *, size: float = 11, anchor: str = "middle", fill: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="monospace" font-size="{size:g}" text-anchor="{anchor}"'
        f' fill="{fill}"{weight} xml:space="preserve">{html.escape(text)}</text>'
    )


def _lines(mark: Mark, marks: Mapping[str, Mark]) -> Iterator[str]:
    """Curves between the layers, straight within them."""
    reads = sorted(mark.reads.items(), key=lambda item: marks[item[0]].x)
    style = ""
    for number, (read, line) in enumerate(reads):
        start = marks[read]
        own = 2 * ROUND if start.is_round else len(start.text) * ROW + PAD
        end = start.y + own / 2 if start.kind else start.below
        spread = min(mark.core * 0.6, 14.0 * (len(reads) - 1))
        x = mark.x + (spread * (number / (len(reads) - 1) - 0.5) if len(reads) > 1 else 0.0)
        half = (mark.above - start.below) / 2
        style = f'fill="none" {LINES[line]}'
        curve = f"M {start.x:.1f} {end:.1f} V {start.below:.1f} C {start.x:.1f} {start.below + half:.1f}"
        y = _entry(mark, x)
        yield f'<path d="{curve} {x:.1f} {mark.above - half:.1f} {x:.1f} {mark.above:.1f} V {y:.1f}" {style}/>'
        if mark.kind:
            yield f'<path d="M {x - 3.5:.1f} {y - 6:.1f} L {x:.1f} {y:.1f} L {x + 3.5:.1f} {y - 6:.1f}" {style}/>'
        if mark.kind and line in HEADS:
            yield text_at(x + (9 if x >= mark.x else -9), y, HEADS[line], size=13, fill=QUIET, bold=True)
    if not mark.kind:
        yield f'<path d="M {mark.x:.1f} {mark.above:.1f} V {mark.below:.1f}" {style}/>'


def _entry(mark: Mark, x: float) -> float:
    """Where a line from above meets a mark: the circle, not the square around it."""
    if not mark.kind:
        return mark.above
    if not mark.is_round:
        return mark.y - (len(mark.text) * ROW + PAD) / 2
    beyond = max(0.0, abs(x - mark.x) - (mark.core / 2 - ROUND))
    return mark.y - max(0.0, ROUND**2 - beyond**2) ** 0.5


def _shape(mark: Mark) -> Iterator[str]:
    x, y, fill = mark.x, mark.y, COLOURS[mark.kind]
    if mark.is_round:
        wide, tall = mark.core, 2 * ROUND
    else:
        wide, tall = mark.core, len(mark.text) * ROW + PAD
    round_ = ROUND if mark.is_round else 5
    yield (
        f'<rect x="{x - wide / 2:.1f}" y="{y - tall / 2:.1f}" width="{wide:.1f}" height="{tall:.1f}" rx="{round_:g}"'
        f' fill="{fill}" stroke="{INK}"/>'
    )
    first = y - (len(mark.text) - 1) * ROW / 2 + 4
    for number, line in enumerate(mark.text):
        if mark.is_round:
            sign = len(line) == 1
            yield text_at(x, first + (1 if sign else 0), line, size=16 if sign else 11)
        else:
            bold = number == 0 and mark.kind in ("gradient", "output", "input", "state")
            yield text_at(x - wide / 2 + PAD, first + number * ROW, line, anchor="start", bold=bold)
    beside = [(mark.name, 11.0, INK, True)] if mark.name else []
    beside += [(line, 9.5, EDGE, False) for line in mark.edge]
    top = y - (len(beside) - 1) * (ROW - 2) / 2 + 3.5
    for number, (line, size, colour, bold) in enumerate(beside):
        yield text_at(
            x + wide / 2 + 4, top + number * (ROW - 2), line, size=size, anchor="start", fill=colour, bold=bold
        )
