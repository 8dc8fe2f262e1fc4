"""Weights packed once and steps that come one by one: the same values as a whole sequence, bit by
bit, and errors that help."""

from __future__ import annotations

import gc
import pickle
import threading

import numpy as np
import pytest
from cells import case, kernel, reference_stages
from forms import FORMS
from tiny import cell

import rnnspec
import rnnspec.engine.weights
from rnnspec import DtypeError, ShapeError
from rnnspec.backends import reference

CELLS = ["lstm", "gru_reset_before", "indrnn", "lstm_projected", *FORMS.values()]


@pytest.mark.parametrize("name", CELLS, ids=lambda n: n if "\n" not in n else "form")
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_stream_is_a_sequence(name, rows):
    own = kernel(name)
    c = case(own, 5, rows)
    run = own.infer(c.params, c.inputs, c.states)
    stream = own.stream(c.params, c.states, rows=rows, **c.sizes)
    for t in range(5):
        assert stream.t == t
        outputs = stream.step({n: a[t] for n, a in c.inputs.items()})
        for o, y in run.outputs.items():
            np.testing.assert_array_equal(outputs[o], y[t])
    for s, a in run.final.items():
        np.testing.assert_array_equal(stream.states[s], a)
    stream.reset(c.states)
    assert stream.t == 0
    for o, a in stream.step({n: a[0] for n, a in c.inputs.items()}).items():
        np.testing.assert_array_equal(a, run.outputs[o][0])


@pytest.mark.parametrize("name", CELLS[:2])
def test_packed_weights_go_wherever_parameters_go(name):
    own = kernel(name)
    c = case(own, 4, 3)
    weights = own.pack(c.params)
    plain, packed = own.forward(c.params, c.inputs, c.states), own.forward(weights, c.inputs, c.states)
    dy = {o: np.ones_like(y) for o, y in plain.outputs.items()}
    for p, a in own.backward(plain, dy).params.items():
        np.testing.assert_array_equal(own.backward(packed, dy).params[p], a)
    np.testing.assert_array_equal(own.infer(weights, c.inputs, c.states).outputs["h"], plain.outputs["h"])
    np.testing.assert_array_equal(
        own.stream(weights, c.states, rows=3).step({"x": c.inputs["x"][0]})["h"], plain.outputs["h"][0]
    )
    one = own.step(weights, {"x": c.inputs["x"][0]}, c.states)
    np.testing.assert_array_equal(one.outputs["h"], plain.outputs["h"][0])
    np.testing.assert_array_equal(own.step(weights, {"x": c.inputs["x"][1]}, one).outputs["h"], plain.outputs["h"][1])
    again = pickle.loads(pickle.dumps(weights))
    np.testing.assert_array_equal(own.infer(again, c.inputs, c.states).outputs["h"], plain.outputs["h"])


def test_weights_are_a_copy_and_packed_once(monkeypatch):
    from rnnspec.backends.cpu.launch import pack

    own = kernel("lstm")
    c = case(own, 3, 2)
    weights, before = own.pack(c.params), own.infer(c.params, c.inputs).outputs["h"]
    own.infer(weights, c.inputs)
    calls = []
    monkeypatch.setattr(pack, "pack", lambda *args: calls.append(args))
    for array in c.params.values():
        array[...] = np.nan
    np.testing.assert_array_equal(own.infer(weights, c.inputs).outputs["h"], before)
    assert not calls
    with pytest.raises(ValueError, match="read-only"):
        weights.params["W_i"][0] = 1


def test_streams_do_not_meet():
    own = kernel("gru")
    c = case(own, 50, 2)
    weights = own.pack(c.params)
    wanted, found = own.infer(weights, c.inputs).outputs["h"][-1], []

    def follow() -> None:
        stream = own.stream(weights, rows=2)
        for t in range(50):
            stream.step({"x": c.inputs["x"][t]})
        state = None
        for t in range(50):
            state = own.step(weights, {"x": c.inputs["x"][t]}, state)
        found.extend([stream.outputs["h"], state["h"]])

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for a in found:
        np.testing.assert_array_equal(a, wanted)


