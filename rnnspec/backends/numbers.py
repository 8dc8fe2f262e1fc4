"""The numbers that the reference computes with, and pointwise expressions over them.

float64, complex128, mpmath's numbers of 50 digits, and float64 rounded at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
from numpy import ndarray as Array

from rnnspec.language.functions import FUNCTIONS, PRIMITIVES
from rnnspec.symbolic.expressions import expand_row

Arrays = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A kind of number: its NumPy dtype, how a rational constant is made, the primitives of the
    function table, and how a value that was computed is rounded (None: as NumPy does)."""

    dtype: Any
    constant: Callable[[sympy.Rational], Any]
    primitives: Mapping[str, Callable[[Any], Any]]
    rounded: Callable[[Array], Array] | None = None

    def array(self, value: object) -> Array:
        """The values as an array of this kind of number; mpmath numbers are made from float64
        exactly."""
        if self.dtype is object:
            import mpmath

            made = np.frompyfunc(lambda v: v if isinstance(v, mpmath.mpf) else mpmath.mpf(float(v)), 1, 1)(
                np.asarray(value, dtype=object)
            )
            return np.asarray(made, dtype=object)  # of one number NumPy makes no array
        return np.asarray(value, dtype=self.dtype)


def _sigmoid(v: Array) -> Array:
    e = np.exp(np.where(v.real < 0, v, -v))
    return np.where(v.real < 0, e, 1) / (1 + e)


def _erf(v: Array) -> Array:
    real = np.array([math.erf(a) for a in v.real.ravel()]).reshape(v.shape)
    return real if not np.iscomplexobj(v) else real + 1j * v.imag * (2 / math.sqrt(math.pi)) * np.exp(-(v.real**2))


_NOT_IN_NUMPY = {"sigmoid": _sigmoid, "erf": _erf}
_NUMPY: dict[str, Callable[[Any], Any]] = {name: _NOT_IN_NUMPY.get(name) or getattr(np, name) for name in PRIMITIVES}

FLOAT64 = Numbers(np.float64, float, _NUMPY)
COMPLEX128 = Numbers(np.complex128, float, _NUMPY)


def rounded_at_random(unit: float, seed: int) -> Numbers:
    """float64 of which every computed value is off by a random part of it, up to `unit`: Monte
    Carlo arithmetic (Parker 1997), which shows what rounding to numbers of that unit does to a
    result."""
    rng = np.random.default_rng(seed)
    return replace(FLOAT64, rounded=lambda v: v * (1 + unit * rng.uniform(-1, 1, v.shape)))


@lru_cache(maxsize=1)
def mpmath_numbers() -> Numbers:
    """Numbers of mpmath, at whatever precision is set when they are used (`with mpmath.workdps(50):
    ...`)."""
    import mpmath

    # what not every mpmath has
    missing = {"sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)), "log1p": lambda v: mpmath.log(1 + v)}
    functions = {name: _elementwise(getattr(mpmath, name, None) or missing[name]) for name in PRIMITIVES}
    return Numbers(object, lambda q: mpmath.mpf(int(q.p)) / int(q.q), functions)


def _elementwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def real(v: Any) -> Any:
        import mpmath

        result = function(v)
        return mpmath.nan if isinstance(result, mpmath.mpc) else result

    return np.frompyfunc(real, 1, 1)


# --- expressions


def _divide(a: Any, b: Any) -> Any:
    """a / b; of complex numbers as a complex step needs it, to the first order of imaginary parts.
    The real part is that of real numbers, to the last bit: NumPy's own 3 / 10 of complex numbers is
    more than 0.3, and a comparison would take the other side."""
    if not (np.iscomplexobj(a) or np.iscomplexobj(b)):
        return np.true_divide(a, b)
    value = np.true_divide(np.real(a), np.real(b))
    quotient = np.asarray(value, np.complex128)
    quotient.imag = (np.imag(a) - value * np.imag(b)) / np.real(b)
    return quotient


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "negative": np.negative,
}
_CONDITIONS: Mapping[str, Callable[..., Any]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "unequal": np.not_equal,
    "both": np.logical_and,
    "either": np.logical_or,
    "opposite": np.logical_not,
}


@lru_cache(maxsize=4096)
def compiled(expr: Any, numbers: Any) -> Callable[[Arrays], Any]:
    """The expression as a function of its nodes' arrays."""
    if expr.is_Symbol:
        name = expr.name
        return lambda values: values[name]
    if expr.is_Number:
        constant = numbers.constant(expr)
        return lambda values: constant
    parts = [compiled(a, numbers) for a in expr.args]
    name = type(expr).__name__
    if name in _OPERATIONS:
        operation = _OPERATIONS[name]
        return lambda values: operation(*(p(values) for p in parts))
    if name == "total":
        return lambda values: sum((p(values) for p in parts[1:]), parts[0](values))
    if name == "power":
        return _power(expr.args[1], parts[0], numbers)
    if name in _CONDITIONS:
        condition = _CONDITIONS[name]
        return lambda values: condition(*(_real(p(values)) for p in parts)).astype(bool)
    if name == "select":
        return lambda values: _select(*(p(values) for p in parts))
    row = FUNCTIONS[name]
    if row.primitive:
        primitive = numbers.primitives[name]
        return lambda values: primitive(np.asarray(parts[0](values)) + numbers.array(0))
    return compiled(expand_row(row, expr.args), numbers)


def _power(exponent: Any, base: Callable[[Arrays], Any], numbers: Numbers) -> Callable[[Arrays], Any]:
    if exponent < 0:
        below = _power(-exponent, base, numbers)
        return lambda values: _divide(1.0, below(values))
    if exponent.is_Integer:
        n = int(exponent)
        return lambda values: base(values) ** n
    if exponent == sympy.Rational(1, 2):
        root = numbers.primitives["sqrt"]
        return lambda values: root(base(values))
    power, exp, log = numbers.constant(exponent), numbers.primitives["exp"], numbers.primitives["log"]
    return lambda values: exp(power * log(base(values)))


def _real(value: Any) -> Any:
    return value.real if np.iscomplexobj(value) else np.asarray(value)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)
