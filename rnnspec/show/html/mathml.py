r"""Formulas as MathML, of the LaTeX that `show/tex` writes.

In: the LaTeX of a formula, of the commands that are named here. Out: markup. A command that is not
known is a KeyError: a formula is never shown in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnnspec.show.markup import Markup, join, tag
from rnnspec.show.tex.names import GREEK

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)
_LARGE = dict(zip(("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"),
                  "ΓΔΘΛΞΠΣΥΦΨΩ"))  # fmt: skip
_SMALL = dict(zip(("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
                   "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
                  "αβγδϵζηθικλμνξπρστυϕχψω"))  # fmt: skip
_LETTERS = {f"\\{name}": sign for name, sign in (_SMALL | _LARGE).items()}
assert set(_SMALL) | set(_LARGE) == GREEK
_OPERATORS = {
    r"\odot": "⊙", r"\cdot": "⋅", r"\top": "⊤", r"\leftarrow": "←", r"\downarrow": "↓", r"\le": "≤", r"\ge": "≥",
    r"\ne": "≠", r"\land": "∧", r"\lor": "∨", r"\lnot": "¬", r"\times": "×", "-": "−", "*": "∗", "'": "′",
    **{sign: sign for sign in "+=<>,:;/.!|"},
}  # fmt: skip
_FENCES = {r"\lvert": "|", r"\rvert": "|", r"\lVert": "‖", r"\rVert": "‖", **{sign: sign for sign in "()[]"}}
_FUNCTIONS = {rf"\{name}" for name in ("tanh", "exp", "log", "sin", "cos", "min", "max")}
_SPACES = {r"\,": "0.17em", r"\;": "0.28em", r"\quad": "1em", r"\qquad": "2em"}
_SIZES = {rf"\{size}{side}" for size in ("big", "Big") for side in "lr"}
_BOLD = {**{str(n): chr(0x1D7CE + n) for n in range(10)}, "I": "𝐈"}
_ESCAPED = {r"\_": "_", r"\%": "%", r"\&": "&", r"\#": "#", r"\$": "$"}


def formula(latex: str, display: bool = False) -> Markup:
    """A formula as a math element; display: it stands alone."""
    return tag("math", row(latex), display="block" if display else None)


def equations(lines: Sequence[str]) -> Markup:
    r"""Rows of an align environment, `left &= right`, as a table; `&\quad more` goes on with the
    row above."""
    rows = []
    for line in lines:
        left, _, right = line.partition("&")
        rows.append(tag("mtr", tag("mtd", row(left), class_="l"), tag("mtd", row(right), class_="r")))
    return tag("math", tag("mtable", *rows, class_="equations"), display="block")


def row(latex: str) -> Markup:
    """What a formula is, within a math element."""
    parser = _Parser([t for t in _TOKEN.findall(latex) if not t.isspace()])
    found = tag("mrow", *parser.parts())
    if parser.at < len(parser.tokens):
        raise KeyError(f"{parser.tokens[parser.at]} closes nothing in {latex}")
    return found


class _Parser:
    def __init__(self, tokens: Sequence[str]):
        self.tokens, self.at = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def parts(self, *ends: str) -> Iterator[Markup]:
        """Elements up to one of these tokens, or to what closes a group."""
        while self.peek() not in ("", "}", r"\right", r"\end", *ends):
            yield self.scripted()

    def scripted(self) -> Markup:
        """An element with what stands below and above it."""
        start = self.peek()
        base, below, above = self.element(), None, None
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                below = self.group()
            else:
                above = self.group()
        if start == r"\sum":
            return base if below is None else tag("munder", base, below)
        if below is not None and above is not None:
            return tag("msubsup", base, below, above)
        if below is not None:
            return tag("msub", base, below)
        return base if above is None else tag("msup", base, above)

    def group(self) -> Markup:
        """What stands in braces, or one element."""
        if self.peek() != "{":
            return self.element()
        self.take()
        inner = list(self.parts())
        self.take()
        return inner[0] if len(inner) == 1 else tag("mrow", *inner)

    def word(self) -> str:
        """What stands in braces as text."""
        self.take()
        found = ""
        while self.peek() != "}":
            token = self.take()
            found += _ESCAPED.get(token, token)
        self.take()
        return found

    def element(self) -> Markup:
        token = self.peek()
        if token == "{":
            return self.group()
        self.take()
        if token in _LETTERS or (len(token) == 1 and token.isalpha()):
            return tag("mi", _LETTERS.get(token, token))
        if token[0].isdigit():
            return tag("mn", token)
        if token in _OPERATORS:
            return tag("mo", _OPERATORS[token])
        if token in _FENCES:
            return tag("mo", _FENCES[token], stretchy="false")
        if token in _FUNCTIONS:
            return tag("mi", token[1:])
        if token in _SPACES:
            return tag("mspace", width=_SPACES[token])
        if token in _SIZES:
            return tag("mo", _FENCES[self.take()], stretchy="false")
        return self.command(token)

    def command(self, token: str) -> Markup:
        match token:
            case r"\sum":
                return tag("mo", "∑", movablelimits="false")
            case r"\bar" | r"\overline":
                # as an accent it would touch the letter in Latin Modern Math
                return tag("mover", self.group(), tag("mo", "‾", stretchy="true"), accent="false")
            case r"\hat":
                return tag("mover", self.group(), tag("mo", "^", stretchy="false"), accent="true")
            case r"\frac":
                return tag("mfrac", self.group(), self.group())
            case r"\sqrt":
                return tag("msqrt", self.group())
            case r"\mathrm" | r"\operatorname":
                return tag("mi", self.word(), mathvariant="normal")
            case r"\mathit":
                return tag("mi", self.word(), mathvariant="italic")
            case r"\mathbf":
                return tag("mi", "".join(_BOLD[c] for c in self.word()), mathvariant="normal")
            case r"\text":
                return tag("mtext", f"{self.word()}\N{NO-BREAK SPACE}")
            case r"\left":
                return self.fenced()
            case r"\begin":
                return self.environment(self.word())
        raise KeyError(f"no MathML for {token}")

    def fenced(self) -> Markup:
        opened = tag("mo", _FENCES[self.take()], fence="true")
        inner = list(self.parts())
        self.take()
        return tag("mrow", opened, *inner, tag("mo", _FENCES[self.take()], fence="true"))

    def environment(self, name: str) -> Markup:
        """Cases, or aligned lines."""
        if self.peek() == "[":
            while self.take() != "]":
                pass
        rows, cells = [], list[Markup]()
        while self.peek() != r"\end":
            cells.append(tag("mtd", *self.parts("&", r"\\")))
            if self.peek() == "&":
                self.take()
                continue
            rows.append(tag("mtr", *cells))
            cells = []
            if self.peek() == r"\\":
                self.take()
        self.take()
        if name != self.word():
            raise KeyError(f"no MathML for {name}, which does not end")
        table = tag("mtable", *rows, class_=name)
        return tag("mrow", tag("mo", "{", fence="true"), table) if name == "cases" else join(table)
