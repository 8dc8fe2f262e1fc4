"""Which matrices of a step need no memory, because nothing but sums along one of their axes, or
over all rows, reads them: `sum_j f(v[j], w[i, j])` is computed pair by pair where it is summed.

In: a Graph. Out: names of its nodes. What is summed, and in which loops, is the stages' matter
(stages.py) and the backend's; one that has no such loops schedules without pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rnnspec.symbolic.graph import Graph, Node, Outer, Pointwise, Product, operands


def pairs_of(graph: Graph, saved: Collection[str] = ()) -> frozenset[str]:
    """The outer products and pointwise matrices that only such matrices read, products with a
    vector, and sums over all rows. Not those that a program saves or emits, that a state becomes,
    or that an outer sum adds up by itself; and none in a graph with columns.

    saved: values that the program keeps on its tape.
    """
    if graph.columned():
        return frozenset()
    uses, kept = graph.uses(), {*graph.states.values(), *graph.outputs.values(), *saved}
    summed = {name for group in graph.sums.values() for name in group}
    kept |= {name for name in summed if isinstance(graph.nodes[name], Outer)}
    found: set[str] = set()
    for name in reversed(list(graph.nodes)):
        matrix = isinstance(graph.nodes[name], Outer | Pointwise) and len(graph.shapes[name]) == 2
        if not matrix or name in kept or not (uses[name] or name in summed):
            continue
        if all(reader in found or _sums(graph, graph.nodes[reader], name) for reader in uses[name]):
            found.add(name)
    return frozenset(_worth_it(graph, found, uses))


def _worth_it(graph: Graph, found: set[str], uses: Mapping[str, list[str]]) -> set[str]:
    """The matrices that would have to be in memory otherwise: outer products, what is summed along
    an axis, and all that is computed with them. What is left is added up where it is computed."""
    worth = {n for n in found if isinstance(graph.nodes[n], Outer) or any(r not in found for r in uses[n])}
    open_nodes = list(worth)
    while open_nodes:
        name = open_nodes.pop()
        beside = (found & {*operands(graph.nodes[name]), *uses[name]}) - worth
        worth |= beside
        open_nodes += beside
    return worth


def _sums(graph: Graph, reader: Node, name: str) -> bool:
    """Whether a node is the product of a matrix and a vector: a sum along one of its axes."""
    return isinstance(reader, Product) and reader.matrix == name and len(graph.shapes[reader.vector]) == 1


def numbers_of(graph: Graph, pairs: Collection[str]) -> frozenset[str]:
    """Vectors of one number, such as ones(H), that only pairs and their sums read: they need no
    memory either."""
    uses = graph.uses()
    return frozenset(
        name
        for name, node in graph.nodes.items()
        if isinstance(node, Pointwise)
        and not operands(node)
        and uses[name]
        and all(r in pairs or _sums_pairs(graph.nodes[r], pairs) for r in uses[name])
        and name not in set(graph.results())
    )


def _sums_pairs(reader: Node, pairs: Collection[str]) -> bool:
    return isinstance(reader, Product) and reader.matrix in pairs
