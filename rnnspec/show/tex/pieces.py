r"""Parts of formulas, put together.

Products are written side by side, products element by element with \odot, a power of a value and a
function of it element by element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.show.tex.lines import broken, width
from rnnspec.show.tex.names import Names

TRANSPOSED = r"^{\top}"
RELATIONS = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne", "and": r"\land", "or": r"\lor"}
FRACTION, BRANCH, CONDITION = 150.0, 170.0, 110.0  # points, from which on they are written otherwise


class TexPiece(NamedTuple):
    """A part of a formula. binding: how tightly it binds: 0 conditions, 1 sums, 2 products, 3
    names; wide: whether it has a feature axis."""

    text: str
    binding: int
    wide: bool

    def __format__(self, binding: str) -> str:
        """The text, in brackets unless it binds as tightly as is asked for: {v:2}."""
        return inside(self, int(binding or 0))


def inside(piece: TexPiece, binding: int) -> str:
    return piece.text if piece.binding >= binding else f"\\left({piece.text}\\right)"


def number(value: Fraction) -> TexPiece:
    """3, 0.5, 2.5 * 10^{-4}; a fraction where no decimal number is it."""
    if value < 0:
        return TexPiece(f"-{number(-value).text}", 1, False)
    if value.denominator == 1 and value < 10**6:
        return TexPiece(str(value.numerator), 3, False)
    text = repr(float(value))
    short = len(text) > 6 and value.numerator == 1 and value.denominator < 10**6
    if short or (Fraction(text) != value and max(value.numerator, value.denominator) < 1000):
        return TexPiece(f"\\frac{{{value.numerator}}}{{{value.denominator}}}", 2, False)
    digits, _, exponent = text.partition("e")
    digits = digits.removesuffix(".0")
    if not exponent:
        return TexPiece(digits, 3, False)
    power = f"10^{{{int(exponent)}}}"
    return TexPiece(power if digits == "1" else f"{digits} \\cdot {power}", 2, False)


def call(function: str, args: Sequence[TexPiece], names: Names) -> TexPiece:
    """A function by its name, or by what its row says."""
    row = FUNCTIONS.get(function)
    wide = any(a.wide for a in args)
    if row is not None and any(f"{{{arg}" in row.latex for arg in row.args):
        return TexPiece(row.latex.format(**dict(zip(row.args, args))), row.binding, wide)
    head = (row.latex if row is not None else "") or operator(function)
    if head == r"\sigma" and head in names.heads:
        head = operator(function)
    return TexPiece(f"{head}\\left({', '.join(a.text for a in args)}\\right)", 3, wide)


def operator(function: str) -> str:
    r"""`hard_swish` is \operatorname{hardswish}."""
    return f"\\operatorname{{{function.replace('_', '')}}}"


def feature(function: str, args: Sequence[TexPiece], wide: bool, names: Names) -> TexPiece:
    """A function along features, in the form that its row gives. wide: whether its value has a
    feature axis."""
    row = FEATURES[function]
    if not row.latex:
        return TexPiece(f"{operator(function)}\\left({', '.join(a.text for a in args)}\\right)", 3, wide)
    named = dict(zip(row.args, args)) | {"all": TexPiece(";\\, ".join(a.text for a in args), 3, wide)}
    return TexPiece(row.latex.format(**named), row.binding, wide)


def part(vector: TexPiece, first: str, length: str, names: Names) -> TexPiece:
    return TexPiece(FEATURES["part"].latex.format(v=vector, SPAN=names.span(first, length)), 3, True)


def cases(branches: Sequence[tuple[TexPiece, str]], other: TexPiece) -> TexPiece:
    """Values with their conditions, and what is left; long ones in lines of their own."""
    rows = [f"{_cell(v.text, BRANCH)} & \\text{{if }} {_cell(c, CONDITION)}" for v, c in branches]
    rows.append(f"{_cell(other.text, BRANCH)} & \\text{{else}}")
    wide = other.wide or any(v.wide for v, _ in branches)
    return TexPiece("\\begin{cases} " + " \\\\ ".join(rows) + " \\end{cases}", 0, wide)


def _cell(text: str, room: float) -> str:
    lines = broken(text, room, room)
    if len(lines) == 1:
        return text
    return "\\begin{aligned}[t] & " + " \\\\ & ".join(lines) + " \\end{aligned}"


def fraction(above: TexPiece, below: TexPiece) -> TexPiece:
    wide = above.wide or below.wide
    if re.fullmatch(r"-[\d.]+", above.text):
        inner = fraction(TexPiece(above.text[1:], 3, False), below)
        return TexPiece(f"-{inner:2}", 1, wide)
    if r"\begin" in above.text + below.text or max(width(above.text), width(below.text)) > FRACTION:
        return TexPiece(f"{above:2} / {below:3}", 2, wide)
    return TexPiece(f"\\frac{{{above.text}}}{{{below.text}}}", 2, wide)


def product(factors: Sequence[TexPiece]) -> TexPiece:
    r"""Factors side by side, equal ones as a power; between two that have a feature axis stands the
    sign of the elementwise product, and before a number \cdot."""
    text, wide, last = "", False, ""
    for n, factor in enumerate(_powers(factors)):
        own = inside(factor, 2 if n == 0 or factor.binding == 2 else 3)
        if n:
            digit = own[:1].isdigit() or (own.startswith("\\frac") and last.startswith("\\frac"))
            text += r" \odot " if wide and factor.wide else r" \cdot " if digit else r" \, "
        text, wide, last = text + own, wide or factor.wide, own
    return TexPiece(text, 2, wide)


def _powers(factors: Sequence[TexPiece]) -> list[TexPiece]:
    found: list[tuple[TexPiece, int]] = []
    for factor in factors:
        plain = factor.binding == 3 and not factor.text[:1].isdigit()
        at = next((n for n, (f, _) in enumerate(found) if f == factor), None) if plain else None
        if at is None:
            found.append((factor, 1))
        else:
            found[at] = factor, found[at][1] + 1
    return [f if n == 1 else TexPiece(f"{_base(f)}^{{{n}}}", 2, f.wide) for f, n in found]


def _base(factor: TexPiece) -> str:
    """What a power may stand at: not what has something above it already."""
    text = inside(factor, 3)
    return f"\\left({text}\\right)" if re.search(r"\^\{[^{}]*(\{[^{}]*\}[^{}]*)*\}$", text) else text


def transposed(piece: TexPiece) -> TexPiece:
    """The transposed one of a transposed one is the first."""
    if piece.binding == 3 and piece.text.endswith(TRANSPOSED):
        return TexPiece(piece.text.removesuffix(TRANSPOSED), 3, piece.wide)
    return TexPiece(_base(piece) + TRANSPOSED, 3, piece.wide)


def total(terms: Sequence[tuple[TexPiece, bool]]) -> TexPiece:
    """A sum; each term with whether it is subtracted."""
    text = ""
    for n, (term, minus) in enumerate(terms):
        if n and not minus and term.binding == 1 and term.text.startswith("-"):
            text += f" - {term.text[1:]}"
            continue
        sign = (" - " if minus else " + ") if n else "-" if minus else ""
        text += sign + inside(term, 2 if minus else 1)
    return TexPiece(text, 1, any(t.wide for t, _ in terms))


def rows(equations: Sequence[tuple[str, str]], page: float) -> list[str]:
    """Equations as rows of an align environment, cut into lines that fit a page."""
    widest = max((width(left) for left, _ in equations), default=0.0) + 16.0
    found = []
    for left, right in equations:
        first, *more = broken(right, page - widest, page - widest - 10.0)
        found.append(f"{left} &= {first}")
        found += [f"&\\quad {line}" for line in more]
    return found
