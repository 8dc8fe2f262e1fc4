"""What a parameter may be held to: the table of constraints, and one of them as a file states it.

In: a text like `bounded(0, 1)`. Out: a Constraint, or what is wrong with the text. What a
constraint is given besides numbers is the name of a fixed parameter. Values are kept to it by
`engine/constrain.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.parse import decimal

ANY, MATRIX, SQUARE = "any", "matrix", "square"  # which parameters a constraint is for
ARRAY, NUMBER = "array", "number"


@dataclass(frozen=True)
class ConstraintKind:
    """One row of the table. Every constraint is kept by projection: after an update the value
    becomes the nearest one that obeys (of a spectral radius: what it is times a number), and one
    that obeys already stays as it is, bit by bit.

    takes: its arguments, name -> "array" (a fixed parameter) or "number"; optional: how many of the
    last may be left out. of: the shapes that it is for. order: when it is done; what is done later
    breaks nothing that was done before. predicate: what then holds exactly, of weights w[i, j] from
    j to i. begins: what becomes of initial values. needs_zero: whether numbers may have to be 0, or
    near it. against: constraints that it can't stand beside, and why.
    """

    name: str
    takes: Mapping[str, str]
    of: str
    order: int
    predicate: str
    begins: str
    optional: int = 0
    needs_zero: bool = False
    against: Mapping[str, str] | None = None


FOLDED = "folded at the limit: what lies beyond comes back as far on the other side"
ALONE = "an orthogonal matrix has no room for it"
_BESIDE_SIGN = "sign says already which weights are not negative"

CONSTRAINTS: Mapping[str, ConstraintKind] = {
    kind.name: kind
    for kind in (
        ConstraintKind("mask", {"M": ARRAY}, ANY, 0, "w = 0 where M = 0", "0 where M = 0", needs_zero=True),
        ConstraintKind(
            "density",
            {"part": NUMBER, "seed": NUMBER},
            MATRIX,
            0,
            "w = 0 but for max(1, round(part * columns)) places of each row, drawn by seed",
            "0 elsewhere",
            optional=1,
            needs_zero=True,
            against={"mask": "both say which weights there are"},
        ),
        ConstraintKind(
            "sign",
            {"d": ARRAY},
            ANY,
            0,
            "w[i, j] >= 0 where d[j] > 0, <= 0 where d[j] < 0, 0 where d[j] = 0 (d may have the shape of w, too)",
            "|w| with that sign; then each row's inhibition is scaled to its excitation",
            needs_zero=True,
        ),
        ConstraintKind(
            "dale",
            {"part": NUMBER},
            MATRIX,
            0,
            "w[i, j] >= 0 for the first round(part * columns) columns j, <= 0 for the others (Dale's law)",
            "as of sign",
            needs_zero=True,
            against={"sign": "both say which sign weights have"},
        ),
        ConstraintKind("no_self", {}, SQUARE, 0, "w[i, i] = 0", "0 there", needs_zero=True),
        ConstraintKind(
            "nonnegative",
            {},
            ANY,
            0,
            "w >= 0",
            FOLDED,
            against={"sign": _BESIDE_SIGN, "dale": _BESIDE_SIGN},
        ),
        ConstraintKind("bounded", {"low": NUMBER, "high": NUMBER}, ANY, 0, "low <= w <= high", FOLDED),
        ConstraintKind(
            "norm",
            {"most": NUMBER},
            ANY,
            1,
            "the root of the sum of squares of each row (of a vector: of all of it) is at most `most`",
            "scaled down to it",
            needs_zero=True,
            against={"fixed": "a norm is kept while training, and what is fixed is not trained: give it by init"},
        ),
        ConstraintKind(
            "spectral_radius",
            {"most": NUMBER},
            SQUARE,
            2,
            "the largest absolute eigenvalue is at most `most`",
            "scaled, up or down, so that it is `most`, where bounds and norms have room",
            needs_zero=True,
        ),
        ConstraintKind(
            "orthogonal",
            {},
            SQUARE,
            2,
            "w.T @ w = eye, to rounding (2 units in the last place of its dtype, and 16 n in that of float64)",
            "the nearest orthogonal matrix: U @ V.T of the singular values",
            against=dict.fromkeys(
                ("mask", "density", "sign", "dale", "no_self", "nonnegative", "bounded", "norm", "spectral_radius"),
                ALONE,
            ),
        ),
        ConstraintKind("fixed", {}, ANY, 3, "w is not trained: as the key `fixed` has it", "as the others say"),
    )
}
FORMS = ", ".join(f"{k.name}({', '.join(k.takes)})" if k.takes else k.name for k in CONSTRAINTS.values())


@dataclass(frozen=True)
class Constraint:
    """One constraint of one parameter. args: numbers, and names of fixed parameters."""

    kind: str
    args: tuple[str | float, ...] = ()

    def to_text(self) -> str:
        """As a file has it: `bounded(0, 1)`."""
        given = ", ".join(a if isinstance(a, str) else f"{a!r}".removesuffix(".0") for a in self.args)
        return f"{self.kind}({given})" if given else self.kind

    @property
    def row(self) -> ConstraintKind:
        return CONSTRAINTS[self.kind]

    @property
    def arrays(self) -> tuple[str, ...]:
        """The fixed parameters that it reads."""
        return tuple(a for a in self.args if isinstance(a, str))


@dataclass(frozen=True)
class StatedConstraint:
    """A constraint as it stands in a file: a name, and the texts of its arguments."""

    kind: str
    args: tuple[str, ...] = ()


def stated_constraint(text: str) -> StatedConstraint | str:
    """`bounded(0, 1)` read; a text says what is wrong with it."""
    head = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text, re.ASCII)
    name = head[1] if head else text.split("(")[0].strip()
    if text.count("(") > text.count(")") and name in CONSTRAINTS:
        return (
            f"'{text.strip()[:60]}' ends at a comma, as YAML has it: write constraints in a list, U: [bounded(0, 1)],"
            " or in quotes."
        )
    if head is None or name not in CONSTRAINTS:
        near = did_you_mean(name[:60], CONSTRAINTS)
        return f"unknown constraint '{text.strip()[:60]}'.{near} Known here: {FORMS}."
    args = tuple(a.strip() for a in head[2].split(",")) if head[2] and head[2].strip() else ()
    kind = CONSTRAINTS[name]
    if not len(kind.takes) - kind.optional <= len(args) <= len(kind.takes):
        wanted = f"{name}({', '.join(kind.takes)})" if kind.takes else name
        return f"'{name}' is written {wanted}; got {len(args)} argument{'s' * (len(args) != 1)}."
    return StatedConstraint(name, args)


def constraint(
    says: StatedConstraint, constants: Mapping[str, Fraction], fixed: Mapping[str, object]
) -> Constraint | str:
    """The constraint with its arguments looked up; a text says what is wrong. constants: the cell's
    numbers; fixed: its fixed parameters by name."""
    args: list[str | float] = []
    for (name, what), text in zip(says_of(says).takes.items(), says.args):
        if what == ARRAY:
            if text not in fixed:
                return (
                    f"'{text[:40]}' of {says.kind} is no fixed parameter.{did_you_mean(text, fixed)} Declare it under"
                    f" parameters and name it under fixed. Fixed here: {listed(fixed)}."
                )
            args.append(text)
            continue
        number = constants.get(text.removeprefix("-").strip(), decimal(text))
        if number is not None and decimal(text) is None and text.startswith("-"):
            number = -number
        if number is None or abs(number) > 10**30:
            return f"'{text[:40]}' for {name} of {says.kind} is not a number, or a constant of the file."
        args.append(float(number))
    return _out_of_range(says.kind, [a for a in args if isinstance(a, float)]) or Constraint(says.kind, tuple(args))


def says_of(says: StatedConstraint) -> ConstraintKind:
    """The row of the table."""
    return CONSTRAINTS[says.kind]


def _out_of_range(kind: str, numbers: list[float]) -> str:
    match kind, numbers:
        case "density", [part, *_] if not 0 < part <= 1:
            return f"density keeps a part of the weights: above 0 and at most 1, got {part:g}."
        case "density", [_, seed] if seed < 0 or seed != int(seed) or seed >= 2**53:
            return f"the seed of density is a whole number of at least 0, got {seed:g}."
        case "dale", [part] if not 0 <= part <= 1:
            return f"dale takes the part of the units that excite, from 0 to 1, got {part:g}."
        case "bounded", [low, high] if low > high:
            return f"bounded({low:g}, {high:g}) leaves no number: the lower limit comes first."
        case (("norm" | "spectral_radius"), [most]) if most <= 0:
            return f"{kind} takes a number above 0, got {most:g}."
    return ""


def at_odds(together: list[Constraint], fixed: bool) -> str:
    """Why some constraints of one parameter can't hold together; "" where they can."""
    kinds = {c.kind: c for c in together}
    for c in together:
        for other, why in (c.row.against or {}).items():
            if other in kinds or (other == "fixed" and fixed):
                return f"{c.to_text()} and {kinds[other].to_text() if other in kinds else other} contradict: {why}."
    limits = kinds.get("bounded")
    low, high = (float(a) for a in limits.args) if limits else (-1.0, 1.0)
    zero = next((c for c in together if c.row.needs_zero), None)
    if limits and zero and not low <= 0 <= high:
        return f"{limits.to_text()} and {zero.to_text()} contradict: weights may have to be 0, or near it."
    if limits and "nonnegative" in kinds and high < 0:
        return f"{limits.to_text()} and nonnegative contradict: there is no such number."
    return ""
