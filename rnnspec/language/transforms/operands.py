"""What the products of a cell with its parameters read of the step before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Expr, Ref, walk, with_parts


def lasts(expr: Expr) -> bool:
    """Whether a value is the same at every step."""
    return all(n.time is None for n in walk(expr) if isinstance(n, Ref))


def factors(expr: Expr) -> tuple[Expr, Expr] | None:
    """The matrix and the other factor of W @ v, or v @ W, where W is the same at every step."""
    if isinstance(expr, Binary) and expr.op == "@":
        for matrix, vector in ((expr.left, expr.right), (expr.right, expr.left)):
            if lasts(matrix):
                return matrix, vector
    return None


def cell_states(spec: Spec) -> list[str]:
    """The states that no product with a matrix reads."""
    carried = Operands(spec).carried()
    return [s for s in spec.states if s not in carried]


class Operands:
    """The operands of one cell's products. One carries a state where it reads the old value:
    itself, concatenated with others, or scaled by a gate."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.equations = {e.target: e for e in spec.equations}
        self.scaled: dict[
            str, tuple[str, ...]
        ] = {}  # intermediate values that are old states, scaled or concatenated, and which
        for e in spec.equations:
            if (
                e.timed
                and e.target not in spec.states
                and not any(isinstance(n, Binary) and n.op in "+-@" for n in walk(e.value))
            ):
                self.scaled[e.target] = self.carries(e.value)

    def carries(self, expr: Expr) -> tuple[str, ...]:
        """The names whose value at an earlier step an operand is made of; none where a product
        stands between."""
        if any(isinstance(n, Binary) and n.op == "@" for n in walk(expr)):
            return ()
        found: dict[str, None] = {}
        for n in walk(expr):
            if isinstance(n, Ref) and n.time is not None and n.name not in self.spec.inputs:
                found |= dict.fromkeys([n.name] if n.time < 0 else self.scaled.get(n.name, ()))
        return tuple(found)

    def concatenation(self, operand: Expr) -> Call | None:
        """The concat(...) that an operand is, itself or by its name."""
        if isinstance(operand, Ref) and operand.time == 0 and operand.name in self.scaled:
            return self.concatenation(self.equations[operand.name].value)
        return operand if isinstance(operand, Call) and operand.function == "concat" else None

    def mixes(self, operand: Expr) -> bool:
        """Whether an operand concatenates old states with other things."""
        inner = self.concatenation(operand)
        return inner is not None and any(not self.carries(a) or self.mixes(a) for a in inner.args)

    def products(self, expr: Expr, change: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Expr:
        """The expression with the (matrix, operand) of every product with something that lasts
        changed."""
        expr = with_parts(expr, lambda part: self.products(part, change))
        if isinstance(expr, Binary) and expr.op == "@":
            left, right = expr.left, expr.right
            if lasts(left):
                left, right = change(left, right)
            elif lasts(right):
                right, left = change(right, left)
            return replace(expr, left=left, right=right)
        return expr

    def carried(self) -> list[str]:
        """The names that operands carry, states before others."""
        found: dict[str, None] = {}

        def collect(matrix: Expr, operand: Expr) -> tuple[Expr, Expr]:
            found.update(dict.fromkeys(self.carries(operand)))
            return matrix, operand

        for equation in self.spec.equations:
            self.products(equation.value, collect)
        return [*(s for s in self.spec.states if s in found), *(n for n in found if n not in self.spec.states)]
