"""The compiled passes of training against their formulas: every size about a vector, both dtypes,
any layout, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rnnspec.train import SGD, Adam, AdamW, TrainError
from rnnspec.train.compiled import PIECE, add_rows, sum_of_squares
from rnnspec.train.heads import embed, embed_backward

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
        np.testing.assert_allclose(
            got, want, atol=EPSILONS * np.finfo(dtype).eps * max(1.0, float(np.abs(want).max(initial=0))), rtol=0
        )


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


def test_what_is_no_table_or_no_id_is_refused():
    """A table of three axes passed the check of its second one: rows of 100 would have been written
    behind an empty array."""
    ids, row = np.zeros(1, int), np.ones((1, 100), np.float32)
    for table in (np.zeros((5, 100, 0), np.float32), np.zeros(5, np.float32), np.zeros((5, 100, 2), np.float32)):
        with pytest.raises(ValueError, match="for 1 ids and a table of shape"):
            add_rows(table, ids, row)
    table = np.zeros((5, 100), np.float32)
    for wrong in (np.array([0.7]), np.array([True]), np.array([np.nan])):
        with pytest.raises(TrainError, match="ids must be integers"):
            add_rows(table, wrong, row)
        with pytest.raises(TrainError, match="ids must be integers"):
            embed({"weight": table}, wrong)
    with pytest.raises(IndexError, match="got 18446744073709551615"):
        add_rows(table, np.array([2**64 - 1], np.uint64), row)
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 5\); got -1"):  # NumPy would take the last row
        embed({"weight": table}, np.array([-1]))
    with pytest.raises(TrainError, match="got dtype complex"):
        add_rows(table, ids, row.astype(complex))
    with pytest.raises(TrainError, match=r"of \[2, 1\] embedded ids of 100 features has shape \[100, 2\]"):
        embed_backward({"weight": table}, np.zeros((2, 1), int), np.ones((100, 2), np.float32))
    assert not table.any()


@pytest.mark.parametrize("optimiser", [SGD(0.1, momentum=0.5), Adam(0.1)], ids=["sgd", "adam"])
@pytest.mark.parametrize("bad", ["shape", "broadcast", "complex", "missing", "moment", "dtype"])
def test_a_step_that_fails_has_changed_nothing(optimiser, bad):
    params = {"a": np.ones(3, np.float32), "b": np.ones((3, 2))}
    grads, state = {name: np.ones_like(p) for name, p in params.items()}, optimiser.init(params)
    match bad:
        case "shape":
            grads["b"] = np.ones(6)
        case "broadcast":
            grads["b"] = np.ones((3, 1))
        case "complex":
            grads["b"] = np.ones((3, 2), complex)
        case "missing":
            del grads["b"]
        case "moment":
            del state["v.b"]
        case "dtype":
            state["v.b"] = np.zeros((3, 2), np.float32)
    with pytest.raises(TrainError):
        optimiser.step(params, grads, state)
    assert all((p == 1).all() for p in params.values()) and state["step"] == 0 and not state["v.a"].any()


def test_parameters_that_share_memory_are_refused():
    whole = np.ones((4, 6), np.float32)
    for optimiser in (Adam(0.1), SGD(0.1)):
        with pytest.raises(TrainError, match="the parameters a and b share memory"):
            optimiser.init({"a": whole, "c": np.ones(2), "b": whole[1:3, ::2]})
        optimiser.init({"a": whole[:, ::2], "b": whole[:, 1::2]})  # side by side in the same memory


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Adam(-1.0), "lr must be 0 or more"),
        (lambda: SGD(math.nan), "lr must be 0 or more"),
        (lambda: Adam(0.1, betas=(0.9, 1.0)), "betas must be at least 0 and below 1"),
        (lambda: Adam(0.1, eps=-1e-8), "eps must be 0 or more"),
        (lambda: Adam(0.1, threads=0), "threads must be at least 1"),  # large parameters would not have moved at all
        (lambda: AdamW(0.1, decay=-1.0), "decay must be 0 or more"),
        (lambda: SGD(0.1, momentum=-0.1), "momentum must be 0 or more"),
        (lambda: SGD(0.1, nesterov=True), "nesterov has no effect without momentum"),
    ],
)
def test_numbers_of_an_optimiser_are_checked(make, message):
    with pytest.raises(TrainError, match=message):
        make()
