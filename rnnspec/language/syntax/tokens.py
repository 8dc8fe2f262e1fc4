"""Equation text to tokens and statements, before `ast` sees any of it.

In: the text of `equations:`. Out: statements, each a list of tokens with exact positions, and what
was refused on the way: characters and keywords that are not of the language, brackets that do not
match, nesting that would exhaust the parser. What gets through is short, shallow ASCII.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field

from rnnspec.language.syntax import habits

MAX_NESTING = 100
MAX_TOKENS = 4000  # of one equation; CPython's parser is bounded by this on a long chain of operators

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|<<|>>|:=|->|\+=|-=|\*=|/=|\.\.|[-+*/%@&|^~<>=!(){}\[\],:;.])|(?P<blank>[ \t]+)"
)
_STARTS_EQUATION = re.compile(
    r"\s*(for\b|(?:d\s*/\s*dt\s)?\s*[A-Za-z_][A-Za-z0-9_]*\s*(\[[^\]=]*\])?\s*=(?!=))", re.ASCII
)
_HEADER = re.compile(
    r"\s*for\s+(?P<name>[A-Za-z_]\w*)\s+in\s+(?P<first>[^:]+?)\s*\.\.\s*(?P<last>[^:.]+?)\s*:(?P<rest>.*)", re.ASCII
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_REFUSED = {
    "//": "'//' is not offered. Division is '/': 1/2 is 0.5.",
    "%": "'%' is not offered.",
    "^": "'^' is not offered. Write '**' for a power.",
    "&": "'&' is not offered. Write 'and'.",
    "|": "'|' is not offered. Write 'or', or abs(...) for the absolute value.",
    "~": "'~' is not offered. Write 'not'.",
    "!": "'!' is not offered. Write 'not'.",
    "<<": "'<<' is not offered.",
    ">>": "'>>' is not offered.",
    ":=": "':=' is not offered. Write each name on a line of its own.",
    "->": "'->' is not offered.",
    ";": "';' is not offered. Write one equation a line.",
    "{": "'{' is not offered. Use round brackets; h_{t-1} is written h[t-1], W_{f} is W_f.",
    "}": "'}' is not offered. Use round brackets; h_{t-1} is written h[t-1], W_{f} is W_f.",
    "..": "'..' stands in the head of an inner loop only: for k in 1..3:",
    ":": (
        "':' ends the head of an inner loop (for k in 1..3:) and stands nowhere else. Write part(v, first, length) for"
        " a slice."
    ),
    '"': "strings are not offered.",
    "'": "strings are not offered. A derivative is written d/dt v = ...",
    "\\": (
        "'\\' is not offered. What LaTeX writes \\sigma(v) is sigmoid(v) here; an equation goes on over several lines"
        " inside brackets."
    ),
}
_REFUSED |= {op: f"'{op}' is not offered. Each name is defined once, with '='." for op in ("+=", "-=", "*=", "/=")}
_KEYWORDS = {
    "if": "'if' is a Python keyword and not offered. Write where(condition, a, b).",
    "else": "'else' is a Python keyword and not offered. Write where(condition, a, b).",
    "for": "'for' is not offered inside an expression. An inner loop is a line of its own: for k in 1..3:",
    "in": "'in' is not offered.",
}


@dataclass(frozen=True)
class Token:
    """One token; `row` and `column` count from 0 in the text that was given."""

    kind: str  # number, name or operator
    text: str
    row: int
    column: int


@dataclass(frozen=True)
class Header:
    """The head of an inner loop, `for name in first..last:`; `first` and `last` are the texts of
    its bounds."""

    name: str
    first: str
    last: str
    row: int
    column: int
    width: int


@dataclass
class Statement:
    """The tokens of one equation, over one row or, inside brackets, several; `loop` is the loop it
    stands in."""

    tokens: list[Token] = field(default_factory=list)
    broken: bool = False  # something in it was refused already
    loop: Header | None = None


@dataclass(frozen=True)
class Refusal:
    message: str
    row: int
    column: int
    width: int = 1


def code_of(line: str) -> str:
    """A line without its comment. The language has no strings, so the first # starts it."""
    return line.split("#", 1)[0]


def split_statements(rows: list[str]) -> tuple[list[Statement], list[Refusal]]:
    """Tokens of `rows`, grouped into statements: a line ends one unless a bracket is open."""
    statements: list[Statement] = []
    refusals: list[Refusal] = []
    current, opened, loop = Statement(), list[Token](), _Loop()
    for row, line in enumerate(rows):
        code = code_of(line)
        if not code.strip():
            continue
        if opened and _STARTS_EQUATION.match(code):  # a bracket was forgotten: the next equation is still read
            refusals.append(_never_closed(opened[-1]))
            current, opened = _finish(statements, current, broken=True), []
        if not opened:
            if loop.takes(code, row, refusals):
                continue
            current.loop, current.broken = loop.header, loop.broken
        _scan(code, row, current, opened, refusals)
        if not opened:
            current = _finish(statements, current)
    if opened:
        refusals.append(_never_closed(opened[-1]))
        _finish(statements, current, broken=True)
    loop.end(refusals)
    return statements, refusals


