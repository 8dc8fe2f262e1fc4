"""Derivatives of single nodes, shared by the adjoint and the tangent."""

from __future__ import annotations

from collections.abc import Collection

import sympy

from rnnspec.language.functions import FUNCTIONS
from rnnspec.symbolic.expressions import FUNCTION_CLASSES
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read, operands
from rnnspec.symbolic.operations import (
    HALF,
    Condition,
    Value,
    add,
    divide,
    equal,
    multiply,
    negative,
    power,
    select,
    subtract,
    symbol,
    total,
)


def partial(expr: Value, own: str, arg: str, *, linear: bool = False) -> Value:
    """d expr / d arg for the node `own` = expr, written with the node's value where the function's
    row does so. linear: whether arg is what flows in an adjoint, in which all is linear: then that
    a term is kept 0 where arg is 0 (`backward_term`) is no branch, and its slope there is that
    anywhere."""
    if not expr.args:
        return sympy.S.One
    if linear:
        expr = _unkept(expr, symbol(arg))
    return derivative(expr, symbol(arg)).xreplace({expr: symbol(own)})


def _unkept(expr: Value, flowing: Value) -> Value:
    """The expression without the selects that keep a product with what flows 0 where that is 0."""
    if not expr.args:
        return expr
    if isinstance(expr, select) and expr.args[0] == equal(flowing, 0) and expr.args[1] == 0:
        return _unkept(expr.args[2], flowing)
    return expr.func(*(_unkept(a, flowing) for a in expr.args))


def derivative(expr: Value, variable: Value) -> Value:
    """The derivative of an expression, operation by operation, with every select outermost.

    Only the zeros and ones that come of what does not depend on the variable are left out. A
    quotient's is written with the quotient, y = a / b: (a' - y * b') / b; the square of b, which
    overflows and vanishes where y does not, is never formed.
    """
    if expr == variable:
        return sympy.S.One
    if isinstance(expr, Condition) or variable not in expr.free_symbols:
        return sympy.S.Zero
    if isinstance(expr, select):
        condition, *sides = expr.args
        return select(condition, *(derivative(side, variable) for side in sides))
    inner = [derivative(a, variable) for a in expr.args]
    match expr:
        case total():
            return total(*inner)
        case add():
            return plus(*inner)
        case subtract():
            return plus(inner[0], scaled(sympy.S.NegativeOne, inner[1]))
        case negative():
            return scaled(sympy.S.NegativeOne, inner[0])
        case multiply():
            a, b = expr.args
            return plus(*((along if divides(d) else scaled)(c, d) for c, d in ((b, inner[0]), (a, inner[1]))))
        case divide():
            return over(plus(inner[0], scaled(sympy.S.NegativeOne, scaled(expr, inner[1]))), expr.args[1])
        case power():
            base, n = expr.args
            return along(inner[0], _slope(expr, base, n))
    made = sympy.S.Zero
    for number, change in enumerate(inner):
        if change != 0:
            made = plus(made, along(change, expr.fdiff(number + 1)))
    return made


def _slope(value: Value, base: Value, n: Value) -> Value:
    """The derivative of value = base ** n."""
    if n == HALF:
        return divide(HALF, value)
    return divide(multiply(n, value), base) if n < 0 else multiply(n, power(base, n - 1))


def plus(a: Value, b: Value) -> Value:
    if a == 0 or b == 0:
        return a if b == 0 else b
    if isinstance(b, negative):
        return subtract(a, b.args[0])
    return subtract(b, a.args[0]) if isinstance(a, negative) else add(a, b)


def scaled(factor: Value, change: Value) -> Value:
    """factor * change with every select outermost: the side not chosen takes no part, not even as
    0 * inf."""
    if factor == 0 or change == 0:
        return sympy.S.Zero
    if isinstance(change, select):
        return select(change.args[0], *(scaled(factor, side) for side in change.args[1:]))
    if isinstance(factor, select):
        return select(factor.args[0], *(scaled(side, change) for side in factor.args[1:]))
    if isinstance(change, add | subtract | total) and change.has(select):
        return type(change)(*(scaled(factor, term) for term in change.args))
    for one, other in ((factor, change), (change, factor)):
        if one == 1:
            return other
        if one == -1:
            return other.args[0] if isinstance(other, negative) else negative(other)
        if isinstance(one, negative):
            return scaled(sympy.S.NegativeOne, scaled(one.args[0], other))
    if isinstance(change, divide) and change.args[0] == 1:
        return divide(factor, change.args[1])
    if isinstance(factor, divide) and factor.args[0] == 1:
        return divide(change, factor.args[1])
    return multiply(factor, change)


