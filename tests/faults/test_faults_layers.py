"""Faults that engines like this one have had (numbered as in the project's list): several layers,
two directions, lengths, dropout."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from cells import LINEAR, LINEAR_ROWS, spec_of
from tolerances import HAND, REFERENCE, assert_close, assert_same

from rnnspec import Recurrent, ShapeError

LENGTHS = np.array([7, 3, 5, 1])


def linear(**options) -> Recurrent:
    """h[t] = w * x[t] + u * h[t-1], w = 1, u = 0.5, in both directions."""
    layer = Recurrent(spec_of(LINEAR_ROWS), 1, 1, **{"bidirectional": True, "dtype": "float64"} | options)
    for name, array in layer.params.items():
        array[...] = 1 if name.startswith("w") else 0.5
    return layer


def column(*rows: list[float]) -> np.ndarray:
    """Rows of a batch as [T, B, 1]."""
    return np.array(rows).T[..., None]


def test_H01_the_final_state_of_the_reverse_direction_sits_at_the_first_step():
    y, h = linear()(column([1, 2, 3]) * 1.0)
    assert_close(y[:, 0], [[1, 2.75], [2.5, 3.5], [4.25, 3]], HAND["float64"])
    assert_close(h[:, 0, 0], [4.25, 2.75], HAND["float64"])
    assert h[1, 0, 0] == y[0, 0, 1]


def test_H55_a_reverse_direction_alone_keeps_its_outputs_in_the_order_of_time():
    y, h = linear(bidirectional=False, go_backwards=True)(np.ones((4, 1, 1)))
    assert_close(y[:, 0, 0], [1.875, 1.75, 1.5, 1.0], HAND["float64"])
    assert_close(h[0, 0, 0], 1.875, HAND["float64"])


def test_H02_final_states_come_layer_by_layer_and_forward_before_reverse():
    layer = Recurrent("rnn", 2, 1, 2, bidirectional=True, phi="relu", dtype="float64")
    for array in layer.params.values():
        array[...] = 0
    for value, name in enumerate(("l0", "l0_reverse", "l1", "l1_reverse"), 1):
        layer.params[f"bias_ih_{name}"][...] = value
    _, h = layer(np.ones((3, 1, 2)))
    assert h[:, 0, 0].tolist() == [1, 2, 3, 4]
    for name in ("l0", "l0_reverse", "l1", "l1_reverse"):
        layer.params[f"bias_ih_{name}"][...] = 0
        layer.params[f"weight_hh_{name}"][...] = 1
    _, h = layer(np.zeros((3, 1, 2)), np.array([1.0, 2, 3, 4])[:, None, None])
    assert h[:, 0, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("batch_first", [False, True])
def test_H03_batch_first_leaves_the_states_alone_where_B_is_T(batch_first):
    x = column([1.0, 2.0], [3.0, 4.0])
    y, h = linear(batch_first=batch_first)(x.swapaxes(0, 1) if batch_first else x)
    y = y.swapaxes(0, 1) if batch_first else y
    assert_close(y[..., 0].T, [[1, 2.5], [3, 5.5]], HAND["float64"])
    assert_close(y[..., 1].T, [[2, 2], [5, 4]], HAND["float64"])
    assert_close(h[..., 0], [[2.5, 5.5], [2, 5]], HAND["float64"])


def test_H07_projections_in_layers_and_directions():
    layer = Recurrent("lstm_projected", 3, 4, 2, bidirectional=True, proj_size=2, dtype="float64")
    shapes = {n: a.shape for n, a in layer.params.items()}
    assert {n: shapes[n] for n in ("weight_ih_l0", "weight_hh_l0", "weight_hr_l0", "weight_ih_l1")} == {
        "weight_ih_l0": (16, 3),
        "weight_hh_l0": (16, 2),
        "weight_hr_l0": (2, 4),
        "weight_ih_l1": (16, 4),
    }
    y, (h, c) = layer(np.ones((5, 2, 3)))
    assert (y.shape, h.shape, c.shape) == ((5, 2, 4), (4, 2, 2), (4, 2, 4))


def test_H11_the_reverse_direction_starts_at_the_last_valid_step():
    y, h = linear()(column([1.0, 2, 3], [1, 2, 99]), lengths=[3, 2])
    assert_close(y[:, 1], [[1, 2], [2.5, 2], [0, 0]], HAND["float64"])
    assert_close(h[..., 0], [[4.25, 2.5], [2.75, 2.0]], HAND["float64"])


def test_H12_zero_past_the_end_in_both_directions():
    y, h = linear()(np.ones((4, 2, 1)), lengths=[4, 2])
    assert_close(y[:, 1], [[1, 1.5], [1.5, 1], [0, 0], [0, 0]], HAND["float64"])
    assert_close(h[..., 0], [[1.875, 1.5], [1.875, 1.5]], HAND["float64"])


@pytest.mark.parametrize("lengths", [[4, 0], [0, 0]])
def test_H13_a_row_of_length_0_in_both_directions(lengths):
    layer, h0 = linear(), np.full((2, 2, 1), 7.0)
    y, h = layer(np.ones((4, 2, 1)), h0, lengths)
    dh = np.array([[[11.0], [13.0]], [[17.0], [19.0]]])
    dx, dh0 = layer.backward(np.full(y.shape, 3.0), dh)
    empty = [row for row, n in enumerate(lengths) if n == 0]
    assert (y[:, empty] == 0).all() and (h[:, empty] == 7).all() and (dx[:, empty] == 0).all()
    assert_same(dh0[:, empty], dh[:, empty])
    if not any(lengths):
        assert all((g == 0).all() for g in layer.grads.values())


@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (5, 0)])
@pytest.mark.parametrize("lengths", [False, True])
def test_H14_no_steps_or_no_rows_in_layers(steps, rows, lengths):
    layer = Recurrent("gru", 3, 5, 2, bidirectional=True, dtype="float64")
    h0 = np.random.default_rng(0).normal(size=(4, rows, 5))
    y, h = layer(np.ones((steps, rows, 3)), h0, np.zeros(rows, int) if lengths else None)
    assert y.shape == (steps, rows, 10)
    assert_same(h, h0)
    dx, dh = layer.backward(np.ones_like(y), h0)
    assert dx.shape == (steps, rows, 3) and all((g == 0).all() for g in layer.grads.values())
    assert_same(dh, h0)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([4, 5], "lengths.1. is 5"),
        ([4, -1], "lengths.1. is -1"),
        ([4], r"\(2,\)"),
        ([[4, 2]], r"\(2,\)"),
        ([4.0, 2.5], "integers"),
    ],
)
def test_H15_lengths_that_do_not_fit(lengths, words):
    with pytest.raises(ValueError, match=words):
        linear()(np.ones((4, 2, 1)), lengths=lengths)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_H16_what_lies_in_the_padding_reaches_nothing_in_any_layer(cell, poison):
    layer = Recurrent(cell, 3, 4, 2, bidirectional=True, dtype="float64")
    rng, lengths = np.random.default_rng(0), [5, 2, 0]
    x, dy, past = rng.normal(size=(5, 3, 3)), rng.normal(size=(5, 3, 8)), np.arange(5)[:, None] >= np.array(lengths)
    found = []
    for filler in (0.0, poison):
        x[past] = dy[past] = filler
        y, _ = layer(x, lengths=lengths)
        dx, _ = layer.backward(dy)
        found.append({"y": y, "dx": dx, **layer.grads})
    assert all(np.isfinite(a).all() for a in found[1].values())
    assert_same(found[1], found[0])
    assert (found[1]["dx"][past] == 0).all()


@pytest.mark.parametrize(("dtype", "batch_first"), [("float64", False), ("float32", True)])
def test_H17_a_padded_row_is_the_row_alone(dtype, batch_first):
    layer = Recurrent("gru", 3, 4, 2, bidirectional=True, dtype=dtype, batch_first=batch_first)
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(4, 7, 3)).astype(dtype), rng.normal(size=(4, 7, 8)).astype(dtype)
    give = (lambda a: a) if batch_first else (lambda a: a.swapaxes(0, 1))
    y, h = layer(give(x), lengths=LENGTHS)
    dx, _ = layer.backward(give(dy))
    total = {n: np.zeros_like(p) for n, p in layer.params.items()}
    whole = layer.grads
    for row, n in enumerate(LENGTHS):
        own_y, own_h = layer(x[row, :n])
        own_dx, _ = layer.backward(dy[row, :n])
        total = {name: g + layer.grads[name] for name, g in total.items()}
        for mine, other in ((give(y)[row, :n], own_y), (h[:, row], own_h), (give(dx)[row, :n], own_dx)):
            assert_close(mine, other, HAND[dtype])
        assert (give(y)[row, n:] == 0).all()
    assert_close(whole, total, HAND["float64"] if dtype == "float64" else REFERENCE["float32"])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_H79_dropout_is_fresh_or_by_seed_and_off_at_evaluation(threads):
    layer, x = Recurrent("gru", 3, 8, 2, dropout=0.5, dtype="float64", threads=threads), np.ones((5, 2, 3))
    first, second = layer(x)[0], layer(x)[0]
    assert not np.array_equal(first, second)
    seeded = layer(x, seed=4)[0]
    assert_same(layer(x, seed=4)[0], seeded)
    assert_same(Recurrent("gru", 3, 8, 2, dropout=0.5, dtype="float64", threads=1)(x, seed=4)[0], seeded)
    inferred = layer.infer(x)[0]
    assert_same(layer.infer(x)[0], inferred)
    assert_same(layer.eval()(x)[0], inferred)
    assert_same(layer(x)[0], inferred)
    assert not np.array_equal(layer.train()(x)[0], inferred)
    none = Recurrent("gru", 3, 8, 2, dtype="float64")
    none.load_state_dict(layer.state_dict())
    assert_same(none(x)[0], inferred)
    for wrong in (-1, 1.5, True, "4", ()):
        with pytest.raises(ValueError, match="seed"):
            layer(x, seed=wrong)


def test_H79_the_share_that_is_dropped_and_the_scale_of_the_rest():
    layer = Recurrent(["rnn", spec_of(LINEAR_ROWS)], 8, 8, dropout=0.25, dtype="float64", return_all_states=True)
    layer.params["w_l1"][...], layer.params["u_l1"][...] = 1, 0
    y, _, steps = layer(np.ones((50, 40, 8)))
    ratio = y / steps["h_l0"]
    kept = ratio != 0
    assert_close(ratio[kept], np.full(kept.sum(), 1 / 0.75), HAND["float64"])
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / kept.size)
    everything = Recurrent("gru", 3, 4, 2, dropout=1.0)
    assert_same(everything(np.ones((3, 1, 3), np.float32))[0], everything(np.full((3, 1, 3), 5, np.float32))[0])


def test_H79_dropout_of_one_layer_warns():
    with pytest.warns(UserWarning, match="only one"):
        layer = Recurrent("gru", 3, 4, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = Recurrent("gru", 3, 4)
    x = np.ones((5, 2, 3), np.float32)
    assert_same(layer(x)[0], plain(x)[0])


def test_H74_windows_have_an_unbroken_state_and_a_cut_gradient():
    layer = linear(bidirectional=False)
    x, last = np.ones((4, 1, 1)), np.zeros((4, 1, 1))
    last[-1] = 1
    y, _ = layer(x)
    layer.backward(last)
    assert_close(y.ravel(), [1, 1.5, 1.75, 1.875], HAND["float64"])
    assert_close(layer.grads["u_l0"], [2.75], HAND["float64"])
    parts = []
    for window in layer.windows(x, 2):
        layer.backward(last[window.steps])
        parts.append(window.y)
    assert_same(np.concatenate(parts), y)
    assert_close(layer.grads["u_l0"], [2.5], HAND["float64"])


@pytest.mark.parametrize("batch_first", [False, True])
def test_H74_windows_of_rows_that_end_and_restart_anywhere(batch_first):
    layer = Recurrent("gru", 3, 4, 2, dtype="float64", batch_first=batch_first, learn_initial=True)
    rng = np.random.default_rng(0)
    layer.load_state_dict({n: p + rng.normal(size=p.shape) for n, p in layer.params.items()})
    x, resets, lengths = rng.normal(size=(11, 4, 3)), rng.random((11, 4)) < 0.2, [11, 0, 7, 4]
    if batch_first:
        x, resets = x.swapaxes(0, 1), resets.T
    y, state = layer(x, lengths=lengths, resets=resets)
    for steps in (1, 4, 11, 20):
        windows = list(layer.windows(x, steps, lengths=lengths, resets=resets))
        assert_close(np.concatenate([w.y for w in windows], axis=1 if batch_first else 0), y, HAND["float64"])
        assert_close(windows[-1].state, state, HAND["float64"])
    assert [w.steps for w in layer.windows(x[0], 8)] == ([slice(0, 8), slice(8, 11)] if batch_first else [slice(0, 4)])
    with pytest.raises(ValueError, match="at least 1"):
        next(layer.windows(x, 0))
    said = r"\(4, 11\) = \[B, T\], got \(4, 12\)" if batch_first else r"\(11, 4\) = \[T, B\], got \(12, 4\)"
    with pytest.raises(ShapeError, match=f"resets must have shape {said}"):
        next(layer.windows(x, 4, resets=np.zeros((4, 12) if batch_first else (12, 4), bool)))
    with pytest.raises(ValueError, match="runs forwards"):
        next(linear().windows(np.ones((3, 1, 1)), 2))


def test_H75_H80_states_of_layers_are_named_with_what_was_expected():
    layer = Recurrent("lstm", 3, 4, 2, bidirectional=True, dtype="float64")
    x, h, c = np.ones((5, 3, 3)), np.ones((4, 3, 4)), np.ones((4, 3, 4))
    for state, words in (
        ((np.ones((4, 4, 4)), c), r"state 'h' must have shape \(4, 3, 4\), got \(4, 4, 4\)"),
        ((h, c[:2]), r"'c'.*\(4, 3, 4\), got \(2, 3, 4\)"),
        ((h, np.ones((4, 4))), r"'c'.*\(4, 3, 4\), got \(4, 4\)"),
        (h, "tuple of 2 arrays"),
        ({"h": h}, "tuple of 2 arrays.*a dict"),
    ):
        for call in (layer, layer.infer):
            with pytest.raises(ValueError, match=words):
                call(x, state)
    with pytest.raises(ValueError, match=r"'h' must have shape \(4, 4\), got \(4, 1, 4\)"):
        layer(x[:, 0], (np.ones((4, 1, 4)), c[:, 0]))
    y, _ = layer(x, (None, c))
    with pytest.raises(ValueError, match=r"gradient of output 'h' must have shape \(5, 3, 8\), got \(5, 3, 4\)"):
        layer.backward(y[..., :4])
    with pytest.raises(ValueError, match=r"resets must have shape \(5, 3\).*got \(3, 5\)"):
        layer(x, resets=np.zeros((3, 5), bool))
    with pytest.raises(TypeError, match=r"resets must be booleans.*float64"):
        layer(x, resets=np.zeros((5, 3)))
    with pytest.raises(ShapeError, match=r"resets must be an array of booleans \[T, B\]"):
        layer(x, resets=[[True], [True, False]])


def test_H81_layers_that_do_not_fit_one_another():
    with pytest.raises(ValueError, match=r"the size H is 2 by layer 0, which layer 1 reads, but 1 by hidden_size"):
        Recurrent(spec_of(LINEAR_ROWS), 1, 1, 2, bidirectional=True)  # reads as many features as it has units
    with pytest.raises(ValueError, match=r"merge='concat' joins vectors.*'sum'"):
        Recurrent(spec_of(LINEAR), 1, 1, bidirectional=True)
    with pytest.raises(ValueError, match=r"input_size gives 2 features.*one number"):
        Recurrent(spec_of(LINEAR), 2, 1)
    with pytest.raises(ValueError, match=r"residual: layer 1 reads 4 features and gives 2"):
        Recurrent(["gru", "lstm_projected"], 3, 4, proj_size=2, residual=True)


def test_H82_weights_of_every_layer_are_used_at_once():
    layer, x = Recurrent("gru", 3, 4, 2, bidirectional=True, dtype="float64"), np.ones((5, 2, 3))
    before = layer(x)[0]
    for name, how in itertools.product(layer.params, ("in place", "new array")):
        kept = layer.state_dict()
        if how == "in place":
            layer.params[name][...] += 0.5
        else:
            layer.params[name] = layer.params[name] + 0.5
        assert not np.array_equal(layer(x)[0], before) and not np.array_equal(layer.infer(x)[0], before), name
        layer.load_state_dict(kept)
        assert_same(layer(x)[0], before)
    layer.params["extra"] = np.ones(3)
    with pytest.raises(ValueError, match="unexpected 'extra'"):
        layer(x)
