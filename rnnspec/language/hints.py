"""What is written correctly and hardly meant: equations that nothing reads, and forms that overflow
or lose everything long before their value does, where another function does not.

In: a Spec. Out: one Problem for each place. What is written stays what is computed; these are
hints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isnan

from rnnspec.errors import Problem
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, children, names_in, walk


class SpecHint(UserWarning):
    """An equation that nothing reads, or a form that loses what another form of it keeps."""


@dataclass(frozen=True)
class Form:
    """What is written of any v, what to write, and why; `good`: of v within these ends the form is
    as good as the other."""

    written: str
    better: str
    why: str
    good: tuple[float, float] | None = None


FORMS: tuple[Form, ...] = (
    *(
        Form(
            form,
            "softplus(v)",
            "is infinite from v = 89 on in float32 (710 in float64), and its gradient 0 there",
            (-inf, 88.0),
        )
        for form in ("log(1 + exp(v))", "log(exp(v) + 1)", "log1p(exp(v))")
    ),
    *(
        Form(form, "sigmoid(v)", "is NaN from v = 89 on in float32 (710 in float64)", (-inf, 88.0))
        for form in ("exp(v) / (1 + exp(v))", "exp(v) / (exp(v) + 1)")
    ),
    *(
        Form(form, "sigmoid(v)", "has the gradient 0 from v = -52 down in float32 (-373 in float64)", (-43.0, inf))
        for form in ("1 / (1 + exp(-v))", "1 / (exp(-v) + 1)")
    ),
    Form(
        "(exp(v) - exp(-v)) / (exp(v) + exp(-v))",
        "tanh(v)",
        "is NaN from v = 89 on in float32 (710 in float64)",
        (-88.0, 88.0),
    ),
    Form(
        "log(sigmoid(v))",
        "log_sigmoid(v)",
        "is -infinity from v = -104 down in float32 (-745 in float64)",
        (-87.0, inf),
    ),
    Form(
        "exp(v) / sum(exp(v))",
        "softmax(v)",
        "is NaN where an element is above 89 in float32 (710 in float64)",
        (-87.0, 80.0),
    ),
    *(
        Form(
            form,
            "norm(v)",
            "overflows where v is above 1e19 in float32 (1e154 in float64), and its gradient at 0 is NaN",
        )
        for form in ("sqrt(sum(v * v))", "sqrt(sum(v ** 2))", "sqrt(dot(v, v))", "sum(v * v) ** 0.5")
    ),
)
_DEEP = 12  # how far names and operations are followed for the ends of a value


def hints(spec: Spec) -> Iterator[Problem]:
    """Every equation that nothing reads; and every place of a spec where one of the FORMS stands,
    with what to write in its place. Parts of a form may be values with names of their own: e[t] =
    exp(x[t]), e[t] / (1 + e[t]). A line is told of once, however many rounds a loop makes of it."""
    yield from _unread(spec)
    told = set[tuple[object, ...]]()
    by_head = _by_head()
    defined = {equation.target: equation.value for equation in spec.equations}
    for equation in spec.equations:
        for tree in walk(equation.value):
            for pattern, form in by_head.get((type(tree), _head(tree)), ()):
                bound: dict[str, Expr] = {}
                if _matches(pattern, tree, bound, defined):
                    if form.good is not None and _within(_ends(bound["v"], defined, _DEEP), form.good):
                        break
                    at = equation.at
                    place = (at.file, at.line, at.column, equation.text, form.written)
                    if place in told:
                        break
                    told.add(place)
                    message = (
                        f"{form.written} {form.why}, with v as it stands here. {form.better} does not: write that."
                    )
                    yield Problem(message, at.line, at.column, at.file or spec.file, equation.text, at.width)
                    break


def _unread(spec: Spec) -> Iterator[Problem]:
    """Equations whose value is no state and no output, and that no equation reads: most often a
    name that was mistyped, or one that was meant to replace another."""
    read = {*spec.outputs, *spec.states}.union(*(names_in(equation.value) for equation in spec.equations))
    told = set[tuple[object, ...]]()
    for equation in spec.equations:
        place = (equation.at.file, equation.at.line, equation.at.column, equation.text)
        if equation.target not in read and place not in told:
            told.add(place)
            others = [e.target for e in spec.equations if e.target != equation.target]
            message = (
                f"{equation.target!r} is read by no equation, and is no state and no output: it changes nothing that is"
                f" computed.{did_you_mean(equation.target, others)}"
            )
            at = equation.at
            yield Problem(message, at.line, at.column, at.file or spec.file, equation.text, at.width)


def _matches(pattern: Expr, tree: Expr, bound: dict[str, Expr], defined: Mapping[str, Expr]) -> bool:
    """Whether a tree is the pattern with some one tree in the place of v."""
    if isinstance(pattern, Ref):
        return bound.setdefault(pattern.name, tree) == tree
    if isinstance(tree, Ref):
        tree = _meant(tree, defined)
    if type(pattern) is not type(tree) or _head(pattern) != _head(tree):
        return False
    parts, others = children(pattern), children(tree)
    return len(parts) == len(others) and all(_matches(a, b, bound, defined) for a, b in zip(parts, others))


def _meant(tree: Expr, defined: Mapping[str, Expr]) -> Expr:
    """What a name stands for in its own step; other trees as they are."""
    return defined.get(tree.name, tree) if isinstance(tree, Ref) and not tree.time and tree.index is None else tree


def _ends(tree: Expr, defined: Mapping[str, Expr], deep: int) -> tuple[float, float]:
    """Numbers that the values of a tree lie between, as far as its operations show."""
    tree = _meant(tree, defined)
    if isinstance(tree, Number):
        return float(tree.value), float(tree.value)
    if not deep:
        return -inf, inf
    inner = [_ends(part, defined, deep - 1) for part in children(tree)]
    match tree:
        case Unary("-"):
            return -inner[0][1], -inner[0][0]
        case Binary("+"):
            return inner[0][0] + inner[1][0], inner[0][1] + inner[1][1]
        case Binary("-"):
            return inner[0][0] - inner[1][1], inner[0][1] - inner[1][0]
        case Binary("*", left, right) if left == right:
            return 0.0, inf
        case Binary("*") if factor := _constant(inner[0]) or _constant(inner[1]):
            ends = [factor * end for end in inner[1 if _constant(inner[0]) else 0]]
            return min(ends), max(ends)
        case Binary("/") if divisor := _constant(inner[1]):
            ends = [end / divisor for end in inner[0]]
            return min(ends), max(ends)
        case Binary("**", _, Number(exponent)) if exponent > 0 and exponent % 2 == 0:
            return 0.0, inf
        case Call():
            return _ends_of_call(tree.function, inner)
    return -inf, inf


def _constant(ends: tuple[float, float]) -> float | None:
    return ends[0] if ends[0] == ends[1] else None


def _ends_of_call(function: str, inner: list[tuple[float, float]]) -> tuple[float, float]:
    match function:
        case "where":
            return min(low for low, _ in inner[1:]), max(high for _, high in inner[1:])
        case "minimum" | "maximum":
            choose = min if function == "minimum" else max
            return choose(low for low, _ in inner), choose(high for _, high in inner)
        case "clip":
            return min(low for low, _ in inner[1:]), max(high for _, high in inner[1:])
    limits = FUNCTIONS[function].limits if function in FUNCTIONS and len(inner) == 1 else None
    if limits is None or any(map(isnan, limits)):
        return -inf, inf
    return min(limits) - 1, max(limits) + 1  # gelu and silu dip below 0 in between


def _within(ends: tuple[float, float], good: tuple[float, float]) -> bool:
    return good[0] <= ends[0] and ends[1] <= good[1]


def _head(tree: Expr) -> object:
    """What a node is, without its parts."""
    return getattr(tree, "op", None) or getattr(tree, "function", None) or getattr(tree, "value", None)


@cache
def _by_head() -> dict[tuple[type, object], list[tuple[Expr, Form]]]:
    """The forms, parsed, by what their root is: few nodes of a cell are like any of them."""
    found: dict[tuple[type, object], list[tuple[Expr, Form]]] = {}
    for form in FORMS:
        pattern = parse_expression(form.written)
        found.setdefault((type(pattern), _head(pattern)), []).append((pattern, form))
    return found