def along(change: Value, slope: Value) -> Value:
    """change * slope. A slope that divides, or is a product of values, may overflow or vanish where
    the whole does not: change is multiplied by its factors one after the other."""
    if change == 0 or slope == 0:
        return sympy.S.Zero
    match slope:
        case select():
            return select(slope.args[0], *(along(change, side) for side in slope.args[1:]))
        case negative():
            return scaled(sympy.S.NegativeOne, along(change, slope.args[0]))
        case multiply():
            return scaled(along(change, slope.args[0]), slope.args[1])
        case divide():
            return over(along(change, slope.args[0]), slope.args[1])
    return scaled(change, slope)


def over(change: Value, divisor: Value) -> Value:
    """change / divisor with every select outermost."""
    if change == 0:
        return sympy.S.Zero
    if isinstance(change, select):
        return select(change.args[0], *(over(side, divisor) for side in change.args[1:]))
    if isinstance(change, add | subtract | total) and change.has(select):
        return type(change)(*(over(term, divisor) for term in change.args))
    return negative(over(change.args[0], divisor)) if isinstance(change, negative) else divide(change, divisor)


def backward_term(change: Value, expr: Value, derivative: Value, *, left_out: bool = False) -> Value:
    """change * the derivative of a node with the value expr: what reaches an operand in an adjoint,
    and what an operand's direction adds to the node's in a tangent.
    It is exactly 0 where change is, if the derivative can be infinite there; left_out: a branch not
    taken may make it 0, where the derivative may be anything."""
    steep = is_steep(expr, derivative)
    product = (along if steep else scaled)(change, derivative)
    careful = steep or (left_out and may_be_infinite(derivative))
    return select(equal(change, 0), sympy.S.Zero, product) if careful else product


def is_steep(expr: Value, derivative: Value) -> bool:
    """Whether the derivative of a node can be infinite: it divides by something, or has a power
    that does, or is that of a function that says so (1 / (1 + exp(-v)) multiplies by 0 for v far
    below 0)."""
    root = type(expr).__name__
    return (root in FUNCTION_CLASSES and not FUNCTION_CLASSES[root].row.bounded) or divides(derivative)


def divides(derivative: Value) -> bool:
    """Whether a derivative divides by something, or has a power that does."""
    return any(
        isinstance(part, divide | power) and not (part.args[1].is_Number and part.args[1] >= 1)
        for part in sympy.preorder_traversal(derivative)
    )


def may_be_infinite(derivative: Value) -> bool:
    """Whether 0 * derivative could be NaN, as far as the expression alone tells: that of a bounded
    function too, where its value is NaN."""
    pieces = derivative.args[1:] if isinstance(derivative, select) else (derivative,)
    return not all(p.is_Number for p in pieces)


def varying(graph: Graph, constants: Collection[str], still: Collection[str] = ()) -> set[str]:
    """The nodes that depend on something one can differentiate by: a state, an input or parameter
    not in `constants` and of no kind in `still`."""
    found: set[str] = set()
    for name, node in graph.nodes.items():
        if _is_variable(graph, node, constants, still) or any(o in found for o in operands(node)):
            found.add(name)
    return found


def _is_variable(graph: Graph, node: Node, constants: Collection[str], still: Collection[str]) -> bool:
    if not isinstance(node, Read) or node.kind in still:
        return False
    before = node.kind in ("state", "history")
    return before or (node.kind in ("input", "parameter") and whole(graph, node.source) not in constants)


def whole(graph: Graph, source: str) -> str:
    """The parameter that a piece is of; any other name as it is."""
    return graph.pieces[source].parameter if source in graph.pieces else source


def surrogates(graph: Graph) -> set[str]:
    """The functions in a graph that a spec can name and whose derivatives are meant to be others
    than those of their values: stop_gradient, straight_through."""
    expressions = [node.expr for node in graph.nodes.values() if isinstance(node, Pointwise)]
    rows = [FUNCTIONS.get(type(part).__name__) for expr in expressions for part in sympy.preorder_traversal(expr)]
    return {row.name for row in rows if row is not None and row.surrogate and not row.internal}
