"""SymPy expressions over scalar stand-ins: what is written, operation by operation.

In: syntax trees of the language (of equations, and of the function table's rows). Out: SymPy
expressions whose symbols carry the names of graph nodes.

SymPy's own sums, products and powers are an algebra of real numbers: it multiplies 3 into x - h,
makes 0 of x - x and x of sqrt(x)**2, which is false of numbers that are rounded, infinite or NaN.
So the operators here are functions of ours, which keep order and grouping; docs/arithmetic.md lists
all that is changed on the way from a file to a kernel. SymPy's printers, `simplify` and
`parse_expr` are not used anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import sympy

from rnnspec.errors import RnnspecError
from rnnspec.language.functions import FUNCTIONS, PRIMITIVES, Function
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary

Value = Any  # a SymPy expression; SymPy ships no types
HALF = sympy.Rational(1, 2)


class Kept:
    """Python's operators on expressions make operations that are kept as they are written."""

    _op_priority = 20.0  # above SymPy's own, so that 2 * v is ours too

    def __add__(self, other: Value) -> Value:
        return add(self, other)

    def __radd__(self, other: Value) -> Value:
        return add(other, self)

    def __sub__(self, other: Value) -> Value:
        return subtract(self, other)

    def __rsub__(self, other: Value) -> Value:
        return subtract(other, self)

    def __mul__(self, other: Value) -> Value:
        return multiply(self, other)

    def __rmul__(self, other: Value) -> Value:
        return multiply(other, self)

    def __truediv__(self, other: Value) -> Value:
        return divide(self, other)

    def __rtruediv__(self, other: Value) -> Value:
        return divide(other, self)

    def __pow__(self, exponent: Value) -> Value:
        return power(self, exponent)

    def __neg__(self) -> Value:
        return negative(self)


class Name(Kept, sympy.Symbol):  # type: ignore[misc]
    """A value by its name."""


@cache
def symbol(name: str) -> Value:
    return Name(name, real=True)


class Operation(Kept, sympy.Function):  # type: ignore[misc]
    """Base of the arithmetic operators. Only numbers are worked out at once, exactly."""

    is_real = True


