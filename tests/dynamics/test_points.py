"""Fixed points, cycles and slow points against what is known of maps of the literature."""

from __future__ import annotations

import numpy as np
import pytest
from cells import kernel
from maps import HENON, LOGISTIC, flip_flop

from rnnspec.dynamics import continue_fixed_point, cycles, fixed_points, lyapunov, slow_points
from rnnspec.errors import RnnspecError, ShapeError, UnsupportedError

RNG = np.random.default_rng(3)


def test_henons_points_and_their_eigenvalues():
    """x = (b - 1 +- sqrt((1 - b)^2 + 4 a)) / 2a, with a = 1.4, b = 0.3 (Henon 1976); eigenvalues
    -a x +- sqrt(a^2 x^2 + b)."""
    starts = {"x": RNG.normal(size=50), "y": RNG.normal(size=50)}
    found = fixed_points(kernel(HENON), {}, {}, starts)
    wanted = sorted((-0.7 + s * np.sqrt(0.49 + 5.6)) / 2.8 for s in (-1, 1))
    assert len(found) == 2 and sorted(found.states["x"]) == pytest.approx(wanted, abs=1e-13)
    np.testing.assert_allclose(found.states["y"], 0.3 * found.states["x"], atol=1e-13)
    for x, values in zip(found.states["x"], found.eigenvalues.real):
        assert sorted(values) == pytest.approx(sorted(-1.4 * x + s * np.sqrt(1.96 * x * x + 0.3) for s in (-1, 1)))
    assert found.unstable.tolist() == [1, 1] and not found.stable.any()
    assert found.starts.sum() + found.missed == 50 and found.residual.max() < 1e-14
    made = found.jacobian @ found.eigenvectors
    np.testing.assert_allclose(made, found.eigenvectors * found.eigenvalues[:, None], atol=1e-13)


def test_cycles_of_the_logistic_map():
    """At r = 3.2: x = (r + 1 +- sqrt((r - 3)(r + 1))) / 2r, whose multiplier is 4 + 2r - r^2 (May
    1976). At r = 4 there are 2, 1, 2 and 3 points, 2-, 3- and 4-cycles."""
    starts = {"x": np.linspace(0.01, 0.99, 100)}
    r = 3.2
    found = cycles(kernel(LOGISTIC), {"r": np.array(r)}, {}, starts, 2)
    wanted = sorted((r + 1 + s * np.sqrt((r - 3) * (r + 1))) / (2 * r) for s in (-1, 1))
    assert len(found) == 1 and sorted(found.orbit[0, :, 0]) == pytest.approx(wanted, abs=1e-13)
    assert found.eigenvalues.item() == pytest.approx(4 + 2 * r - r * r, abs=1e-12) and found.stable.all()
    counts = [len(cycles(kernel(LOGISTIC), {"r": np.array(4.0)}, {}, starts, p)) for p in (1, 2, 3, 4)]
    assert counts == [2, 1, 2, 3]


def test_a_flip_flop_of_three_bits():
    """Three units that are apart, each with the points 0, a and -a: 8 stable ones, 12 saddles on
    the edges, 6 on the faces and the middle. With the inputs at 0, as between two pulses."""
    params, cell = flip_flop()
    starts = {"h": RNG.uniform(-1.2, 1.2, (600, 3))}
    found = fixed_points(kernel(cell), params, {"x": np.zeros(3)}, starts)
    assert np.bincount(found.unstable).tolist() == [8, 12, 6, 1]
    assert found.stable.sum() == 8 and (np.sign(found.states["h"][:8]) != 0).all()
    held = fixed_points(kernel(cell), params, {"x": np.full(3, 2.0)}, starts)
    assert len(held) == 1 and (held.states["h"] > 0).all()  # a pulse leaves one


def test_all_states_of_an_lstm_are_found_and_are_those_of_long_runs():
    lstm = kernel("lstm")
    params = lstm.init(D=2, H=5, seed=1)
    x = np.array([0.3, -0.7])
    found = fixed_points(lstm, params, {"x": x}, {"h": RNG.normal(size=(7, 5)), "c": RNG.normal(size=(7, 5))})
    end = lstm.infer(params, {"x": np.broadcast_to(x, (2000, 1, 2))}).final
    assert found.stable[0] and set(found.states) == {"h", "c"} and len(found.names) == 10
    for name, array in end.items():
        np.testing.assert_allclose(found.states[name][:1], array, atol=1e-10)


def test_a_state_that_is_a_matrix_and_a_start_that_is_left_out():
    cell = kernel("fast_weights")
    params = cell.init(D=2, H=3, seed=2)
    found = fixed_points(cell, params, {"x": np.ones(2)}, {"h": RNG.normal(size=(4, 3))})
    assert found.stable[0] and any(a.ndim == 3 for a in found.states.values())
    moved = cell.infer(params, {"x": np.ones((1, len(found), 2))}, found.states, noise="mean").final
    for name, array in moved.items():
        np.testing.assert_allclose(array, found.states[name], atol=1e-11)


