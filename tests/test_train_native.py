"""The compiled passes of training against their formulas: every size about a vector, both dtypes, any layout, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rnnspec.train import Adam, AdamW, TrainError
from rnnspec.train.native import PIECE, add_rows, sum_of_squares

SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 31, 127, PIECE - 1, PIECE + 1)
EPSILONS = 4  # of the dtype, on numbers of about 1: each value is rounded a few times


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_adamw_equals_its_formula(size, dtype):
    rng = np.random.default_rng(size)
    p, g, m, v = (rng.standard_normal(size).astype(dtype) for _ in range(4))
    state = {"step": np.array(4), "m.p": m.copy(), "v.p": np.abs(v)}
    optimiser, moved = AdamW(1e-2, betas=(0.8, 0.95), decay=0.1), p.copy()
    optimiser.step({"p": moved}, {"p": g}, state)
    b1, b2 = optimiser.betas
    p, g, m, v = (a.astype(np.float64) for a in (p, g, m, np.abs(v)))
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    p = p * (1 - 1e-2 * 0.1) - 1e-2 * (m / (1 - b1**5)) / (np.sqrt(v / (1 - b2**5)) + optimiser.eps)
    for got, want in ((moved, p), (state["m.p"], m), (state["v.p"], v)):
        np.testing.assert_allclose(got, want, atol=EPSILONS * np.finfo(dtype).eps * max(1.0, float(np.abs(want).max(initial=0))), rtol=0)


def test_nan_and_infinity_stay_where_they_are():
    p, g = np.ones(35, np.float32), np.ones(35, np.float32)
    g[3], g[33] = np.nan, np.inf
    optimiser = Adam(0.1)
    optimiser.step({"p": p}, {"p": g}, optimiser.init({"p": p}))
    assert np.flatnonzero(np.isnan(p)).tolist() == [3, 33]  # inf / sqrt(inf**2) is NaN too


def test_what_adam_refuses():
    optimiser = Adam(0.1)
    p = np.ones((3, 4), np.float32)
    state = optimiser.init({"p": p})
    with pytest.raises(TrainError, match=r"shape \(3, 4\) has a gradient of \(4, 3\)"):
        optimiser.step({"p": p}, {"p": np.ones((4, 3), np.float32)}, state)
    half = p.astype(np.float16)
    with pytest.raises(TrainError, match="float32 and float64, and not float16"):
        optimiser.step({"p": half}, {"p": half}, optimiser.init({"p": half}))
    with pytest.raises(TrainError, match="float32 has moments of float64"):
        optimiser.step({"p": p}, {"p": p}, optimiser.init({"p": p.astype(float)}))
    fixed = p.copy()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        optimiser.step({"p": fixed}, {"p": p}, state)
    assert (fixed == 1).all()


def test_moments_in_another_order_and_gradients_of_another_dtype():
    rng = np.random.default_rng(1)
    p, g = rng.standard_normal((2, 5, 7)).astype(np.float32)
    optimiser = Adam(0.1)
    plain, turned = p.copy(), np.asfortranarray(p)
    state = optimiser.init({"p": plain})
    others = {name: a.copy("F") for name, a in optimiser.init({"p": plain}).items()}
    optimiser.step({"p": plain}, {"p": g}, state)
    optimiser.step({"p": turned}, {"p": np.asfortranarray(g.astype(np.float64))}, others)
    np.testing.assert_array_equal(plain, turned)
    np.testing.assert_array_equal(state["m.p"], others["m.p"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_sum_of_squares_is_a_float64_sum(size, dtype):
    a = np.random.default_rng(size).standard_normal(size).astype(dtype)
    exact = math.fsum(float(x) * float(x) for x in a)
    assert sum_of_squares(a) == pytest.approx(exact, rel=1e-13, abs=0)
    assert sum_of_squares(np.repeat(a, 3)[::3]) == sum_of_squares(a)
    if size:
        a[-1] = np.inf
        assert sum_of_squares(a) == math.inf


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_rows_are_added_one_after_another(rows, width, dtype):
    rng = np.random.default_rng([rows, width])
    ids, values = rng.integers(0, 7, rows), rng.standard_normal((rows, 2 * width)).astype(dtype)[:, ::2]
    table = rng.standard_normal((7, width)).astype(dtype)
    want = table.copy()
    np.add.at(want, ids, values)
    add_rows(table, ids, values)
    np.testing.assert_array_equal(table, want)


@pytest.mark.parametrize("ids", [[-1], [7], [2**40]])
def test_ids_outside_the_table_are_refused(ids):
    table = np.zeros((7, 3), np.float32)
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 7\)"):
        add_rows(table, np.array(ids), np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="must lie in order"):
        add_rows(table[:, ::2], np.zeros(1, int), np.ones((1, 2), np.float32))
    assert not table.any()
