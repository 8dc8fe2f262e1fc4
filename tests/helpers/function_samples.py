"""Arguments on which the ten primitive functions are tried, and errors in units in the last place:
against mpmath (double) and the C library's double (float)."""

from __future__ import annotations

import math

import mpmath
import numpy as np

from rnnspec.backends import polynomials
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.language.functions import FUNCTIONS

DTYPES = {"f32": np.float32, "f64": np.float64}
SAMPLES = {"f32": 50_000, "f64": 1500}  # per kind of sample; mpmath takes some 20 us for one

REFERENCE = {
    "sigmoid": lambda v: np.where(v < 0, np.exp(v) / (1 + np.exp(v)), 1 / (1 + np.exp(-v))),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
}
MPMATH = {
    "sigmoid": lambda v: mpmath.exp(v) / (1 + mpmath.exp(v)) if v < 0 else 1 / (1 + mpmath.exp(-v)),
    **{name: getattr(mpmath, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "erf")},
}
DOMAIN = {"log": 0.0, "log1p": -1.0, "sqrt": 0.0}

INF, NAN = math.inf, math.nan
MORE = {"log": [(-1.0, NAN), (1.0, 0.0)], "log1p": [(-1.0, -INF), (-2.0, NAN)], "sqrt": [(-1.0, NAN)]}
SPECIAL = {name: [*zip((-INF, -0.0, 0.0, INF), FUNCTIONS[name].limits), *MORE.get(name, [])] for name in PRIMITIVES}


def samples(key: str, name: str) -> np.ndarray:
    """All exponents, both signs; -20..20; where exp and its kin end; the floats nearest to
    multiples of pi/2; domain only."""
    dtype, n = DTYPES[key], SAMPLES[key]
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    exponents = rng.uniform(math.log2(info.smallest_subnormal), info.maxexp - 1e-3, n)
    ends = 1.1 * math.log(info.max)
    x = np.concatenate(
        [
            rng.choice([-1.0, 1.0], n) * 2.0**exponents,
            np.linspace(-20, 20, n),
            rng.uniform(-2, 2, n),
            rng.uniform(-ends, ends, n),
            rng.uniform(-polynomials.FORMATS[key].circular_limit, polynomials.FORMATS[key].circular_limit, n),
            np.pi / 2 * (np.arange(n) if name in ("sin", "cos") else np.zeros(1)),
            np.pi / 2 * rng.integers(0, 2**40, n if name in ("sin", "cos") else 1),
        ]
    ).astype(dtype)
    return np.unique(x[x > DOMAIN.get(name, -INF)])


def errors(key: str, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|y - f(x)| in units in the last place of f(x)"""
    dtype = DTYPES[key]
    with np.errstate(all="ignore"):
        if key == "f32":
            high = REFERENCE[name](x.astype(np.float64))
            low = np.zeros_like(high)
        else:
            with mpmath.workprec(100):
                exact = [MPMATH[name](mpmath.mpf(v)) for v in x.tolist()]
                high = np.array([float(v) for v in exact])
                low = np.array(
                    [
                        float(v - mpmath.mpf(h)) if math.isfinite(h) else 0.0
                        for v, h in zip(exact, high.tolist(), strict=True)
                    ]
                )
        spacing = np.spacing(np.minimum(np.abs(high), np.finfo(dtype).max).astype(dtype)).astype(np.float64)
        error = np.abs((y.astype(np.float64) - high) - low) / spacing
        return np.where(
            y == high.astype(dtype), np.where(np.isfinite(error), error, 0.0), np.where(np.isnan(error), INF, error)
        )
