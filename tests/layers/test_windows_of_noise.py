"""Windows of one sequence: what is drawn once a sequence is the same in all of them, what is drawn
at every step or call is not."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import cell
from tolerances import HAND, assert_close, assert_same

import rnnspec

TEXT = cell(
    "h[t] = 0.5 * mask[t] * h[t-1] + x[t] + {other}",
    name="masked",
    inputs="{{x: H, mask: H, e: H}}",
    states="{{h: H}}",
    parameters="{{drop: [H]}}",
    noise="{{mask: dropout(0.5) per sequence, e: normal(1), drop: dropout(0.5)}}",
)
X = np.random.default_rng(0).standard_normal((8, 3, 6))


def layer_of(other="0 * e[t] * drop", **more):
    return rnnspec.Recurrent(rnnspec.loads(TEXT.format(other=other)), 6, 6, dtype="float64", **more)


@pytest.mark.parametrize("memory", ["full", "low"])
def test_windows_have_the_masks_of_the_whole_sequence(memory):
    layer, lengths = layer_of(num_layers=2, memory=memory), [8, 5, 1]
    layer.calls, resets = 4, np.zeros((8, 3), bool)
    resets[[2, 6], [0, 0]] = True
    whole, last = layer(X, None, lengths, resets=resets, seed=(layer.seed, 4))
    assert not np.array_equal(whole, layer.infer(X, None, lengths, resets=resets)[0])
    dx, _ = layer.backward(np.concatenate([np.zeros((6, 3, 6)), np.ones((2, 3, 6))]))
    layer.calls = 4
    windows = []
    for window in layer.windows(X, 3, None, lengths, resets=resets):
        windows.append(window)
        found, _ = layer.backward(np.ones_like(window.y))
    assert layer.calls == 7
    assert_close(np.concatenate([w.y for w in windows]), whole, HAND["float64"])
    assert_close(windows[-1].state, last, HAND["float64"])
    assert_close(found[:, 1:], dx[6:, 1:], HAND["float64"])  # the first row would reach back over the window


def test_steps_and_calls_are_drawn_anew_in_every_window():
    flat = np.zeros_like(X)
    for other in ("e[t] + 0 * drop", "0 * e[t] + drop"):  # nothing is left of the state
        first, second = (w.y[0] for w in layer_of(f"{other} - 0.5 * mask[t] * h[t-1]").windows(flat, 4))
        assert not np.allclose(first, second)
    again = layer_of()
    ahead, anew = ([w.y for w in again.windows(X, 4)] for _ in range(2))
    assert not np.array_equal(ahead[1], anew[1])  # another sequence
    again.eval()
    assert_same(np.concatenate([w.y for w in again.windows(X, 4)]), again.infer(X)[0])


def test_windows_by_hand_are_given_the_seed_of_their_sequence():
    spec = rnnspec.loads(TEXT.format(other="e[t] + drop"))
    whole, part = (
        rnnspec.noise.draw(spec, {"H": 6}, steps, 3, seed, sequence=of)
        for steps, seed, of in ((8, (0, 1), None), (4, (0, 2), (0, 1)))
    )
    assert_same(part["mask"], whole["mask"][:4])
    assert not np.array_equal(part["e"], whole["e"][:4]) and not np.array_equal(part["drop"], whole["drop"])
