"""The derivative of an expression by a unit's own value, element by element, as an expression.

In: resolved expressions. Out: c of d/dt v = f(v), for methods that need it. What stands behind a
product `@`, a transpose or a function along features comes from other units too: that is held.
Derivatives of functions are those of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, names_in, walk, with_parts

ZERO: Expr = Number(Fraction(0))
ONE: Expr = Number(Fraction(1))
MAX_SLOPE = 8_000  # names, numbers and operators of a derivative


class SlopeError(Exception):
    """An expression has no derivative that could be written here; says why."""


def own_slope(expr: Expr, name: str, values: Mapping[str, Expr]) -> Expr:
    """d expr / d name[t]; ZERO where name[t] is not in it, or held.

    values: the intermediates of this step that depend on it, which are followed. Raises SlopeError.
    """
    return _Slope(name, values).of(expr)


def size_of_tree(expr: Expr) -> int:
    """Its names, numbers and operators."""
    return sum(1 for _ in walk(expr))


class _Slope:
    def __init__(self, name: str, values: Mapping[str, Expr]):
        self.name, self.values = name, values
        self.known: dict[str, Expr] = {}
        self.size = 0

    def of(self, expr: Expr) -> Expr:
        match expr:
            case Ref(name, 0) if name == self.name:
                return ONE
            case Ref(name, 0) if name in self.values:
                if name not in self.known:
                    self.known[name] = self.of(self.values[name])
                return self.known[name]
            case Unary("-", arg):
                return negative(self.of(arg))
            case Binary("+", left, right):
                return plus(self.of(left), self.of(right))
            case Binary("-", left, right):
                return plus(self.of(left), negative(self.of(right)))
            case Binary("*", left, right):
                return self.bounded(plus(times(self.of(left), right), times(left, self.of(right))))
            case Binary("/", left, right):
                above = plus(self.of(left), negative(times(expr, self.of(right))))
                return self.bounded(ZERO if above == ZERO else Binary("/", above, right, expr.at))
            case Binary("**", left, Number(power) as exponent):
                inner = self.of(left)
                outer = times(exponent, left if power == 2 else Binary("**", left, Number(power - 1), expr.at))
                return self.bounded(times(outer, inner))
            case Call("where", (condition, a, b)):
                sides = self.of(a), self.of(b)
                return ZERO if sides == (ZERO, ZERO) else self.bounded(Call("where", (condition, *sides), expr.at))
            case Call(function, args) if function in FUNCTIONS:
                return self.function(expr, function, args)
        return ZERO

    def function(self, call: Expr, function: str, args: tuple[Expr, ...]) -> Expr:
        row, whole = FUNCTIONS[function], ZERO
        bound = {**dict(zip(row.args, args)), "y": call}
        for text, arg in zip(row.derivatives, args):
            inner = self.of(arg)
            if inner == ZERO:
                continue
            outer = parse_expression(text)
            if names_in(outer) & INTERNAL:
                raise SlopeError(f"the derivative of '{function}' can't be written in an equation")
            whole = plus(whole, times(_put_in(outer, bound), inner))
        return self.bounded(whole)

    def bounded(self, expr: Expr) -> Expr:
        self.size += size_of_tree(expr)
        if self.size > MAX_SLOPE:
            raise SlopeError(f"its derivative by '{self.name}' has over {MAX_SLOPE} names, numbers and operators")
        return expr


def _put_in(expr: Expr, bound: Mapping[str, Expr]) -> Expr:
    return bound[expr.name] if isinstance(expr, Ref) else with_parts(expr, lambda part: _put_in(part, bound))


def plus(a: Expr, b: Expr) -> Expr:
    """a + b, without a 0."""
    if ZERO in (a, b):
        return b if a == ZERO else a
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(a.value + b.value)
    return Binary("-", a, b.arg) if isinstance(b, Unary) and b.op == "-" else Binary("+", a, b)


def negative(a: Expr) -> Expr:
    match a:
        case Number(value):
            return Number(-value)
        case Unary("-", arg):
            return arg
    return Unary("-", a)


def times(a: Expr, b: Expr) -> Expr:
    """a * b, without 1 and 0; signs stand outside."""
    if ZERO in (a, b):
        return ZERO
    if ONE in (a, b):
        return b if a == ONE else a
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(a.value * b.value)
    for first, other in ((a, b), (b, a)):
        if isinstance(first, Unary) and first.op == "-":
            return negative(times(first.arg, b) if first is a else times(a, first.arg))
        if first == Number(Fraction(-1)):
            return negative(other)
    return Binary("*", a, b)
