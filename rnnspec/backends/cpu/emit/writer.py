"""Expressions as text over vectors: every operand is a vector, every number a vector of that
number."""

from __future__ import annotations

from rnnspec.lowering.writer import KernelWriter
from rnnspec.symbolic.operations import Value


class VectorWriter(KernelWriter):
    """Conditions are masks, which & | ~ combine."""

    infix = {**KernelWriter.infix, "both": "&", "either": "|"}
    inverse = "~"

    def number(self, value: Value) -> str:
        return f"number({float(value)!r})"
