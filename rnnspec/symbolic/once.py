"""Graph -> two Graphs: what is computed once per sequence, and the step that reads it.

A node that depends on parameters, sizes and numbers alone has one value for a whole sequence. Where
such a value is more than element-by-element arithmetic on vectors (a matrix, a product, a
reduction, a transcendental function of a parameter), it goes into the graph *once*, whose outputs
the step then reads as if they were parameters. The same split serves the gradients: the adjoint of
the step sums the gradient of each such value over batch and time like that of a parameter, and the
adjoint of *once*, run a single time, takes it on to the parameters. Nothing is declared: which
values these are follows from what they read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.expressions import is_cheap
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read, operands
from rnnspec.symbolic.operations import symbol
from rnnspec.symbolic.simplify import drop_dead

LASTING = ("parameter", "size")


@dataclass(frozen=True)
class Split:
    """once: parameters -> values, as outputs under their names; it has no states and no inputs.
    step: the rest, reading them as parameters; those not in `once.outputs` are parameters of the
    cell or pieces of them. `once` has no outputs where nothing is to do.
    """

    once: Graph
    step: Graph


def split_once(graph: Graph) -> Split:
    """The forward graph of a cell, split."""
    lasting: set[str] = set()
    trained: set[str] = set()  # of those, what depends on a parameter
    heavy: set[str] = set()  # of those, what the step should not compute again and again
    for name, node in graph.nodes.items():
        if node.kind in LASTING if isinstance(node, Read) else all(o in lasting for o in operands(node)):
            lasting.add(name)
            if node.kind == "parameter" if isinstance(node, Read) else any(o in trained for o in operands(node)):
                trained.add(name)
            if not isinstance(node, Read) and (
                _is_heavy(node, graph, name, name in trained) or any(o in heavy for o in operands(node))
            ):
                heavy.add(name)
    results = set(graph.results())
    read = {o for name, node in graph.nodes.items() if name not in lasting for o in operands(node)} | results
    outputs = {name: name for name in graph.nodes if name in heavy and name in read}
    once = drop_dead(
        Graph(
            f"{graph.name}, once",
            {n: graph.nodes[n] for n in graph.nodes if n in lasting},
            graph.shapes,
            {},
            outputs,
            {},
            graph.pieces,
        )
    )
    nodes: dict[str, Node] = {}
    shapes = dict(graph.shapes)
    for name, node in graph.nodes.items():
        if (
            name in outputs and name in results
        ):  # emitted or carried at every step: a copy, since a parameter is neither
            known = fresh(f"{name}_once", shapes)
            nodes[known], shapes[known] = Read("parameter", name), shapes[name]
            nodes[name] = Pointwise(symbol(known))
        else:
            nodes[name] = Read("parameter", name) if name in outputs else node
    step = drop_dead(replace(graph, nodes=nodes, shapes=shapes))
    once.verify()
    step.verify()
    return Split(once, step)


def _is_heavy(node: Node, graph: Graph, name: str, trained: bool) -> bool:
    """A root of a size alone is not: for it no second graph is worth its start."""
    return not isinstance(node, Pointwise) or len(graph.shapes[name]) > 1 or (trained and not is_cheap(node.expr))
