"""SymPy expressions over scalar stand-ins: what is written, operation by operation.

In: syntax trees of the language (of equations, and of the function table's rows). Out: SymPy
expressions whose symbols carry the names of graph nodes.

SymPy's printers, `simplify` and `parse_expr` are not used anywhere, nor is its algebra where
numbers are computed (operations.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import sympy

from rnnspec.errors import RnnspecError
from rnnspec.language.function_rows import Function
from rnnspec.language.functions import FUNCTIONS, PRIMITIVES
from rnnspec.language.meaning.constants import COMPARISONS
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary
from rnnspec.symbolic.operations import (
    LARGEST,
    Kept,
    Operation,
    Value,
    add,
    both,
    divide,
    either,
    equal,
    less,
    less_equal,
    multiply,
    negative,
    opposite,
    power,
    select,
    subtract,
    symbol,
    unequal,
)


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
                return sympy.true if COMPARISONS[op](a, b) else sympy.false
            return _COMPARE[op](a, b)
    return _within_range(result)


def _within_range(result: Value) -> Value:
    """Refuses an operation on numbers that is left as it is because float64 has no number so
    large."""
    sides = result.args if isinstance(result, Operation) else ()
    if sides and all(a.is_Number for a in sides) and not isinstance(result, negative):
        large = abs(_EXACT[type(result)](*sides)) >= LARGEST
    else:
        large = result.is_Number and abs(result) >= LARGEST
    if large:
        raise RnnspecError("a constant expression is beyond the range of numbers (1e300)")
    return result


_EXACT: Mapping[Value, Callable[[Value, Value], Value]] = {
    add: lambda a, b: a + b,
    subtract: lambda a, b: a - b,
    multiply: lambda a, b: a * b,
    divide: lambda a, b: a / b,
    power: lambda a, b: a**b,
}


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
        return sympy.true if COMPARISONS[INFIX[name]](*args) else sympy.false
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


def neutral_form(expr: Value) -> Value | None:
    """What an internal function's value may be taken for, since the whole does not change by it;
    None for any other expression."""
    row = FUNCTIONS.get(type(expr).__name__)
    if row is None or not row.neutral:
        return None
    return from_tree(parse_expression(row.neutral), dict(zip(row.args, expr.args)).__getitem__)


def is_cheap(expr: Value) -> bool:
    """Whether an expression is arithmetic and selects alone."""
    for part in sympy.preorder_traversal(expr):
        row: Function | None = FUNCTIONS.get(type(part).__name__) if type(part) in FUNCTION_CLASSES.values() else None
        if row is not None and (row.primitive or not is_cheap(expand_row(row, part.args))):
            return False
        if isinstance(part, power) and not part.args[1].is_Integer:
            return False
    return True


@lru_cache(maxsize=1 << 14)
def names(expr: Value) -> tuple[str, ...]:
    """The nodes an expression reads, in alphabetical order."""
    return tuple(sorted(s.name for s in expr.free_symbols))


def rename(expr: Value, new: Mapping[str, str]) -> Value:
    changed = {s: symbol(new[s.name]) for s in expr.free_symbols if new.get(s.name, s.name) != s.name} if new else {}
    return expr.xreplace(changed) if changed else expr