class add(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return a + b if a.is_Number and b.is_Number else None


class subtract(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return a - b if a.is_Number and b.is_Number else None


class multiply(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return a * b if a.is_Number and b.is_Number else None


class divide(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return a / b if a.is_Number and b.is_Number and b != 0 else None


class negative(Operation):
    nargs = 1

    @classmethod
    def eval(cls, a: Value) -> Value:
        return -a if a.is_Number and a != 0 else None  # -0 is another number than 0


class power(Operation):
    """power(base, n) with a number n. n = 1/2 is the square root, a whole n repeated products."""

    nargs = 2

    @classmethod
    def eval(cls, base: Value, exponent: Value) -> Value:
        if exponent == 1:
            return base
        if exponent == 0:
            return sympy.S.One
        small = base.is_Number and base != 0 and exponent.is_Integer and abs(exponent) <= 64
        return base**exponent if small else None


class total(Operation):
    """total(a, b, ...): a sum whose terms may be added in any order: of products with matrices and
    biases, and of the parts of a gradient."""

    @classmethod
    def eval(cls, *terms: Value) -> Value:
        if len(kept := [t for t in terms if t != 0]) < 2:
            return kept[0] if kept else sympy.S.Zero
        return None if len(kept) == len(terms) else cls(*kept)


class Condition(sympy.Function):  # type: ignore[misc]
    """Base of the comparisons and of and, or, not: true or false, element by element; no
    derivative."""

    is_real = True


class less(Condition):
    nargs = 2


class less_equal(Condition):
    nargs = 2


class equal(Condition):
    nargs = 2


class unequal(Condition):
    nargs = 2


class both(Condition):
    nargs = 2


class either(Condition):
    nargs = 2


class opposite(Condition):
    nargs = 1


class select(Kept, sympy.Function):  # type: ignore[misc]
    """select(condition, a, b): `where` of the language. Its derivative selects too: a mask would
    make 0 * inf."""

    nargs = 3
    is_real = True

    @classmethod
    def eval(cls, condition: Value, a: Value, b: Value) -> Value:
        if a == b:
            return a
        if condition in (sympy.true, sympy.false):
            return a if condition == sympy.true else b
        return None


def _function_class(row: Function) -> Value:
    def fdiff(self: Value, argindex: int = 1) -> Value:
        values = dict(zip(row.args, self.args)) | {"y": self}
        return from_tree(parse_expression(row.derivatives[argindex - 1]), values.__getitem__)

    return type(row.name, (Kept, sympy.Function), {"nargs": len(row.args), "is_real": True, "fdiff": fdiff, "row": row})


FUNCTION_CLASSES: Mapping[str, Value] = {name: _function_class(row) for name, row in FUNCTIONS.items()}

_COMPARE: Mapping[str, Callable[[Value, Value], Value]] = {
    "<": less,
    "<=": less_equal,
    ">": lambda a, b: less(b, a),
    ">=": lambda a, b: less_equal(b, a),
    "==": equal,
    "!=": unequal,
    "and": both,
    "or": either,
}
_FOLD: Mapping[str, Callable[[Value, Value], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


INFIX = {"less": "<", "less_equal": "<=", "equal": "==", "unequal": "!="}


def from_tree(tree: Expr, resolve: Callable[[str], Value]) -> Value:
    """The expression of a tree without times, products or transposes; `resolve` gives the value of
    a name."""
    match tree:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Ref(name):
            return resolve(name)
        case Unary(op, arg):
            inner = from_tree(arg, resolve)
            return negate(inner) if op == "not" else negative(inner)
        case Binary(op, left, right):
            return binary(op, from_tree(left, resolve), from_tree(right, resolve))
        case Call(function, args):
            return apply(function, [from_tree(arg, resolve) for arg in args])
    raise TypeError(f"not an expression: {tree!r}")


def apply(function: str, args: list[Value]) -> Value:
    return select(*args) if function == "where" else FUNCTION_CLASSES[function](*args)


def negate(condition: Value) -> Value:
    if condition in (sympy.true, sympy.false):
        return sympy.false if condition == sympy.true else sympy.true
    return opposite(condition)


def binary(op: str, a: Value, b: Value) -> Value:
    """One operator of the language. Constants are kept within the range of float64, so that nothing
    grows without end."""
    match op:
        case "+":
            result = add(a, b)
        case "-":
            result = subtract(a, b)
        case "*":
            result = multiply(a, b)
        case "/":
            if b == 0:
                raise RnnspecError("division by the constant 0")
            result = divide(a, b)
        case "**":
            result = _power(a, b)
        case "and" | "or":
            return _logic(op, a, b)
        case _:
            if a.is_Number and b.is_Number:
                return sympy.true if _FOLD[op](a, b) else sympy.false
            return _COMPARE[op](a, b)
    return _within_range(result)


def _within_range(result: Value) -> Value:
    if result.is_Number and not abs(result) < 10**300:
        raise RnnspecError("a constant expression is beyond the range of numbers (1e300)")
    return result


def constant(function: str, args: tuple[Value, ...]) -> Value:
    """The value of a function of numbers."""
    row = FUNCTIONS[function]
    if not row.primitive:
        return _folded(expand_row(row, args))
    try:
        value = _PRIMITIVES[function](float(args[0]))
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise RnnspecError(f"{function}({float(args[0])!r}) is not a finite number")
    return sympy.Rational(repr(value))


def _sigmoid(v: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * v))


_PRIMITIVES: Mapping[str, Callable[[float], float]] = {
    name: _sigmoid if name == "sigmoid" else getattr(math, name) for name in PRIMITIVES
}


def _folded(expr: Value) -> Value:
    """An expression of numbers, as a number."""
    args = tuple(_folded(a) for a in expr.args)
    name = type(expr).__name__
    if name in FUNCTION_CLASSES:
        return constant(name, args)
    if name in INFIX:
        return sympy.true if _FOLD[INFIX[name]](*args) else sympy.false
    return _within_range(expr.func(*args)) if args else expr


def _power(a: Value, b: Value) -> Value:
    if a.is_Number and a != 0 and abs(float(b)) * abs(math.log10(abs(float(a)) or 1e-300)) > 300:
        raise RnnspecError("a constant expression is beyond the range of numbers (1e300)")
    if a == 0 and b < 0:
        raise RnnspecError("division by the constant 0")
    if a.is_Number and not b.is_Integer:
        if a < 0:
            raise RnnspecError("a negative constant to a fractional power is not a real number")
        return sympy.Rational(repr(float(a) ** float(b)))
    return a**b if a.is_Number else power(a, b)


def _logic(op: str, a: Value, b: Value) -> Value:
    decisive = sympy.false if op == "and" else sympy.true
    if decisive in (a, b):
        return decisive
    for known, other in ((a, b), (b, a)):
        if known in (sympy.true, sympy.false):
            return other
    return _COMPARE[op](a, b)


def expand_row(row: Function, args: tuple[Value, ...]) -> Value:
    """The value of a function of the table that is written in the language, over `args`."""
    assert row.value is not None
    return from_tree(parse_expression(row.value), dict(zip(row.args, args)).__getitem__)


def is_cheap(expr: Value) -> bool:
    """Whether an expression is arithmetic and selects alone."""
    for part in sympy.preorder_traversal(expr):
        row: Function | None = FUNCTIONS.get(type(part).__name__) if type(part) in FUNCTION_CLASSES.values() else None
        if row is not None and (row.primitive or not is_cheap(expand_row(row, part.args))):
            return False
        if isinstance(part, power) and not part.args[1].is_Integer:
            return False
    return True


def names(expr: Value) -> tuple[str, ...]:
    """The nodes an expression reads, in alphabetical order."""
    return tuple(sorted(s.name for s in expr.free_symbols))


def rename(expr: Value, new: Mapping[str, str]) -> Value:
    changed = {symbol(a): symbol(b) for a, b in new.items() if a != b}
    return expr.xreplace(changed) if changed else expr
