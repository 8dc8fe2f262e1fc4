"""Equations of the language as formulas, as the file has them."""

from __future__ import annotations

from rnnspec.language.features import FEATURES
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.sizes import size_of
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary
from rnnspec.show.tex.names import Names
from rnnspec.show.tex.pieces import (
    RELATIONS,
    TexPiece,
    call,
    cases,
    feature,
    fraction,
    inside,
    number,
    part,
    product,
    total,
    transposed,
)


def forward(spec: Spec, names: Names) -> list[tuple[str, str]]:
    """The left and the right sides of a cell's equations."""
    write = _Forward(spec, names)
    return [(names.write(e.target, "t" if e.timed else ""), write(e.value).text) for e in spec.equations]


class _Forward:
    def __init__(self, spec: Spec, names: Names):
        self.spec, self.names = spec, names

    def __call__(self, expr: Expr) -> TexPiece:
        match expr:
            case Number(value):
                return number(value)
            case Ref(source, None) if source not in self.spec.shapes:  # t, or a size
                return TexPiece(source if source == "t" else self.names.write(source), 3, False)
            case Ref(source, time):
                return self.name(source, time, expr.index)
            case Unary("T", arg):
                return transposed(self(arg))
            case Unary(op, arg):
                inner = self(arg)
                text = "-" + inside(inner, 2) if op == "-" else r"\lnot " + inside(inner, 3)
                return TexPiece(text, 1, inner.wide)
            case Binary(op, left, right):
                return self.binary(op, left, right)
            case Call("where", _):
                return self.where(expr)
            case Call(function, args) if function in FEATURES:
                return self.feature(expr, function, args)
            case Call(function, args):
                return call(function, [self(a) for a in args], self.names)
        raise TypeError(f"not an expression: {expr!r}")

    def name(self, source: str, time: int | None, index: Expr | None) -> TexPiece:
        more = [self(index).text] if index is not None else []
        at = "" if time is None else f"t{time or ''}"
        return TexPiece(self.names.write(source, at, more=more), 3, bool(self.spec.shapes[source]))

    def binary(self, op: str, left: Expr, right: Expr) -> TexPiece:
        if op == "*":
            return product(self.factors(left) + [self(right)])
        a, b = self(left), self(right)
        wide = a.wide or b.wide
        match op:
            case "+" | "-":
                return total([(a, False), (b, op == "-")])
            case "@":
                return TexPiece(f"{a:3} {b:3}", 2, True)
            case "/":
                return fraction(a, b)
            case "**":
                return TexPiece(f"{a:3}^{{{b.text}}}", 2, wide)
        return TexPiece(f"{a:1} {RELATIONS[op]} {b:1}", 0, wide)

    def factors(self, expr: Expr) -> list[TexPiece]:
        """Of a * b * c, which is (a * b) * c."""
        if isinstance(expr, Binary) and expr.op == "*":
            return self.factors(expr.left) + [self(expr.right)]
        return [self(expr)]

    def where(self, expr: Expr) -> TexPiece:
        """where(a, x, where(b, y, z)) has three branches."""
        branches = []
        while isinstance(expr, Call) and expr.function == "where":
            condition, value, expr = expr.args
            branches.append((self(value), self(condition).text))
        return cases(branches, self(expr))

    def feature(self, expr: Expr, function: str, args: tuple[Expr, ...]) -> TexPiece:
        if function == "part":
            return part(self(args[0]), size_of(args[1]), size_of(args[2]), self.names)
        return feature(
            function, [self(a) for a in args], bool(shape_of(expr, self.spec.shapes, self.spec.sizes)), self.names
        )
