"""Weights that are found again: never old ones."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

import rnnspec
from rnnspec import transform
from rnnspec.engine.recent import MOST_BLIND, MOST_BYTES, PATIENCE, Recent

SIGHTS = PATIENCE + 3  # more than it takes until equal weights are kept


@pytest.fixture(scope="module")
def kernel():
    return rnnspec.compile("gru", threads=1)


def given(kernel, seed=0):
    rng = np.random.default_rng(seed)
    return kernel.init(D=3, H=5, seed=seed), rng.standard_normal((4, 2, 3), np.float32)


def fresh(kernel, params, x):
    """What comes out with weights that nobody has seen before."""
    return kernel.infer(kernel.pack(params), {"x": x}).outputs["h"]


def test_every_change_of_plain_parameters_is_seen(kernel):
    params, x = given(kernel)
    for name, array in params.items():
        for place in (0, -1):
            for _ in range(SIGHTS):
                kernel.infer(params, {"x": x})
                kernel.step(params, {"x": x[0]})
            array.reshape(-1)[place] += 0.25
            np.testing.assert_array_equal(kernel.infer(params, {"x": x}).outputs["h"], fresh(kernel, params, x), name)
            np.testing.assert_array_equal(
                kernel.step(params, {"x": x[0]})["h"], fresh(kernel, params, x[:1])[0], err_msg=name
            )


def test_gradients_are_of_the_weights_of_their_forward_run(kernel):
    params, x = given(kernel)
    dy = {"h": np.ones((4, 2, 5), np.float32)}
    wanted = kernel.backward(kernel.forward(kernel.pack(params), {"x": x}), dy)
    for _ in range(SIGHTS):
        run = kernel.forward(params, {"x": x})
    params["U_n"] += 1
    found = kernel.backward(run, dy)
    for name, array in wanted.params.items():
        np.testing.assert_array_equal(found.params[name], array, name)


@pytest.mark.parametrize("bits", [0x80000000, 0x7FC00001, 0xFFC00000, 1])
def test_a_bit_alone_is_a_change(bits):
    recent: Recent[object] = Recent()
    weights = {"w": np.zeros(3, np.float32)}
    found = [recent.find(weights, lambda kept: kept) for _ in range(SIGHTS)][-1]
    assert found is not None and found["w"].tobytes() == bytes(12)
    weights["w"].view(np.uint32)[1] = bits
    assert recent.find(weights, lambda kept: kept) is None
    found = [recent.find(weights, lambda kept: kept) for _ in range(SIGHTS)][-1]
    assert found["w"].view(np.uint32)[1] == bits


def test_the_same_numbers_in_another_shape_or_order_are_others():
    recent: Recent[object] = Recent()
    memory = np.arange(6, dtype=np.float32)
    for _ in range(SIGHTS):
        first = recent.find({"w": memory.reshape(2, 3)}, lambda kept: kept)
    assert first["w"].shape == (2, 3)
    assert recent.find({"w": memory.reshape(3, 2)}, lambda kept: kept) is None
    assert recent.find({"v": memory.reshape(2, 3)}, lambda kept: kept) is None
    for _ in range(SIGHTS):
        turned = recent.find({"w": memory.reshape(3, 2).T}, lambda kept: kept)
    np.testing.assert_array_equal(turned["w"], memory.reshape(3, 2).T)


def test_many_numbers_are_not_looked_at_and_few_are_kept():
    recent: Recent[object] = Recent()
    large = {"w": np.zeros(MOST_BYTES // 4 + 1, np.float32)}
    assert all(recent.find(large, lambda kept: kept) is None for _ in range(SIGHTS))
    tracemalloc.start()
    for i in range(100):
        recent.find({"w": np.full(MOST_BYTES // 4 - 1, i, np.float32)}, lambda kept: kept)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 12 * MOST_BYTES


def test_layers_see_every_change_of_their_weights():
    layer = rnnspec.Recurrent("lstm", 3, 4, num_layers=2, bidirectional=True, learn_initial=True, threads=1, seed=1)
    x = np.random.default_rng(0).standard_normal((5, 2, 3), np.float32)
    for name in layer.params:
        for _ in range(SIGHTS):
            layer.infer(x)
        layer.params[name].reshape(-1)[-1] += 0.5
        other = rnnspec.Recurrent("lstm", 3, 4, num_layers=2, bidirectional=True, learn_initial=True, threads=1)
        other.load_state_dict(layer.state_dict())
        np.testing.assert_array_equal(layer.infer(x)[0], other.infer(x)[0], err_msg=name)
    again = pickle.loads(pickle.dumps(layer))
    np.testing.assert_array_equal(copy.deepcopy(layer).infer(x)[0], again.infer(x)[0])


def test_noise_among_weights_is_drawn_in_every_call():
    layer = rnnspec.Recurrent(transform.dropconnect(rnnspec.load("gru"), 0.5), 3, 4, threads=1)
    x = np.ones((6, 2, 3), np.float32)
    seen = {layer(x)[0].tobytes() for _ in range(SIGHTS)}
    assert len(seen) == SIGHTS


def test_arrays_are_known_again_and_a_change_of_any_kind_is_seen():
    """What `again` skips is the checks of names and shapes, never the numbers."""
    recent: Recent[int] = Recent()
    given = {"W": np.arange(12, dtype=np.float32).reshape(3, 4).copy(), "b": np.ones(3, np.float32)}
    assert recent.again(given) is None and recent.again({}) is None
    for _ in range(SIGHTS):
        made = recent.find({n: a.view() for n, a in given.items()}, lambda arrays: 7, given)
    assert made == 7 and recent.again(given) == 7 and recent.again(dict(given)) == 7

    def changed(name, how):
        array, kept = given[name], given[name].copy()
        how(array)
        seen = recent.again(given)
        array[...] = kept
        return seen

    assert changed("W", lambda a: a.__setitem__((2, 3), 5)) is None
    assert changed("b", lambda a: a.view(np.int32).__iadd__(1)) is None
    assert recent.again(given) == 7, "equal numbers again"
    assert recent.again({**given, "b": given["b"].copy()}) == 7, "what is equal"
    assert recent.again({**given, "b": given["b"].tolist()}) is None, "no array"
    assert recent.again({"W": given["W"]}) is None and recent.again({**given, "c": given["b"]}) is None
    given["W"].shape = (4, 3)
    assert recent.again(given) is None
    given["W"].shape = (3, 4)
    assert recent.again(given) == 7
    given["b"].dtype = np.int32
    assert recent.again(given) is None
    given["b"].dtype = np.float32
    given["b"].resize(4)  # not kept from it
    assert recent.again(given) is None


def test_weights_that_change_in_every_call_are_seldom_looked_at_and_found_when_they_stop():
    recent: Recent[float] = Recent()
    array = np.zeros(5, np.float32)
    for _ in range(10 * MOST_BLIND):
        array += 1
        assert recent.find({"W": array}, lambda arrays: float(arrays["W"][0])) is None
    for _ in range(MOST_BLIND + SIGHTS):
        found = recent.find({"W": array}, lambda arrays: float(arrays["W"][0]))
        assert found in (None, array[0])
    assert found == array[0]
    array += 1
    assert recent.find({"W": array}, lambda arrays: float(arrays["W"][0])) is None


def test_steps_see_what_is_written_to_parameters_between_them():
    kernel = rnnspec.compile("gru", threads=1)
    params = kernel.init(D=3, H=5, seed=0)
    x = {"x": np.ones((2, 3), np.float32)}
    for round_ in range(3):
        for _ in range(SIGHTS):
            found = kernel.step(params, x)["h"]
        np.testing.assert_array_equal(found, kernel.step(kernel.pack(params), x)["h"])
        params["U_n"][round_] *= 1.5
    params["W_n"] = params["W_n"] * 2
    np.testing.assert_array_equal(kernel.step(params, x)["h"], kernel.step(kernel.pack(params), x)["h"])
    del params["b_n"]
    with pytest.raises(rnnspec.ShapeError, match="missing parameter 'b_n'"):
        kernel.step(params, x)
