"""Noise that a cell declares: how an input or a parameter is drawn, how often, and what is expected
of it.

    noise: {keep_h: bernoulli(0.1), mask_h: dropout(0.25) per sequence, mask_U: dropout(0.5)}

In: the text of one entry. Out: what it says. The kinds are one table: a new one of two values is
one row, another needs its generator too, in `rnnspec/engine/noise.py`, where arrays are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.parse import decimal

PER = ("step", "sequence", "call")


@dataclass(frozen=True)
class DrawKind:
    """A distribution of one argument. mean: what is expected of a value, which stands in its place
    at evaluation. chance: of `value`, the rest are 0; None where the values are not two."""

    argument: str
    allows: Callable[[float], bool]
    mean: Callable[[float], float]
    chance: Callable[[float], float] | None = None
    value: Callable[[float], float] | None = None


KINDS: Mapping[str, DrawKind] = {
    "bernoulli": DrawKind(
        "the probability of a 1, from 0 to 1", lambda p: 0 <= p <= 1, lambda p: p, lambda p: p, lambda p: 1.0
    ),
    "dropout": DrawKind(
        "the probability of a 0, from 0 to below 1",
        lambda p: 0 <= p < 1,
        lambda p: 1.0,
        lambda p: 1 - p,
        lambda p: 1 / (1 - p),
    ),
    "normal": DrawKind("the standard deviation, from 0 to 1e6", lambda s: 0 <= s <= 1e6, lambda s: 0.0),
}
FORMS = "bernoulli(p), dropout(p), normal(sigma), followed by 'per sequence' where one value holds for all steps"


@dataclass(frozen=True)
class Draw:
    """How values are drawn. kind: of KINDS; argument: its number; per: "step" (an input [T, B,
    ...], anew at every step and row), "sequence" (an input, one [B, ...] for all steps) or "call"
    (a parameter, one for all steps and rows)."""

    kind: str
    argument: float
    per: str

    @property
    def mean(self) -> float:
        """What is expected of a value."""
        return KINDS[self.kind].mean(self.argument)

    def to_text(self) -> str:
        """The text that says it in a file."""
        return f"{self.kind}({self.argument!r})" + (" per sequence" if self.per == "sequence" else "")


@dataclass(frozen=True)
class Stated:
    """A Draw as a file states it: the argument may be a constant's name, `per` may be left out
    ("")."""

    kind: str
    argument: Fraction | str
    per: str


def stated(text: str) -> Stated | str:
    """What a text says, or what is wrong with it."""
    found = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*(?:per\s+(\w+)\s*)?", text, re.ASCII)
    if found is None:
        return f"'{text[:40]}' says no way to draw. Write {FORMS}."
    kind, argument, per = found[1], found[2].strip(), found[3] or ""
    if kind not in KINDS:
        return f"noise can't be drawn by '{kind[:40]}'.{did_you_mean(kind, KINDS)} Known here: {listed(KINDS)}."
    if per and per not in PER:
        return f"noise is drawn per step, sequence or call, not per '{per[:40]}'.{did_you_mean(per, PER)}"
    number = decimal(argument)
    if number is None and not re.fullmatch(r"[A-Za-z]\w*", argument, re.ASCII):
        return f"'{argument[:40]}' is no number and no constant: {kind} takes {KINDS[kind].argument}."
    return Stated(kind, argument if number is None else number, per)


def drawn(says: Stated, constants: Mapping[str, Fraction], is_parameter: bool) -> Draw | str:
    """The Draw of an input or parameter, or what is wrong."""
    number = constants.get(says.argument) if isinstance(says.argument, str) else says.argument
    if number is None:
        return (
            f"'{says.argument}' is no number and no constant.{did_you_mean(str(says.argument), constants)} Known here:"
            f" {listed(constants)}."
        )
    if not KINDS[says.kind].allows(float(number)):
        return f"{says.kind}({float(number):g}): the number is {KINDS[says.kind].argument}."
    if is_parameter and says.per not in ("", "call"):
        return (
            f"a parameter is one for all steps and rows, so it can't be drawn per {says.per}. Declare it as an input,"
            f" or leave out 'per {says.per}'."
        )
    if not is_parameter and says.per == "call":
        return (
            "an input has a value for every row, so it can't be drawn per call. Declare it as a parameter, or write"
            " 'per sequence'."
        )
    return Draw(says.kind, float(number), says.per or ("call" if is_parameter else "step"))
