"""Equation text to syntax tree. Nothing is ever evaluated as Python: `ast` parses, and a whitelist
translates.

In: the text of `equations:` (or of a row of the function table). Out: frozen tree nodes with
positions. Not here: names, shapes and times are checked in `check.py`.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rnnspec.errors import Problem, SpecError
from rnnspec.language.syntax import habits
from rnnspec.language.syntax.tokens import MAX_NESTING, Header, Refusal, Statement, Token, code_of, split_statements
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Loop, Number, Place, Ref, Unary

MAX_EQUATIONS = 500
MAX_DELAY = 64  # steps back that an equation may read


def parse_equations(
    text: str, first_line: int = 1, first_column: int = 1, file: str = ""
) -> tuple[list[Equation], list[Problem]]:
    """The equations of `text`, in order, and all that is wrong with the others.

    `text` stands in `file` with its first character at `first_line`, `first_column`, every line
    indented alike (as in a YAML block): places are those of the file.
    """
    rows = text.split("\n")
    statements, refusals = split_statements(rows)
    equations: list[Equation] = []
    for statement in statements:
        if statement.broken:
            continue
        try:
            equations.append(_equation(statement, _Text(rows, first_line, first_column, file)))
        except _RefusedError as refused:
            refusals.append(refused.refusal)
    if len(equations) > MAX_EQUATIONS:
        extra = equations[MAX_EQUATIONS].at
        message = f"over {MAX_EQUATIONS} equations."
        refusals.append(Refusal(message, extra.line - first_line, extra.column - first_column))
    pad = " " * (first_column - 1)
    return equations, [
        Problem(r.message, first_line + r.row, first_column + r.column, file or "<text>", pad + rows[r.row], r.width)
        for r in refusals
    ]


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> Expr:
    """One expression, such as a value or derivative in the function table. Raises SpecError."""
    rows = text.split("\n")
    try:
        statements, refusals = split_statements(["(", *rows, ")"])  # in brackets, so that it may span lines
        if refusals:
            raise _RefusedError(refusals[0])
        tokens = statements[0].tokens[1:-1]
        if not tokens:
            raise _RefusedError(Refusal("an expression is missing.", 1, 0))
        tokens = [Token(t.kind, t.text, t.row - 1, t.column) for t in tokens]
        return _Reader(tokens, _Text(rows, 1, 1, "")).read(0, 0)
    except _RefusedError as refused:
        r = refused.refusal
        row = min(max(r.row, 0), len(rows) - 1)
        raise SpecError(Problem(r.message, row + 1, r.column + 1, "<expression>", rows[row], r.width)) from None


class _RefusedError(Exception):
    """One equation can't be read; carries why. Never leaves this module."""

    def __init__(self, refusal: Refusal):
        self.refusal = refusal


@dataclass(frozen=True)
class _Text:
    """The rows of an equations text, and where it stands in which file."""

    rows: list[str]
    line: int
    column: int
    file: str

    def place(self, row: int, column: int, width: int) -> Place:
        return Place(self.line + row, self.column + column, width, self.file)


def _equation(statement: Statement, text: _Text) -> Equation:
    tokens = statement.tokens
    depth, split = 0, -1
    for number, token in enumerate(tokens):
        depth += (token.text in "([") - (token.text in ")]")
        if token.text == "=" and depth == 0:
            split = number
            break
    if split < 0:
        raise _RefusedError(_at(tokens[0], "expected an equation: name[t] = expression."))
    derivative, left = _derivative(tokens[:split])
    target, timed, index = _target(left, tokens[split], text)
    if derivative and index is not None:
        raise _RefusedError(_at(left[0], f"d/dt stands before a name with one value a step. Write d/dt {target} = ..."))
    right = tokens[split + 1 :]
    if not right:
        raise _RefusedError(_at(tokens[split], f"the right side of the equation for '{target}' is missing."))
    for number, token in enumerate(right):
        if token.text == "=":
            raise _RefusedError(_second_equals(right, number))
    value = _Reader(right, text).read(tokens[split].row, tokens[split].column + 1)
    lines = [code_of(text.rows[row]).strip() for row in range(tokens[0].row, tokens[-1].row + 1)]
    loop, first = _loop(statement.loop, text), tokens[0]
    if loop is not None and index is None:
        raise _RefusedError(
            _at(first, f"an equation in a loop defines one value a round. Write {target}[t, {loop.name}] = ...")
        )
    head = f"{code_of(text.rows[statement.loop.row]).strip()} " if statement.loop else ""
    place = text.place(first.row, first.column, len(first.text))
    whole = head + " ".join(filter(None, lines))
    return Equation(target, value, whole, place, timed or derivative, index, loop, derivative)


