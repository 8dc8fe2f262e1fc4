"""Expressions as text over single numbers: every number is cast to the kernel's type, so that none
promotes another."""

from __future__ import annotations

from rnnspec.lowering.writer import VectorWriter
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, Value, Writer

WRITTEN_OUT = frozenset({"sigmoid"})  # the primitives that the CUDA math library lacks


class ScalarWriter(VectorWriter):
    """As on the CPU, but for conditions, which are Python's own here, and sigmoid."""

    infix = Writer.infix
    inverse = Writer.inverse

    def number(self, value: Value) -> str:
        return f"real({float(value)!r})"

    def _write(self, expr: Value) -> tuple[str, int]:
        if isinstance(expr, FUNCTION_CLASSES["sigmoid"]):
            return f"real(1.0) / (real(1.0) + exp(-{self._inside(expr.args[0], 3)}))", 2
        return super()._write(expr)
