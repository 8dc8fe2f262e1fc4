"""What Recurrent offers beyond one layer: the networks of the source documents, lists of cells,
recorded values, noise, files, copies."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import replace
from threading import Thread
from typing import IO

import numpy as np
import pytest
from cells import LINEAR, LINEAR_ROWS, case, kernel, spec_of
from plain_layers import Options, layers
from tiny import cell
from tolerances import DIFFERENCE_STEP, DIFFERENCES, HAND, REFERENCE, assert_close, assert_same

import rnnspec
from rnnspec import DtypeError, Recurrent, ShapeError
from rnnspec.engine.cpu import CpuKernel
from rnnspec.engine.spans import cut
from rnnspec.layers.stack import Stack
from rnnspec.storage import atomic

X = np.random.default_rng(0).normal(size=(5, 2, 3))
TWO_INPUTS = cell(
    "h[t] = m[t] * tanh(W @ x[t] + U @ h[t-1])",
    name="masked",
    inputs="{x: D, m: []}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H]}",
)
TIMED = cell(
    "h[t] = tanh(W @ x[t] + U @ h[t-1] + s[t] * b)",
    name="timed",
    inputs="{x: D, s: []}",
    defaults="{s: t}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H], b: [H]}",
)
NOISY = cell(
    "h[t] = m[t] * tanh(W @ x[t] + (k * U) @ h[t-1] + s[t])",
    name="noisy",
    inputs="{x: D, m: H, s: H}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H], k: [H, H]}",
    noise="{m: dropout(0.5) per sequence, k: dropout(0.5), s: normal(0.5)}",
)


def test_the_two_layer_network_of_the_first_source():
    """4 inputs, two layers of 5 units, 3 outputs y = f(V^T h + b), 5 steps; h_1[t] = f(U_1^T x[t] +
    b^1 + W_1 h_1[t-1] + b_1), and so on."""
    rng = np.random.default_rng(0)
    U_1, W_1, b1, b_1, U_2, W_2, b2, b_2, V, b3 = (
        rng.normal(size=s) for s in ((4, 5), (5, 5), 5, 5, (5, 5), (5, 5), 5, 5, (5, 3), 3)
    )
    x, h_1, h_2, expected = rng.normal(size=(5, 4)), np.zeros(5), np.zeros(5), []
    for x_t in x:
        h_1 = np.tanh(U_1.T @ x_t + b1 + W_1 @ h_1 + b_1)
        h_2 = np.tanh(U_2.T @ h_1 + b2 + W_2 @ h_2 + b_2)
        expected.append(np.tanh(V.T @ h_2 + b3))
    layer = Recurrent("rnn", 4, 5, 2, dtype="float64")
    layer.load_state_dict(
        {
            "weight_ih_l0": U_1.T,
            "weight_hh_l0": W_1,
            "bias_ih_l0": b1,
            "bias_hh_l0": b_1,
            "weight_ih_l1": U_2.T,
            "weight_hh_l1": W_2,
            "bias_ih_l1": b2,
            "bias_hh_l1": b_2,
        }
    )
    h, state = layer(x)
    assert_close(np.tanh(h @ V + b3), np.array(expected), HAND["float64"])
    assert_close(state, np.stack([h_1, h_2]), HAND["float64"])


def test_the_layer_call_of_the_fourth_source():
    """RNN(12, 20, 2, batch_first=True) on a batch of 3 rows of 10 steps."""
    layer = Recurrent("rnn", 12, 20, 2, batch_first=True)
    x, h0 = np.random.default_rng(0).normal(size=(3, 10, 12)).astype(np.float32), np.zeros((2, 3, 20), np.float32)
    y, h_n = layer(x, h0)
    assert (y.shape, h_n.shape) == ((3, 10, 20), (2, 3, 20))
    params = {n: p.astype(np.float64) for n, p in layer.params.items()}
    right, final, _ = layers(Options(12, 20, 2), params, x.swapaxes(0, 1).astype(np.float64), None, None, None)
    assert_close(y, right.swapaxes(0, 1), REFERENCE["float32"])
    assert_close(h_n, final, REFERENCE["float32"])
    assert_same(y[:, -1], h_n[1])


@pytest.mark.parametrize("merge", ["concat", "sum", "mean", "product"])
def test_both_directions_of_the_first_source_share_their_weights(merge):
    """h[i] = f(W h[i-1] + U^T x[i] + b) and g[i] = f(W g[i+1] + U^T x[i] + b)."""
    rng = np.random.default_rng(0)
    U, W, b, x = rng.normal(size=(4, 5)), rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=(6, 4))
    h, g = np.zeros((7, 5)), np.zeros((7, 5))
    for i in range(6):
        h[i] = np.tanh(W @ h[i - 1] + U.T @ x[i] + b)
    for i in reversed(range(6)):
        g[i] = np.tanh(W @ g[i + 1] + U.T @ x[i] + b)
    h, g = h[:6], g[:6]
    joined = {"concat": np.concatenate([h, g], axis=1), "sum": h + g, "mean": (h + g) / 2, "product": h * g}[merge]
    layer = Recurrent("rnn", 4, 5, bidirectional=True, share_directions=True, merge=merge, dtype="float64")
    assert set(layer.params) == {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}
    layer.load_state_dict({"weight_ih_l0": U.T, "weight_hh_l0": W, "bias_ih_l0": b, "bias_hh_l0": np.zeros(5)})
    assert_close(layer(x)[0], joined, HAND["float64"])


def test_cells_that_differ_from_layer_to_layer():
    layer = Recurrent(["lstm", "gru"], 3, 4, dtype="float64", bidirectional=True)
    rows = np.random.default_rng(1).normal(size=(2, 2, 4))
    y, state = layer(X, (rows, None, None))
    assert list(layer.stack.states) == ["h_l0", "c_l0", "h_l1"] and all(s.shape == (2, 2, 4) for s in state)
    assert repr(layer) == "Recurrent(['lstm', 'gru'], 3, 4, bidirectional=True, dtype='float64')"
    first, second = (
        Recurrent("lstm", 3, 4, dtype="float64", bidirectional=True),
        Recurrent("gru", 8, 4, dtype="float64", bidirectional=True),
    )
    first.load_state_dict({n: p for n, p in layer.params.items() if "l0" in n})
    second.load_state_dict({n.replace("l1", "l0"): p for n, p in layer.params.items() if "l1" in n})
    middle, (h, c) = first(X, (rows, None))
    top, last = second(middle)
    assert_same(y, top)
    assert all(np.array_equal(a, b) for a, b in zip(state, (h, c, last)))
    dx, dstate = layer.backward(y, state)
    dmiddle, dlast = second.backward(y, last)
    right, dfirst = first.backward(dmiddle, (h, c))
    assert_same(dx, right)
    assert all(np.array_equal(a, b) for a, b in zip(dstate, (*dfirst, dlast)))


def test_recorded_values_are_those_of_the_cell():
    layer = Recurrent(
        "lstm", 3, 4, 2, dtype="float64", bidirectional=True, return_all_states=["h", "c", "f"], batch_first=True
    )
    y, (_, c), recorded = layer(X.swapaxes(0, 1), lengths=[5, 3])
    assert list(recorded) == [f"{s}_l{k}{d}" for k in (0, 1) for d in ("", "_reverse") for s in ("h", "c", "f")]
    assert all(a.shape == (2, 5, 4) and (a[1, 3:] == 0).all() for a in recorded.values())
    assert_same(np.concatenate([recorded["h_l1"], recorded["h_l1_reverse"]], axis=-1), y)
    assert_same(
        np.stack([recorded["c_l1"][0, -1], recorded["c_l1"][1, 2], recorded["c_l1_reverse"][0, 0]]),
        np.stack([c[2, 0], c[2, 1], c[3, 0]]),
    )
    plain = Recurrent("lstm", 3, 4, 2, dtype="float64", bidirectional=True)
    plain.load_state_dict(layer.params)
    assert_close(plain(X, lengths=[5, 3])[0].swapaxes(0, 1), y, HAND["float64"])
    c_before = np.concatenate([np.zeros((2, 1, 4)), recorded["c_l1"][:, :-1]], axis=1)
    kept = np.arange(5) < np.array([[5], [3]])
    assert (np.abs(recorded["c_l1"] - recorded["f_l1"] * c_before)[kept] < 1).all()  # i * g
    one = layer(X[:, 0])
    assert one[2]["c_l0"].shape == (5, 4)
    with pytest.raises(ShapeError, match=r"unknown gradient of step value 'i_l0'.*c_l0"):
        layer.backward(dsteps={"i_l0": np.ones((5, 4))})
    assert list(Recurrent("lstm", 3, 4, return_all_states=True).stack.steps) == ["h_l0", "c_l0"]


def test_every_layer_reads_the_inputs_after_the_first():
    layer = Recurrent(spec_of(TWO_INPUTS), 3, 4, 2, dtype="float64", bidirectional=True)
    m = np.random.default_rng(1).random((5, 2))
    y, _ = layer({"x": X, "m": m})
    assert_same(layer((X, m))[0], y)
    d, _ = layer.backward(np.ones_like(y))
    direction = np.random.default_rng(2).normal(size=m.shape)
    ends = [layer.infer({"x": X, "m": m + s * direction})[0].sum() for s in (DIFFERENCE_STEP, -DIFFERENCE_STEP)]
    assert_close(np.vdot(d["m"], direction), (ends[0] - ends[1]) / (2 * DIFFERENCE_STEP), DIFFERENCES)
    with pytest.raises(ShapeError, match=r"missing input 'm'"):
        layer({"x": X})
    with pytest.raises(ShapeError, match=r"different numbers of steps and rows.*x \(5, 2\), m \(4, 2\)"):
        layer({"x": X, "m": m[:4]})


@pytest.mark.parametrize("batch_first", [False, True])
def test_what_does_not_fit_is_told_with_the_axes_as_they_were_given(batch_first):
    layer = Recurrent(spec_of(TWO_INPUTS), 3, 4, dtype="float64", batch_first=batch_first)
    axes, resets = ("rows and steps (B, T)", "[B, T]") if batch_first else ("steps and rows (T, B)", "[T, B]")
    with pytest.raises(ShapeError, match=re.escape(f"numbers of {axes}: x (6, 2), m (2, 6)")):
        layer((np.ones((6, 2, 3)), np.ones((2, 6))))
    both, wrong = (np.ones((6, 2, 3)), np.ones((6, 2))), np.zeros((2, 6), bool)
    for call in (lambda: layer(both, resets=wrong), lambda: next(layer.windows(both, 1, resets=wrong))):
        with pytest.raises(ShapeError, match=re.escape(f"(6, 2) = {resets}, got (2, 6)")):
            call()
    with pytest.raises(ShapeError, match=re.escape("numbers of steps and rows (T, B): x (6, 1), m (2, 1)")):
        layer((np.ones((6, 3)), np.ones(2)))


def test_the_repr_tells_what_was_chosen():
    relu, tanh = rnnspec.load("rnn", phi="relu"), rnnspec.load("rnn", phi="tanh")
    assert repr(Recurrent("rnn", 4, 5, phi="tanh")) == "Recurrent('rnn', 4, 5, dtype='float32')"
    assert repr(Recurrent("rnn", 4, 5, phi="relu")) == "Recurrent('rnn', 4, 5, phi='relu', dtype='float32')"
    leaky = Recurrent("leaky_rnn", 4, 5, alpha=0.25)
    assert repr(leaky) == "Recurrent('leaky_rnn', 4, 5, alpha=0.25, dtype='float32')"
    assert "alpha" not in repr(Recurrent("leaky_rnn", 4, 5)) and repr(leaky.spec).startswith(
        "Spec(leaky_rnn alpha=0.25: "
    )
    assert repr(Recurrent(relu, 4, 5, 2)) == "Recurrent('rnn', 4, 5, num_layers=2, phi='relu', dtype='float32')"
    assert repr(Recurrent([relu, tanh], 4, 5)) == "Recurrent(['rnn phi=relu', 'rnn'], 4, 5, dtype='float32')"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_above_may_read_the_first_input_of_all_too(bidirectional):
    """Its gradient is the sum of both: that of the layer above was lost."""
    skipping = cell(
        "h[t] = tanh(W @ x[t] + V @ z[t] + U @ h[t-1])",
        name="skipping",
        inputs="{z: E, x: D}",
        states="{h: H}",
        parameters="{W: [H, D], V: [H, E], U: [H, H]}",
    )
    layer = Recurrent(["rnn", spec_of(skipping)], 3, 4, dtype="float64", bidirectional=bidirectional, sizes={"D": 3})
    y, _ = layer(X, lengths=[5, 2])
    dx, _ = layer.backward(y)
    direction = np.random.default_rng(2).normal(size=X.shape)
    ends = [
        0.5 * (layer.infer(X + s * direction, lengths=[5, 2])[0] ** 2).sum()
        for s in (DIFFERENCE_STEP, -DIFFERENCE_STEP)
    ]
    assert_close(np.vdot(dx, direction), (ends[0] - ends[1]) / (2 * DIFFERENCE_STEP), DIFFERENCES)


def test_inputs_with_defaults_go_by_step_in_either_direction():
    layer = Recurrent(spec_of(TIMED), 3, 4, 2, dtype="float64", bidirectional=True)
    s = np.broadcast_to(np.arange(5.0)[:, None], (5, 2))
    right = layer({"x": X, "s": s})[0]
    assert list(layer.backward(right)[0]) == ["x", "s"]
    y, _ = layer(X)
    assert_same(y, right)
    assert layer.backward(y)[0].shape == X.shape
    assert_same(layer(X, lengths=[5, 3])[0][:, 0], right[:, 0])
    assert_same(layer.infer((X, s))[0], right)
    with pytest.raises(ShapeError, match="missing input 'x'"):
        layer({})
    with pytest.raises(ShapeError, match="no input is given"):
        Recurrent(spec_of(TIMED.replace("{s: t}", "{x: 0, s: t}")), 3, 4)({})


def test_an_input_with_a_default_that_layers_read_in_different_shapes_can_not_be_given():
    layer = Recurrent("gru_d", 3, 4, 2)
    assert layer.stack.required == {"x"} and layer.stack.inputs["m"] == (3,)
    with pytest.raises(
        ShapeError, match=r"input 'm' has shape \(3,\) a step, but layer 1 reads it as \(4,\): leave it out"
    ):
        layer({"x": X.astype(np.float32), "m": X.astype(np.float32)})


def test_noise_of_a_cell_is_drawn_in_training_by_step_and_row():
    layer = Recurrent(spec_of(NOISY), 3, 4, 2, dtype="float64", bidirectional=True)
    assert set(layer.stack.inputs) == {"x"} and not [n for n in layer.params if n.startswith("k_")]
    full = layer(X, seed=1)[0]
    assert not np.array_equal(layer(X)[0], layer(X)[0])
    assert_same(layer(X, seed=1)[0], full)
    ragged = layer(X, seed=1, lengths=[5, 2])[0]
    assert_same(ragged[:, 0], full[:, 0])  # also in the reverse direction
    layer(X, seed=1)
    dx, _ = layer.backward(np.ones_like(full))
    direction = np.random.default_rng(2).normal(size=X.shape)
    ends = [layer(X + s * direction, seed=1)[0].sum() for s in (DIFFERENCE_STEP, -DIFFERENCE_STEP)]
    assert_close(np.vdot(dx, direction), (ends[0] - ends[1]) / (2 * DIFFERENCE_STEP), DIFFERENCES)
    assert_same(layer.infer(X)[0], layer.eval()(X)[0])
    packed = layer.stack.pack(layer.params)
    assert_same(layer.stack.infer(packed, X).outputs["h"], layer.infer(X)[0])
    with pytest.raises(ValueError, match="packed weights"):
        layer.stack.forward(packed, X)


def test_weights_packed_for_other_layers_are_refused():
    packed = Stack("gru", 3, 4, dtype="float64").pack(Stack("gru", 3, 4, dtype="float64").init())
    again = Stack("gru", 3, 4, dtype="float64")
    assert_same(
        again.infer(pickle.loads(pickle.dumps(packed)), X).outputs["h"], again.infer(again.init(), X).outputs["h"]
    )
    for stack, error, words in (
        (Stack("gru", 3, 5, dtype="float64"), ShapeError, r"'U_r_l0' has shape \(4, 4\), expected \(5, 5\)"),
        (Stack("gru", 3, 4, 2, dtype="float64"), ShapeError, "of 1 cells, and the layers have 2"),
        (Stack("gru", 3, 4, learn_initial=True, dtype="float64"), ShapeError, "missing 'initial_h_l0'"),
        (Stack("lstm", 3, 4, dtype="float64"), ValueError, r"packed for Kernel\(gru"),
        (Stack("gru", 3, 4), ValueError, r"packed for Kernel\(gru, float64"),
    ):
        with pytest.raises(error, match=words):
            stack.infer(packed, X.astype(stack.dtype))


def test_no_two_layers_or_directions_draw_the_same_noise():
    drawn = []
    for depth in (1, 2):
        layer = Recurrent(spec_of(NOISY), 3, 4, depth, dtype="float64", bidirectional=True)
        for array in layer.params.values():
            array[...] = 0  # nothing but the noise of the last layer is left
        y = layer(X, seed=1)[0]
        drawn += [y[..., :4], y[..., 4:]]
    assert all(d.any() for d in drawn) and not any(np.array_equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_resets_cut_a_row_and_begin_anew():
    """Pieces of a row are the rows that they would be alone; the state that is given belongs to the
    first, unless it begins with a reset."""
    layer = Recurrent("lstm", 3, 4, 2, dtype="float64", learn_initial=True)
    rng = np.random.default_rng(0)
    layer.load_state_dict({n: p + 0.1 * rng.normal(size=p.shape) for n, p in layer.params.items()})
    x, state = rng.normal(size=(6, 3)), tuple(rng.normal(size=(2, 4)) for _ in "hc")
    y, final = layer(x, state, resets=np.array([0, 0, 1, 0, 0, 1], bool))
    total = dict.fromkeys(layer.params, 0.0)
    layer.backward(np.ones_like(y))
    whole = layer.grads
    for begin, end in ((0, 2), (2, 5), (5, 6)):
        part, last = layer(x[begin:end], state if begin == 0 else None)
        assert_close(y[begin:end], part, HAND["float64"])
        layer.backward(np.ones_like(part))
        total = {n: total[n] + g for n, g in layer.grads.items()}
    assert_close(whole, total, HAND["float64"])
    assert all(np.array_equal(a, b) for a, b in zip(final, last))
    first = layer(x, state, resets=np.arange(6) == 0)[0]
    _, dstate = layer.backward(np.ones_like(first))
    assert all((d == 0).all() for d in dstate)
    assert_same(first, layer(x)[0])


def test_many_resets_keep_a_tape_of_the_steps_there_are():
    stack = Stack("gru", 3, 4, dtype="float64")
    x, rng = np.random.default_rng(0).normal(size=(512, 4, 3)), np.random.default_rng(1)
    plain, cut_up = (stack.forward(stack.init(), x, resets=r).tape_bytes for r in (None, rng.random((512, 4)) < 0.9))
    assert cut_up < 4 * plain  # each piece has a step more of states, and rows of a chunk end at different steps


def test_weights_go_to_a_file_and_back(tmp_path, monkeypatch):
    layer, other = (
        Recurrent("gru", 3, 4, 2, bidirectional=True, dtype="float64", learn_initial=True, seed=s) for s in (0, 1)
    )
    path = tmp_path / "weights.npz"
    layer.save(path)
    other.load(path)
    assert_same(other(X)[0], layer(X)[0])
    with np.load(path) as file:
        assert set(file.files) == set(layer.params)
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", lambda file, **arrays: file.write(b"half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        other.save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(ValueError, match=r"weights.npz is no .npz file of weights"):
        layer.load(path)
    with pytest.raises(FileNotFoundError):
        layer.load(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ValueError, match=r"one.npy is no .npz file of weights.*one array, without a name"):
        layer.load(tmp_path / "one.npy")
    monkeypatch.undo()
    for wrong, error, words in (
        (Recurrent("gru", 3, 4, dtype="float64"), ShapeError, "missing 'weight_ih_l0_reverse'"),
        (Recurrent("gru", 3, 4, 2, bidirectional=True, learn_initial=True), DtypeError, "float32.*float64"),
    ):
        wrong.save(path)
        with pytest.raises(error, match=words):
            layer.load(path)


def test_threads_that_write_one_file_leave_a_whole_one(tmp_path):
    path = tmp_path / "weights.npz"

    def beside(file: IO[bytes]) -> None:
        file.write(b"first ")
        other = Thread(target=atomic.write, args=(path, b"other"))
        other.start()
        other.join()
        assert path.read_bytes() == b"other"
        file.write(b"half")

    atomic.write(path, beside)
    assert path.read_bytes() == b"first half" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_of_layers_go_on_as_the_layers_would(how):
    layer = Recurrent("gru", 3, 4, 2, dropout=0.5, bidirectional=True, dtype="float64")
    layer(X)
    again = how(layer)
    assert (
        again.calls == 1
        and repr(again) == repr(layer) == "Recurrent('gru', 3, 4, num_layers=2, bidirectional=True, dtype='float64')"
    )
    assert_same(again(X)[0], layer(X)[0])
    again.params["weight_ih_l0"][...] = 0
    assert layer.params["weight_ih_l0"].any()
    with pytest.raises(RuntimeError, match="needs a call first"):
        how(layer).backward()


def test_layers_and_directions_start_with_different_weights():
    layer = Recurrent("gru", 4, 4, 2, bidirectional=True, seed=1)
    drawn = [layer.params[f"weight_hh_{n}"] for n in ("l0", "l0_reverse", "l1", "l1_reverse")]
    assert all(not np.array_equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
    assert_same(drawn[0], Recurrent("gru", 4, 4, seed=1).params["weight_hh_l0"])


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_no_two_weights_or_gradients_share_memory(name):
    layer = Recurrent(name, 3, 4, 2, bidirectional=True, dtype="float64")
    y, state = layer(X)
    dx, dstate = layer.backward(y)
    arrays = [
        *layer.params.values(),
        *layer.grads.values(),
        X,
        y,
        dx,
        *(state if isinstance(state, tuple) else [state]),
        *(dstate if isinstance(dstate, tuple) else [dstate]),
    ]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_packed_weights_go_where_weights_go():
    stack = Stack("gru", 3, 4, 2, bidirectional=True, learn_initial=True, dtype="float64")
    params = stack.init(3)
    packed = stack.pack(params)
    run = stack.forward(packed, X)
    assert_same(run.outputs, stack.forward(params, X).outputs)
    assert_same(
        stack.backward(run, np.ones((5, 2, 8))).params,
        stack.backward(stack.forward(params, X), np.ones((5, 2, 8))).params,
    )
    for array in params.values():  # they are copies, initial states too
        array += 1
    assert_same(stack.forward(packed, X).outputs, run.outputs)


# --- what layers need of kernels ---


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("memory", ["full", "low"])
def test_pieces_are_rows_of_their_own(reverse, memory):
    of = rnnspec.compile("lstm", dtype="float64", memory=memory)
    one, rng = case(of, 9, 4), np.random.default_rng(0)
    pieces = cut(9, 4, np.array([9, 0, 7, 4]), rng.random((9, 4)) < 0.3, reverse)
    states = {s: rng.normal(size=(len(pieces), *a.shape[1:])) for s, a in one.states.items()}
    out = {"h": np.full((9, 4, 12), np.nan)}
    width = one.dy["h"].shape[2]
    target = {"h": out["h"][..., 3 : 3 + width]}
    run = of.forward(one.params, one.inputs, states, pieces=pieces, out=target)
    assert run.outputs["h"] is target["h"] and np.isnan(out["h"][..., :3]).all()
    back = of.backward(run, one.dy, final=states)
    total = dict.fromkeys(one.params, 0.0)
    for number, (row, start, length) in enumerate(zip(pieces.row, pieces.start, pieces.length)):
        steps = slice(start - length + 1, start + 1) if reverse else slice(start, start + length)
        turn = (lambda a: a[::-1]) if reverse else (lambda a: a)
        alone = {s: a[[number]] for s, a in states.items()}
        own = of.forward(one.params, {"x": turn(one.inputs["x"][steps, [row]])}, alone)
        assert_close(turn(run.outputs["h"][steps, [row]]), own.outputs["h"], HAND["float64"])
        assert_close({s: turn(a[steps, [row]]) for s, a in run.states.items()}, own.states, HAND["float64"])
        assert_close({s: a[[number]] for s, a in run.final.items()}, own.final, HAND["float64"])
        gradients = of.backward(own, {"h": turn(one.dy["h"][steps, [row]])}, final=alone)
        assert_close(turn(back.inputs["x"][steps, [row]]), gradients.inputs["x"], HAND["float64"])
        assert_close({s: a[[number]] for s, a in back.states.items()}, gradients.states, HAND["float64"])
        total = {n: total[n] + g for n, g in gradients.params.items()}
    assert_close(back.params, total, HAND["float64"])
    assert_same(of.infer(one.params, one.inputs, states, pieces=pieces).outputs, run.outputs)


@pytest.mark.parametrize(
    "wrong", [{"start": 9}, {"start": -1}, {"row": 4}, {"row": -1}, {"length": 10}, {"length": -1}]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_beyond_the_arrays_are_refused(wrong, reverse):
    one, pieces = case(kernel(LINEAR_ROWS), 9, 4), cut(9, 4, None, None, reverse)
    for name, value in wrong.items():
        changed = getattr(pieces, name).copy()
        changed[2] = value
        with pytest.raises(ValueError, match=rf"piece 2, .*{value}.* does not lie within 9 steps and 4 rows"):
            one.kernel.forward(one.params, one.inputs, pieces=replace(pieces, **{name: changed}))


def test_out_is_written_in_place_and_checked():
    of = kernel(LINEAR_ROWS)
    one = case(of, 5, 3, lengths=[5, 2, 0])
    right = one.forward()
    for change in (
        lambda a: a,
        lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1),
        lambda a: np.repeat(a, 2, axis=2)[..., ::2],
        lambda a: a[::-1],
    ):
        out = change(np.full(right.outputs["h"].shape, np.nan))
        assert_same(one.forward(out={"h": out}).outputs["h"], right.outputs["h"])
        dx = change(np.full(one.inputs["x"].shape, np.nan))
        of.backward(right, one.dy, final=one.dfinal, out={"x": dx})
        assert_same(dx, one.backward(right).inputs["x"])
    shape = right.outputs["h"].shape
    read_only = np.zeros(shape)
    read_only.flags.writeable = False
    for wrong in (np.zeros((5, 3, 1)), np.zeros(shape, np.float32), read_only):
        with pytest.raises(ShapeError, match=r"out 'h' must be a writable array of shape \(5, 3, "):
            one.forward(out={"h": wrong})
    with pytest.raises(ShapeError, match="out: nothing is written under the name 'y'"):
        one.forward(out={"y": np.zeros(shape)})
    pieces = cut(5, 3, None, None, True)
    with pytest.raises(ShapeError, match="one after another"):
        of.forward(one.params, one.inputs, pieces=pieces, out={"h": np.zeros((3, 5, shape[2])).swapaxes(0, 1)})
    with pytest.raises(TypeError, match="not both"):
        of.forward(one.params, one.inputs, pieces=pieces, lengths=[1, 1, 1])


def test_layers_of_numbers():
    layer = Recurrent(spec_of(LINEAR), 1, 1, 2, bidirectional=True, merge="sum", dtype="float64")
    for name, array in layer.params.items():
        array[...] = 1.0 if name.startswith("w") else 0.5
    y, h = layer(np.array([[1.0], [2.0]]))
    assert y.shape == (2, 1) and h.shape == (4, 1)
    # forward (a, b + a/2) and reverse (a + b/2, b) of (a, b) add up to (2a + b/2, 2b + a/2): of (1,
    # 2) that is (3, 4.5), and of this
    assert_close(y[:, 0], [8.25, 10.5], HAND["float64"])


def test_layers_call_the_methods_of_their_kernels():
    """A kernel of another backend is a subclass: its own forward and infer were passed by."""
    called = []

    def noted(name):
        def call(self, *args, **options):
            called.append(name)
            return getattr(super(Elsewhere, self), name)(*args, **options)

        return call

    calls = ("run_forward", "run_infer", "run_record", "backward")
    Elsewhere = type("Elsewhere", (CpuKernel,), {name: noted(name) for name in calls})
    stack = Stack("gru", 3, 4, dtype="float64")
    own = stack.layers[0].kernel
    elsewhere = Elsewhere(own.spec, own.dtype)
    params = stack.init()
    right = stack.forward(params, X)
    stack.layers[0].kernel = elsewhere
    run = stack.forward(params, X)
    assert_same(run.outputs, right.outputs)
    stack.backward(run, run.outputs["h"])
    assert stack.infer(params, X).layers == ()
    stack.run_record(stack.call(params, X))
    assert called == ["run_forward", "backward", "run_infer", "run_record"]


@pytest.mark.parametrize("lengths", [None, [5, 5], [5, 2], [0, 3]])
def test_matrices_are_recorded_in_both_directions(lengths):
    """Each direction is what it is alone, the reverse one on every row turned around."""
    both = Recurrent("fast_weights", 3, 4, bidirectional=True, return_all_states=True, dtype="float64", seed=1)
    rng, ends = np.random.default_rng(0), [5, 5] if lengths is None else lengths
    dy, d_A, d_back = rng.normal(size=(5, 2, 8)), rng.normal(size=(5, 2, 4, 4)), rng.normal(size=(5, 2, 4, 4))

    def turned(a):
        found = np.zeros_like(a)
        for b, n in enumerate(ends):
            found[:n, b] = a[:n, b][::-1]
        return found

    y, _, steps = both(X, lengths=lengths)
    dx, _ = both.backward(dy, dsteps={"A_l0": d_A, "A_l0_reverse": d_back})
    inferred, _, again = both.infer(X, lengths=lengths)
    assert_close(inferred, y, HAND["float64"])
    assert_close(again, steps, HAND["float64"])
    total = np.zeros_like(dx)
    for end, columns, gradient, turn in (
        ("", slice(0, 4), d_A, lambda a: a),
        ("_reverse", slice(4, 8), d_back, turned),
    ):
        alone = Recurrent("fast_weights", 3, 4, return_all_states=True, dtype="float64")
        alone.load_state_dict({n: both.params[f"{n}{end}"] for n in alone.params})
        h, _, recorded = alone(turn(X), lengths=lengths)
        assert_close(y[..., columns], turn(h), HAND["float64"])
        assert_close(steps[f"A_l0{end}"], turn(recorded["A_l0"]), HAND["float64"])
        assert steps[f"A_l0{end}"][: max(ends)].any()
        total += turn(alone.backward(turn(dy[..., columns]), dsteps={"A_l0": turn(gradient)})[0])
        assert_close({n: both.grads[f"{n}{end}"] for n in alone.grads}, alone.grads, HAND["float64"])
    assert_close(dx, total, HAND["float64"])


@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (3, 0), (0, 0)])
def test_matrices_of_no_steps_or_rows(steps, rows):
    layer = Recurrent("fast_weights", 3, 4, bidirectional=True, return_all_states=True, dtype="float64")
    y, _, recorded = layer(np.ones((steps, rows, 3)))
    assert recorded["A_l0_reverse"].shape == (steps, rows, 4, 4)
    assert layer.backward(y, dsteps=recorded)[0].shape == (steps, rows, 3)


def test_shared_directions_are_packed_once():
    stack = Stack("gru", 3, 4, 2, bidirectional=True, share_directions=True, dtype="float64")
    params = stack.init()
    packed = stack.pack(params)
    assert (
        packed.cells[0] is packed.cells[1]
        and packed.cells[2] is packed.cells[3]
        and packed.cells[0] is not packed.cells[2]
    )
    assert_same(stack.infer(packed, X).outputs, stack.infer(params, X).outputs)
    run, right = stack.forward(packed, X), stack.forward(params, X)
    assert_same(stack.backward(run, run.outputs["h"]).params, stack.backward(right, right.outputs["h"]).params)
