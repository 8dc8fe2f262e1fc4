"""Shapes: infers those of intermediates and checks every operation.

In: resolved equations and the declared shapes. Out: the shape of every name; products of a matrix
with its factors outside. Rules: a number goes with any shape, two others must be equal; `@` takes a
matrix and a vector, or two matrices; a condition stands in `where`, `and`, `or`, `not` only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rnnspec.language.features import FEATURES
from rnnspec.language.meaning.features import FeatureError, described, feature_shape, shown
from rnnspec.language.meaning.resolve import is_known
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.faults import Faults
from rnnspec.language.syntax.tree import (
    Binary,
    Call,
    Equation,
    Expr,
    Number,
    Place,
    Ref,
    Unary,
    to_text,
    walk,
    with_parts,
)

_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})


@dataclass(frozen=True)
class ExpressionKind:
    """What an expression is: its shape (None where it can't be told yet, or after a fault), and
    whether a condition."""

    shape: Shape | None
    condition: bool = False


def infer_shapes(
    equations: Sequence[Equation],
    declared: Mapping[str, Shape],
    states: Collection[str],
    sizes: Collection[str],
    faults: Faults,
) -> dict[str, Shape]:
    """The declared shapes and those of the intermediates. equations: of the cell; declared: by
    name; states, sizes: their names; faults: where all faults of shape are noted."""
    shapes: dict[str, Shape] = dict(declared)
    readers: dict[str, list[Equation]] = {}
    for equation in equations:
        for name in {node.name for node in walk(equation.value) if isinstance(node, Ref)}:
            readers.setdefault(name, []).append(equation)
    waiting = [e for e in reversed(equations) if e.target not in shapes]
    while waiting:
        equation = waiting.pop()
        if equation.target in shapes:
            continue
        kind = _Checker(shapes, Faults({}), sizes).kind(equation.value)
        if kind.shape is not None:
            shapes[equation.target] = kind.shape
            waiting += [reader for reader in readers.get(equation.target, ()) if reader.target not in shapes]
        if not waiting:
            numbers = _only_of_numbers(equations, shapes)
            shapes.update(dict.fromkeys(numbers, ()))
            waiting += [reader for name in numbers for reader in readers.get(name, ()) if reader.target not in shapes]
    for equation in equations:
        _check_equation(equation, _Checker(shapes, faults, sizes), {n: declared[n] for n in states})
    for equation in equations:
        if equation.target not in shapes and not faults.found and is_known(equation.value):
            name = equation.target
            faults.add(
                f"the shape of '{name}' can't be told: it comes from earlier values of itself only. Declare it under"
                " states.",
                equation.at,
            )
    return shapes


def _only_of_numbers(equations: Sequence[Equation], shapes: Mapping[str, Shape]) -> list[str]:
    """What could not be told, like a[t] = x[t] + a[t-2], but reads one number: a vector beside it
    would have told. So it is one number."""

    def reads_number(equation: Equation) -> bool:
        return is_known(equation.value) and any(
            isinstance(n, Ref) and shapes.get(n.name) == () for n in walk(equation.value)
        )

    return [e.target for e in equations if e.target not in shapes and reads_number(e)]


def _check_equation(equation: Equation, checker: _Checker, declared: Mapping[str, Shape]) -> None:
    kind, name = checker.kind(equation.value), equation.target
    if kind.condition:
        checker.fault(
            f"'{name}' would be a condition. Write where(condition, 1, 0) to make numbers of it.", equation.at
        )
    elif kind.shape is not None and name in declared and kind.shape != declared[name]:
        checker.fault(
            f"'{name}' is declared as {shown(declared[name])}, but its equation gives {shown(kind.shape)}.", equation.at
        )


class _Checker:
    """Kinds of expressions over known shapes."""

    def __init__(self, shapes: Mapping[str, Shape], faults: Faults, sizes: Collection[str] = ()):
        self.shapes, self.faults, self.sizes = shapes, faults, sizes

    def fault(self, message: str, at: Place) -> ExpressionKind:
        self.faults.add(message, at)
        return ExpressionKind(None)

    def kind(self, expr: Expr) -> ExpressionKind:
        match expr:
            case Number():
                return ExpressionKind(())
            case Ref(name, time):
                number = time is None and (name == "t" or name in self.sizes)
                shape = () if number else self.shapes.get(name)
                return ExpressionKind(shape[1:] if shape and expr.index is not None else shape)
            case Unary("T", arg):
                return self.transposed(arg, expr.at)
            case Unary("not", arg):
                return self.logical("not", [arg], expr.at)
            case Unary(_, arg):
                return self.numbers([arg], "-")[0]
            case Binary(op, left, right) if op in ("and", "or"):
                return self.logical(op, [left, right], expr.at)
            case Binary("@", left, right):
                return self.product(left, right, expr.at)
            case Binary(op, left, right):
                return replace(self.elementwise(op, [left, right], expr.at), condition=op in _COMPARISONS)
            case Call("", args):
                for arg in args:
                    self.kind(arg)
                return ExpressionKind(None)
            case Call("where", args):
                return self.where(args, expr.at)
            case Call(function, args) if function in FEATURES:
                return self.feature(function, args, expr.at)
            case Call(function, args):
                return self.elementwise(function, list(args), expr.at)
        raise TypeError(f"not an expression: {expr!r}")

    def rank(self, expr: Expr) -> int:
        """How many axes an expression has."""
        return len(self.kind(expr).shape or ())

    def numbers(self, args: list[Expr], what: str) -> list[ExpressionKind]:
        """The kinds of operands that must be numbers, not conditions."""
        kinds = [self.kind(arg) for arg in args]
        for arg, kind in zip(args, kinds):
            if kind.condition:
                self.fault(
                    f"'{what}' takes numbers, and {to_text(arg)[:60]} is a condition. Write where(condition, a, b).",
                    arg.at,
                )
        return [replace(k, condition=False) for k in kinds]

    def elementwise(self, op: str, args: list[Expr], at: Place) -> ExpressionKind:
        kinds = self.numbers(args, op)
        return self.joined(op, args, kinds, at)

    def joined(self, op: str, args: list[Expr], kinds: list[ExpressionKind], at: Place) -> ExpressionKind:
        """The common shape of operands that go element by element."""
        known = [(arg, kind.shape) for arg, kind in zip(args, kinds) if kind.shape]
        for arg, shape in known[1:]:
            first, other = known[0]
            if shape == other:
                continue
            if op == "*" and len(shape) + len(other) == 3:
                return self.matrix_times(first, other, arg, shape, at)
            both = f"{described(first, other)}, {described(arg, shape)}"
            return self.fault(
                f"shapes differ: {both}. '{op}' goes element by element: give both one shape, or make one a single"
                " number.",
                at,
            )
        if known:
            return ExpressionKind(known[0][1])
        return ExpressionKind(None if any(kind.shape is None for kind in kinds) else ())

    def matrix_times(self, a: Expr, a_shape: Shape, b: Expr, b_shape: Shape, at: Place) -> ExpressionKind:
        both = f"{described(a, a_shape)}, {described(b, b_shape)}"
        if len(a_shape) == 1:
            example = f"{to_text(a)[:40]} * ({to_text(b)[:40]} @ ...)"
            advice = (
                "'*' and '@' bind alike, from left to right: put the product of matrix and vector in brackets,"
                f" {example}."
            )
        else:
            advice = f"Write {to_text(a)[:40]} @ {to_text(b)[:40]} for the product of a matrix and a vector."
        return self.fault(f"'*' goes element by element, and {both}. {advice}", at)

    def product(self, left: Expr, right: Expr, at: Place) -> ExpressionKind:
        a, b = (kind.shape for kind in self.numbers([left, right], "@"))
        if a is None or b is None:
            return ExpressionKind(None)
        both = f"{described(left, a)}, {described(right, b)}"
        match a, b:
            case ((rows, inner), (size,)) if inner == size:
                return ExpressionKind((rows,))
            case ((size,), (inner, columns)) if inner == size:
                return ExpressionKind((columns,))
            case ((_, inner), (size,)) | ((size,), (inner, _)):
                turned = a[0] == size if len(a) == 2 else b[1] == size
                advice = f" {to_text(right)[:40]} @ {to_text(left)[:40]} multiplies by the transpose." if turned else ""
                return self.fault(f"'@' does not fit: {both}; the matrix needs a vector of [{inner}].{advice}", at)
            case ((rows, inner), (outer, columns)):
                if inner == outer:
                    return ExpressionKind((rows, columns))
                return self.fault(
                    f"'@' does not fit: {both}; the columns of the first must be as many as the rows of the second.", at
                )
            case ((_,), (_,)):
                a_text, b_text = to_text(left)[:40], to_text(right)[:40]
                return self.fault(
                    f"'@' takes a matrix; {both}. Write dot({a_text}, {b_text}) for the sum of products, outer(...) for"
                    " the matrix.",
                    at,
                )
        return self.fault(f"'@' is the product of a matrix and a vector; {both}. Write '*'.", at)

    def transposed(self, arg: Expr, at: Place) -> ExpressionKind:
        shape = self.numbers([arg], ".T")[0].shape
        if shape is not None and len(shape) != 2:
            return self.fault(
                f"'.T' is the transpose of a matrix, and {described(arg, shape)}. v @ W multiplies by the transpose"
                " of W.",
                at,
            )
        return ExpressionKind(None if shape is None else shape[::-1])

    def feature(self, function: str, args: tuple[Expr, ...], at: Place) -> ExpressionKind:
        kinds = self.numbers(list(args), function)
        shapes = [kind.shape for kind in kinds if kind.shape is not None]
        if len(shapes) < len(kinds):
            return ExpressionKind(None)
        try:
            return ExpressionKind(feature_shape(function, args, shapes))
        except FeatureError as error:
            return self.fault(str(error), at)

    def logical(self, op: str, args: list[Expr], at: Place) -> ExpressionKind:
        kinds = [self.kind(arg) for arg in args]
        for arg, kind in zip(args, kinds):
            if not kind.condition and kind.shape is not None:
                self.fault(f"'{op}' takes conditions (< <= > >= == !=), and {to_text(arg)[:60]} is a number.", arg.at)
        return replace(self.joined(op, args, kinds, at), condition=True)

    def where(self, args: tuple[Expr, ...], at: Place) -> ExpressionKind:
        condition, *sides = args
        kind = self.kind(condition)
        if not kind.condition and kind.shape is not None:
            self.fault(
                f"'where' takes a condition first (< <= > >= == !=), and {to_text(condition)[:60]} is a number.",
                condition.at,
            )
        kinds = self.numbers(sides, "where")
        return self.joined("where", list(args), [replace(kind, condition=False), *kinds], at)


def shape_of(expr: Expr, shapes: Mapping[str, Shape], sizes: Collection[str]) -> Shape:
    """The shape of an expression that was checked."""
    return _Checker(shapes, Faults({}), sizes).kind(expr).shape or ()


def pull_factors(expr: Expr, shapes: Mapping[str, Shape], sizes: Collection[str]) -> Expr:
    """An expression of the same value, where the numbers that multiply a matrix come after its `@`:
    (a * W) @ x, as `a * W @ x` is read, gives a * (W @ x)."""
    return _pulled_everywhere(expr, _Checker(shapes, Faults({}), sizes))


def _pulled_everywhere(expr: Expr, checker: _Checker) -> Expr:
    expr = with_parts(expr, lambda part: _pulled_everywhere(part, checker))
    if isinstance(expr, Binary) and expr.op == "@":
        for matrix in (expr.left, expr.right):
            if not isinstance(matrix, Ref) and checker.rank(matrix) == 2:
                return _pulled(matrix, expr, matrix is expr.left, checker)
    return expr


def _pulled(matrix: Expr, product: Binary, on_left: bool, checker: _Checker) -> Expr:
    """`product`, one of whose sides is `matrix`, with the numbers that multiply it outside."""
    match matrix:
        case Unary("-", inner):
            return Unary("-", _pulled(inner, product, on_left, checker), matrix.at)
        case Binary("/", inner, divisor) if checker.rank(divisor) == 0:
            return Binary("/", _pulled(inner, product, on_left, checker), divisor, matrix.at)
        case Binary("*", a, b) if 0 in (checker.rank(a), checker.rank(b)):
            inner, factor = (a, b) if checker.rank(a) == 2 else (b, a)
            return Binary("*", factor, _pulled(inner, product, on_left, checker), matrix.at)
    return replace(product, left=matrix) if on_left else replace(product, right=matrix)
