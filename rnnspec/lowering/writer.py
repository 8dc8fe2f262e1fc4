"""Pointwise expressions as lines of a kernel's text, for every backend: operands and numbers are of
one kind, be it a vector or a single number, and all that SymPy's trees hold is written as calls and
operators.

A backend says how a number is written, and what else its language has otherwise: operators of
conditions, calls, selects, assignments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, expand_row
from rnnspec.symbolic.operations import HALF, Value, select
from rnnspec.symbolic.writing import Writer

QUOTIENT, NAME = 2, 3  # how tightly a text binds, as Writer counts it


class KernelWriter(Writer, ABC):
    """Writes `name = expression` lines, in Python's syntax unless told otherwise. Functions that
    the table writes in the language are written out; a power's base and a repeated argument get
    lines of their own.

    names: the identifiers of the values that expressions read.
    """

    def __init__(self, names: Mapping[str, str]):
        self.names = names
        self.temporaries: list[str] = []
        self.target = ""

    def assign(self, target: str, expr: Value, comment: str) -> list[str]:
        """The lines that compute `expr`; the comment stands where they show less than it."""
        self.temporaries, self.target = [], target
        expanded = expand(expr)
        text = self(expanded)
        return [*self.temporaries, self.assignment(target, text, "" if expanded == expr else comment)]

    # --- what a backend may write otherwise

    @abstractmethod
    def number(self, value: Value) -> str:
        """The text of a constant."""

    def call(self, function: str, args: Sequence[Value]) -> tuple[str, int]:
        """The text of a primitive function, or of min and the like, and how tightly it binds."""
        return f"{function}({', '.join(self(a) for a in args)})", NAME

    def choice(self, condition: str, yes: str, no: str) -> str:
        """The text of a select, which binds like a name."""
        return f"select({condition}, {yes}, {no})"

    def exponential(self, exponent: Value, base: str) -> str:
        """A power with a positive exponent that is neither whole nor a half."""
        return f"exp({self.number(exponent)} * log({base}))"

    def assignment(self, target: str, text: str, comment: str) -> str:
        return f"{target} = {text}  # {comment}" if comment else f"{target} = {text}"

    # --- the same for all

    def _write(self, expr: Value) -> tuple[str, int]:
        if expr.is_Symbol:
            return self.names[expr.name], NAME
        if expr.is_Number and expr < 0:
            return self.number(expr), NAME
        if isinstance(expr, select):
            return self.choice(*(self(a) for a in expr.args)), NAME
        if type(expr).__name__ in FUNCTION_CLASSES:
            return self.call(type(expr).__name__, expr.args)
        return super()._write(expr)

    def _inside(self, expr: Value, binding: int) -> str:
        """Conditions are always set apart: & and | bind tighter than comparisons."""
        text, own = self._write(expr)
        return text if own >= max(binding, 1) else f"({text})"

    def _pow(self, expr: Value) -> tuple[str, int]:
        base, exponent = expr.args
        if not exponent.is_Integer and exponent != HALF and exponent > 0:
            return self.exponential(exponent, self(base)), NAME
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
        """A name for a text that is needed more than once."""
        if text.isidentifier():
            return text
        name = fresh(f"{self.target}_{len(self.temporaries) + 1}_", self.names.values())
        self.temporaries.append(self.assignment(name, text, ""))
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
