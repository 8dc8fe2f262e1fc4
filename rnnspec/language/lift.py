"""Constants as values of a call: a cell whose constants are parameters, so that kernels for one
value serve every other.

In: a Spec. Out: the same cell with one more fixed parameter, a single number, for every expression
of numbers alone in which a constant of the file stands, and what each of them is. So `1 - alpha` is
worked out exactly, as it is everywhere else, and rounded once. What decides the form of an equation
stays a number: exponents, sizes, indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.meaning.constants import ARITHMETIC, COMPARISONS, constant
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, fresh, walk, with_parts

LARGEST = 1e300
Value = Any  # a Fraction, or what a comparison came to


@dataclass(frozen=True)
class Lifted:
    """spec: the cell with its constants as fixed parameters; values: what these are."""

    spec: Spec
    values: Mapping[str, float]


def lifted(spec: Spec) -> Lifted:
    """The cell with its constants as parameters; as it is where it has none."""
    return _lifted(spec, _of_numbers)


def named_constants(spec: Spec) -> Lifted:
    """The cell with a parameter for each constant alone, of its name: `1 - alpha` is what the file
    has."""
    return _lifted(spec, lambda tree: isinstance(tree, Number))


def _lifted(spec: Spec, liftable: Callable[[Expr], bool]) -> Lifted:
    work = _Lift({*spec.shapes, *spec.sizes, "t"}, liftable)
    equations = tuple(replace(e, value=work.changed(e.value)) for e in spec.equations)
    if not work.values:
        return Lifted(spec, {})
    numbers = dict.fromkeys(work.values, ())
    changed = replace(
        spec,
        equations=equations,
        parameters={**spec.parameters, **numbers},
        shapes={**spec.shapes, **numbers},
        fixed=(*spec.fixed, *numbers),
        no_gradient=(*spec.no_gradient, *numbers),
    )
    return Lifted(changed, work.values)


@dataclass
class _Lift:
    """taken: names that a new parameter may not have; known: expression, with the names of its
    constants (two may be equal by chance) -> the parameter for it. liftable: whether a parameter
    may stand for an expression."""

    taken: set[str]
    liftable: Callable[[Expr], bool]
    values: dict[str, float] = field(default_factory=dict)
    known: dict[tuple[Expr, tuple[str, ...]], str] = field(default_factory=dict)

    def changed(self, tree: Expr) -> Expr:
        if self.liftable(tree):
            return self.lifted(tree)
        match tree:
            case Binary("**", base, _):
                return replace(tree, left=self.changed(base))
            case Call(function, args) if function in FEATURES:
                sizes = FEATURES[function]
                parts = [a if sizes.kind(n) == "size" else self.changed(a) for n, a in enumerate(args)]
                return replace(tree, args=tuple(parts))
        return with_parts(tree, self.changed)

    def lifted(self, tree: Expr) -> Expr:
        """The parameter for an expression of numbers; the expression itself where no constant
        stands in it, or no number comes of it."""
        names = [n.constant for n in walk(tree) if isinstance(n, Number) and n.constant]
        value = _value(tree) if names else None
        if value is None:
            return tree
        key = tree, tuple(names)
        if key not in self.known:
            wanted = names[0] if isinstance(tree, Number) else f"of_{names[0]}"
            name = self.known[key] = fresh(wanted, self.taken)
            self.taken.add(name)
            self.values[name] = value
        return Ref(self.known[key], None, tree.at)


def _of_numbers(tree: Expr) -> bool:
    match tree:
        case Number():
            return True
        case Unary("-", arg):
            return _of_numbers(arg)
        case Binary("+" | "-" | "*" | "/" | "**", left, right):
            return _of_numbers(left) and _of_numbers(right)
        case Call(function, args):
            return function in FUNCTIONS and all(map(_of_numbers, args))
    return False


def _value(tree: Expr) -> float | None:
    """What an expression of numbers comes to; None for what is no number of ordinary size."""
    try:
        value = float(_evaluated(tree, {}))
    except (ArithmeticError, ValueError):
        return None
    return value if value == 0 or 1 / LARGEST < abs(value) < LARGEST else None


def _evaluated(tree: Expr, names: Mapping[str, Value]) -> Value:
    """An expression over numbers and the arguments of a function, exactly where fractions are."""
    if (exact := constant(tree)) is not None:
        return exact
    match tree:
        case Ref(name):
            return names[name]
        case Unary(op, arg):
            inner = _evaluated(arg, names)
            return not inner if op == "not" else -inner
        case Binary("**", base, exponent):
            return Fraction(float(_evaluated(base, names)) ** float(_evaluated(exponent, names)))
        case Binary(op, left, right):
            return _OPERATORS[op](_evaluated(left, names), _evaluated(right, names))
        case Call("where", (condition, a, b)):
            return _evaluated(a if _evaluated(condition, names) else b, names)
        case Call(function, args):
            row, values = FUNCTIONS[function], [_evaluated(a, names) for a in args]
            if row.value is None:
                return Fraction((_PRIMITIVES.get(function) or getattr(math, function))(float(values[0])))
            return _evaluated(parse_expression(row.value), dict(zip(row.args, values)))
    raise ValueError(f"no number: {tree!r}")


_PRIMITIVES: Mapping[str, Callable[[float], float]] = {"sigmoid": lambda v: 0.5 * (1 + math.tanh(0.5 * v))}
_OPERATORS: Mapping[str, Callable[[Value, Value], Value]] = {
    **ARITHMETIC,
    **COMPARISONS,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}
