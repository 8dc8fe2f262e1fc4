"""Which nodes of a step its results depend on."""

from __future__ import annotations

from collections.abc import Iterable

from rnnspec.lowering.writer import expand
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import Graph, Node, Pointwise, operands


def needed_of(graph: Graph, more: Iterable[str] = ()) -> frozenset[str]:
    """The nodes that results, and `more` of them, depend on: a derivative's surrogate is of no use
    here."""
    found = {*graph.results(), *more}
    for name in reversed(list(graph.nodes)):
        if name in found:
            found.update(taken(graph.nodes[name]))
    return frozenset(found)


def taken(node: Node) -> tuple[str, ...]:
    """The values that the text of a node reads: of a surrogate's operands not those that only its
    derivative has."""
    return names(expand(node.expr)) if isinstance(node, Pointwise) else operands(node)
