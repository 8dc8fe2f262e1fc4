"""Expressions as text over vectors: every operand is a vector, every number a vector of that
number."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, Value, Writer, expand_row


class VectorWriter(Writer):
    """Writes `name = expression` lines. Functions that the table writes in the language are written
    out; a power's base and a repeated argument get lines of their own."""

    infix = {**Writer.infix, "both": "&", "either": "|"}
    inverse = "~"
    select = "select"
    divides = False

    def __init__(self, names: Mapping[str, str]):
        self.names = names
        self.temporaries: list[str] = []
        self.target = ""

    def assign(self, target: str, expr: Value, comment: str) -> list[str]:
        """The lines that compute `expr`."""
        self.temporaries, self.target = [], target
        expanded = expand(expr)
        text = self(expanded)
        shown = "" if expanded == expr else f"  # {comment}"
        return [*self.temporaries, f"{target} = {text}{shown}"]

    def number(self, value: Value) -> str:
        return f"number({float(value)!r})"

    def _write(self, expr: Value) -> tuple[str, int]:
        if expr.is_Symbol:
            return self.names[expr.name], 3
        if expr.is_Number and expr < 0:
            return self.number(expr), 3
        if isinstance(expr, sympy.Abs):
            return self._write(expand(FUNCTION_CLASSES["abs"](expr.args[0])))
        return super()._write(expr)

    def _inside(self, expr: Value, binding: int) -> str:
        """Conditions are always set apart: & and | bind tighter than comparisons."""
        text, own = self._write(expr)
        return text if own >= max(binding, 1) else f"({text})"

    def _pow(self, expr: Value) -> tuple[str, int]:
        base, exponent = expr.args
        if exponent.is_Number and not exponent.is_Integer and exponent != sympy.Rational(1, 2) and exponent > 0:
            return f"exp({self.number(exponent)} * log({self(base)}))", 3
        return super()._pow(expr)

    def power(self, base: str, exponent: Value) -> str:
        """A whole power by repeated squaring, each square on a line of its own."""
        n, result, square = int(exponent), "", self._keep(base)
        if n == 2:
            return f"({square} * {square})"
        while n:
            if n & 1:
                result = f"{result} * {square}" if result else square
            n >>= 1
            if n:
                square = self._keep(f"{square} * {square}")
        return f"({result})"

    def _keep(self, text: str) -> str:
        if text.isidentifier():
            return text
        name = fresh(f"{self.target}_{len(self.temporaries) + 1}_", self.names.values())
        self.temporaries.append(f"{name} = {text}")
        return name


def expand(expr: Value) -> Value:
    """The expression with every function that is not a primitive written out."""
    if expr.is_Atom:
        return expr
    args = tuple(expand(a) for a in expr.args)
    name = type(expr).__name__
    if type(expr) is FUNCTION_CLASSES.get(name):
        row = FUNCTIONS[name]
        return expr.func(*args) if row.primitive else expand(expand_row(row, args))
    return expr.func(*args)
