"""The ten primitive functions of the language as functions of C, from backends/primitives.py: no
call and no branch, so that a compiler makes vectors of a loop over them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rnnspec.backends.c.numbers import Real
from rnnspec.backends.polynomials import FORMATS, Format
from rnnspec.backends.primitives import FUNCTIONS

WORD = re.compile(r"\w+")
# functions whose arguments C's own have: what a primitive is called in a text
NAMES = {name: f"{name}_of" for name in FUNCTIONS}


@dataclass
class Body:
    """The lines of one function, each of which makes one value."""

    real: Real
    lines: list[str] = field(default_factory=list)

    def value(self, kind: str, text: str) -> Number:
        name = f"v{len(self.lines)}"
        self.lines.append(f"    const {kind} {name} = {text};")
        return Number(self, name, kind)


@dataclass(frozen=True)
class Number:
    """A value of C: a number of the real type, of the whole numbers of as many bits, or a truth
    (int)."""

    body: Body
    text: str
    kind: str

    @property
    def format(self) -> Format:
        return FORMATS[self.body.real.format]

    def like(self, number: float) -> Number:
        return Number(self.body, self._constant(number), self.kind)

    def _constant(self, number: float) -> str:
        if self.kind == self.body.real.unsigned:
            width = 2**self.format.bits.width
            return f"{int(number) % width:#x}u{'ll' * (width > 2**32)}"
        text = self.body.real.constant(number)
        return f"({text})" if text.startswith("-") else text

    def _lift(self, other: Number | float) -> str:
        return other.text if isinstance(other, Number) else self._constant(other)

    def _made(self, text: str, kind: str = "") -> Number:
        return self.body.value(kind or self.kind, text)

    def _infix(self, sign: str, other: Number | float, kind: str = "") -> Number:
        return self._made(f"{self.text} {sign} {self._lift(other)}", kind)

    def _call(self, name: str, *args: Number | float) -> Number:
        return self._made(f"{name}{self.body.real.suffix}({', '.join([self.text, *map(self._lift, args)])})")

    def __add__(self, other: Number | float) -> Number:
        return self._infix("+", other)

    def __sub__(self, other: Number | float) -> Number:
        return self._infix("-", other)

    def __mul__(self, other: Number | float) -> Number:
        return self._infix("*", other)

    def __truediv__(self, other: Number | float) -> Number:
        return self._infix("/", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Number:
        return self.like(other) - self

    def __neg__(self) -> Number:
        return self._made(f"-{self.text}")

    def __abs__(self) -> Number:
        return self._call("fabs")

    def fma(self, factor: Number | float, term: Number | float) -> Number:
        return self._made(f"FMA({self.text}, {self._lift(factor)}, {self._lift(term)})")

    def sqrt(self) -> Number:
        return self._call("sqrt")

    def copysign(self, sign: Number) -> Number:
        return self._call("copysign", sign)

    def __lt__(self, other: Number | float) -> Number:
        return self._infix("<", other, "int")

    def __gt__(self, other: Number | float) -> Number:
        return self._infix(">", other, "int")

    def equals(self, other: Number | float) -> Number:
        return self._infix("==", other, "int")

    def select(self, yes: Number | float, no: Number) -> Number:
        return no._made(f"choose({self.text}, {no._lift(yes)}, {no.text})")

    def at_least(self, low: float) -> Number:
        return (self.like(low) > self).select(low, self)

    def at_most(self, high: float) -> Number:
        return (self.like(high) < self).select(high, self)

    def bits(self) -> Number:
        return self._made(f"bits_of({self.text})", self.body.real.unsigned)

    def as_float(self) -> Number:
        return self._made(f"real_of({self.text})", self.body.real.word)

    def plus(self, other: Number | float) -> Number:
        return self._infix("+", other)

    def __lshift__(self, count: int) -> Number:
        return self._made(f"{self.text} << {count}")

    def __rshift__(self, count: int) -> Number:
        return self._made(f"{self.text} >> {count}")

    def __and__(self, other: Number | float) -> Number:
        return self._infix("&", other)

    def __or__(self, other: Number | float) -> Number:
        return self._infix("|", other)

    def __xor__(self, other: Number | float) -> Number:
        return self._infix("^", other)

    def polynomial(self, coefficients: Sequence[float]) -> Number:
        result = self.like(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = result.fma(self, c)
        return result

    def beyond(self, name: str, limit: float, near: Number) -> Number:
        size, suffix = abs(self), self.body.real.suffix
        far = f"{size.text} > {self._constant(limit)} && {size.text} < {self._constant(float('inf'))}"
        return self._made(f"{far} ? {name}{suffix}({self.text}) : {near.text}")


def functions(names: Iterable[str], real: Real) -> list[str]:
    """The lines of the C functions for some primitives."""
    lines: list[str] = []
    for name in sorted(names):
        body = Body(real)
        result = FUNCTIONS[name](Number(body, "v", real.word))
        head = f"INLINE {real.word} {NAMES[name]}({real.word} v)"
        lines += ["", head, "{", *_used(body.lines, result.text), f"    return {result.text};", "}"]
    return lines


def _used(lines: Sequence[str], result: str) -> list[str]:
    """The lines whose values the result depends on."""
    found: list[str] = []
    needed = {result}
    for line in reversed(lines):
        target, text = line.split(" = ", 1)
        if target.split()[-1] in needed:
            needed.update(WORD.findall(text))
            found.append(line)
    return found[::-1]
