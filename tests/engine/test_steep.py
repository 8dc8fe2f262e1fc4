"""Derivatives that are larger than any number where what they are multiplied by is small: of rsqrt,
of powers, of quotients, over all exponents. Wanted: mpmath, 50 digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.language.load import loads

M = mpmath.mpf
Exact = Callable[[Any, Any], Any]


class Form(NamedTuple):
    """What is written of v, with a small number e, and in mpmath the terms of its derivative and
    the derivatives by what is computed in between."""

    written: str
    value: Exact
    terms: Exact
    between: Exact = lambda v, e: []


def _unit(v: Any, e: Any) -> Any:
    return v / mpmath.sqrt(v * v + e)


def _unit_terms(v: Any, e: Any) -> Any:
    root = mpmath.sqrt(v * v + e)
    return [1 / root, -v * v / root**3]


def _ratio(v: Any, e: Any) -> Any:
    return v / (abs(v) + e)


def _ratio_terms(v: Any, e: Any) -> Any:
    return [1 / (abs(v) + e), -abs(v) / (abs(v) + e) ** 2]


def _by_square(v: Any, e: Any) -> Any:
    return [v / mpmath.sqrt(v * v + e) ** 3 / 2]


def _by_size(v: Any, e: Any) -> Any:
    return [v / (abs(v) + e) ** 2]


FORMS = (
    Form("{v} * rsqrt({v} * {v} + {e})", _unit, _unit_terms, _by_square),
    Form("{v} * ({v} * {v} + {e}) ** -0.5", _unit, _unit_terms),
    Form("{v} * reciprocal(abs({v}) + {e})", _ratio, _ratio_terms, _by_size),
    Form("{v} * (abs({v}) + {e}) ** -1", _ratio, _ratio_terms, _by_size),
    Form(
        "square({v}) / (square({v}) + {e})",
        lambda v, e: v * v / (v * v + e),
        lambda v, e: [2 * v / (v * v + e), -2 * v**3 / (v * v + e) ** 2],
        lambda v, e: [1 / (v * v + e)],
    ),
    Form("{v} ** -2", lambda v, e: 1 / v**2, lambda v, e: [-2 / v**3]),
    Form("1 / ({v} * {v})", lambda v, e: 1 / v**2, lambda v, e: [-2 / v**3]),
)
SMALL = {"float32": 1e-30, "float64": 1e-250}
UNITS = 64  # of the largest term


def _cell(dtype: str) -> str:
    inputs = [f"v{n}" for n in range(len(FORMS))]
    equations = [f"y{n}[t] = {form.written.format(v=f'v{n}[t]', e=SMALL[dtype])}" for n, form in enumerate(FORMS)]
    return cell(
        "\n  ".join([*equations, "h[t] = h[t-1] + v0[t]"]),
        inputs="{" + ", ".join(f"{name}: []" for name in inputs) + "}",
        outputs=f"[{', '.join(f'y{n}' for n in range(len(FORMS)))}]",
    )


def _wrong(dtype: str, v: Any, dy: float, gradients: Any) -> list[str]:
    """What is not right of each form, at the points where the value, and the gradients by what is
    computed in between, are normal numbers, and the gradient is finite."""
    info, wrong = np.finfo(dtype), []
    eps, tiny, most = float(info.eps), float(info.tiny), float(info.max)
    e = M(float(np.dtype(dtype).type(SMALL[dtype])))
    for n, form in enumerate(FORMS):
        for row, point in enumerate(map(M, v.tolist())):
            value, parts = form.value(point, e), [dy * term for term in form.terms(point, e)]
            size, slope = max(map(abs, parts)), sum(parts)
            within = all(tiny <= dy * abs(by) <= most / 4 for by in form.between(point, e))
            if not tiny <= abs(value) <= most or size > most / 4 or not within:
                continue
            found = gradients[f"v{n}"][0, row]
            if not abs(found - slope) <= UNITS * eps * size + 8 * tiny * max(1.0, dy):
                wrong.append(f"{form.written} at {float(point)}, dy {dy}: {found}, not {mpmath.nstr(slope, 8)}")
    return wrong


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_gradients_of_steep_functions_over_all_exponents(dtype):
    kernel = rnnspec.compile(loads(_cell(dtype)), dtype=dtype, threads=1)
    info = np.finfo(dtype)
    exponents = np.arange(
        np.log2(float(info.smallest_subnormal)), info.maxexp // 2 - 1, 5 if dtype == "float32" else 37
    )
    v = np.ldexp(1.37, exponents.astype(int)).astype(dtype)
    run = kernel.forward({}, {f"v{n}": v[None] for n in range(len(FORMS))})
    wrong = []
    with mpmath.workdps(50):
        for dy in (1.0, 1e-10, 1e10):
            ones = np.full((1, len(v)), dy, dtype)
            gradients = kernel.backward(run, {f"y{n}": ones for n in range(len(FORMS))}).inputs
            wrong += _wrong(dtype, v, dy, gradients)
    assert not wrong, "\n".join(wrong)
