"""Graph -> Graph: a step as mathematics, for readers.

What stands in a step only so that no number overflows (the largest element that softmax subtracts,
the powers of two of norm and layer_norm) and what keeps 0 * inf out of a gradient change no value
that is a number: both are left out. Kernels are never made of these graphs.
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from rnnspec.symbolic.expressions import names, neutral_form
from rnnspec.symbolic.graph import Graph, Node, Pointwise
from rnnspec.symbolic.operations import Value, equal, select
from rnnspec.symbolic.simplify import tidy


def plain(graph: Graph) -> Graph:
    """The step with every internal function as what it may be taken for."""
    return _changed(graph, _without_scales)


def plain_adjoint(reverse: Graph, graph: Graph) -> Graph:
    """The adjoint of `graph` without the selects that make its gradients 0 where 0 flows in."""
    return _changed(reverse, lambda expr: _without_guards(expr, graph))


def _changed(graph: Graph, change: Value) -> Graph:
    nodes: dict[str, Node] = {
        name: Pointwise(change(node.expr)) if isinstance(node, Pointwise) else node
        for name, node in graph.nodes.items()
    }
    return graph if nodes == graph.nodes else tidy(replace(graph, nodes=nodes))


def _without_scales(expr: Value) -> Value:
    if expr.is_Atom:
        return expr
    args = [_without_scales(a) for a in expr.args]
    made = expr.func(*args) if args != list(expr.args) else expr
    neutral = neutral_form(made)
    return made if neutral is None else neutral


def _without_guards(expr: Value, graph: Graph) -> Value:
    """where(d == 0, 0, d * v) is d * v; d is a gradient, v any number."""
    if expr.is_Atom:
        return expr
    args = [_without_guards(a, graph) for a in expr.args]
    made = expr.func(*args) if args != list(expr.args) else expr
    if not isinstance(made, select):
        return made
    condition, zero, other = made.args
    flowing = condition.args[0] if isinstance(condition, equal) and condition.args[1] == 0 else sympy.S.Zero
    guards = zero == 0 and flowing.is_Symbol and flowing.name not in graph.nodes and flowing.name in names(other)
    return other if guards else made
