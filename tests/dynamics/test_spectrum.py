"""Lyapunov exponents against those of the literature and of linear maps."""

from __future__ import annotations

import numpy as np
import pytest
from cells import kernel
from maps import DT, HENON, LINEAR_MAP, LOGISTIC, lorenz

from rnnspec.dynamics import kaplan_yorke, lyapunov
from rnnspec.errors import RnnspecError, ShapeError, UnsupportedError

RNG = np.random.default_rng(5)
HENON_EXPONENTS = 0.41922, -1.62319  # Sprott 2003, a = 1.4, b = 0.3
LORENZ_EXPONENTS = 0.9056, 0.0, -14.5723  # Sprott 2003, per unit of time


def test_a_linear_cell_has_the_logarithms_of_its_eigenvalues():
    basis = RNG.normal(size=(5, 5))
    values = np.array([1.0, -0.9, 0.6, -0.3, 0.05])
    matrix = basis @ np.diag(values) @ np.linalg.inv(basis)
    start = {"h": RNG.normal(size=(1, 5))}
    found = lyapunov(kernel(LINEAR_MAP), {"A": matrix}, {}, states=start, steps=1000, settle=800)
    np.testing.assert_allclose(found.exponents, np.log(np.abs(values)), atol=1e-10)
    some = lyapunov(kernel(LINEAR_MAP), {"A": matrix}, {}, 2, states=start, steps=1000, settle=800)
    np.testing.assert_allclose(some.exponents, np.log(np.abs(values[:2])), atol=1e-10)
    assert found.qr < 500 and found.times[-1] == 1000 and found.history.shape == (found.qr, 5)


def test_henon():
    """40,000 steps of each of 4 rows: 0.002 is 5 times what such runs vary by. The sum is log 0.3,
    whatever the orbit."""
    start = {"x": RNG.normal(0, 0.1, 4), "y": np.zeros(4)}
    found = lyapunov(kernel(HENON), {}, {}, states=start, steps=40_000)
    np.testing.assert_allclose(found.exponents, HENON_EXPONENTS, atol=2e-3)
    assert found.exponents.sum() == pytest.approx(np.log(0.3), abs=1e-9)
    assert found.dimension == pytest.approx(1.2583, abs=3e-3) and found.by_row.shape == (4, 2)


@pytest.mark.slow
def test_henon_to_its_published_digits():
    """50 million steps in all; their rows say by how much such a mean varies."""
    start = {"x": RNG.normal(0, 0.1, 512), "y": np.zeros(512)}
    found = lyapunov(kernel(HENON), {}, {}, states=start, steps=100_000)
    error = found.by_row.std(axis=0) / np.sqrt(512)
    assert (error < 1e-4).all()
    assert (np.abs(found.exponents - HENON_EXPONENTS) < 3 * error).all()


def test_lorenz():
    """600 units of time in all, of 4 rows: 0.05 is 3 times what such runs vary by. The sum is the
    divergence, -41/3, but for the error of a step of 0.01."""
    start = {n: RNG.normal(1, 1, 4) for n in "xyz"}
    found = lyapunov(kernel(lorenz()), {}, {}, states=start, steps=15_000)
    np.testing.assert_allclose(found.exponents / DT, LORENZ_EXPONENTS, atol=0.05)
    assert found.exponents.sum() / DT == pytest.approx(-41 / 3, abs=1e-3)


@pytest.mark.slow
def test_lorenz_to_its_published_digits():
    """The step's error moves the exponents by less than 1e-4; 512 rows of 1,000 units of time vary
    by about 2e-3 together."""
    start = {n: RNG.normal(1, 1, 512) for n in "xyz"}
    found = lyapunov(kernel(lorenz()), {}, {}, states=start, steps=100_000)
    np.testing.assert_allclose(found.exponents / DT, LORENZ_EXPONENTS, atol=1e-3)


def test_the_sum_is_the_mean_logarithm_of_the_determinant():
    """Of a GRU that inputs drive: the product of the R is the determinant of the Jacobians'."""
    gru = kernel("gru")
    params = gru.init(D=2, H=5, seed=1)
    x = RNG.normal(size=(300, 2, 2))
    found = lyapunov(gru, params, {"x": x}, warmup=50, settle=0)
    blocks = gru.jacobian(params, {"x": x})["h"]["h"][50:]
    wanted = np.linalg.slogdet(blocks)[1].mean()
    assert found.exponents.sum() == pytest.approx(wanted, abs=1e-9) and found.steps == 250
    end = gru.infer(params, {"x": x}).final["h"]
    np.testing.assert_allclose(found.final["h"], end, atol=1e-12)


@pytest.mark.slow
def test_all_states_of_an_lstm_at_rest_are_its_fixed_points_eigenvalues():
    lstm = kernel("lstm")
    params = lstm.init(D=2, H=3, seed=4)
    found = lyapunov(lstm, params, {"x": np.ones(2)}, steps=4000, settle=1000)
    blocks = lstm.jacobian(params, {"x": np.ones((1, 1, 2))}, found.final)
    matrix = np.block([[blocks[a][b][0, 0] for b in ("h", "c")] for a in ("h", "c")])
    wanted = np.sort(np.log(np.abs(np.linalg.eigvals(matrix))))[::-1]
    np.testing.assert_allclose(found.exponents, wanted, atol=2e-3)  # a pair turns, and its two are told by their mean


def test_directions_that_a_step_loses_are_minus_infinity():
    """A matrix of rank 2, in a space of 4."""
    left = RNG.normal(size=(4, 2))
    found = lyapunov(kernel(LINEAR_MAP), {"A": left @ left.T / 4}, {}, states={"h": np.ones((1, 4))}, steps=50)
    assert np.isfinite(found.exponents).tolist() == [True, True, False, False]


def test_kaplan_yorke():
    assert kaplan_yorke(np.array([-0.1, -1])) == 0 and np.isnan(kaplan_yorke(np.array([0.5, 0.1])))
    assert kaplan_yorke(np.array(LORENZ_EXPONENTS)) == pytest.approx(2.0621, abs=1e-4)
    assert kaplan_yorke(np.array([0.5, -1.0])) == 1.5 and kaplan_yorke(np.array([0.5, -np.inf])) == 1


def test_what_is_refused():
    logistic, gru = kernel(LOGISTIC), kernel("gru")
    params = gru.init(D=2, H=3, seed=1)
    with pytest.raises(RnnspecError, match="explode"):
        lyapunov(logistic, {"r": np.array(5.0)}, {}, states={"x": np.full(1, 0.4)})
    with pytest.raises(ShapeError, match="k is from 1 to 1"):
        lyapunov(logistic, {"r": np.array(3.0)}, {}, 2, states={"x": np.full(1, 0.4)})
    with pytest.raises(ShapeError, match="have 30 steps"):
        lyapunov(gru, params, {"x": np.zeros((30, 1, 2))}, steps=20, warmup=10, settle=5)
    with pytest.raises(ShapeError, match="are left to count"):
        lyapunov(gru, params, {"x": np.zeros((30, 1, 2))})
    with pytest.raises(ShapeError, match="all held"):
        lyapunov(gru, params, {"x": np.zeros((30, 2))})
    with pytest.raises(UnsupportedError, match="'lif' calls"):
        lyapunov(kernel("lif"), {}, {})
