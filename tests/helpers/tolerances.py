"""How near is near enough: every tolerance of the engine's tests, by dtype, with its reason.

A tolerance is relative to the largest number of what is compared, but to no less than 1: entries
that cancel to nearly nothing carry the rounding errors of those that do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# a few operations on numbers of about 1, worked by hand to six digits or exactly: the list of known
# faults asks for this
HAND = {"float64": 1e-12, "float32": 1e-6}
SIX_DIGITS = 6e-7  # a value that the list of known faults prints with six digits

# against the float64 reference over sequences of up to some 50 steps and sums of up to some 100
# terms: a rounding error
# of 1.1e-16 (6e-8) each, which grows about as the root of their number and is fed back through the
# recurrence
REFERENCE = {"float64": 1e-12, "float32": 2e-5}

# CUDA kernels against the float64 reference, a few steps of a few units: the functions of NVIDIA's
# library keep 2 to 3 units in the last place
CUDA = {"float64": 1e-12, "float32": 1e-5}

# functions of the table at one point: vector_math keeps 4 units in the last place, a chain of a few
# of them some 20
FUNCTION = {"float64": 1e-14, "float32": 4e-6}

# central differences in float64 with step 1e-6: the step leaves 1e-12, rounding 1e-16 / 1e-6 for
# every unit of the loss
DIFFERENCE_STEP = 1e-6
DIFFERENCES = 1e-7

# derivatives by differences of numbers of 40 digits with a step of 1e-15: the step leaves 1e-30,
# what is seen is the rounding of the float64 side
DIGITS = 1e-12

# a step and what is computed once per sequence, run in float64 as one graph or as two: the same
# operations, but that gradients of parameters
# which both read are sums of two parts; 3e-17 was seen
APART = 1e-14

# PyTorch sums in another order and has its own exp and tanh, both in the same dtype as ours
TORCH = {"float64": 1e-10, "float32": 1e-5}

# models of other packages in float32, a few steps of a few units, with our layer for torch's: it sums
# in another order
PACKAGES = 2e-6

# losses and weights in float32 after up to 50 steps of Adam, ours and PyTorch's: it divides by the
# root of a second moment, which is small where
# gradients are, and so makes much of the rounding errors of the first steps
AFTER_TRAINING = 1e-4

# ONNX Runtime is float32 only, sums in another order, and its sigmoid and tanh are polynomials good
# to some 1e-6
ONNX_RUNTIME = 1e-5


def distance(actual: Any, expected: Any) -> float:
    """The largest difference, relative to the largest expected number or 1; NaN and infinities must
    stand in the same places."""
    a, e = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert a.shape == e.shape, f"shape {a.shape}, expected {e.shape}"
    finite = np.isfinite(e)
    np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, e))
    assert np.isfinite(a[finite]).all(), f"not finite:\n{a}\nexpected:\n{e}"
    return float(np.max(np.abs(a - e)[finite], initial=0.0) / max(1.0, np.max(np.abs(e[finite]), initial=0.0)))


def assert_close(actual: Any, expected: Any, tolerance: float, what: str = "") -> None:
    """Arrays, or dicts of arrays by name (the same names), no further apart than the tolerance."""
    if isinstance(expected, Mapping):
        assert set(actual) == set(expected), f"{what}: {sorted(actual)} and {sorted(expected)}"
        for name, array in expected.items():
            assert_close(actual[name], array, tolerance, f"{what} {name}".strip())
        return
    found = distance(actual, expected)
    assert found <= tolerance, f"{what}: {found:.2e} apart, {tolerance:.0e} allowed\n{actual}\n{expected}"


def assert_same(actual: Any, expected: Any, what: str = "") -> None:
    """The same bits, but for the sign of a zero and the payload of a NaN."""
    if isinstance(expected, Mapping):
        assert set(actual) == set(expected), f"{what}: {sorted(actual)} and {sorted(expected)}"
        for name, array in expected.items():
            assert_same(actual[name], array, f"{what} {name}".strip())
        return
    assert np.asarray(actual).dtype == np.asarray(expected).dtype, what
    np.testing.assert_array_equal(actual, expected, err_msg=what)