def test_any_strides_go_in():
    own = kernel("lstm")
    c = case(own, 1, 4)
    stream = own.stream(c.params, rows=4)
    x = c.inputs["x"][0]
    wanted = stream.step({"x": x})["h"].copy()
    for view in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x[::-1][::-1]):
        stream.reset()
        np.testing.assert_array_equal(stream.step({"x": view})["h"], wanted)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda k, w, x: k.stream(w, rows=-1), ValueError, "rows must be a whole number of at least 0"),
        (lambda k, w, x: k.stream(w, rows=2, Q=3), ShapeError, "no size 'Q'"),
        (lambda k, w, x: k.stream(w, rows=2, H=99), ShapeError, "size H is 99 here"),
        (lambda k, w, x: k.stream(w, {"h": x}, rows=2), ShapeError, "state 'h' has shape"),
        (lambda k, w, x: k.stream(w, rows=2).step({"x": x[:1]}), ShapeError, "input 'x' has shape"),
        (lambda k, w, x: k.stream(w, rows=2).step({"x": x[0]}), ShapeError, "input 'x' has shape"),
        (lambda k, w, x: k.stream(w, rows=2).step({"x": x.astype("float16")}), DtypeError, "dtype float16"),
        (lambda k, w, x: k.stream(w, rows=2).step({"y": x}), ShapeError, "unknown input 'y'"),
        (lambda k, w, x: k.stream(w, rows=2).step({}), ShapeError, "missing input 'x'"),
        (lambda k, w, x: k.stream(w, rows=2).step(x), DtypeError, "must be a dict"),
        (lambda k, w, x: pickle.dumps(k.stream(w)), TypeError, "can't be copied or pickled"),
        (lambda k, w, x: kernel("gru").infer(w, {"x": x[None]}), ValueError, "packed for Kernel\\(lstm"),
        (lambda k, w, x: k.pack({"W_i": x}), ShapeError, "missing parameter"),
    ],
)
def test_messages(call, error, message):
    own = kernel("lstm")
    c = case(own, 1, 2)
    with pytest.raises(error, match=message):
        call(own, own.pack(c.params), c.inputs["x"][0])


def test_sizes_that_the_parameters_do_not_tell_are_asked_for():
    own = rnnspec.compile(kernel(FORMS["the number of the step"]).spec)
    with pytest.raises(ShapeError, match="give H="):
        own.stream({})
    assert own.stream({}, H=4).step({"x": np.ones((1, 4), np.float32)})["h"].shape == (1, 4)


CLOCK = cell("h[t] = w * x[t] + t", name="clock", inputs="{x: H}", states="{h: H}", parameters="{w: [H]}")


def test_a_single_step_is_step_0_however_often():
    own = kernel(CLOCK)
    c = case(own, 1, 2)
    weights = own.pack(c.params)
    wanted = own.infer(c.params, c.inputs).outputs["h"][0]
    for params in (c.params, weights, weights, weights):
        np.testing.assert_array_equal(own.step(params, {"x": c.inputs["x"][0]})["h"], wanted)
    stream = own.stream(weights, rows=2)
    assert [stream.step({"x": np.zeros_like(c.inputs["x"][0])})["h"][0, 0] for _ in range(3)] == [0, 1, 2]


def test_steps_with_plain_parameters_leave_nothing_to_collect():
    own = kernel("lstm")
    c = case(own, 1, 1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):  # after some the weights are kept, once
            own.step(c.params, {"x": c.inputs["x"][0]})
        before = sum(isinstance(o, rnnspec.engine.weights.Weights) for o in gc.get_objects())
        for _ in range(5):
            own.step(c.params, {"x": c.inputs["x"][0]})
        assert sum(isinstance(o, rnnspec.engine.weights.Weights) for o in gc.get_objects()) == before
    finally:
        gc.enable()


MATRIX = cell(
    "C[t] = 0.5 * C[t-1] + outer(x[t], x[t])\nM[t] = 2 * outer(x[t], x[t]) + C[t-1]",
    name="matrix",
    inputs="{x: H}",
    states="{C: [H, H]}",
    outputs="[C, M]",
)


@pytest.mark.parametrize("H", [1, 2, 5, 17])
def test_matrices_come_out_whole(H):
    own = kernel(MATRIX)
    c, made = case(own, 4, 3, H=H), reference_stages(MATRIX)
    run = own.forward(c.params, c.inputs, c.states)
    want = reference.forward(made.graph, c.params, c.inputs, c.states, sizes=c.sizes)
    dy = {o: np.asfortranarray(a) for o, a in c.dy.items()}
    grad, wanted = (
        own.backward(run, dy, final=c.dfinal),
        reference.backward(made.adjoint, c.params, c.inputs, want, c.dy, c.dfinal, sizes=c.sizes),
    )
    for got, expected in (
        (run.outputs, want.outputs),
        (run.final, want.final),
        (grad.inputs, wanted.inputs),
        (grad.states, wanted.states),
    ):
        for name, a in got.items():
            np.testing.assert_allclose(a, expected[name], rtol=1e-12, atol=1e-12)
    stream = own.stream(c.params, c.states, rows=3, H=H)
    for t in range(4):
        for o, a in stream.step({"x": c.inputs["x"][t]}).items():
            np.testing.assert_array_equal(a, run.outputs[o][t])


