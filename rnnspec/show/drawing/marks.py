"""What a drawing is made of: marks that read one another, none with a place yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LETTER, SMALL = 7.0, 5.8  # widths of letters of 11 px and of 9.5 px, the widest in use
ROUND, ROW, PAD = 17.0, 14.0, 8.0  # radius of a circle; height of a line of text; around text
WAY = 12.0  # width of a line that passes a layer

Kind = Literal["input", "state", "once", "gate", "function", "operation", "box", "gradient", "output", ""]
Line = Literal["thin", "matrix", "once", "minus", "divisor"]


@dataclass
class Mark:
    """kind: what a step reads (input, state, once), a gate (values from 0 to 1), another function
    of one value, an operation, a box with an expression, a gradient, what a step leaves (output);
    "" is a line that passes its layer. text: what stands in it. name: the name of its value, beside
    it. edge: what stands at its edge, parameters above all, in lines. reads: what it reads, and by
    which line: matrix goes through a product with a matrix, once comes from what is computed once
    per sequence, minus is taken away, divisor divides.
    """

    kind: Kind
    text: tuple[str, ...] = ()
    name: str = ""
    edge: tuple[str, ...] = ()
    reads: dict[str, Line] = field(default_factory=dict)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    above: float = 0.0  # where its layer begins and ends
    below: float = 0.0

    @property
    def is_round(self) -> bool:
        return self.kind in ("gate", "function", "operation")

    @property
    def core(self) -> float:
        """The width without what stands beside it."""
        if not self.kind:
            return WAY
        wide = max((len(line) for line in self.text), default=0) * LETTER + 2 * PAD
        return max(2 * ROUND, wide - PAD) if self.is_round else wide

    @property
    def beside(self) -> float:
        """The width of what stands to the right of it: its name and its edge."""
        return max((*(len(t) * SMALL for t in self.edge), len(self.name) * LETTER), default=0.0) + 4.0 * bool(
            self.edge or self.name
        )

    @property
    def width(self) -> float:
        return self.core + self.beside

    @property
    def height(self) -> float:
        if not self.kind:
            return 0.0
        own = 2 * ROUND if self.is_round else len(self.text) * ROW + PAD
        return max(own, (len(self.edge) + bool(self.name)) * (ROW - 2) + 2)


Marks = Mapping[str, Mark]


def text_lines(text: str, room: int) -> list[str]:
    """A text of the language in lines of about `room` letters, cut at spaces, or behind brackets
    and commas."""
    found = [""]
    for part in re.findall(r"[^\s(,]+[(,]*\s*|[(,]+\s*", text):
        if found[-1] and len(found[-1]) + len(part.rstrip()) > room:
            found[-1] = found[-1].rstrip()
            found.append("")
        found[-1] += part
    return [line.rstrip() for line in found]


def wrapped(names: list[str], room: int, lines: int = 99) -> tuple[str, ...]:
    """Names with commas, in lines of at most `room` letters where none is longer."""
    found: list[str] = []
    for name in dict.fromkeys(names):
        if found and len(found[-1]) + len(name) + 2 <= room:
            found[-1] += f", {name}"
        else:
            found.append(name)
    return tuple(found[:lines])
