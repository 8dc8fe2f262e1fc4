"""The data flow of one step as an SVG picture: `rnnspec show NAME --svg FILE`.

In: a Spec. Out: SVG text, plain shapes and text, readable without any other file. From left to
right: what a step reads (inputs, values of earlier steps), one box for each equation, what it
leaves (outputs, states for the next step). A thick line goes through a matrix. Parameters stand in
the equations; what is computed once per sequence has a box of its own.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Equation, Expr, Ref, children, to_text
from rnnspec.show.equations import left_side

WRAP, LINES = 34, 4  # letters in a line of a box, lines at most
LETTER, ROW, PAD = 7.2, 15.0, 8.0  # of 11 px monospace, the widest in use
GAP, SLOT, WAY = 74.0, 16.0, 10.0  # between columns, between boxes, height of a line that passes a column
COLOURS = {"input": "#dbeafe", "state": "#dcfce7", "value": "#ffffff", "once": "#f3f4f6", "output": "#fef3c7"}
ROUNDS = 12


@dataclass
class Box:
    """kind: input, state (of an earlier step, or for the next), value, once, output; "" is a line
    that passes its column. leaves: it is what a step leaves."""

    name: str
    kind: str
    lines: tuple[str, ...] = ()
    column: int = 0
    y: float = 0.0
    leaves: bool = False
    reads: dict[str, bool] = field(default_factory=dict)  # what it reads, and whether through a matrix

    @property
    def width(self) -> float:
        return max((len(line) for line in (self.name, *self.lines)), default=0) * LETTER + 2 * PAD if self.kind else 0.0

    @property
    def height(self) -> float:
        return (1 + len(self.lines)) * ROW + PAD if self.kind else WAY


def svg(spec: Spec) -> str:
    """The picture of a cell's step."""
    boxes, columns = layout(spec)
    return _drawn(spec, boxes, columns)


# --- what there is ---


def data_flow(spec: Spec) -> dict[str, Box]:
    """The boxes of a step by name, each after what it reads, none with a place yet.

    Names are "h[t-1]" and "x[t]" for what stands before, those of equations, "h[t+1]" and "out h"
    for what comes after.
    """
    boxes: dict[str, Box] = {}
    targets = {e.target for e in spec.equations}
    for equation in spec.equations:
        reads: dict[str, bool] = {}
        for ref, product in _refs(equation.value, False):
            if ref.name in spec.parameters:
                continue
            key = ref.name if ref.name in targets and not ref.time else f"{ref.name}[{_time(ref)}]"
            if key not in boxes and key not in targets:
                boxes[key] = Box(key, "input" if ref.name in spec.inputs and not ref.time else "state")
            reads[key] = reads.get(key, False) or product
        name = left_side(equation)
        boxes[equation.target] = Box(name, "value" if equation.timed else "once", _wrapped(equation), reads=reads)
    for state in spec.states:
        boxes[f"{state}[t+1]"] = Box(f"{state}, to the next step", "state", leaves=True, reads={state: False})
    for output in spec.outputs:
        boxes[f"out {output}"] = Box(f"{output}, emitted", "output", leaves=True, reads={output: False})
    return boxes


def _time(ref: Ref) -> str:
    return f"t{ref.time or ''}"


def _wrapped(equation: Equation) -> tuple[str, ...]:
    lines = textwrap.wrap(to_text(equation.value), WRAP, break_long_words=True)
    return tuple(lines if len(lines) <= LINES else [*lines[: LINES - 1], lines[LINES - 1][: WRAP - 2] + " …"])


def _refs(expr: Expr, product: bool) -> Iterator[tuple[Ref, bool]]:
    """What changes with time, or is computed, in an expression; product: whether it is multiplied
    by a matrix."""
    match expr:
        case Ref(name):
            if name != "t":
                yield expr, product
        case Binary("@", left, right):
            yield from _refs(left, True)
            yield from _refs(right, True)
        case _:
            for part in children(expr):
                yield from _refs(part, product)


# --- where it stands ---


def layout(spec: Spec) -> tuple[dict[str, Box], list[list[str]]]:
    """The boxes of a step where they stand, by name, and the names in each column from above.

    A line over several columns has a box of no kind in each that it passes.
    """
    boxes = data_flow(spec)
    columns = _columns(boxes)
    _order(boxes, columns)
    return boxes, columns


def _columns(boxes: dict[str, Box]) -> list[list[str]]:
    """Names by column. In each column that a line passes, a box of no kind keeps its way free."""
    for box in boxes.values():
        box.column = max((boxes[r].column + 1 for r in box.reads), default=0)
    last = max(box.column for name, box in boxes.items())
    for box in boxes.values():
        if box.leaves:
            box.column = last
    for name, box in reversed(list(boxes.items())):  # what is read late stands late, next to its first reader
        readers = [b.column for b in boxes.values() if name in b.reads]
        if not box.reads and box.kind == "once" and readers:
            box.column = max(0, min(readers) - 1)
    for box in list(boxes.values()):
        for read, product in list(box.reads.items()):
            previous = read
            for column in range(boxes[read].column + 1, box.column):
                way = f"{read} > {column}"
                boxes.setdefault(way, Box(way, "", column=column, reads={previous: product}))
                boxes[way].reads[previous] = boxes[way].reads[previous] or product
                previous = way
            if previous != read:
                del box.reads[read]
                box.reads[previous] = product
    return [[name for name, box in boxes.items() if box.column == column] for column in range(last + 1)]


