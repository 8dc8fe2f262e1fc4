"""Expressions as text of C, over single numbers of one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnspec.backends.c.numbers import Real
from rnnspec.backends.c.primitives import NAMES
from rnnspec.lowering.writer import NAME, KernelWriter
from rnnspec.symbolic.operations import Value


class CWriter(KernelWriter):
    """used: gets the primitives that the texts call."""

    infix = {**KernelWriter.infix, "both": "&&", "either": "||"}
    inverse = "!"

    def __init__(self, names: Mapping[str, str], real: Real, used: set[str]):
        super().__init__(names)
        self.real, self.used = real, used

    def number(self, value: Value) -> str:
        text = self.real.constant(float(value))
        return f"({text})" if text.startswith("-") else text

    def _function(self, name: str, text: str) -> str:
        self.used.add(name)
        return f"{NAMES[name]}({text})"

    def call(self, function: str, args: Sequence[Value]) -> tuple[str, int]:
        return self._function(function, ", ".join(self(a) for a in args)), NAME

    def root(self, text: str) -> str:
        return self._function("sqrt", text)

    def exponential(self, exponent: Value, base: str) -> str:
        return self._function("exp", f"{self.number(exponent)} * {self._function('log', base)}")

    def choice(self, condition: str, yes: str, no: str) -> str:
        self.used.add("choose")
        return f"choose({condition}, {yes}, {no})"

    def assignment(self, target: str, text: str, comment: str) -> str:
        return f"const real {target} = {text};" + (f"  /* {comment.replace('*/', '* /')} */" if comment else "")
