"""Expressions as text over single numbers: every number is cast to the kernel's type, so that none
promotes another."""

from __future__ import annotations

from collections.abc import Sequence

from rnnspec.lowering.writer import NAME, QUOTIENT, KernelWriter
from rnnspec.symbolic.operations import Value

WRITTEN_OUT = frozenset({"sigmoid"})  # the primitives that the CUDA math library lacks


class ScalarWriter(KernelWriter):
    """Python's own text, but for sigmoid, which the CUDA math library lacks."""

    def number(self, value: Value) -> str:
        return f"real({float(value)!r})"

    def call(self, function: str, args: Sequence[Value]) -> tuple[str, int]:
        if function == "sigmoid":
            return f"real(1.0) / (real(1.0) + exp(-{self._inside(args[0], NAME)}))", QUOTIENT
        return super().call(function, args)
