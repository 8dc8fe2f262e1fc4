"""Derivatives of single nodes, shared by the adjoint and the tangent."""

from __future__ import annotations

import sympy

from rnnspec.language.functions import FUNCTIONS
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, Value, equal, select, symbol
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read, operands


def partial(expr: Value, own: str, arg: str) -> Value:
    """d expr / d arg for the node `own` = expr, written with the node's value where the function's
    row does so."""
    if not expr.args:
        return sympy.S.One
    if expr.is_Add:  # term by term: SymPy asks each of the others whether it is 0
        return sympy.Add(
            *(sympy.S.One if t.is_Symbol else t.diff(symbol(arg)) for t in expr.args if symbol(arg) in t.free_symbols)
        )
    return expr.diff(symbol(arg)).xreplace({expr: symbol(own)})


def times(factor: Value, derivative: Value) -> Value:
    """factor * derivative with every select outermost: the side not chosen takes no part, not even
    as 0 * inf."""
    if isinstance(derivative, select):
        condition, a, b = derivative.args
        return select(condition, times(factor, a), times(factor, b))
    if derivative.is_Add and derivative.has(select):
        return sympy.Add(*(times(factor, term) for term in derivative.args))
    if derivative.is_Mul and derivative.has(select):
        chosen = next(a for a in derivative.args if a.has(select))
        return times(factor * sympy.Mul(*(a for a in derivative.args if a is not chosen)), chosen)
    return factor * derivative


def guarded(factor: Value, derivative: Value) -> Value:
    """times(factor, derivative), exactly 0 where the factor is."""
    return select(equal(factor, 0), sympy.S.Zero, times(factor, derivative))


def is_unbounded(expr: Value) -> bool:
    """Whether expr is a function whose derivative can be infinite: 1 / (1 + exp(-v)) multiplies it
    by 0 for v far below 0."""
    root = type(expr).__name__
    return root in FUNCTION_CLASSES and not FUNCTION_CLASSES[root].row.bounded


def may_be_infinite(derivative: Value) -> bool:
    """Whether 0 * derivative could be NaN, as far as the expression alone tells: that of a bounded
    function too, where its value is NaN."""
    pieces = derivative.args[1:] if isinstance(derivative, select) else (derivative,)
    return not all(p.is_Number for p in pieces)


def varying(graph: Graph, constants: tuple[str, ...]) -> set[str]:
    """The nodes that depend on something one can differentiate by: a state, an input or parameter
    not in `constants`."""
    found: set[str] = set()
    for name, node in graph.nodes.items():
        if _is_variable(graph, node, constants) or any(o in found for o in operands(node)):
            found.add(name)
    return found


def _is_variable(graph: Graph, node: Node, constants: tuple[str, ...]) -> bool:
    if not isinstance(node, Read):
        return False
    return node.kind == "state" or (node.kind in ("input", "parameter") and whole(graph, node.source) not in constants)


def whole(graph: Graph, source: str) -> str:
    """The parameter that a piece is of; any other name as it is."""
    return graph.pieces[source].parameter if source in graph.pieces else source


def surrogates(graph: Graph) -> set[str]:
    """The functions in a graph that a spec can name and whose derivatives are meant to be others
    than those of their values: stop_gradient, straight_through."""
    expressions = [node.expr for node in graph.nodes.values() if isinstance(node, Pointwise)]
    rows = [FUNCTIONS.get(type(part).__name__) for expr in expressions for part in sympy.preorder_traversal(expr)]
    return {row.name for row in rows if row is not None and row.surrogate and not row.internal}
