"""Layers carry the count of steps in their state, and say what they can't take: attributes that
nothing reads, a backward pass for a call whose tape is gone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from counting import BOTH, COUNTING, NAMES
from tolerances import HAND, assert_close, assert_same

import rnnspec
from rnnspec import Recurrent, ShapeError
from rnnspec.train.batches import Batch
from rnnspec.train.model import SequenceModel

SPEC = rnnspec.loads(BOTH)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 3, 4))


def layer_of(cell=SPEC, **more):
    layer = Recurrent(cell, 4, 4, dtype="float64", **more)
    for name, array in layer.params.items():
        layer.params[name] = array + 0.1 * np.random.default_rng(1).standard_normal(array.shape)
    return layer


def fed(layer, x):
    """The inputs that have no default."""
    return {next(iter(layer.stack.inputs)): x}


@pytest.mark.parametrize("name", COUNTING, **NAMES)
@pytest.mark.parametrize("ragged", [False, True])
def test_windows_are_the_whole(name, ragged):
    layer = layer_of(rnnspec.loads(name) if "\n" in name else name, num_layers=2)
    resets = np.zeros((9, 3), bool)
    resets[[3, 4, 0], [0, 1, 2]] = ragged
    lengths = [9, 5, 0] if ragged else None
    whole, last = layer.infer(fed(layer, X), None, lengths, resets=resets)
    windows = list(layer.windows(fed(layer, X), 4, None, lengths, resets=resets))
    assert_close(np.concatenate([w.y for w in windows]), whole, HAND["float64"])
    assert_close(dict(enumerate(windows[-1].state)), dict(enumerate(last)), HAND["float64"])
    assert last[-1].dtype == np.int64
    assert_same(last[-1], np.tile([6, 1, 0] if ragged else [9, 9, 9], (2, 1)))


def test_both_directions_count_in_their_own():
    one, two = layer_of(), layer_of(bidirectional=True)
    back = layer_of(go_backwards=True)
    state = (RNG.standard_normal((1, 3, 4)), np.array([[7, 0, 2]]))
    both = tuple(np.concatenate([a, a]) for a in state)
    y, last = two(fed(two, X), both)
    ahead, end = one(fed(one, X), state)
    behind, start = back(fed(back, X), state)
    assert_same(y, np.concatenate([ahead, behind], axis=-1))
    assert_same(dict(enumerate(last)), {i: np.concatenate(a) for i, a in enumerate(zip(end, start))})
    time = np.arange(9.0)[:, None] + state[1][0]  # of a step, whoever reads it
    turned = one({"x": X[::-1], "time": time[::-1]}, state)[0]
    assert_same(behind, turned[::-1])
    resets = np.zeros((9, 3), bool)
    resets[4] = True
    counts = two(fed(two, X), both, resets=resets)[1][1]
    assert_same(counts, np.stack([np.full(3, 5), np.full(3, 4)]))


def test_the_state_of_a_layer_that_counts():
    layer = layer_of(["rnn", SPEC])
    assert list(layer.stack.carried) == ["h", "t"] and list(layer.stack.states) == ["h"]
    y, (h, t) = layer(X)
    assert_same(t, np.full((2, 3), 9))
    assert_same(layer(X, (None, None))[0], y)
    assert_same(layer.infer(X[:, 0], (None, np.array([3, 3])))[0], layer.infer(X[:, :1], (None, 3))[0][:, 0])
    dx, dh = layer.backward(np.ones_like(y), h)  # a count has no gradient
    assert dx.shape == X.shape and dh.shape == h.shape
    for wrong in (h, (h,), (h, t, t)):
        with pytest.raises(ShapeError, match=r"tuple of 2 arrays \(h, t\), t the steps that were taken before"):
            layer(X, wrong)
    with pytest.raises(ShapeError, match=r"shape \(3,\), expected \(2, 3\)"):
        layer(X, (h, t[0]))
    assert isinstance(layer_of("rnn")(X)[1], np.ndarray)  # as it is, where nothing counts


def test_learned_initial_states_have_no_count():
    layer = layer_of(learn_initial=True)
    assert list(layer.params) == ["initial_h_l0"]
    resets = np.zeros((9, 3), bool)
    resets[4, 1] = True
    y, (_, t) = layer(fed(layer, X), resets=resets)
    assert_same(t, np.array([[9, 5, 9]]))
    assert_same(y[4:, 1], layer(fed(layer, X[4:, 1:2]))[0][:, 0])


def test_training_carries_the_count():
    layer = Recurrent("surnn", 4, 4, seed=1)
    model, x = SequenceModel(layer, 5, features=4), RNG.standard_normal((8, 2, 4)).astype(np.float32)
    target, state = np.zeros((8, 2), np.int64), None
    whole = model.outputs(x)[0]
    for part in (slice(0, 3), slice(3, 8)):
        logits, _ = model.outputs(x[part], state)
        assert_close(logits, whole[part], HAND["float32"])
        _, _, state = model.gradients(Batch(x[part], target[part]), state)
    assert_same(state[-1], np.full((1, 2), 8))


# --- what a layer refuses


def test_backward_for_a_call_whose_tape_is_gone_is_refused():
    layer = layer_of("rnn")
    first, _ = layer(X)
    second, _ = layer(2 * X)
    for wrong in (first, second.copy(), (second, second)):
        with pytest.raises(RuntimeError, match="A layer keeps the tape of its last call alone"):
            layer.backward(np.ones_like(first), of=wrong)
    with pytest.warns(RuntimeWarning, match="A layer keeps the tape of its last call alone"):
        layer.backward(np.ones_like(first))
    first, _ = layer(X)
    second, _ = layer(2 * X)
    dx, _ = layer.backward(np.ones_like(second), of=second)
    assert_same(layer.backward(np.ones_like(second))[0], dx)  # again, and nothing waits any more
    part = layer(X)[0][1:]
    del first, second
    with pytest.warns(RuntimeWarning, match="an earlier one, whose y is still alive"):
        layer(2 * X)
        layer.backward(np.ones((9, 3, 4)))
    layer(X[:4])  # of another shape: it can't be mistaken
    layer.backward(np.ones((4, 3, 4)))
    again = layer(X)[0]
    layer(X)
    layer.backward(np.ones((9, 3, 4)))
    del part, again
    for _ in range(3):  # calls whose outputs nobody has any more do not wait
        y, _ = layer(X)
    layer.backward(np.ones_like(y))
    layer.infer(X)
    layer.backward(np.ones_like(y))
    kept = [layer.stack.forward(layer.params, a) for a in (X, 2 * X)]
    assert_same(layer.stack.backward(kept[1], np.ones_like(y)).inputs["x"], dx)
    copy.deepcopy(layer)(X)


def test_attributes_are_honoured_or_refused():
    layer = layer_of("rnn", num_layers=2, dropout=0.5, seed=3)
    dropped = layer(X)[0]
    layer.dropout = 0.0
    assert layer.dropout == 0 and layer.stack.dropout == 0
    assert_same(layer(X)[0], layer.infer(X)[0])
    layer.stack.dropout, layer.calls = 0.5, 0
    assert_same(layer(X)[0], dropped)
    with pytest.raises(ValueError, match="between 0 and 1"):
        layer.dropout = 2
    with pytest.warns(UserWarning, match="there is only one"):
        layer_of("rnn").dropout = 0.5
    settled = ["hidden_size", "input_size", "output_size", "kernel", "spec"]
    for name in [*settled, "num_layers", "merge", "memory", "threads", "weight_ih_l0", "droput"]:
        with pytest.raises(AttributeError, match=f"'{name}' of a Recurrent can't be assigned"):
            setattr(layer, name, 1)
    with pytest.raises(AttributeError, match="Did you mean 'dropout'"):
        layer.droput = 0.0
    for name in ("layers", "dtype", "residual"):
        with pytest.raises(AttributeError, match=f"'{name}' of a Stack can't be assigned"):
            setattr(layer.stack, name, 1)
    for name in ("memory", "threads"):
        with pytest.raises(AttributeError):
            setattr(layer.kernel, name, "low")
    with pytest.raises(TypeError, match="batch_first must be True or False"):
        layer.batch_first = "yes"
    layer.batch_first, layer.training, layer.seed = True, False, 5
    assert_same(layer(np.swapaxes(X, 0, 1))[0], np.swapaxes(layer_of("rnn", num_layers=2, seed=3).infer(X)[0], 0, 1))
