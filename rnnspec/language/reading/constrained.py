"""The key `constrain`: lists of constraints, with their places.

    constrain: {U: [mask(M), no_self, bounded(0, 1)], b: nonnegative}

YAML ends an entry of a list at each comma, so that what stands between brackets is put together
again.
"""

from __future__ import annotations

from dataclasses import replace

from yaml.nodes import Node, ScalarNode, SequenceNode

from rnnspec.language.constraints import StatedConstraint, stated_constraint
from rnnspec.language.reading.document import Entry
from rnnspec.language.reading.values import Values
from rnnspec.language.syntax.tree import Place

MOST = 16  # constraints of one parameter
Stated = tuple[Entry[StatedConstraint], ...]


def constrained(values: Values, node: Node) -> dict[str, Entry[Stated]]:
    """name or pattern of parameters -> their constraints, what is no constraint noted and left
    out."""
    found: dict[str, Entry[Stated]] = {}
    for key, at, value in values.pairs(node, "constrain"):
        stated = _constraints(values, key, value)
        for name in key.split(","):
            if name.strip() in found:
                values.faults.add(f"'{name.strip()[:60]}' is given twice in constrain.", at)
            found[name.strip()] = Entry(stated, at)
    return found


def _constraints(values: Values, name: str, node: Node) -> Stated:
    items = list(node.value) if isinstance(node, SequenceNode) else [node]
    found: list[Entry[StatedConstraint]] = []
    for text, at in _joined(values, items, f"each constraint of '{name[:40]}'")[: MOST + 1]:
        says = stated_constraint(text)
        if isinstance(says, str):
            values.faults.add(says, at)
        else:
            found.append(Entry(says, at))
    if len(found) > MOST:
        values.wrong(f"'{name[:40]}' has more than {MOST} constraints.", node)
    return tuple(found[:MOST])


def _joined(values: Values, items: list[Node], what: str) -> list[tuple[str, Place]]:
    """The texts of a list, those that a comma within brackets parted put together."""
    found: list[tuple[str, Place]] = []
    for item in items:
        text, at = values.text(item, what), values.sheet.place(item)
        if found and found[-1][0].count("(") > found[-1][0].count(")"):
            before, first = found.pop()
            same = at.line == first.line
            text, at = f"{before}, {text}", replace(first, width=at.column + at.width - first.column) if same else first
        if isinstance(item, ScalarNode):
            found.append((text, at))
    return found
