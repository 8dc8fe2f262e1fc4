"""Runs a cell as its file has it: walks the syntax trees of the equations, in NumPy or mpmath.

In: a Spec and arrays. Out: outputs and final states. Nothing of what lies between a file and a
kernel takes part: no SymPy, no graph, no kernel. So what these change of an equation shows here,
and only here: the reference and mpmath run the same graph as the kernels do. One step at a time,
one operation at a time, slow and plain on purpose; values only, rows of equal length.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.numbers import FLOAT64, Numbers
from rnnspec.check.sampling import Case
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.meaning.constants import constant
from rnnspec.language.sizes import evaluate_size, size_of
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, walk

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: _quotient(a, b),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda a, b: np.logical_and(a, b).astype(bool),
    "or": lambda a, b: np.logical_or(a, b).astype(bool),
}


@dataclass(frozen=True)
class WrittenRun:
    """outputs: name -> [T, B, ...]; final: state -> [B, ...], carried values among them."""

    outputs: dict[str, Array]
    final: dict[str, Array]


def run_as_written(spec: Spec, case: Case, numbers: Numbers = FLOAT64) -> WrittenRun:
    """The cell over the steps of a case, whose lengths are not looked at."""
    before = {name: numbers.array(a) for name, a in case.states.items()}
    names = [n for n in (*spec.inputs, *spec.shapes, *spec.states) if n in before]
    kept: dict[str, list[Array]] = {name: [] for name in spec.outputs}
    with np.errstate(all="ignore"):
        for t in range(case.steps):
            step = _Step(spec, case, numbers, before, t)
            for equation in spec.equations:
                step.values[equation.target] = step.value(equation.value)
            before = {name: step.spread(name) for name in dict.fromkeys(names)}
            for name, values in kept.items():
                values.append(step.spread(name))
    return WrittenRun({name: np.stack(values) for name, values in kept.items()}, before)


@dataclass
class _Step:
    """One step. values: name -> [B or 1, ...], of inputs, parameters and what has been computed."""

    spec: Spec
    case: Case
    numbers: Numbers
    before: Mapping[str, Array]
    t: int
    values: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values |= {n: self.numbers.array(a)[None] for n, a in self.case.params.items()}
        self.values |= {n: self.numbers.array(a[self.t]) for n, a in self.case.inputs.items()}

    def spread(self, name: str) -> Array:
        """A value with all rows and all elements, of which a number may stand for many."""
        shape = tuple(evaluate_size(s, self.case.sizes) for s in self.spec.shapes[name])
        value = self.values[name]
        return np.broadcast_to(
            value.reshape(value.shape + (1,) * (1 + len(shape) - value.ndim)), (self.case.rows, *shape)
        )

    def value(self, tree: Expr) -> Array:
        if (known := _constant(tree)) is not None:
            return self.number(known)
        match tree:
            case Ref(name, time):
                return self.read(tree, name, time)
            case Unary("T", arg):
                return np.swapaxes(self.value(arg), 1, 2)
            case Unary(op, arg):
                return np.logical_not(self.value(arg)).astype(bool) if op == "not" else -self.value(arg)
            case Binary("@", left, right):
                return self.product(left, right)
            case Binary("**", base, exponent) if (n := _constant(exponent)) is not None:
                return self.power(self.value(base), n)
            case Binary(op, left, right):
                return OPERATORS[op](*_aligned(self.value(left), self.value(right)))
            case Call("where", args):
                return np.where(*_aligned(*(self.value(a) for a in args)))
            case Call(function, args) if function in FEATURES:
                return self.feature(function, args)
            case Call(function, args):
                return self.function(function, [self.value(a) for a in args])
        raise TypeError(f"not an expression: {tree!r}")

    def number(self, value: Fraction) -> Array:
        if self.numbers.dtype is object:
            return self.numbers.array([value.numerator]) / self.numbers.array([value.denominator])
        return np.array([float(value)], self.numbers.dtype)

    def read(self, tree: Ref, name: str, time: int | None) -> Array:
        if tree.index is not None:
            assert isinstance(tree.index, Number)
            return self.values[name][:, int(tree.index.value) - 1]
        if time is not None and time < 0:
            return self.before[name]
        if name in self.values:
            return self.values[name]
        return self.numbers.array([self.t if name == "t" else evaluate_size(name, self.case.sizes)])

    def product(self, left: Expr, right: Expr) -> Array:
        """diag(v) @ a scales rows, a @ diag(v) columns: what stands beside the diagonal takes no
        part."""
        match left, right:
            case Call("diag", (v,)), _:
                a, b = self.value(v), self.value(right)
                return (a if b.ndim == 2 else a[:, :, None]) * b
            case _, Call("diag", (v,)):
                a, b = self.value(left), self.value(v)
                return a * (b if a.ndim == 2 else b[:, None, :])
        a, b = self.value(left), self.value(right)
        if a.ndim == 2:  # a vector from the left
            a, b = np.swapaxes(b, 1, 2), a
        made = np.matmul(a, b[:, :, None] if b.ndim == 2 else b)
        return made[:, :, 0] if b.ndim == 2 else made

    def power(self, base: Array, n: Fraction) -> Array:
        """As the language defines it: whole powers by products, v**0.5 by sqrt, others by exp and
        log."""
        if n.denominator == 1:
            return base ** int(n) if n >= 0 else 1 / base ** int(-n)
        primitives = self.numbers.primitives
        if abs(n) == Fraction(1, 2):
            return primitives["sqrt"](base) if n > 0 else 1 / primitives["sqrt"](base)
        made = primitives["exp"](self.number(abs(n)) * primitives["log"](base))
        return made if n > 0 else 1 / made

    def function(self, name: str, args: list[Array]) -> Array:
        row = FUNCTIONS[name]
        if row.value is None:
            return np.asarray(self.numbers.primitives[name](args[0] + self.numbers.array(0)))
        inside = _Step(self.spec, self.case, self.numbers, self.before, self.t)
        inside.values = dict(zip(row.args, args))
        return inside.value(_parsed(row.value))

    # --- along features

    def feature(self, name: str, args: tuple[Expr, ...]) -> Array:
        row = FEATURES[name]
        sizes = [evaluate_size(size_of(a), self.case.sizes) for n, a in enumerate(args) if row.kind(n) == "size"]
        made = [self.value(a) for n, a in enumerate(args) if row.kind(n) != "size"]
        return getattr(self, name)(*made, *sizes)

    def sum(self, v: Array) -> Array:
        flat = v.reshape(len(v), int(np.prod(v.shape[1:])))
        return flat.sum(axis=1) if flat.shape[1] else self.numbers.array(np.zeros(len(v)))

    def max(self, v: Array) -> Array:
        flat = v.reshape(len(v), int(np.prod(v.shape[1:])))
        return flat.max(axis=1) if flat.shape[1] else self.numbers.array(np.full(len(v), -np.inf))

    def mean(self, v: Array) -> Array:
        return self.sum(v) / self.numbers.array([int(np.prod(v.shape[1:]))])

    def dot(self, u: Array, v: Array) -> Array:
        return self.sum(u * v)

    def norm(self, v: Array) -> Array:
        squares = self.sum(v * v)
        return np.where(squares == 0, squares, self.numbers.primitives["sqrt"](squares))

    def softmax(self, v: Array) -> Array:
        powers = self.numbers.primitives["exp"](np.subtract(*_aligned(v, self.max(v))))
        return np.divide(*_aligned(powers, self.sum(powers)))

    def cumsum(self, v: Array) -> Array:
        return v.cumsum(axis=1)

    def cumax(self, v: Array) -> Array:
        return self.softmax(v).cumsum(axis=1)

    def layer_norm(self, v: Array, eps: Array) -> Array:
        centred = np.subtract(*_aligned(v, self.mean(v)))
        root = self.numbers.primitives["sqrt"](np.add(*_aligned(self.mean(centred * centred), eps)))
        return np.multiply(*_aligned(centred, 1 / root))

    def concat(self, *parts: Array) -> Array:
        rows = max(len(p) for p in parts)
        vectors = [p[:, None] if p.ndim == 1 else p for p in parts]
        return np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in vectors], axis=1)

    def part(self, v: Array, first: int, length: int) -> Array:
        return v[:, first : first + length]

    def outer(self, u: Array, v: Array) -> Array:
        return u[:, :, None] * v[:, None, :]

    def diag(self, v: Array) -> Array:
        return np.where(np.eye(v.shape[1], dtype=bool), v[:, :, None], self.numbers.array(0.0))

    def eye(self, size: int) -> Array:
        return self.numbers.array(np.eye(size))[None]

    def ones(self, size: int) -> Array:
        return self.numbers.array(np.ones(size))[None]


def _aligned(*values: Array) -> list[Array]:
    """Arrays [B or 1, ...] of which single numbers go with every element of the others."""
    rank = max(v.ndim for v in values)
    return [v.reshape(v.shape + (1,) * (rank - v.ndim)) if v.ndim == 1 else v for v in values]


def _quotient(a: Any, b: Any) -> Any:
    """a / b, by 0 too: mpmath raises there."""
    if not isinstance(b, np.ndarray) or b.dtype.kind != "O":
        return a / b
    zero = b == 0
    made = a / np.where(zero, b + 1, b)
    return np.where(zero, np.where((a == 0) | (a != a), a * np.nan, a * np.inf), made)


def _constant(tree: Expr) -> Fraction | None:
    """The value of what is written with numbers alone, which the language works out exactly; not of
    -0, for among fractions there is none."""
    value = constant(tree)
    return value if value or not any(isinstance(node, Unary) for node in walk(tree)) else None


@cache
def _parsed(text: str) -> Expr:
    return parse_expression(text)
