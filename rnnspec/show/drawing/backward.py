"""The derived backward pass of a step as marks: a box for each gradient, with its equation.

In: a Reading. Out: marks. At the edge of a gradient stand the parameters whose gradients are summed
from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rnnspec.show.adjoint import backward_equations
from rnnspec.show.drawing.marks import Mark, text_lines, wrapped
from rnnspec.show.reading import Reading

ROOM, EDGE = 30, 14


def backward(known: Reading) -> dict[str, Mark]:
    """The marks of a backward pass by the names of gradients: "d_h_next" and "d_h_out" stand
    before, those of states before the step and of inputs at the end."""
    equations = backward_equations(known)
    marks: dict[str, Mark] = {}
    for name in [*(f"d_{s}_next" for s in known.reverse.states), *(f"d_{o}_out" for o in known.spec.outputs)]:
        marks[name] = Mark("state" if name.endswith("_next") else "input", (name,))
    left = {f"d_{s}_prev" for s in known.reverse.states} | {f"d_{i}" for i in known.reverse.outputs}
    for text in equations.steps:
        name, value = text.split(" = ", 1)
        lines = (name, *text_lines(value, ROOM))
        marks[name] = Mark(
            "output" if name in left else "gradient", lines, reads=dict.fromkeys(_reads(value, marks), "thin")
        )
    for text in equations.sums:
        name, value = text.split(" = ", 1)
        for read in _reads(value, marks):
            marks[read].edge = (*marks[read].edge, name.removeprefix("d_"))
    for mark in marks.values():
        mark.edge = tuple(f"→ {line}" if n == 0 else line for n, line in enumerate(wrapped(list(mark.edge), EDGE)))
    used = {read for mark in marks.values() for read in mark.reads}
    return {n: m for n, m in marks.items() if n in used or m.reads or m.edge}


def _reads(value: str, marks: Mapping[str, Mark]) -> list[str]:
    """The gradients in an equation, in order."""
    words = re.findall(r"[A-Za-z_]\w*(?:\[t\])?", value)
    return [w for w in dict.fromkeys(words) if w in marks]
