"""The key `integrate`: how differential equations are made into steps.

    integrate: {method: rk4, dt: 0.1, substeps: 6}
    integrate:
      method: {v: exponential_euler, w: euler}
      dt: delta
      start: {v: where(s[t-1] > 0, v_reset, v[t-1])}

Each setting is one for all, or one by name. Expressions are those of the equations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from yaml.nodes import MappingNode, Node

from rnnspec.errors import SpecError
from rnnspec.language.methods import METHODS
from rnnspec.language.reading.document import Entry, StatedIntegration
from rnnspec.language.reading.values import Values
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Expr, located

V = TypeVar("V")
KEYS = ("method", "dt", "substeps", "start")


def integration(values: Values, node: Node) -> StatedIntegration:
    """What the key says, what is wrong with it noted and left out."""
    found: dict[str, dict[str, Entry[object]]] = {key: {} for key in KEYS}
    pairs = values.pairs(node, "integrate")
    for key, at, value in pairs:
        if key not in KEYS:
            values.faults.add(
                f"unknown key '{key[:60]}' in integrate.{did_you_mean(key, KEYS)} Known here: {listed(KEYS)}.", at
            )
            continue
        read = _method if key == "method" else _expression
        if key == "start" and not isinstance(value, MappingNode):
            values.wrong("start says by name where integration begins, like {v: 'v_reset[t-1]'}.", value)
            continue
        found[key] = _by_name(values, value, f"'{key}' of integrate", read)
    if not pairs:
        values.wrong("integrate is empty. Write {method: rk4, dt: 0.1}, or take it out.", node)
    return StatedIntegration(**found)  # type: ignore[arg-type]


def _by_name(
    values: Values, node: Node, what: str, read: Callable[[Values, Node, str], V | None]
) -> dict[str, Entry[V]]:
    given = values.named(node, what) if isinstance(node, MappingNode) else [("", values.sheet.place(node), node)]
    found = {name: (read(values, value, what), values.sheet.place(value)) for name, _, value in given}
    return {name: Entry(value, at) for name, (value, at) in found.items() if value is not None}


def _method(values: Values, node: Node, what: str) -> str | None:
    name = values.text(node, what).strip()
    if name in METHODS:
        return name
    values.wrong(f"there is no method '{name[:60]}'.{did_you_mean(name, METHODS)} Known here: {listed(METHODS)}.", node)
    return None


def _expression(values: Values, node: Node, what: str) -> Expr | None:
    try:
        return located(parse_expression(values.text(node, what)), values.sheet.place(node))
    except SpecError as error:
        values.wrong(f"{what}: {error.errors[0].message}", node)
        return None
