"""Every function of the table and its derivative over all exponents, against their definitions in
mpmath: what is not good relatively is listed, and good absolutely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import rnnspec
from rnnspec.check.accuracy.functions import cell_of_functions
from rnnspec.language.functions import FUNCTIONS, INTERNAL

NAMES = [n for n, row in FUNCTIONS.items() if n not in INTERNAL]
M = mpmath.mpf
SLOPE, THIRD = M(repr(0.2)), M(repr(0.3))
ALPHA, LAMBDA = M("1.7580993408473766"), M("1.0507009873554805")


def _sigmoid(v: Any) -> Any:
    return 1 / (1 + mpmath.exp(-v))


def _density(v: Any) -> Any:
    return mpmath.exp(-v * v / 2) / mpmath.sqrt(2 * mpmath.pi)


def _below(v: Any) -> Any:
    if abs(v) > 10_000:  # farther than mpmath looks; exp(-v * v / 2) is below all numbers
        return M(v > 0)
    return mpmath.erfc(-v / mpmath.sqrt(2)) / 2


def _root(v: Any) -> Any:
    return mpmath.sqrt(v) if v > 0 else mpmath.nan


# value and derivative by their definitions; the other arguments are what the rows are measured at
DEFINED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "exp": (mpmath.exp, mpmath.exp),
    "expm1": (mpmath.expm1, mpmath.exp),
    "log": (lambda v: mpmath.log(v) if v > 0 else mpmath.nan, lambda v: 1 / v if v > 0 else mpmath.nan),
    "log1p": (
        lambda v: mpmath.log1p(v) if v > -1 else mpmath.nan,
        lambda v: 1 / (1 + v) if v > -1 else mpmath.nan,
    ),
    "sqrt": (_root, lambda v: 1 / (2 * _root(v))),
    "sin": (mpmath.sin, mpmath.cos),
    "cos": (mpmath.cos, lambda v: -mpmath.sin(v)),
    "erf": (
        lambda v: mpmath.erf(v) if abs(v) < 10_000 else mpmath.sign(v),
        lambda v: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-v * v),
    ),
    "tanh": (mpmath.tanh, lambda v: mpmath.sech(v) ** 2),
    "sigmoid": (_sigmoid, lambda v: _sigmoid(v) * _sigmoid(-v)),
    "identity": (lambda v: v, lambda v: M(1)),
    "relu": (lambda v: max(v, M(0)), lambda v: M(v > 0)),
    "leaky_relu": (lambda v: v if v > 0 else v * M("0.1"), lambda v: M(1) if v > 0 else M("0.1")),
    "elu": (lambda v: v if v > 0 else mpmath.expm1(v), lambda v: M(1) if v > 0 else mpmath.exp(v)),
    "selu": (
        lambda v: LAMBDA * v if v > 0 else ALPHA * mpmath.expm1(v),
        lambda v: LAMBDA if v > 0 else ALPHA * mpmath.exp(v),
    ),
    "gelu": (lambda v: v * _below(v), lambda v: _below(v) + v * _density(v)),
    "silu": (lambda v: v * _sigmoid(v), lambda v: _sigmoid(v) * (1 + v * _sigmoid(-v))),
    "softplus": (lambda v: mpmath.log1p(mpmath.exp(-abs(v))) + max(v, M(0)), _sigmoid),
    "softsign": (lambda v: v / (1 + abs(v)), lambda v: 1 / (1 + abs(v)) ** 2),
    "log_sigmoid": (lambda v: min(v, M(0)) - mpmath.log1p(mpmath.exp(-abs(v))), lambda v: _sigmoid(-v)),
    "hard_sigmoid": (
        lambda v: min(max(SLOPE * v + M(1) / 2, M(0)), M(1)),
        lambda v: SLOPE if abs(v) < M(5) / 2 else M(0),
    ),
    "hard_tanh": (lambda v: min(max(v, M(-1)), M(1)), lambda v: M(abs(v) < 1)),
    "abs": (abs, mpmath.sign),
    "sign": (mpmath.sign, lambda v: M(0)),
    "minimum": (lambda v: min(v, THIRD), lambda v: M(v < THIRD)),
    "maximum": (lambda v: max(v, THIRD), lambda v: M(v > THIRD)),
    "clip": (lambda v: min(max(v, M("-0.5")), M("0.7")), lambda v: M(M("-0.5") <= v <= M("0.7"))),
    "rsqrt": (lambda v: 1 / _root(v), lambda v: -1 / (2 * _root(v) ** 3)),
    "square": (lambda v: v * v, lambda v: 2 * v),
    "reciprocal": (lambda v: 1 / v, lambda v: -1 / v**2),
    "stop_gradient": (lambda v: v, lambda v: M(0)),
    "straight_through": (lambda v: v, lambda v: M(0)),
}

# whose derivatives have few digits where they are small, by their rows: see docs/arithmetic.md
ABSOLUTE = {"tanh", "sigmoid", "expm1", "elu", "selu", "erf"}
UNITS = 64


def _arguments(dtype: str) -> Any:
    info = np.finfo(dtype)
    exponents = np.arange(int(np.log2(float(info.smallest_subnormal))), info.maxexp)
    with np.errstate(over="ignore"):
        v = np.ldexp(1.37, exponents).astype(dtype)
    v = v[np.isfinite(v)]
    return np.concatenate([-v[::-1], v])


def _faults(found: Any, x: Any, exact: Callable[[Any], Any], absolute: bool) -> list[str]:
    info = np.finfo(x.dtype)
    faults = []
    for v, number in zip(x.tolist(), found.tolist()):
        wanted = exact(M(v))
        if mpmath.isnan(wanted):
            continue
        if abs(wanted) > float(info.max):
            right = np.isinf(number)
        else:
            allowed = UNITS * max(abs(wanted) * float(info.eps), float(info.smallest_subnormal))
            allowed = max(allowed, float(info.eps)) if absolute else allowed
            right = np.isfinite(number) and abs(M(number) - wanted) <= allowed
        if not right:
            faults.append(f"{v!r} gives {number!r}, not {mpmath.nstr(wanted, 10)}")
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function_over_all_exponents(dtype):
    x = _arguments(dtype)
    kernel = rnnspec.compile(cell_of_functions(NAMES), dtype=dtype)
    run = kernel.forward({}, {f"x_{n}": x[None, None] for n in NAMES})
    back = kernel.backward(run, {f"y_{n}": np.ones((1, 1, len(x)), dtype) for n in NAMES})
    faults = {}
    with mpmath.workdps(60):
        for name in NAMES:
            value, derivative = DEFINED[name]
            faults[name] = _faults(run.outputs[f"y_{name}"][0, 0], x, value, False)
            faults[name + "'"] = _faults(back.inputs[f"x_{name}"][0, 0], x, derivative, name in ABSOLUTE)
    assert {n: f for n, f in faults.items() if f} == {}
