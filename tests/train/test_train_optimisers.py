"""Clipping, optimisers and schedules. Fault numbers are those of the list of known faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from train_parts import mini_run

from rnnspec.train import (
    SGD,
    Adam,
    AdamW,
    Diverged,
    TrainError,
    clip_global_norm,
    clip_value,
    global_norm,
    learning_rate,
    train,
)
from rnnspec.train.compiled import PIECE, add_rows
from rnnspec.train.optimise import make_optimiser
from rnnspec.train.schedules import SCHEDULES


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_h72_a_norm_that_is_not_finite_is_reported_and_nothing_is_scaled(bad):
    grads = {"a": np.array([bad, 1], np.float32)}
    before = grads["a"].copy()
    norm = clip_global_norm(grads, 1.0)
    assert norm == abs(bad) or (math.isnan(norm) and math.isnan(bad))
    with pytest.raises(TrainError, match="not finite in a"):
        clip_global_norm(grads, 1.0, error_if_nonfinite=True)
    assert np.array_equal(grads["a"], before, equal_nan=True)


def test_h72_the_loop_skips_the_step():
    run = mini_run()
    weights = {name: p.copy() for name, p in run.model.params.items()}
    backward = run.model.layer.backward
    run.model.layer.backward = lambda dy: (np.full_like(backward(dy)[0], np.nan), None)
    run.state = np.ones((1, 4, 12), np.float32)
    reports = train(run)
    next(reports)  # the snapshot before the first step
    report = next(reports)
    assert (
        math.isnan(report.loss)
        and run.skipped == 1
        and run.state is None
        and run.optimiser["step"] == 0
        and "embed.weight" in report.trouble
    )
    assert all(np.array_equal(weights[name], p) for name, p in run.model.params.items())
    run.model.layer.backward = backward
    assert math.isfinite(next(reports).loss) and run.optimiser["step"] == 1


def test_h72_training_that_only_skips_stops():
    run = mini_run()
    run.model.head["bias"][0] = np.nan
    with np.errstate(invalid="ignore"), pytest.raises(Diverged, match=r"20 steps in a row.*smaller --lr"):
        list(train(run))


@pytest.mark.parametrize("theta", [1.0, 0.0])
def test_h73_zero_gradients_stay_zero(theta):
    grads = {"a": np.zeros(2, np.float32)}
    assert clip_global_norm(grads, theta) == 0
    assert grads["a"].tolist() == [0, 0]


def test_clip_is_exact_and_global():
    grads = {"a": np.array([[3.0]]), "b": np.array([4.0])}
    assert clip_global_norm(grads, 5.0) == 5 and grads["a"] == 3  # at the bound: untouched, no epsilon
    assert clip_global_norm(grads, 1.0) == 5
    assert grads["a"][0, 0] == 3.0 * (1 / 5) and grads["b"][0] == 4.0 * (1 / 5)
    for theta in (-1.0, math.nan):
        with pytest.raises(TrainError, match="0 or more"):
            clip_global_norm(grads, theta)


def test_norm_does_not_overflow():
    assert global_norm({"a": np.array([3e38, 3e38], np.float32)}) == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)
    assert global_norm({"a": np.array([3e300]), "b": np.array([4e300])}) == pytest.approx(5e300)


def test_clipping_by_value_keeps_nan():
    grads = {"a": np.array([-3.0, 0.5, np.nan, np.inf])}
    clip_value(grads, 1.0)
    np.testing.assert_array_equal(grads["a"], [-1, 0.5, np.nan, 1])
    with pytest.raises(TrainError, match="0 or more"):
        clip_value(grads, -1.0)


# --- optimisers ---


@pytest.mark.parametrize(
    "ours, theirs, settings",
    [
        (SGD(0.1), "SGD", {"lr": 0.1}),
        (SGD(0.1, momentum=0.9), "SGD", {"lr": 0.1, "momentum": 0.9}),
        (SGD(0.05, momentum=0.8, nesterov=True), "SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
        (Adam(4e-3), "Adam", {"lr": 4e-3}),
        (Adam(1e-2, betas=(0.8, 0.95), eps=1e-4), "Adam", {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-4}),
        (AdamW(4e-3), "AdamW", {"lr": 4e-3}),
        (AdamW(1e-2, decay=0.3), "AdamW", {"lr": 1e-2, "weight_decay": 0.3}),
    ],
)
def test_optimisers_equal_torch_over_100_steps(ours, theirs, settings):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    params = {"a": rng.standard_normal((5, 3)), "b": rng.standard_normal(4)}
    copies = [torch.nn.Parameter(torch.tensor(p)) for p in params.values()]
    state, optimiser = ours.init(params), getattr(torch.optim, theirs)(copies, **settings)
    for _ in range(100):
        grads = {name: rng.standard_normal(p.shape) for name, p in params.items()}
        for copy, g in zip(copies, grads.values(), strict=True):
            copy.grad = torch.tensor(g)
        ours.step(params, grads, state)
        optimiser.step()
    for p, copy in zip(params.values(), copies, strict=True):
        np.testing.assert_allclose(p, copy.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("optimiser", [SGD(0.1, momentum=0.9), SGD(0.1), Adam(0.1), AdamW(0.1)])
def test_optimisers_work_in_place_and_keep_float32(optimiser):
    p = np.ones(3, np.float32)
    g = np.full(3, 0.5, np.float32)
    state = optimiser.init({"p": p})
    optimiser.step({"p": p}, {"p": g}, state)
    optimiser.step({"p": p}, {"p": g}, state, lr=0.0)
    assert p.dtype == np.float32 and (p < 1).all() and (g == 0.5).all() and state["step"] == 2
    assert all(a.dtype == np.float32 for name, a in state.items() if name != "step")


def test_large_arrays_in_pieces_and_threads_give_the_same_bits():
    rng = np.random.default_rng(4)
    size = (5 * PIECE + 7,)
    start, grads = rng.standard_normal(size).astype(np.float32), rng.standard_normal(size).astype(np.float32)
    found = []
    for threads, cut in ((1, 1), (3, 1), (1, 11)):  # the last: the same numbers as small arrays
        params = {str(i): part.copy() for i, part in enumerate(np.array_split(start, cut))}
        parts = {str(i): part for i, part in enumerate(np.array_split(grads, cut))}
        optimiser = AdamW(1e-2, threads=threads)
        state = optimiser.init(params)
        for _ in range(3):
            optimiser.step(params, parts, state)
        found.append(np.concatenate(list(params.values())))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_parameters_that_are_not_contiguous_are_trained_too():
    whole = np.ones((2, PIECE + 3), np.float32)
    p = whole[:, ::2]
    optimiser = Adam(0.1)
    optimiser.step({"p": p}, {"p": np.ones_like(p)}, optimiser.init({"p": p}))
    assert (whole[:, ::2] < 1).all() and (whole[:, 1::2] == 1).all()


def test_settings_that_would_be_ignored_are_refused():
    assert make_optimiser("sgd", 0.1, momentum=0.9) == SGD(0.1, 0.9) and make_optimiser(
        "adamw", 0.1, decay=0.2
    ) == AdamW(0.1, decay=0.2)
    for arguments, message in (
        (("adam", 0.1, 0.5), "decay has no effect on adam"),
        (("adamw", 0.1, 0.1, 0.9), "momentum has no effect on adamw"),
        (("lion", 0.1), "unknown optimiser 'lion'"),
    ):
        with pytest.raises(TrainError, match=message):
            make_optimiser(*arguments)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_0_and_the_rate(name):
    rates = [learning_rate(name, 2.0, i / 100) for i in range(101)]
    assert min(rates) >= 0 and max(rates) <= 2.0 and max(rates) > 1.9


def test_learning_rate_is_flat_then_falls():
    assert learning_rate("flat-cosine", 1.0, 0.0) == learning_rate("flat-cosine", 1.0, 0.5) == 1.0
    rates = [learning_rate("flat-cosine", 1.0, 0.5 + i / 20) for i in range(11)]
    assert rates == sorted(rates, reverse=True) and rates[-1] == pytest.approx(0.05)


@pytest.mark.parametrize("shift", [1, -1])
def test_a_gradient_that_overlaps_its_parameter_is_read_before_it_is_overwritten(shift):
    room = np.arange(1.0, 203.0) / 10
    results = []
    for shared in (True, False):
        memory = room.copy()
        p, g = memory[1:201], memory[1 + shift :][:200]
        params, grads = {"a": p if shared else p.copy()}, {"a": g if shared else g.copy()}
        adam = Adam()
        adam.step(params, grads, adam.init(params))
        results.append(params["a"])
    np.testing.assert_array_equal(*results)


def test_rows_that_lie_in_the_table_are_read_before_it_is_changed():
    table = np.arange(18.0).reshape(6, 3)
    expected = table.copy()
    np.add.at(expected, [1, 2, 3], table[:3].copy())
    add_rows(table, np.array([1, 2, 3]), table[:3])
    np.testing.assert_array_equal(table, expected)


def test_a_parameter_with_one_memory_for_several_numbers_is_refused():
    for optimiser in (SGD(0.1), Adam()):
        params = {"a": np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))}
        with pytest.raises(TrainError, match="one memory for several"):
            optimiser.step(params, {"a": np.ones(3)}, optimiser.init(params))
