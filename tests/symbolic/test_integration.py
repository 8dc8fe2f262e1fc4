"""Differential equations as steps, in the reference: the order of every method, against solvers of
others and plain Runge-Kutta of fine steps, and irregular times."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from tiny import cell

from rnnspec.backends import reference
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.load import load, loads
from rnnspec.language.methods import METHODS
from rnnspec.symbolic.build import build

SLOPE = 0.1  # how far a measured order may lie from the method's
Field = Callable[[np.ndarray], np.ndarray]

FIELDS: dict[str, tuple[str, Field, list[float]]] = {
    "coupled": (
        "g[t] = tanh(2 * w[t])\nd/dt v = g[t] - v[t] * (1 + 0.3 * w[t])\nd/dt w = 0.6 * v[t] - 0.4 * w[t] * w[t]",
        lambda y: np.array([math.tanh(2 * y[1]) - y[0] * (1 + 0.3 * y[1]), 0.6 * y[0] - 0.4 * y[1] ** 2]),
        [0.2, 1.0],
    ),
    "van der Pol": (
        "d/dt v = w[t]\nd/dt w = 1.5 * (1 - v[t] ** 2) * w[t] - v[t]",
        lambda y: np.array([y[1], 1.5 * (1 - y[0] ** 2) * y[1] - y[0]]),
        [2.0, 0.0],
    ),
    "Lorenz": (
        "d/dt v = 10 * (w[t] - v[t])\nd/dt w = v[t] * (28 - u[t]) - w[t]\nd/dt u = v[t] * w[t] - 8 / 3 * u[t]",
        lambda y: np.array([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]),
        [1.0, 1.0, 25.0],
    ),
}
NAMES = "vwu"


def rk4(field: Field, y: np.ndarray, time: float, steps: int) -> np.ndarray:
    """The classical method, written out once more."""
    h = time / steps
    for _ in range(steps):
        a = field(y)
        b = field(y + h / 2 * a)
        c = field(y + h / 2 * b)
        y = y + h / 6 * (a + 2 * b + 2 * c + field(y + h * c))
    return y


def run(name: str, method: str, gaps: np.ndarray, substeps: int = 1) -> np.ndarray:
    """Where a field of FIELDS ends after these steps [T], by our equations."""
    equations, _, start = FIELDS[name]
    states = dict(zip(NAMES, start))
    shapes = "{" + ", ".join(f"{n}: []" for n in states) + "}"
    keys = {"inputs": "{gap: []}", "states": shapes, "outputs": "[v]"}
    if METHODS[method].gain and name == "van der Pol":  # whose v changes by w alone
        method = f"{{v: euler, w: {method}}}"
    settings = f"{{method: {method}, dt: gap, substeps: {substeps}}}"
    graph = build(loads(cell(equations, integrate=settings, **keys)))
    before = {n: np.array([v]) for n, v in states.items()}
    final = reference.forward(graph, {}, {"gap": gaps[:, None]}, before, sizes={}).final
    return np.array([final[n][0] for n in states])


def exact(name: str, time: float) -> np.ndarray:
    _, field, start = FIELDS[name]
    return rk4(field, np.array(start), time, 4000)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["coupled", "van der Pol"])
def test_the_error_goes_with_the_order_of_the_method(name: str, method: str) -> None:
    order = METHODS[method].order
    steps = np.array([40, 80] if order == 4 else [400, 800])
    truth = exact(name, 1.0)
    errors = [np.abs(run(name, method, np.full(n, 1.0 / n)) - truth).max() for n in steps]
    assert abs(math.log2(errors[0] / errors[1]) - order) < SLOPE, errors


@pytest.mark.parametrize("name, time, bound", [("van der Pol", 2.0, 1e-7), ("Lorenz", 0.5, 1e-7)])
def test_orbits_are_those_of_solve_ivp_and_of_fine_steps(name: str, time: float, bound: float) -> None:
    ours = run(name, "rk4", np.full(100, time / 100), substeps=10)
    scale = np.abs(ours).max()
    assert np.abs(ours - exact(name, time)).max() < bound * scale
    integrate = pytest.importorskip("scipy.integrate")
    _, field, start = FIELDS[name]
    theirs = integrate.solve_ivp(lambda t, y: field(y), (0, time), start, method="DOP853", rtol=1e-12, atol=1e-12)
    assert np.abs(ours - theirs.y[:, -1]).max() < bound * scale


@pytest.mark.parametrize("method", METHODS)
def test_how_an_interval_is_cut_changes_nothing_beyond_the_error(method: str) -> None:
    rng = np.random.default_rng(3)
    gaps = rng.uniform(0.2, 1.8, 60)
    gaps /= gaps.sum()
    truth = exact("coupled", 1.0)
    found = [run("coupled", method, cut) for cut in (gaps, gaps[::-1], rng.permutation(gaps), np.full(60, 1 / 60))]
    # errors of these methods on this field from steps of 1 / 400; the longest step counts
    error = 0.5 * gaps.max() ** METHODS[method].order
    assert max(np.abs(y - truth).max() for y in found) < error
    assert max(np.abs(y - found[0]).max() for y in found) < 2 * error


def test_substeps_are_steps_of_a_part_of_the_length() -> None:
    for method in METHODS:
        parts = run("coupled", method, np.full(5, 0.2), substeps=4)
        assert np.abs(parts - run("coupled", method, np.full(20, 0.05))).max() < 1e-14


def test_linear_decay_is_exact_by_exponential_steps_and_bounded_by_implicit_ones() -> None:
    keys = {"inputs": "{x: []}", "parameters": "{tau: []}"}
    for method, wanted in (("exponential_euler", math.exp(-4 / 0.5)), ("implicit", 1 / (1 + 4 / 0.5))):
        text = cell("d/dt h = (x[t] - h[t]) / tau", integrate=f"{{method: {method}, dt: 4}}", **keys)
        end = reference.forward(
            build(loads(text)), {"tau": np.array(0.5)}, {"x": np.full((1, 1), 3.0)}, {"h": np.ones(1)}, sizes={}
        ).final["h"]
        assert abs(end[0] - (3 + (1 - 3) * wanted)) < 1e-15


def test_cells_of_the_library_as_differential_equations() -> None:
    rng = np.random.default_rng(0)

    def same(name: str, equations: str, dt: str, left: dict[str, np.ndarray], **keys: str) -> None:
        spec = load(name)
        sizes = {"D": 3, "H": 4}
        params = {n: rng.normal(0, 0.5, [sizes[s] for s in shape]) for n, shape in spec.parameters.items()}
        inputs = {"x": rng.normal(0, 1, (6, 2, 3)), **left}
        shapes = {n: f"[{', '.join(s)}]" for n, s in spec.parameters.items()}
        text = cell(
            equations,
            inputs="{x: D}",
            states="{" + ", ".join(f"{n}: H" for n in spec.states) + "}",
            parameters="{" + ", ".join(f"{n}: {s}" for n, s in shapes.items()) + "}",
            outputs=f"[{spec.outputs[0]}]",
            integrate=f"{{method: euler, dt: {dt}}}",
            **keys,
        )
        ours = reference.forward(build(loads(text)), params, {"x": inputs["x"]}, sizes=sizes)
        theirs = reference.forward(build(spec), params, inputs, sizes=sizes)
        for output in spec.outputs:
            assert np.abs(ours.outputs[output] - theirs.outputs[output]).max() < 1e-12

    same("ctrnn", "y[t] = relu(h[t])\nd/dt h = R @ y[t] + W @ x[t] + b - h[t]", "0.2", {"xi": np.zeros((6, 2, 4))})
    known = {n: float(v) for n, v in load("lipschitz_rnn").constants.items()}
    matrices = "\n".join(
        f"{m} = {known['beta']} * (M_{m} - M_{m}.T) + {1 - known['beta']:.12g} * (M_{m} + M_{m}.T)"
        f" - {known[f'gamma_{m}']} * eye(H)"
        for m in "AB"
    )
    same("lipschitz_rnn", matrices + "\nd/dt h = A @ h[t] + tanh(B @ h[t] + W @ x[t] + b)", "0.1", {})
    # position moves with the new velocity, so the two are integrated one after the other
    dt, gamma, epsilon = (float(load("cornn").constants[n]) for n in ("dt", "gamma", "epsilon"))
    same(
        "cornn",
        f"d/dt z = tanh(U @ h[t-1] + U_z @ z[t] + W @ x[t] + b) - {gamma} * h[t-1] - {epsilon} * z[t]\nd/dt h = z[t]",
        f"{{z: {dt}, h: {dt} + 0}}",
        {},
    )


def test_exprel_is_what_it_says_near_and_far_from_0() -> None:
    points = [s * 10.0**e for e in range(-320, 3, 7) for s in (-1, 1)] + [-700.0, -1.0, 0.999, 1.0, 80.0, 700.0, 712.0]
    text = cell("y[t] = exprel(x[t])\nh[t] = h[t-1]", outputs="[y]")
    graph = build(loads(text))
    found = reference.forward(graph, {}, {"x": np.array(points)[:, None]}, sizes={}).outputs["y"][:, 0]
    with mpmath.workdps(400):
        for v, y in zip(points, found):
            right = mpmath.expm1(mpmath.mpf(v)) / mpmath.mpf(v)
            assert abs(y - float(right)) <= 2 * math.ulp(float(right)), v
    assert FUNCTIONS["exprel"].limits == (0.0, 1.0, 1.0, math.inf)
