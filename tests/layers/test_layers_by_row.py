"""Layers: gradients of weights by row, and weights by row, against calls of each row or group."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import REFERENCE, assert_close, assert_same

from rnnspec import UnsupportedError
from rnnspec.layers.stack import Stack

KINDS = {
    "one": {},
    "two": {"num_layers": 2, "bidirectional": True, "residual": True},
    "shared": {"bidirectional": True, "share_directions": True, "merge": "sum"},
    "learned": {"learn_initial": True},
}
STEPS, ROWS = 5, 4


def arrays(stack, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((STEPS, ROWS, 3))
    resets = rng.random((STEPS, ROWS)) < 0.2
    params = {n: a + 0.1 * rng.standard_normal(a.shape) for n, a in stack.init().items()}
    y = next(iter(stack.forward(params, x).outputs.values()))
    return params, x, rng.standard_normal(y.shape), np.array([5, 2, 4, 5]), resets


def stack_of(kind):
    return Stack("lstm", 3, 4 if kind != "two" else 3, dtype="float64", **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_of_each_row(kind, ragged):
    stack = stack_of(kind)
    params, x, dy, lengths, resets = arrays(stack)
    more = {"lengths": lengths, "resets": resets} if ragged else {}
    run = stack.forward(params, x, **more)
    each, whole = stack.backward(run, dy, per_row=True), stack.backward(run, dy)
    assert_same(each.inputs["x"], whole.inputs["x"])
    assert set(each.params) == set(whole.params)
    for row in range(ROWS):
        one = slice(row, row + 1)
        cut = {"lengths": lengths[one], "resets": resets[:, one]} if ragged else {}
        alone = stack.backward(stack.forward(params, x[:, one], **cut), dy[:, one])
        for n, array in alone.params.items():
            assert_close(each.params[n][row], array, REFERENCE["float64"])


@pytest.mark.parametrize("kind", ["one", "two", "shared"])
def test_weights_of_each_group(kind):
    stack = stack_of(kind)
    params, x, dy, lengths, resets = arrays(stack)
    other = {n: 0.9 * a for n, a in params.items()}
    shared = next(iter(params))
    many = {n: a if n == shared else np.stack([a, other[n]]) for n, a in params.items()}
    run = stack.forward(many, x, lengths=lengths, resets=resets)
    back, infer = stack.backward(run, dy), stack.infer(many, x, lengths=lengths, resets=resets)
    for group in range(2):
        mine = slice(2 * group, 2 * group + 2)
        own = {n: a if n == shared else a[group] for n, a in many.items()}
        alone = stack.forward(own, x[:, mine], lengths=lengths[mine], resets=resets[:, mine])
        single = stack.backward(alone, dy[:, mine])
        for found in (run, infer):
            assert_same({n: a[:, mine] for n, a in found.outputs.items()}, alone.outputs)
        assert_same(back.inputs["x"][:, mine], single.inputs["x"])
        for n, array in single.params.items():
            assert_close(back.params[n][group], array, REFERENCE["float64"])


def test_learned_states_take_no_weights_by_row():
    stack = stack_of("learned")
    params, x, *_ = arrays(stack)
    with pytest.raises(UnsupportedError, match="a layer with learned initial states takes no weights by row"):
        stack.forward({n: np.stack([a, a]) for n, a in params.items()}, x)
