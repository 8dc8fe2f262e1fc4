"""What no gradient flows through, as inputs: a definition whose derivative by differences is what
the adjoint means.

In: a forward graph and a case. Out: the graph in which stop_gradient(v) reads a stream of the
values that v has in the case, and straight_through(value, via) moves as `via` does from where it
stands; and those streams. A graph without the two functions is returned as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.check.sampling import Case
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.derive import surrogates
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read
from rnnspec.symbolic.operations import Value, add, subtract, symbol


def with_stopped(graph: Graph, case: Case) -> tuple[Graph, dict[str, Array]]:
    """The graph with the values of this case in place of what is stopped, and those values, [T, B,
    ...] by the names of its new inputs."""
    if not surrogates(graph):
        return graph, {}
    work = _Replacing(dict(graph.shapes))
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        if isinstance(node, Pointwise):
            node = Pointwise(work.expression(node.expr, graph.shapes[name]))
        nodes |= {own: Read("input", own) for own in work.taken(name)}
        nodes[name] = node
    watched = replace(graph, nodes={**graph.nodes, **work.watched}, shapes=work.shapes)
    given = (case.params, case.inputs, case.states, case.lengths)
    run = reference.forward(watched, *given, sizes=case.sizes, lead=case.lead)
    values = {
        own: np.broadcast_to(run.values[own], (*case.lead, *full_shape(work.shapes[own], case.sizes)))
        for own in work.watched
    }
    return replace(graph, nodes=nodes, shapes=work.shapes), values


@dataclass
class _Replacing:
    """Puts inputs into expressions. shapes: of every node, old and new; watched: the nodes whose
    values the inputs have."""

    shapes: dict[str, Shape]
    watched: dict[str, Node] = field(default_factory=dict)
    told: int = 0

    def taken(self, name: str) -> list[str]:
        """The inputs that are new since the last call. name: of the node that reads them."""
        new = list(self.watched)[self.told :]
        self.told = len(self.watched)
        return new

    def kept(self, expr: Value, shape: Shape) -> Value:
        """An input with the value of an expression."""
        own = fresh("stopped", self.shapes)
        self.watched[own], self.shapes[own] = Pointwise(expr), shape
        return symbol(own)

    def expression(self, expr: Value, shape: Shape) -> Value:
        match type(expr).__name__:
            case "stop_gradient":
                return self.kept(expr.args[0], shape)
            case "straight_through":
                value, via = expr.args  # exactly `value` where `via` is what it was
                return add(self.kept(value, shape), subtract(self.expression(via, shape), self.kept(via, shape)))
        args = [self.expression(a, shape) for a in expr.args]
        return expr if args == list(expr.args) else expr.func(*args)
