"""The operations of SymPy expressions here: arithmetic that is kept as it is written, comparisons,
selects.

SymPy's own sums, products and powers are an algebra of real numbers: it multiplies 3 into x - h,
makes 0 of x - x and x of sqrt(x)**2, which is false of numbers that are rounded, infinite or NaN.
So the operators here are functions of ours, which keep order and grouping; docs/arithmetic.md lists
all that is changed on the way from a file to a kernel.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy

Value = Any  # a SymPy expression; SymPy ships no types
HALF = sympy.Rational(1, 2)
LARGEST = sympy.Integer(10) ** 300  # of the numbers that are worked out
DIGITS = sympy.Integer(2) ** 2048  # of numerators and denominators


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


def _within(number: Value) -> Value:
    """A number, or None where float64 has none like it: such an operation is left as it is."""
    size = abs(number)
    return number if not number or (1 / LARGEST < size < LARGEST and max(number.p, number.q) < DIGITS) else None


class add(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return _within(a + b) if a.is_Number and b.is_Number else None


class subtract(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return _within(a - b) if a.is_Number and b.is_Number else None


class multiply(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return _within(a * b) if a.is_Number and b.is_Number else None


class divide(Operation):
    nargs = 2

    @classmethod
    def eval(cls, a: Value, b: Value) -> Value:
        return _within(a / b) if a.is_Number and b.is_Number and b != 0 else None


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
        return _within(base**exponent) if small else None


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
