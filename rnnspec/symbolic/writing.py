"""Expressions as text of the language: the grouping of the expression is that of the text."""

from __future__ import annotations

import sympy

from rnnspec.symbolic.expressions import FUNCTION_CLASSES, INFIX
from rnnspec.symbolic.operations import HALF, Value, negative, power

# operator of two operands -> how it is written, and how tightly it binds
OPERATORS = {"add": ("+", 1), "subtract": ("-", 1), "multiply": ("*", 2), "divide": ("/", 2)}


class Writer:
    """Text of an expression. The base writes the language; a backend overrides what differs."""

    infix = {**INFIX, "both": "and", "either": "or"}
    inverse = "not "
    select = "where"

    def number(self, value: Value) -> str:
        return repr(int(value)) if value.is_Integer and abs(value) < 2**53 else repr(float(value))

    def power(self, base: str, exponent: Value) -> str:
        return f"{base}**{self.number(exponent)}" if exponent.is_Integer else f"{base}**({self.number(exponent)})"

    def root(self, text: str) -> str:
        """The square root of what a text says."""
        return f"sqrt({text})"

    def __call__(self, expr: Value) -> str:
        return self._write(expr)[0]

    def _write(self, expr: Value) -> tuple[str, int]:
        """Text and how tightly it binds: 0 conditions, 1 sums, 2 products, 3 powers and names."""
        if expr.is_Symbol:
            return expr.name, 3
        if expr.is_Number:
            return self.number(expr), 3 if expr >= 0 else 1
        name = type(expr).__name__
        if name in OPERATORS:
            return self._binary(expr, *OPERATORS[name])
        if name == "negative":
            return f"-{self._inside(expr.args[0], 2)}", 1
        if name == "power":
            return self._pow(expr)
        if name == "total":
            return self._sum(expr), 1
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

    def _binary(self, expr: Value, sign: str, binding: int) -> tuple[str, int]:
        """The right operand of a - (b - c) keeps its brackets, and so does that of a + (b + c)."""
        left, right = expr.args
        return f"{self._inside(left, binding)} {sign} {self._inside(right, binding + 1)}", binding

    def _sum(self, expr: Value) -> str:
        """A sum in any order: what is subtracted stands last."""
        minus = [t for t in expr.args if isinstance(t, negative)]
        plus = [t for t in expr.args if not isinstance(t, negative)]
        text = " + ".join(self._inside(t, 1) for t in plus) or f"-{self._inside(minus.pop(0).args[0], 2)}"
        return text + "".join(f" - {self._inside(t.args[0], 2)}" for t in minus)

    def _pow(self, expr: Value) -> tuple[str, int]:
        base, exponent = expr.args
        if exponent == HALF:
            return self.root(self(base)), 3
        if exponent < 0:
            return f"{self.number(sympy.S.One)} / {self._inside(power(base, -exponent), 3)}", 2
        return self.power(self._inside(base, 3), exponent), 3


write = Writer()
