r"""Formulas of LaTeX cut into lines that fit a page.

In: a formula as text, in which brackets that may be broken are \left and \right. Out: lines. Breaks
stand before operators: those of the outermost sum first, inside brackets last; brackets around a
break get a fixed size, since \left and \right must stand in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

PAGE = 345.0  # points: the width of text of LaTeX's article class at 10 pt
SUFFIX, QUAD = 0.76, 10.0  # the size of what stands below or above; the width of \quad
# points of what is set at 10 pt, spaces included, a little more than the fonts say
_WIDE = {
    **dict.fromkeys((r"\odot", "+", "-", r"\cdot", r"\land", r"\lor"), 12.6),
    **dict.fromkeys(("=", "<", ">", r"\le", r"\ge", r"\ne"), 13.8),
    **{r"\tanh": 24.5, r"\exp": 18.5, r"\log": 16.0, r"\sin": 16.0, r"\cos": 18.5, r"\min": 20.0, r"\max": 22.0},
    **{r"\sum": 17.0, r"\leftarrow": 10.5, r"\quad": QUAD, r"\qquad": 2 * QUAD, r"\,": 1.8, r"\;": 3.0, r"\lnot": 7.0},
    **{r"\omega": 7.0, r"\left": 0.0, r"\right": 0.0, r"\bigl": 0.0, r"\bigr": 0.0, r"\Bigl": 1.5, r"\Bigr": 1.5},
    **dict.fromkeys("()[]", 5.2),
    **{",": 4.8, ":": 5.0, ";": 4.8, "/": 5.2, "&": 0.0, ".": 3.0, " ": 0.0, "'": 3.0, r"\displaystyle": 0.0},
    **{"W": 12.0, "M": 11.0, "U": 8.4, "H": 9.4, "m": 9.2, "w": 7.6},
}
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_MARKS = re.compile(r"\\begin\{|\\end\{|\\\\|\\.|[&{}]", re.DOTALL)
_DEEPER = {"\\begin{": 2, "\\end{": 0, "{": 1, "}": -1}  # the name of an environment closes a brace
_UPRIGHT = {r"\mathrm", r"\text", r"\operatorname", r"\mathbf"}
_TRANSPARENT = {r"\bar", r"\overline", r"\hat"}
# separators from the loosest to the tightest
_LEVELS = (
    (", ", r";\, "),
    tuple(f" {sign} " for sign in ("<", ">", r"\le", r"\ge", "=", r"\ne", r"\land", r"\lor")),
    (" + ", " - "),
    (r" \odot ", r" \, ", r" \cdot ", " / "),
)
_SEPARATORS = [s for level in _LEVELS for s in level]


@lru_cache(maxsize=1 << 12)  # parts of a formula are measured again with what they are in
def width(tex: str) -> float:
    """About how wide a formula is, in points."""
    total, at = 0.0, 0
    while at < len(tex):
        found = _TOKEN.match(tex, at)
        assert found is not None
        token, at = found.group(), found.end()
        if token == r"\begin":
            inner, at = _environment(tex, at)
            total += _table(inner)
        elif token in ("_", "^"):
            inner, at = _argument(tex, at)
            size = width(inner) * SUFFIX
            if at < len(tex) and tex[at] in "_^":
                other, at = _argument(tex, at + 1)
                size = max(size, width(other) * SUFFIX)
            total += size
        elif token in _UPRIGHT:
            inner, at = _argument(tex, at)
            total += 5.6 * len(inner.replace("\\", "")) + (1.8 if token == r"\operatorname" else 0.0)
        elif token in _TRANSPARENT:
            inner, at = _argument(tex, at)
            total += width(inner)
        elif token == r"\frac":
            above, at = _argument(tex, at)
            below, at = _argument(tex, at)
            total += max(width(above), width(below)) + 3.0
        elif token == r"\sqrt":
            inner, at = _argument(tex, at)
            total += width(inner) + 9.0
        elif token == "{":
            inner, at = _argument(tex, at - 1)
            total += width(inner)
        elif token in _WIDE:
            total += _WIDE[token]
        else:
            total += 5.2 if token.isdigit() else 8.6 if token.isupper() else 6.2
    return total


@lru_cache(maxsize=1 << 10)
def _table(text: str) -> float:
    columns: list[float] = []
    for row in _split(text, r"\\"):
        for number, cell in enumerate(_split(row, "&")):
            columns += [0.0] if len(columns) <= number else []
            columns[number] = max(columns[number], width(cell))
    return sum(columns) + 22.0


def _split(text: str, mark: str) -> list[str]:
    """The parts between marks that stand in no braces and in no environment."""
    parts, depth, start = [], 0, 0
    for found in _MARKS.finditer(text):
        token = found.group()
        if token == mark and not depth:
            parts.append(text[start : found.start()])
            start = found.end()
        depth += _DEEPER.get(token, 0)
    return [*parts, text[start:]]


def _argument(tex: str, at: int) -> tuple[str, int]:
    """What stands in the braces that begin at a place, or the one token there, and where it
    ends."""
    if tex[at : at + 1] != "{":
        found = _TOKEN.match(tex, at)
        return (found.group(), found.end()) if found else ("", at)
    end = _closing(tex, at)
    return tex[at + 1 : end - 1], end


def _closing(tex: str, at: int) -> int:
    depth = 0
    while True:
        if tex[at] == "\\":
            at += 1
        else:
            depth += {"{": 1, "}": -1}.get(tex[at], 0)
        at += 1
        if not depth:
            return at


def _environment(tex: str, at: int) -> tuple[str, int]:
    r"""The body of the environment whose \begin ends at a place, and where its \end ends."""
    start = body = tex.index("}", at) + 1
    depth = 1
    for found in re.finditer(r"\\(begin|end)\{\w+\}", tex[start:]):
        depth += 1 if found.group(1) == "begin" else -1
        if not depth:
            return tex[body : start + found.start()], start + found.end()
    return tex[body:], len(tex)


@dataclass(frozen=True)
class Bracket:
    r"""What stands between \left and \right."""

    opened: str
    inside: tuple[Part, ...]
    closed: str

    def __str__(self) -> str:
        return f"\\left{self.opened}{text_of(self.inside)}\\right{self.closed}"


@dataclass(frozen=True)
class Break:
    """A separator, before which a line may end."""

    sign: str

    def __str__(self) -> str:
        return self.sign


Part = str | Bracket | Break


def text_of(parts: tuple[Part, ...]) -> str:
    return "".join(map(str, parts))


def parsed(tex: str) -> tuple[Part, ...]:
    """A formula as brackets, separators and what is left."""
    return _Parser(tex).parts()[0]


class _Parser:
    def __init__(self, tex: str):
        self.tex, self.at = tex, 0

    def parts(self) -> tuple[tuple[Part, ...], str]:
        r"""Up to the \right of this level, whose bracket is the second result."""
        found: list[Part] = []
        text = ""
        while self.at < len(self.tex):
            rest = self.tex[self.at : self.at + 8]
            sign = next((s for s in _SEPARATORS if rest.startswith(s)), None)
            if re.match(r"\\left(?![a-z])", rest) or re.match(r"\\right(?![a-z])", rest):
                left = rest[1] == "l"
                self.at += 5 if left else 6
                bracket = self._token()
                if not left:
                    return (*found, *([text] if text else [])), bracket
                inside, closed = self.parts()
                found += [*([text] if text else []), Bracket(bracket, inside, closed)]
                text = ""
            elif sign and (text or found):
                found += [*([text] if text else []), Break(sign)]
                text, self.at = "", self.at + len(sign)
            else:
                text += self._chunk()
        return (*found, *([text] if text else [])), ""

    def _token(self) -> str:
        found = _TOKEN.match(self.tex, self.at)
        assert found is not None
        self.at = found.end()
        return found.group()

    def _chunk(self) -> str:
        """A token with what belongs to it: braces and environments are not looked into."""
        start = self.at
        if self.tex[start] == "{":
            self.at = _closing(self.tex, start)
        elif self.tex.startswith(r"\begin{", start):
            self.at = _environment(self.tex, start + 6)[1]
        else:
            self._token()
        return self.tex[start : self.at]


def broken(tex: str, first: float, room: float) -> list[str]:
    """A formula in lines, the first at most `first` points wide and the others `room`, where it can
    be cut so."""
    return [tex] if width(tex) <= first else _laid(parsed(tex), first, room)


def _laid(parts: tuple[Part, ...], first: float, room: float) -> list[str]:
    if width(text_of(parts)) <= first:
        return [text_of(parts)]
    for level in _LEVELS:
        if any(isinstance(p, Break) and p.sign in level for p in parts):
            return _filled(list(_cut(parts, level)), first, room)
    return _opened(parts, first, room)


def _cut(parts: tuple[Part, ...], level: tuple[str, ...]) -> Iterator[tuple[str, tuple[Part, ...]]]:
    sign = ""
    current: list[Part] = []
    for part in parts:
        if isinstance(part, Break) and part.sign in level:
            yield sign, tuple(current)
            sign, current = part.sign, []
        else:
            current.append(part)
    yield sign, tuple(current)


def _filled(terms: list[tuple[str, tuple[Part, ...]]], first: float, room: float) -> list[str]:
    """As many terms in each line as fit it."""
    lines: list[str] = []
    current, space = "", first
    for number, (sign, parts) in enumerate(terms):
        text = text_of(parts)
        if number and width(current + sign + text) <= space:
            current += sign + text
            continue
        start = ""
        if number:
            comma = sign.startswith((",", ";"))
            lines.append(current + (sign.rstrip() if comma else ""))
            start, space = "" if comma else _led(sign), room
        inner = _laid(parts, space - width(start), room)
        inner[0] = start + inner[0]
        lines += inner[:-1]
        space = room if len(inner) > 1 else space
        current = inner[-1]
    return [*lines, current]


def _led(sign: str) -> str:
    """An operator at the start of a line; a product without a sign gets one."""
    return "{} \\cdot " if sign == r" \, " else f"{{}}{sign}"


def _opened(parts: tuple[Part, ...], first: float, room: float) -> list[str]:
    """Breaks inside the widest bracket."""
    brackets = [p for p in parts if isinstance(p, Bracket)]
    if not brackets:
        return [text_of(parts)]
    widest = max(brackets, key=lambda b: width(str(b)))
    at = parts.index(widest)
    size = "Big" if r"\frac" in str(widest) or r"\begin" in str(widest) else "big"
    start = f"{text_of(parts[:at])}\\{size}l{widest.opened}"
    end = f"\\{size}r{widest.closed}{text_of(parts[at + 1 :])}"
    inner = _laid(widest.inside, first - width(start), room - width(end))
    return [start + inner[0] + (end if len(inner) == 1 else ""), *inner[1:-1], *([inner[-1] + end] * (len(inner) > 1))]