def test_float32_finds_the_same_less_exactly():
    starts = {"x": RNG.normal(size=20).astype(np.float32), "y": RNG.normal(size=20).astype(np.float32)}
    found = fixed_points(kernel(HENON, "float32"), {}, {}, starts)
    assert sorted(found.states["x"]) == pytest.approx([-1.1313544, 0.6313544], abs=1e-5)


def test_slow_points_are_minima_of_the_speed():
    """x' = x + 0.01 + x^2 has no fixed point (a fold's ghost); its speed is least at 0."""
    text = LOGISTIC.replace("r * x[t-1] * (1 - x[t-1])", "x[t-1] + r + x[t-1] * x[t-1]")
    starts = {"x": np.linspace(-1, 1, 9)}
    found = slow_points(kernel(text), {"r": np.array(0.01)}, {}, starts, tolerance=1e-10)
    assert len(found) == 1 and found.states["x"].item() == pytest.approx(0, abs=1e-6)
    assert found.speed.item() == pytest.approx(0.5e-4, rel=1e-6)
    assert len(fixed_points(kernel(text), {"r": np.array(0.01)}, {}, starts)) == 0
    few = slow_points(kernel(text), {"r": np.array(0.01)}, {}, {"x": np.array([0.1])}, steps=0, slower=3e-4)
    assert few.states["x"].item() == 0.1 and few.speed.item() == pytest.approx(2e-4)  # no minimum, but slow
    there = slow_points(kernel(text), {"r": np.array(-0.04)}, {}, starts, tolerance=1e-14)
    assert {round(x, 4) for x in there.states["x"]} >= {-0.2, 0.2}


def test_a_point_that_is_singular_is_found_still():
    """At the fold itself Newton's matrix is singular, and its steps halve the distance."""
    text = LOGISTIC.replace("r * x[t-1] * (1 - x[t-1])", "x[t-1] + r + x[t-1] * x[t-1]")
    found = fixed_points(kernel(text), {"r": np.array(0.0)}, {}, {"x": np.array([0.0, 0.5])}, merge=1e-4)
    assert len(found) == 1 and abs(found.states["x"].item()) < 1e-4 and not found.stable[0]


@pytest.mark.parametrize("name, why", [("phased_lstm", "counts its steps"), ("lif", "calls")])
def test_cells_that_are_no_map_are_refused_by_name(name, why):
    import rnnspec

    cell = rnnspec.compile(name, dtype="float64")
    with pytest.raises(UnsupportedError, match=f"'{name}' {why}"):
        fixed_points(cell, {}, {}, {})


def test_a_period_of_none_is_refused_and_no_starts_find_nothing():
    with pytest.raises(ShapeError, match="period"):
        cycles(kernel(LOGISTIC), {"r": np.array(3.0)}, {}, {"x": np.zeros(1)}, 0)
    assert len(fixed_points(kernel(LOGISTIC), {"r": np.array(3.0)}, {}, {"x": np.zeros(0)})) == 0


@pytest.mark.parametrize(
    "call, why",
    [
        (lambda k, p, s: fixed_points(k, p | {"r": np.array(np.nan)}, {}, s), "parameter 'r' is not finite"),
        (lambda k, p, s: slow_points(k, p | {"r": np.array(np.inf)}, {}, s), "parameter 'r' is not finite"),
        (lambda k, p, s: lyapunov(k, p | {"r": np.array(np.nan)}, {}), "parameter 'r' is not finite"),
        (lambda k, p, s: fixed_points(k, p, {}, {}), "no state of .* is given. It has: x"),
        (lambda k, p, s: cycles(k, p, {}, s, 1.5), "whole steps, not 1.5"),
        (lambda k, p, s: fixed_points(k, p, {}, s, merge=-1), "merge is a number from 0, not -1"),
        (lambda k, p, s: fixed_points(k, p, {}, s, tolerance=np.nan), "tolerance is a number from 0, not nan"),
        (lambda k, p, s: lyapunov(k, p, {}, spread=0), "spread is a factor above 1, not 0"),
        (lambda k, p, s: continue_fixed_point(k, p, {}, {"x": np.array(0.5)}, {}, (-1, 1)), "at least one is not 0"),
        (
            lambda k, p, s: continue_fixed_point(k, p, {}, {"x": np.array(0.5)}, {"r": np.array(0.0)}, (-1, 1)),
            "at least one is not 0",
        ),
    ],
)
def test_what_says_nothing_is_refused_with_what_it_should_be(call, why):
    with pytest.raises(RnnspecError, match=why):
        call(kernel(LOGISTIC), {"r": np.array(2.0)}, {"x": np.array([0.3, 0.4])})
