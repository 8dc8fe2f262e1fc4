"""SymPy expressions over scalar stand-ins, and their text.

In: syntax trees of the language (of equations, and of the function table's rows). Out: SymPy
expressions whose symbols carry the names of graph nodes. SymPy does the algebra and the
differentiation; its printers, `simplify` and `parse_expr` are not used anywhere.
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


@cache
def symbol(name: str) -> Value:
    return sympy.Symbol(name, real=True)


class Condition(sympy.Function):  # type: ignore[misc]
    """Base of the comparisons and of and, or, not: true or false, element by element; no
    derivative."""

    is_real = True

    def _eval_derivative(self, s: Value) -> Value:
        return sympy.S.Zero


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


class select(sympy.Function):  # type: ignore[misc]
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

    def _eval_derivative(self, s: Value) -> Value:
        condition, a, b = self.args
        return select(condition, a.diff(s), b.diff(s))


def _function_class(row: Function) -> Value:
    def fdiff(self: Value, argindex: int = 1) -> Value:
        values = dict(zip(row.args, self.args)) | {"y": self}
        return from_tree(parse_expression(row.derivatives[argindex - 1]), values.__getitem__)

    return type(row.name, (sympy.Function,), {"nargs": len(row.args), "is_real": True, "fdiff": fdiff, "row": row})


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


def from_tree(tree: Expr, resolve: Callable[[str], Value]) -> Value:
    """The expression of a tree without times, products or transposes; `resolve` gives the value of
    a name."""
    match tree:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Ref(name):
            return resolve(name)
        case Unary(op, arg):
            return negate(from_tree(arg, resolve)) if op == "not" else -from_tree(arg, resolve)
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
            result = a + b
        case "-":
            result = a - b
        case "*":
            result = a * b
        case "/":
            if b == 0:
                raise RnnspecError("division by the constant 0")
            result = a / b
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
    if result.has(sympy.zoo, sympy.oo, -sympy.oo, sympy.nan):
        raise RnnspecError("a constant expression divides by 0")
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
        raise RnnspecError(f"{function}({write(args[0])}) is not a finite number")
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
    if name in ("less", "less_equal", "equal", "unequal"):
        return sympy.true if _FOLD[_INFIX[name]](*args) else sympy.false
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
    return a**b


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
        if part.is_Pow and not part.exp.is_Integer:
            return False
    return True


def names(expr: Value) -> tuple[str, ...]:
    """The nodes an expression reads, in alphabetical order."""
    return tuple(sorted(s.name for s in expr.free_symbols))


def rename(expr: Value, new: Mapping[str, str]) -> Value:
    changed = {symbol(a): symbol(b) for a, b in new.items() if a != b}
    return expr.xreplace(changed) if changed else expr


# --- text ---

_INFIX = {"less": "<", "less_equal": "<=", "equal": "==", "unequal": "!="}


class Writer:
    """Text of an expression. The base writes the language; a backend overrides what differs."""

    infix = {**_INFIX, "both": "and", "either": "or"}
    inverse = "not "
    select = "where"
    divides = True  # whether x / 3 is written so, or as x times the number nearest to 1/3

    def number(self, value: Value) -> str:
        return repr(int(value)) if value.is_Integer and abs(value) < 2**53 else repr(float(value))

    def power(self, base: str, exponent: Value) -> str:
        return f"{base}**{self.number(exponent)}" if exponent.is_Integer else f"{base}**({self.number(exponent)})"

    def __call__(self, expr: Value) -> str:
        return self._write(expr)[0]

    def _write(self, expr: Value) -> tuple[str, int]:
        """Text and how tightly it binds: 0 conditions, 1 sums, 2 products, 3 powers and names."""
        if expr.is_Symbol:
            return expr.name, 3
        if expr.is_Number:
            return self.number(expr), 3 if expr >= 0 else 1
        if expr.is_Add:
            return self._sum(expr), 1
        if expr.is_Mul:
            return self._product(expr)
        if expr.is_Pow:
            return self._pow(expr)
        if isinstance(expr, sympy.Abs):
            return f"abs({self(expr.args[0])})", 3
        name = type(expr).__name__
        if name in self.infix:
            return f" {self.infix[name]} ".join(self._inside(a, 1) for a in expr.args), 0
        if name == "opposite":
            return f"{self.inverse}{self._inside(expr.args[0], 1)}", 0
        if name == "select":
            return f"{self.select}({', '.join(self(a) for a in expr.args)})", 3
        if name in FUNCTION_CLASSES:
            return f"{name}({', '.join(self(a) for a in expr.args)})", 3
        raise TypeError(f"no text for {type(expr).__name__}")

    def _inside(self, expr: Value, binding: int) -> str:
        text, own = self._write(expr)
        return text if own >= binding else f"({text})"

    def _sum(self, expr: Value) -> str:
        terms = expr.as_ordered_terms()
        positive = [t for t in terms if not t.could_extract_minus_sign()]
        ordered = positive + [t for t in terms if t.could_extract_minus_sign()]
        text = self._inside(ordered[0], 1)
        for term in ordered[1:]:
            minus = term.could_extract_minus_sign()
            text += f" - {self._inside(-term, 2)}" if minus else f" + {self._inside(term, 1)}"
        return text

    def _product(self, expr: Value) -> tuple[str, int]:
        if expr.could_extract_minus_sign() and expr.as_coeff_Mul()[0] < 0:
            return f"-{self._inside(-expr, 2)}", 1
        above, below = [], []
        for factor in expr.as_ordered_factors():
            if factor.is_Rational and factor.q != 1 and factor.p == 1 and self.divides:
                below.append(sympy.Integer(factor.q)) if float(factor.q) < 2**24 else above.append(factor)
            elif factor.is_Pow and factor.exp.is_Number and factor.exp < 0:
                below.append(factor.base**-factor.exp)
            else:
                above.append(factor)
        top = " * ".join(self._inside(f, 3 if len(above) > 1 else 2) for f in above) or self.number(sympy.S.One)
        for factor in below:
            top += f" / {self._inside(factor, 3)}"
        return top, 2

    def _pow(self, expr: Value) -> tuple[str, int]:
        base, exponent = expr.args
        if exponent == sympy.Rational(1, 2):
            return f"sqrt({self(base)})", 3
        if exponent.is_Number and exponent < 0:
            return f"{self.number(sympy.S.One)} / {self._inside(base**-exponent, 3)}", 2
        return self.power(self._inside(base, 3), exponent), 3


write = Writer()
