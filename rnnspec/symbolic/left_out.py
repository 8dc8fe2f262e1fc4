"""What an adjoint multiplies by exactly 0, because `where` (or min, max, clip, abs) took another
branch: "a branch not taken leaves no trace" holds for products and sums over rows too.

In: the graph of an adjoint. Out: for each Product and Outer whose one factor may be such a 0, which
of its two that is. There 0 * NaN and 0 * inf count as 0. Graphs without a choice have none, and
their kernels are what they would be without this file.
"""

from __future__ import annotations

from typing import Literal

from rnnspec.language.spec import TANGENT
from rnnspec.symbolic.adjoint import gradient_of
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import Graph, Node, Outer, Pointwise, Product, Read, operands
from rnnspec.symbolic.operations import (
    Value,
    add,
    divide,
    equal,
    multiply,
    negative,
    select,
    subtract,
    total,
)

Side = Literal["left", "right"]


def left_out(graph: Graph) -> dict[str, Side]:
    """The Products (of a matrix, left, and a vector) and Outers of an adjoint that leave out what
    their other factor meets with a 0 of this one."""
    flows = flowing(graph)
    given = set(graph.reads("input").values()) & flows  # gradients of outputs: 0 where a caller has none
    zeros: set[str] = set()
    while True:
        before = len(zeros)
        for name, node in graph.nodes.items():
            if name in flows and _may_be_zero(node, graph, flows, zeros, given):
                zeros.add(name)
        if len(zeros) == before:
            break
    found: dict[str, Side] = {}
    for name, node in graph.nodes.items():
        if isinstance(node, Product | Outer):
            first, second = operands(node)
            if first in zeros or second in zeros:
                found[name] = "left" if first in zeros else "right"
    return found


def is_upstream(source: str) -> bool:
    """Whether an input of an adjoint is the gradient of an output, or a direction of that."""
    return source.removeprefix(TANGENT).startswith(gradient_of(""))


def flowing(graph: Graph) -> set[str]:
    """The nodes that depend on a gradient: of a state after the step, or of an output."""
    found: set[str] = set()
    for name, node in graph.nodes.items():
        if isinstance(node, Read):
            if node.kind == "state" or (node.kind == "input" and is_upstream(node.source)):
                found.add(name)
        elif any(o in found for o in operands(node)):
            found.add(name)
    return found


def _may_be_zero(node: Node, graph: Graph, flowing: set[str], zeros: set[str], given: set[str]) -> bool:
    if isinstance(node, Read):  # of a state: what the step after this one left in it
        return node.kind == "state" and graph.states.get(node.source) in zeros
    if isinstance(node, Pointwise):
        terms = node.expr.args if isinstance(node.expr, total | add) else (node.expr,)
        chosen = [t for t in terms if not (t.is_Symbol and t.name in given)]
        return bool(chosen) and all(_expression(t, flowing, zeros) for t in chosen)
    return any(o in zeros for o in operands(node))


def _expression(expr: Value, flowing: set[str], zeros: set[str]) -> bool:
    """Whether a choice may make an expression exactly 0."""
    if expr.is_Symbol:
        return expr.name in zeros
    if isinstance(expr, select):
        condition, a, b = expr.args
        if isinstance(condition, equal) and a == 0 and any(n in flowing for n in names(condition.args[0])):
            return _expression(
                b, flowing, zeros
            )  # 0 times something infinite, kept 0 (derive.backward_term): no branch
        return bool(a == 0 or b == 0) or any(_expression(side, flowing, zeros) for side in (a, b))
    if isinstance(expr, multiply):
        return any(_expression(a, flowing, zeros) for a in expr.args)
    if isinstance(expr, divide | negative):
        return _expression(expr.args[0], flowing, zeros)
    if isinstance(expr, add | subtract | total):
        return all(_expression(a, flowing, zeros) for a in expr.args)
    return False