@lru_cache(maxsize=64)
def _bound(text: str) -> Expr | Problem:
    try:
        return parse_expression(text)
    except SpecError as error:
        return error.errors[0]


def _loop(header: Header | None, text: _Text) -> Loop | None:
    if header is None:
        return None
    first, last = _bound(header.first), _bound(header.last)
    for bound in (first, last):
        if isinstance(bound, Problem):
            raise _RefusedError(
                Refusal(f"in the head of the loop: {bound.message}", header.row, header.column, header.width)
            )
    assert not isinstance(first, Problem) and not isinstance(last, Problem)
    return Loop(header.name, first, last, text.place(header.row, header.column, header.width))


def _at(token: Token, message: str) -> Refusal:
    return Refusal(message, token.row, token.column, len(token.text))


def _second_equals(right: list[Token], number: int) -> Refusal:
    """What to say of an '=' on the right side of an equation."""
    before = right[number - 1] if number else right[0]
    names, opened = [""], 0  # of the functions whose brackets are open
    for first, token in zip([None, *right], right[:number]):
        if token.text == "(":
            names.append(first.text if first is not None and first.kind == "name" else "")
            opened += 1
        elif token.text == ")":
            names.pop()
            opened -= 1
    hint = habits.of_argument(before.text, names[-1]) if names[-1] and before.kind == "name" else ""
    if hint:
        return _at(before, f"the arguments of '{names[-1]}' are given by position.{hint}")
    return _at(
        right[number], "a second '=' in one equation. Arguments have no names; equal values are compared with '=='."
    )


def _derivative(left: list[Token]) -> tuple[bool, list[Token]]:
    """Whether a left side reads d/dt name, and what is left of it without that."""
    texts = [token.text for token in left]
    if texts[:3] == ["d", "/", "dt"] and len(left) > 3:
        return True, left[3:]
    if texts[1:] == ["/", "dt"] and left[0].text.startswith("d") and len(left[0].text) > 1:
        raise _RefusedError(_at(left[0], f"a derivative is written d/dt {left[0].text[1:]} = ..."))
    return False, left


def _target(left: list[Token], equals: Token, text: _Text) -> tuple[str, bool, Expr | None]:
    """What an equation defines: name[t], name[t, k], name or name[k]. The name, whether it has a
    time, and its index."""
    if not left or left[0].kind != "name":
        raise _RefusedError(
            _at(left[0] if left else equals, "the left side of an equation is a name with its time: name[t] = ...")
        )
    name, rest = left[0].text, "".join(t.text for t in left[1:])
    if rest in ("", "[t]"):
        return name, bool(rest), None
    timed = rest.startswith("[t,")
    index = left[4 if timed else 2 : -1]
    if re.fullmatch(r"\[t[-+].*\]", rest):
        raise _RefusedError(_at(left[0], f"an equation defines this step's value only. Write {name}[t] = ..."))
    if not rest.startswith("[") or not rest.endswith("]") or not index or any(t.text in "[]" for t in index):
        raise _RefusedError(_at(left[0], f"the left side of an equation is a name with its time: {name}[t] = ..."))
    before = left[3 if timed else 1]
    return name, timed, _Reader(index, text).read(before.row, before.column + 1)