@pytest.mark.parametrize("threads", [1, 2])
def test_states_are_written_in_place_and_old_ones_can_not_be(threads):
    own, rows = kernel("lstm", threads=threads), 80
    c = case(own, 3, rows)
    first = {"x": c.inputs["x"][0]}
    stream, fresh = own.stream(c.params, rows=rows), own.infer(c.params, {"x": c.inputs["x"][:1]}).outputs["h"][0]
    stream.step({"x": c.inputs["x"][1]})
    h = stream.states["h"]
    for array in stream.states.values():
        array[1:] = 0
    found = stream.step(first)["h"].copy()
    np.testing.assert_array_equal(found[1:], fresh[1:])
    assert not np.array_equal(found[0], fresh[0])
    with pytest.raises(ValueError, match="read-only"):
        h[0] = 1
    kept = stream.states
    for array in kept.values():
        array[...] = 0
    stream.reset(rows=[3])
    np.testing.assert_array_equal(stream.step(first)["h"], fresh)
    with pytest.raises(ValueError, match="read-only"):
        kept["h"][...] = 1
    for change in (lambda s: s.update(h=h), lambda s: s.pop("h"), lambda s: s.__setitem__("h", h)):
        with pytest.raises(TypeError, match=r"changed in place.*stream.states\['h'\]\[...\] = value"):
            change(stream.states)
    own_h = stream.states["h"]
    own_h.shape = (1, *own_h.shape)  # that of the caller's array object alone
    stream.step(first)


def test_a_count_of_steps_is_written_too():
    own, one = kernel(CLOCK), np.ones((2, 3))
    stream, w = own.stream({"w": one[0]}, rows=2), {"w": one[0]}
    stream.states["t"][...] = [5, 0]
    np.testing.assert_array_equal(stream.counts, [5, 0])
    wanted = own.step(w, {"x": one}, {"h": 0 * one, "t": np.array([5, 0])})
    np.testing.assert_array_equal(stream.step({"x": one})["h"], wanted.outputs["h"])
    np.testing.assert_array_equal(stream.counts, [6, 1])
    stream.states["t"][0] = -1
    with pytest.raises(ValueError, match="from 0 to 2"):
        stream.step({"x": one})
    stream.states["t"][0] = 6
    stream.step({"x": one})
    assert stream.t == 2


def test_parameters_are_those_of_before_until_refresh():
    own = kernel("gru")
    c = case(own, 3, 2)
    other = {n: a * 0.5 for n, a in c.params.items()}
    stream, same = own.stream(c.params, rows=2), own.stream(own.pack(c.params), rows=2)
    x = [{"x": a} for a in c.inputs["x"]]
    stream.step(x[0]), same.step(x[0])
    for name, array in c.params.items():
        array[...] = other[name]
    np.testing.assert_array_equal(stream.step(x[1])["h"], same.step(x[1])["h"])
    before = {n: a.copy() for n, a in stream.states.items()}
    stream.refresh(c.params)
    assert stream.t == 2
    np.testing.assert_array_equal(stream.step(x[2])["h"], own.step(other, x[2], before).outputs["h"])
    with pytest.raises(ShapeError, match="size H is"):
        stream.refresh(own.init(D=c.sizes["D"], H=c.sizes["H"] + 1))
    with pytest.raises(ShapeError, match="missing parameter"):
        stream.refresh({})


@pytest.mark.parametrize("name", ["lstm", "gru", "lstm_projected", "mlstm_matrix", "phased_lstm"])
def test_a_step_gives_what_forward_and_infer_give(name):
    own = kernel(name)
    c = case(own, 1, 3)
    step = own.step(c.params, {n: a[0] for n, a in c.inputs.items()}, c.states)
    runs = own.forward(c.params, c.inputs, c.states), own.infer(c.params, c.inputs, c.states)
    assert {n for n in dir(runs[1]) if n[0] != "_"} <= {n for n in dir(step) if n[0] != "_"}
    assert step.final == step and list(step) == list(step.final)
    for run in runs:
        assert list(step.final) == list(run.final) and list(step.outputs) == list(run.outputs)
        for found, wanted in [(step.final[n], run.final[n]) for n in run.final] + [
            (step.outputs[n], run.outputs[n][0]) for n in run.outputs
        ]:
            np.testing.assert_array_equal(found, wanted)
            for what in ("dtype", "shape", "strides"):
                assert getattr(found, what) == getattr(wanted, what)
            assert found.flags.writeable and found.flags.c_contiguous
    step.final["h"] = None  # a dict of its own
    assert step["h"] is not None
