"""Values and gradients where quotients, norms and means are large, tiny or saturated: nothing
overflows or vanishes whose result does not. Wanted: mpmath, 50 digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.language.load import loads


class Form(NamedTuple):
    """What is written of an input v, the same in mpmath, and where."""

    written: str
    exact: Callable[[Any], Any]
    points: tuple[float, ...]


FORMS = (
    Form("{v}**3 / (0.125 + {v}**3)", lambda v: v**3 / (0.125 + v**3), (1e10, 1e12, 1e-10, 0.5)),
    Form(
        "(exp({v}) - exp(-{v})) / (exp({v}) + exp(-{v}))",
        lambda v: mpmath.tanh(v),
        (44.0, 45.0, 60.0, 88.0, -45.0, -88.0, 0.5),
    ),
    Form("{v} / (abs({v}) + 1e-30)", lambda v: v / (abs(v) + mpmath.mpf("1e-30")), (0.0, 1e-30, -2e-30, 1.0)),
    Form(
        "sigmoid({v}) / (sigmoid({v}) + sigmoid(-50 + 0 * {v}))",
        lambda v: sigmoid(v) / (sigmoid(v) + sigmoid(mpmath.mpf(-50))),
        (-40.0, -50.0, -60.0, 3.0),
    ),
    Form("{v} / sqrt(1e-20 + {v}**2)", lambda v: v / mpmath.sqrt(mpmath.mpf("1e-20") + v**2), (0.0, 1e-10, 1e10)),
    Form("1 / (1 + exp(-{v}))", lambda v: sigmoid(v), (-40.0, 0.0, 10.0)),
    Form("1 / {v}", lambda v: 1 / v, (1e-15, 1e15, -3.0)),
    Form("(1e30 * {v}) / (1e30 * {v} + 1e30)", lambda v: v / (v + 1), (1.0, 1e5, -3.0)),
    Form("exp({v}) / (1 + exp({v}))", lambda v: sigmoid(v), (-40.0, 40.0, 80.0)),
    Form("({v} ** 2) ** 0.5", lambda v: mpmath.sqrt(v**2), (-3.0, 1e10, -1e-10)),
)


def sigmoid(v: Any) -> Any:
    return 1 / (1 + mpmath.exp(-v))


def one_cell() -> str:
    names = [f"v{n}" for n in range(len(FORMS))]
    equations = [f"y{n}[t] = {form.written.format(v=f'v{n}[t]')}" for n, form in enumerate(FORMS)]
    return cell(
        "\n  ".join([*equations, "h[t] = h[t-1] + v0[t]"]),
        inputs="{" + ", ".join(f"{name}: []" for name in names) + "}",
        outputs=f"[{', '.join(f'y{n}' for n in range(len(FORMS)))}]",
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_and_powers_where_their_parts_are_extreme(dtype):
    kernel = rnnspec.compile(loads(one_cell()), dtype=dtype, threads=1)
    rows = max(len(form.points) for form in FORMS)
    points = [np.resize(form.points, rows).astype(dtype) for form in FORMS]
    run = kernel.forward({}, {f"v{n}": p[None] for n, p in enumerate(points)})
    gradients = kernel.backward(run, {f"y{n}": np.ones((1, rows), dtype) for n in range(len(FORMS))}).inputs
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    with mpmath.workdps(50):
        for n, form in enumerate(FORMS):
            for row, point in enumerate(points[n]):
                value = form.exact(mpmath.mpf(float(point)))
                slope = mpmath.diff(form.exact, mpmath.mpf(float(point)), h=mpmath.mpf(10) ** -40)
                found, gradient = float(run.outputs[f"y{n}"][0, row]), float(gradients[f"v{n}"][0, row])
                assert abs(found - value) <= 64 * eps * abs(value) + tiny, (form.written, point, found)
                if point == 0 and "abs" in form.written:
                    slope = mpmath.mpf("1e30")  # the kink of abs, whose derivative there is 0
                # what cancels, cancels from terms of size |value / point|
                size = max(abs(slope), abs(value / point) if point else 0)
                assert abs(gradient - slope) <= 64 * eps * size + tiny, (form.written, point, gradient, float(slope))


def mean(values: Any) -> Any:
    return sum(values) / len(values)


def centred(x: Any) -> Any:
    return [v - mean(x) for v in x]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_and_means_of_large_and_tiny_numbers(dtype):
    """Values and gradients of weighted sums, at every order of magnitude that the dtype has."""
    spec = loads(
        cell(
            "n[t] = norm(x[t])\n  m[t] = mean(x[t])\n  l[t] = layer_norm(x[t], 1e-5)\n  k[t] = layer_norm(x[t], 0)\n"
            "  h[t] = h[t-1] + x[t]",
            inputs="{x: N}",
            states="{h: N}",
            outputs="[n, m, l, k]",
        )
    )
    kernel = rnnspec.compile(spec, dtype=dtype, threads=1)
    low, high = (-36, 37) if dtype == "float32" else (-300, 300)
    scales = [float(f"1e{e}") for e in range(low, high + 1, 8 if dtype == "float32" else 50)]
    base = np.array([1.0, -2.0, 3.0, 0.5, -1.25])
    x = (np.array(scales)[:, None] * base).astype(dtype)[None]
    run = kernel.forward({}, {"x": x})
    eps = float(np.finfo(dtype).eps)
    weights = np.array([1.0, -0.5, 0.25, 2.0, 1.5])
    for name in ("n", "m", "l", "k"):
        w = np.ones((1, len(scales)), dtype) if name in "nm" else np.broadcast_to(weights, x.shape).astype(dtype)
        zeros = {o: np.zeros_like(run.outputs[o]) for o in "nmlk"}
        found = kernel.backward(run, zeros | {name: np.ascontiguousarray(w)}).inputs["x"]
        with mpmath.workdps(50):
            for row, scale in enumerate(scales):
                v = [mpmath.mpf(float(a)) for a in x[0, row]]
                value, slopes = exact(name, v, weights)
                np.testing.assert_allclose(run.outputs[name][0, row], value, rtol=32 * eps, err_msg=f"{name} {scale}")
                largest = max(abs(s) for s in slopes)
                if 1e-36 < largest < 1e37:
                    error = np.abs(found[0, row].astype(np.float64) - slopes).max() / largest
                    assert error <= 64 * eps, (name, scale, error)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_subnormal_numbers_are_normalised(dtype):
    """A mean of few units of the last place is no number of the dtype; what is above it is."""
    text = cell("k[t] = layer_norm(x[t], 0)\n  h[t] = h[t-1] + x[t]", inputs="{x: N}", states="{h: N}", outputs="[k]")
    kernel, info = rnnspec.compile(loads(text), dtype=dtype, threads=1), np.finfo(dtype)
    base = np.array([1.0, -2.0, 4.0, 7.0, 6.0])
    units = 2.0 ** np.arange(0, info.nmant + 8, 4)
    x = (units[:, None] * base * float(info.smallest_subnormal)).astype(dtype)[None]
    run, weights = kernel.forward({}, {"x": x}), np.array([1.0, -0.5, 0.25, 2.0, 1.5])
    small = 2.0**-60  # gradients by such rows are as large as numbers get
    dy = np.broadcast_to(weights * small, x.shape).astype(dtype)
    found = kernel.backward(run, {"k": dy}).inputs["x"][0]
    with mpmath.workdps(50):
        for row in range(len(units)):
            value, slopes = exact("k", [mpmath.mpf(float(a)) for a in x[0, row]], weights * small)
            assert np.abs(run.outputs["k"][0, row] - value).max() <= 32 * float(info.eps), (units[row], value)
            error = np.abs(found[row].astype(np.float64) - slopes).max() / np.abs(slopes).max()
            assert error <= 64 * float(info.eps), (units[row], found[row], slopes)


def exact(name: str, v: list[Any], weights: np.ndarray) -> tuple[Any, np.ndarray]:
    """The value, and the gradients of its sum by the weights."""

    def function(*x: Any) -> Any:
        if name == "n":
            return mpmath.sqrt(sum(a * a for a in x))
        if name == "m":
            return mean(x)
        root = mpmath.sqrt(mean([c * c for c in centred(x)]) + (mpmath.mpf("1e-5") if name == "l" else 0))
        return [c / root for c in centred(x)]

    value = function(*v)
    if name in "nm":
        size = float(value), lambda *x: function(*x)
    else:
        size = np.array([float(a) for a in value]), lambda *x: sum(float(w) * a for w, a in zip(weights, function(*x)))
    slopes = []
    for i, a in enumerate(v):
        step = abs(a) * mpmath.mpf(10) ** -20
        up, down = list(v), list(v)
        up[i], down[i] = a + step, a - step
        slopes.append(float((size[1](*up) - size[1](*down)) / (2 * step)))
    return size[0], np.array(slopes)