def _order(boxes: Mapping[str, Box], columns: list[list[str]]) -> None:
    """The order within columns that leaves few crossings (barycentres, Sugiyama et al. 1981), and
    heights without overlaps."""
    linked: dict[str, list[str]] = {name: [*box.reads] for name, box in boxes.items()}
    for name, box in boxes.items():
        for read in box.reads:
            linked[read].append(name)
    for column in columns:
        _place(boxes, column)
    for number in range(ROUNDS):
        for column in columns if number % 2 == 0 else reversed(columns):
            sides = {
                n: [boxes[o].y for o in linked[n] if (boxes[o].column < boxes[n].column) == (number % 2 == 0)]
                for n in column
            }
            wanted = {n: sum(ys) / len(ys) if ys else boxes[n].y for n, ys in sides.items()}
            column.sort(key=wanted.__getitem__)
            _place(boxes, column, wanted)


def _place(boxes: Mapping[str, Box], column: list[str], wanted: Mapping[str, float] | None = None) -> None:
    """Middles of the boxes, in the order of the column, as near to what is wanted as leaves them
    apart."""
    groups: list[tuple[list[str], float]] = []  # boxes that touch, and the middle of them all that they want
    for name in column:
        group, middle = [name], (wanted or {}).get(name, boxes[name].y)
        while groups and groups[-1][1] + _tall(boxes, groups[-1][0]) / 2 > middle - _tall(boxes, group) / 2:
            before, at = groups.pop()
            middle = (at * len(before) + middle * len(group)) / (len(before) + len(group))
            group = before + group
        groups.append((group, middle))
    for group, middle in groups:
        top = middle - _tall(boxes, group) / 2
        for name in group:
            full = boxes[name].height + SLOT
            boxes[name].y = top + full / 2
            top += full


def _tall(boxes: Mapping[str, Box], group: list[str]) -> float:
    return sum(boxes[n].height + SLOT for n in group)


# --- the picture ---


def _drawn(spec: Spec, boxes: Mapping[str, Box], columns: list[list[str]]) -> str:
    top = min(b.y - b.height / 2 for b in boxes.values()) - 62
    bottom = max(b.y + b.height / 2 for b in boxes.values()) + 20
    left: list[float] = []
    x = 20.0
    widths = [max((boxes[n].width for n in column), default=0) for column in columns]
    for width in widths:
        left.append(x)
        x += width + GAP
    total = max(x - GAP + 20, len(spec.title) * 8 + 40)
    lines = [line for box in boxes.values() for line in _lines(box, boxes, left, widths)]
    shapes = [part for box in boxes.values() if box.kind for part in _shape(box, left[box.column])]
    title = html.escape(f"{spec.name}: {spec.title}")
    legend = "read and carried values green, inputs blue, outputs yellow; a thick line goes through a matrix"
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{bottom - top:.0f}" viewBox="0'
                f' {top:.0f} {total:.0f} {bottom - top:.0f}">'
            ),
            f"<title>{title}</title>",
            f'<rect x="0" y="{top:.0f}" width="{total:.0f}" height="{bottom - top:.0f}" fill="white"/>',
            f'<text x="20" y="{top + 24:.0f}" font-family="sans-serif" font-size="15" font-weight="bold">'
            f"{title}</text>",
            f'<text x="20" y="{top + 42:.0f}" font-family="sans-serif" font-size="11" fill="#555">{legend}</text>',
            *lines,
            *shapes,
            "</svg>",
            "",
        ]
    )


def _lines(box: Box, boxes: Mapping[str, Box], left: list[float], widths: list[float]) -> Iterator[str]:
    """Curves between the columns, straight across the column that a line passes."""

    def style(product: bool) -> str:
        return f'fill="none" stroke="{"#2563eb" if product else "#6b7280"}" stroke-width="{2.2 if product else 1.1}"'

    for read, product in box.reads.items():
        start = boxes[read]
        x0 = left[start.column] + (start.width if start.kind else widths[start.column])
        x1, half = left[box.column], GAP / 2
        yield (
            f'<path d="M {x0:.1f} {start.y:.1f} C {x0 + half:.1f} {start.y:.1f} {x1 - half:.1f} {box.y:.1f} {x1:.1f}'
            f' {box.y:.1f}" {style(product)}/>'
        )
        if box.kind:
            yield (
                f'<path d="M {x1 - 6:.1f} {box.y - 3.5:.1f} L {x1:.1f} {box.y:.1f} L {x1 - 6:.1f} {box.y + 3.5:.1f}"'
                f" {style(product)}/>"
            )
    if not box.kind:
        product = any(box.reads.values())
        yield (
            f'<path d="M {left[box.column]:.1f} {box.y:.1f} H {left[box.column] + widths[box.column]:.1f}"'
            f" {style(product)}/>"
        )


def _shape(box: Box, x: float) -> Iterator[str]:
    y = box.y - box.height / 2
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5"'
        f' fill="{COLOURS[box.kind]}" stroke="#374151"/>'
    )
    for number, line in enumerate((box.name, *box.lines)):
        weight = ' font-weight="bold"' if number == 0 else ""
        yield (
            f'<text x="{x + PAD:.1f}" y="{y + PAD / 2 + 11 + number * ROW:.1f}" font-family="monospace"'
            f' font-size="11"{weight} xml:space="preserve">{html.escape(line)}</text>'
        )
