"""What is written correctly and computed badly: forms that overflow or lose everything long before
their value does, and the function that does not.

In: a Spec. Out: one Problem for each place. What is written stays what is computed; these are
hints.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from rnnspec.errors import Problem
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Expr, Ref, children, walk


class SpecHint(UserWarning):
    """A form in a spec that loses what another form of it keeps."""


# what is written of any v -> what to write, and why
FORMS: tuple[tuple[str, str, str], ...] = (
    *(
        (form, "softplus(v)", "is infinite from v = 89 on in float32 (710 in float64), and its gradient 0 there")
        for form in ("log(1 + exp(v))", "log(exp(v) + 1)", "log1p(exp(v))")
    ),
    *(
        (form, "sigmoid(v)", "is NaN from v = 89 on in float32 (710 in float64)")
        for form in ("exp(v) / (1 + exp(v))", "exp(v) / (exp(v) + 1)")
    ),
    *(
        (form, "sigmoid(v)", "has the gradient 0 from v = -52 down in float32 (-373 in float64)")
        for form in ("1 / (1 + exp(-v))", "1 / (exp(-v) + 1)")
    ),
    (
        "(exp(v) - exp(-v)) / (exp(v) + exp(-v))",
        "tanh(v)",
        "is NaN from v = 89 on in float32 (710 in float64)",
    ),
    ("log(sigmoid(v))", "log_sigmoid(v)", "is -infinity from v = -104 down in float32 (-745 in float64)"),
    ("exp(v) / sum(exp(v))", "softmax(v)", "is NaN where an element is above 89 in float32 (710 in float64)"),
    *(
        (form, "norm(v)", "overflows where v is above 1e19 in float32 (1e154 in float64), and its gradient at 0 is NaN")
        for form in ("sqrt(sum(v * v))", "sqrt(sum(v ** 2))", "sqrt(dot(v, v))", "sum(v * v) ** 0.5")
    ),
)


def hints(spec: Spec) -> Iterator[Problem]:
    """Every place of a spec where one of the FORMS stands, with what to write in its place."""
    for equation in spec.equations:
        for tree in walk(equation.value):
            for pattern, form, better, why in _by_head().get((type(tree), _head(tree)), ()):
                if _matches(pattern, tree, {}):
                    at = equation.at
                    message = f"{form} {why}, with v as it stands here. {better} does not: write that."
                    yield Problem(message, at.line, at.column, at.file or spec.file, equation.text, at.width)
                    break


def _matches(pattern: Expr, tree: Expr, bound: dict[str, Expr]) -> bool:
    """Whether a tree is the pattern with some one tree in the place of v."""
    if isinstance(pattern, Ref):
        return bound.setdefault(pattern.name, tree) == tree
    parts, others = children(pattern), children(tree)
    if type(pattern) is not type(tree) or len(parts) != len(others) or _head(pattern) != _head(tree):
        return False
    return all(_matches(a, b, bound) for a, b in zip(parts, others))


def _head(tree: Expr) -> object:
    """What a node is, without its parts."""
    return getattr(tree, "op", None) or getattr(tree, "function", None) or getattr(tree, "value", None)


@cache
def _by_head() -> dict[tuple[type, object], list[tuple[Expr, str, str, str]]]:
    """The forms, parsed, by what their root is: few nodes of a cell are like any of them."""
    found: dict[tuple[type, object], list[tuple[Expr, str, str, str]]] = {}
    for form, better, why in FORMS:
        pattern = parse_expression(form)
        found.setdefault((type(pattern), _head(pattern)), []).append((pattern, form, better, why))
    return found
