"""Streams that learn: `kernel.online` beside `backward`, updates on the way, what is kept and what
is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from cells import Case, case, kernel

from rnnspec.check import check_property
from rnnspec.engine.dense import Dense, Flat
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.online import Online
from rnnspec.engine.units import GATHERED
from rnnspec.errors import DtypeError, ShapeError, UnsupportedError

UNITS = ["indy_lstm", "sru"]  # the influence stays with units; an output that is no state


def started(one: Case, **settings: Any) -> Online:
    return one.kernel.online(one.params, one.states, rows=one.inputs["x"].shape[1], **one.sizes, **settings)


def learned(one: Case, stream: Online, steps: range | None = None) -> list[dict[str, np.ndarray]]:
    """The gradient that each step of a case gives."""
    found = []
    for t in steps or range(len(one.inputs["x"])):
        stream.step({n: a[t] for n, a in one.inputs.items()})
        found.append(stream.learn({n: a[t] for n, a in one.dy.items()}))
    return found


def assert_near(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], what: str = "") -> None:
    """The same but for rounding, by the largest gradient."""
    largest = max(np.abs(a).max() for a in expected.values())
    for name, array in expected.items():
        assert found[name].shape == array.shape, f"{what} {name}"
        assert np.abs(found[name] - array).max() <= 1e-12 * largest, f"{what} {name}"


def summed(found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {n: np.sum([g[n] for g in found], axis=0) for n in found[0]}


@pytest.mark.parametrize("name", UNITS)
def test_gradients_are_those_of_a_backward_pass(name):
    """All of them together, and each alone; over more steps than are gathered."""
    one = case(kernel(name), GATHERED + 5, 2)
    stream = started(one)
    found = learned(one, stream)
    run = one.forward()
    assert stream.by_units
    assert_near(summed(found), one.kernel.backward(run, one.dy).params)
    for t in (0, 3, GATHERED - 1, GATHERED, GATHERED + 4):
        alone = {n: np.where(np.arange(len(a)).reshape(-1, 1, 1) == t, a, 0) for n, a in one.dy.items()}
        assert_near(found[t], one.kernel.backward(run, alone).params, f"step {t}")
    for name, array in stream.outputs.items():
        np.testing.assert_allclose(array, run.outputs[name][-1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sru", "lstm"])
def test_the_property_of_check(name):
    """Ragged rows, one of which starts again; an influence by units, and one as a matrix."""
    result = check_property(name, "online", "float64")
    assert result.passed and result.measured is not None, result.detail


def test_updates_after_every_step():
    """Two ways to keep one influence: what parameters were at each step counts."""
    one = case(kernel("indy_lstm"), GATHERED + 3, 1)
    stream, weights = started(one), one.kernel.pack(one.params)
    whole = Dense(one.kernel, Flat(one.kernel.cell, ["h", "c"], Sizes(one.sizes)), 1)
    rng = np.random.default_rng(0)
    for t in range(GATHERED + 3):
        whole.use(weights)
        now = {n: a[t] for n, a in one.inputs.items()}
        whole.step(now, dict(stream.states))
        stream.step(now)
        expected = whole.gradients({"h": one.dy["h"][t]}, {})
        assert_near(stream.learn({"h": one.dy["h"][t]}), expected, f"step {t}")
        params = {n: a - 0.1 * expected[n] + 0.01 * rng.normal(size=a.shape) for n, a in weights.params.items()}
        weights = one.kernel.pack(params)
        stream.refresh(weights)


def test_a_row_that_starts_again_has_no_past():
    one = case(kernel("indy_lstm"), GATHERED + 8, 3)
    first = started(one)
    learned(one, first, range(GATHERED + 2))
    begin = {n: a[1:2] for n, a in one.states.items()}
    first.reset(begin, rows=[1])
    last = learned(one, first, range(GATHERED + 2, GATHERED + 8))[-1]
    run = one.forward()
    alone = {n: np.zeros_like(a) for n, a in one.dy.items()}
    alone["h"][-1, [0, 2]] = one.dy["h"][-1, [0, 2]]
    expected = one.kernel.backward(run, alone).params
    again = one.kernel.forward(one.params, {n: a[GATHERED + 2 :, 1:2] for n, a in one.inputs.items()}, begin)
    alone = {"h": np.zeros_like(again.outputs["h"])}
    alone["h"][-1] = one.dy["h"][-1, 1:2]
    more = one.kernel.backward(again, alone).params
    assert_near(last, {n: a + more[n] for n, a in expected.items()})


def test_a_whole_reset_is_a_new_stream():
    one = case(kernel("indy_lstm"), 4, 2)
    stream = started(one)
    first = learned(one, stream)
    stream.reset(one.states)
    assert_near(summed(learned(one, stream)), summed(first))


def test_what_is_too_much_is_refused_with_the_cost():
    lstm = kernel("lstm")
    params = lstm.init(D=5, H=3)
    with pytest.raises(UnsupportedError, match=r"leads from each unit to all others.*limit=648"):
        lstm.online(params, limit=600)
    assert not lstm.online(params, limit=648).by_units


def test_what_is_wrong_is_told():
    one = case(kernel("indy_lstm"), 2, 2)
    stream = started(one)
    with pytest.raises(ValueError, match="rule must be one of 'exact'"):
        one.kernel.online(one.params, rule="bptt")
    with pytest.raises(ValueError, match="call step"):
        stream.learn({"h": one.dy["h"][0]})
    stream.step({"x": one.inputs["x"][0]})
    with pytest.raises(ShapeError, match="expected \\(2, 5\\)"):
        stream.learn({"h": one.dy["h"][0, :1]})
    with pytest.raises(ShapeError, match="unknown gradient of output 'c'"):
        stream.learn({"c": one.dy["h"][0]})
    with pytest.raises(DtypeError):
        stream.learn({"h": one.dy["h"][0].astype(np.float32)})
    stream.reset()
    with pytest.raises(ValueError, match="call step"):
        stream.learn({"h": one.dy["h"][0]})


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps():
    one = case(kernel("indy_lstm", "float32"), 1, 1, H=8, D=4)
    stream, peaks = started(one), []
    now, flow = {"x": one.inputs["x"][0]}, {"h": one.dy["h"][0]}
    for steps in (1_000, 1_000_000):
        tracemalloc.start()
        for t in range(steps):
            stream.step(now)
            if t % 10 == 0:
                stream.learn(flow)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 10_000
