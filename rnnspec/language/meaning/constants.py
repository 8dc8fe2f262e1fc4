"""Expressions made of numbers alone: what they come to, and whether a condition on them holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from rnnspec.language.syntax.tree import Binary, Expr, Number, Unary

MAX_EXPONENT = 64
ARITHMETIC: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def constant(expr: Expr) -> Fraction | None:
    """The value of an expression made of numbers only, else None."""
    match expr:
        case Number(value):
            return value
        case Unary("-", arg):
            inner = constant(arg)
            return None if inner is None else -inner
        case Binary("+" | "-" | "*" | "/" | "**" as op, left, right):
            a, b = constant(left), constant(right)
            if a is None or b is None or (op == "/" and b == 0) or (op == "**" and not _small_power(a, b)):
                return None
            return ARITHMETIC[op](a, b)
    return None


def _small_power(base: Fraction, exponent: Fraction) -> bool:
    """Whether a power is exact and cheap to work out."""
    return (
        exponent.denominator == 1
        and abs(exponent) <= MAX_EXPONENT
        and base != 0
        and max(abs(base.numerator), base.denominator) < 1000
    )


def settled(condition: Expr) -> bool | None:
    """The answer of a condition on numbers; None where it depends on something else."""
    match condition:
        case Unary("not", arg):
            inner = settled(arg)
            return None if inner is None else not inner
        case Binary("and" | "or" as op, left, right):
            answers = settled(left), settled(right)
            if (op == "or") in answers:
                return op == "or"
            return None if None in answers else op == "and"
        case Binary(op, left, right) if op in COMPARISONS:
            a, b = constant(left), constant(right)
            return None if a is None or b is None else COMPARISONS[op](a, b)
    return None