class _Reader:
    """Reads the tokens of one expression: `ast` parses the text, this translates the node kinds
    that are of the language."""

    def __init__(self, tokens: list[Token], text: _Text):
        self.tokens, self.text = tokens, text
        self.by_place = {(t.row, t.column): t for t in tokens}
        self.row = self.column = 0  # of the text handed to ast

    def read(self, row: int, column: int) -> Expr:
        """The tree of the text from `row`, `column` to the last token."""
        last = self.tokens[-1]
        self.row, self.column = row, column
        rows = [code_of(r) for r in self.text.rows[row : last.row + 1]]
        rows[-1] = rows[-1][: last.column + len(last.text)]
        rows[0] = rows[0][column:]
        try:
            tree = ast.parse("(" + "\n".join(rows) + "\n)", mode="eval")
        except SyntaxError as error:
            raise _RefusedError(self.syntax(error)) from None
        except (RecursionError, MemoryError, ValueError):
            raise _RefusedError(_at(self.tokens[0], _TOO_DEEP)) from None
        return self.expr(tree.body, 0)

    def position(self, line: int, offset: int) -> tuple[int, int]:
        """Row and column of what ast reports; the bracket put before the text is taken off the
        first line."""
        return self.row + line - 1, offset + (self.column - 1 if line == 1 else 0)

    def syntax(self, error: SyntaxError) -> Refusal:
        for before, token in zip(self.tokens, self.tokens[1:]):
            if all(t.kind != "operator" and t.text not in ("and", "or", "not") for t in (before, token)):
                return _at(token, f"an operator is missing between '{before.text}' and '{token.text}'.")
        row, column = self.position(error.lineno or 1, (error.offset or 1) - 1)
        found = self.by_place.get((row, column))
        after = [t for t in self.tokens if (t.row, t.column) >= (row, column)]
        token = found or (after[0] if after else self.tokens[-1])
        if not after or (token is self.tokens[-1] and token.kind == "operator" and token.text not in ")]"):
            return _at(
                self.tokens[-1],
                "the equation ends too early: something is missing after this. Several lines need brackets around"
                " them.",
            )
        return _at(token, f"'{token.text}' is not expected here.")

    def refuse(self, node: ast.AST, message: str) -> _RefusedError:
        at = self.place(node)
        return _RefusedError(Refusal(message, at.line - self.text.line, at.column - self.text.column, at.width))

    def place(self, node: ast.AST) -> Place:
        row, column = self.position(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))
        end_row, end = self.position(getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 1))
        return self.text.place(row, column, max(1, end - column) if end_row == row else 1)

    def expr(self, node: ast.expr, depth: int) -> Expr:
        at, deeper = self.place(node), depth + 1
        if depth > MAX_NESTING:
            raise self.refuse(node, _TOO_DEEP)
        match node:
            case ast.Constant():
                return Number(self.number(node), at)
            case ast.Name(id=name):
                return Ref(name, None, at)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self.indexed(name, index, at, deeper)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expr(operand, deeper)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return Unary(_UNARY[type(op)], self.expr(operand, deeper), at)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return Binary(
                    _BINARY[type(op)], self.expr(left, deeper), self.expr(right, deeper), self.operator(left, right)
                )
            case ast.BoolOp(op=op, values=values):
                word = "and" if isinstance(op, ast.And) else "or"
                return self.joined(word, [self.expr(v, deeper) for v in values], at)
            case ast.Compare():
                return self.comparison(node, deeper)
            case ast.Call():
                return self.call(node, deeper)
            case ast.Attribute(value=operand, attr="T"):
                return Unary("T", self.expr(operand, deeper), at)
            case ast.Attribute(attr=attribute):
                hint = habits.of_member(ast.unparse(node)[:80])
                raise self.refuse(node, f"attributes ('.{attribute[:40]}') are not offered.{hint}")
            case ast.List():
                raise self.refuse(node, "lists are not offered. Arguments stand one after another: concat(a, b).")
            case ast.Tuple(elts=elements):
                raise self.refuse(
                    elements[1] if len(elements) > 1 else node,
                    "a comma is not expected here: only the arguments of a function are separated by commas.",
                )
            case ast.Subscript():
                raise self.refuse(node, "only a name carries a time: name[t] or name[t-1].")
        raise self.refuse(node, "this is not offered in equations.")

    def operator(self, left: ast.expr, right: ast.expr) -> Place:
        """The operator's own place: that is what a wrong shape is reported at."""
        start = self.position(left.end_lineno or 1, left.end_col_offset or 0)
        end = self.position(right.lineno, right.col_offset)
        between = (
            [t for t in self.tokens if start <= (t.row, t.column) < end and t.text not in "()"]
            if start[0] == end[0]
            else []
        )
        if not between:
            return self.text.place(*self.position(left.lineno, left.col_offset), 1)
        return self.text.place(between[0].row, between[0].column, len(between[0].text))

    def joined(self, word: str, parts: list[Expr], at: Place) -> Expr:
        whole = parts[0]
        for part in parts[1:]:
            whole = Binary(word, whole, part, at)
        return whole

    def comparison(self, node: ast.Compare, depth: int) -> Expr:
        """a < b < c is read as a < b and b < c."""
        terms = [self.expr(n, depth) for n in (node.left, *node.comparators)]
        parts: list[Expr] = []
        for left, op, right in zip(terms, node.ops, terms[1:]):
            if type(op) not in _COMPARISONS:
                raise self.refuse(node, "conditions compare with < <= > >= == !=.")
            parts.append(Binary(_COMPARISONS[type(op)], left, right, self.place(node)))
        return self.joined("and", parts, self.place(node))

    def call(self, node: ast.Call, depth: int) -> Expr:
        if not isinstance(node.func, ast.Name):
            hint = habits.of_attribute(ast.unparse(node.func)[:80]) if isinstance(node.func, ast.Attribute) else ""
            raise self.refuse(node.func, f"only a function of the language can be called, by its name.{hint}")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.refuse(node, f"the arguments of '{node.func.id}' are given by position.")
        at = self.place(node.func)
        return Call(node.func.id, tuple(self.expr(a, depth) for a in node.args), at)

    def number(self, node: ast.Constant) -> Fraction:
        token = self.by_place.get(self.position(node.lineno, node.col_offset))
        value = decimal(token.text) if token is not None and token.kind == "number" else None
        if value is None:
            raise self.refuse(
                node,
                (
                    "this number is out of range (about 1e-308 to 1e308)."
                    if token
                    else "only decimal numbers are offered."
                ),
            )
        return value

    def indexed(self, name: str, index: ast.expr, at: Place, depth: int) -> Ref:
        """x[t], h[t-2], h[t-d], s[t, k], W[k]."""
        match index:
            case ast.Tuple(elts=[when, second]):
                time, delay = self.time(name, when, depth)
                return Ref(name, time, at, self.expr(second, depth), delay)
            case ast.Tuple():
                raise self.refuse(index, f"'{name}' takes a time and one index: {name}[t, k].")
            case _ if any(isinstance(n, ast.Name) and n.id == "t" for n in ast.walk(index)):
                time, delay = self.time(name, index, depth)
                return Ref(name, time, at, None, delay)
            case ast.Slice():
                raise self.refuse(index, f"slices are not offered. Write part({name}, first, length).")
        return Ref(name, None, at, self.expr(index, depth))

    def time(self, name: str, index: ast.expr, depth: int) -> tuple[int, Expr | None]:
        """How many steps back, as 0, -1, ... or as an expression of constants."""
        match index:
            case ast.Name(id="t"):
                return 0, None
            case ast.BinOp(left=ast.Name(id="t"), op=ast.Sub(), right=ast.Constant(value=int(steps))) if not isinstance(
                steps, bool
            ):
                if steps > MAX_DELAY:
                    raise self.refuse(
                        index, f"at most {MAX_DELAY} steps back can be read: {name}[t-1] to {name}[t-{MAX_DELAY}]."
                    )
                return -steps, None
            case ast.BinOp(left=ast.Name(id="t"), op=ast.Sub(), right=steps):
                return 0, self.expr(steps, depth)
            case ast.BinOp(left=ast.Name(id="t"), op=ast.Add()):
                raise self.refuse(index, "a later step can't be read: use [t] or [t-1].")
        raise self.refuse(index, f"the first index of '{name}' must be a time: [t], [t-1], ...")


def decimal(text: str) -> Fraction | None:
    """A decimal literal, exactly; None where it is none or out of float64's range. `1e999999999`
    costs nothing."""
    if len(text) > 100 or not _DECIMAL.fullmatch(text):
        return None
    size = float(text)
    if size == 0 and not re.search("[1-9]", re.split("[eE]", text)[0]):
        return Fraction(0)
    return Fraction(text) if size != 0 and math.isfinite(size) else None


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOO_DEEP = f"the equation is nested deeper than {MAX_NESTING} (a sum of n terms nests n deep). Split it into several."
_UNARY: dict[type, str] = {ast.USub: "-", ast.Not: "not"}
_BINARY: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@"}
_COMPARISONS: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