class _Loop:
    """Which inner loop a line stands in: its body is what is indented deeper than its head."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.indent, self.row, self.empty, self.broken = -1, 0, False, False

    def takes(self, code: str, row: int, refusals: list[Refusal]) -> bool:
        """Whether the line is the head of a loop; keeps the loop that the following lines stand
        in."""
        indent = len(code) - len(code.lstrip())
        inside = 0 <= self.indent < indent
        if not inside:
            self.end(refusals)
        self.empty = False
        if not re.match(r"\s*for\b", code):
            return False
        if inside:
            refusals.append(Refusal("inner loops can't be nested. Write one loop over all the rounds.", row, indent, 3))
            self.broken = True
            return True
        self.indent, self.row, self.empty = indent, row, True
        found = _HEADER.fullmatch(code) if len(code) < 300 else None  # the expression is quadratic in blanks
        if found is None or found["rest"].strip() or keyword.iskeyword(found["name"]):
            text = (
                "the body of a loop stands on lines of its own, indented"
                if found and found["rest"].strip()
                else "the head of a loop reads"
            )
            refusals.append(Refusal(f"{text}: 'for k in 1..3:' and below it, indented, its equations.", row, indent, 3))
            self.broken = True
            self.empty = False
        else:
            self.header = Header(found["name"], found["first"], found["last"], row, indent, len(code.strip()))
        return True

    def end(self, refusals: list[Refusal]) -> None:
        if self.empty:
            refusals.append(Refusal("the loop has no body. Indent its equations under it.", self.row, self.indent, 3))
        self.header, self.indent, self.empty, self.broken = None, -1, False, False


def _finish(statements: list[Statement], current: Statement, broken: bool = False) -> Statement:
    current.broken |= broken
    if current.tokens or current.broken:
        statements.append(current)
    return Statement()


def _never_closed(token: Token) -> Refusal:
    return Refusal(f"'{token.text}' is never closed.", token.row, token.column)


def _scan(code: str, row: int, current: Statement, opened: list[Token], refusals: list[Refusal]) -> None:
    """Add one line's tokens to the statement; the first refusal of a line ends its reading."""
    column = 0
    while column < len(code):
        refusal: Refusal | None
        found = _TOKEN.match(code, column)
        if found is None or found.lastgroup is None:
            refusal = _bad_character(code[column], row, column)
        else:
            token = Token(found.lastgroup, found.group(), row, column)
            refusal = _refuse(token, code[found.end() : found.end() + 1], current, opened)
            column = found.end()
            if refusal is None and token.kind != "blank":
                current.tokens.append(token)
        if refusal is not None:
            if not current.broken:
                refusals.append(refusal)
            current.broken = True
            opened.clear()
            return


def _bad_character(character: str, row: int, column: int) -> Refusal:
    message = (
        _REFUSED.get(character)
        or f"the character {character!a} is not of the language: names and operators are plain ASCII."
        f"{habits.of_character(character)}"
    )
    return Refusal(message, row, column)


def _refuse(token: Token, following: str, current: Statement, opened: list[Token]) -> Refusal | None:
    """Why this token can't stand here, if it can't; keeps the list of open brackets."""
    text, message = token.text, ""
    if token.kind == "number":
        message = _refuse_number(text, following)
    elif token.kind == "name" and keyword.iskeyword(text) and text not in ("and", "or", "not"):
        message = (
            _KEYWORDS.get(text)
            or f"'{text}' is a Python keyword and can't be a name here. Write '{text}_' or another name."
        )
    elif token.kind == "name" and text.startswith("_"):
        message = f"'{text[:40]}' is not a name: names start with a letter."
    elif token.kind == "operator":
        message = _REFUSED.get(text, "") or _track_brackets(token, opened)
    if len(current.tokens) >= MAX_TOKENS:
        message = f"the equation is too long (over {MAX_TOKENS} names, numbers and operators). Split it into several."
    return Refusal(message, token.row, token.column, len(text)) if message else None


def _refuse_number(text: str, following: str) -> str:
    if following in ("j", "J"):
        return "complex numbers are not offered."
    if following.isalnum() or following == "_":
        return (
            f"'{text}{following}...' is neither a number nor a name. Numbers are decimal literals; write {text[:20]} *"
            " ... for a product."
        )
    if len(text) > 100:
        return "a number of over 100 characters is not offered."
    return ""


def _track_brackets(token: Token, opened: list[Token]) -> str:
    if token.text in ("(", "["):
        opened.append(token)
        return f"brackets are nested deeper than {MAX_NESTING}." if len(opened) > MAX_NESTING else ""
    if token.text in _CLOSING:
        if not opened or opened[-1].text != _CLOSING[token.text]:
            return f"'{token.text}' closes nothing that is open here."
        opened.pop()
    return ""
