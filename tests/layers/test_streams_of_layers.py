"""Layers step by step: the numbers of the whole sequence, states that can be written to, rows that
start again, weights that are taken over when it is asked for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from counting import BOTH, COUNTING, NAMES
from tiny import cell
from tolerances import HAND, assert_close, assert_same

import rnnspec
from rnnspec import DtypeError, Recurrent, ShapeError
from rnnspec.layers.stack import Stack

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3, 4))
GATED = cell(
    "h[t] = tanh(0.5 * h[t-1] + x[t] * g[t]) + keep[t] * mask[t]\nv[t] = h[t] * 2",
    name="gated",
    inputs="{x: H, g: [], keep: H, mask: H}",
    states="{h: H}",
    outputs="[v, h]",
    noise="{keep: bernoulli(0.25), mask: dropout(0.5) per sequence}",
    defaults="{g: 0.5}",
)
KINDS = {
    "lstm": ("lstm", {"num_layers": 2, "return_all_states": ["c", "f"]}),
    "residual": ("gru", {"num_layers": 3, "residual": True, "learn_initial": True}),
    "different": (["lstm", "gru"], {}),
    "tuple": (rnnspec.loads(GATED), {}),
    "noise": (rnnspec.loads(GATED), {"num_layers": 2}),
    "count": (rnnspec.loads(BOTH), {"num_layers": 2}),
    "matrix": ("mlstm_matrix", {}),
}


def layer_of(kind, **more):
    name, options = KINDS.get(kind, (rnnspec.loads(kind) if "\n" in kind else kind, {}))
    layer = Recurrent(name, 4, 4, dtype="float64", **options, **more)
    for weight, array in layer.params.items():
        layer.params[weight] = array + 0.1 * np.random.default_rng(1).standard_normal(array.shape)
    return layer


def fed(layer, x):
    """The first input alone: the others have defaults."""
    return x if len(layer.stack.required) == 1 else {next(iter(layer.stack.inputs)): x}


def named(values):
    return dict(enumerate(values if isinstance(values, tuple) else (values,)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_a_sequence(kind):
    layer = layer_of(kind)
    state = layer.infer(fed(layer, X[::-1]))[1]  # not the initial one
    y, last, *recorded = layer.infer(fed(layer, X), state)
    stream = layer.stream(state, rows=3)
    for t in range(6):
        assert stream.t == t
        assert_same(named(stream.step(fed(layer, X[t]))), {i: a[t] for i, a in named(y).items()})
        assert_same(stream.recorded, {n: a[t] for n, a in recorded[0].items()} if recorded else {})
    assert_same(named(stream.state), named(last))
    assert list(stream.states) == list(layer.stack.carried)
    again, _ = layer.infer(fed(layer, X[:2]), stream.state)[:2]
    assert_same(named(stream.step(fed(layer, X[0]))), {i: a[0] for i, a in named(again).items()})
    stream.reset()
    assert_same(
        named(stream.step(fed(layer, X[0]))), {i: a[0] for i, a in named(layer.infer(fed(layer, X))[0]).items()}
    )


def test_what_a_step_gives_is_the_callers():
    stream = layer_of("lstm").stream(rows=3)
    ys = [stream.step(x) for x in X]
    assert len({y.ctypes.data for y in ys}) == 6 and not any(np.array_equal(ys[0], y) for y in ys[1:])


@pytest.mark.parametrize("kind", ["lstm", "residual", *COUNTING], **NAMES)
@pytest.mark.parametrize("which", [[2, 0], [False, True, False], []])
def test_some_rows_start_again(kind, which):
    layer = layer_of(kind)
    chosen = np.flatnonzero(which) if np.asarray(which).dtype == bool else np.asarray(which, int)
    stream, alone = layer.stream(rows=3), [layer.stream(rows=1) for _ in range(3)]
    given = layer.infer(fed(layer, X[:, : len(chosen)]))[1]
    for t in range(6):
        if t == 2:
            stream.reset(rows=which)
            for row in chosen:
                alone[row].reset()
        if t == 4:  # from a state, of a row each, with its count
            stream.reset(given, rows=which)
            for number, row in enumerate(chosen):
                own = tuple(a[:, number : number + 1] for a in named(given).values())
                alone[row].reset(own if isinstance(given, tuple) else own[0])
        y = stream.step(fed(layer, X[t]))
        for row in range(3):
            assert_close(y[row], alone[row].step(fed(layer, X[t, row : row + 1]))[0], HAND["float64"])
    assert stream.t == 6
    assert_same(stream.counts, np.concatenate([s.counts for s in alone], axis=1))


def test_states_are_written_in_place_and_old_ones_can_not_be():
    layer = layer_of("lstm")
    stream, y = layer.stream(rows=3), layer.infer(X[:1])[0][0]
    stream.step(X[3])
    h = stream.state[0]
    assert h is stream.states["h"] and h.flags.writeable
    h[:, 1] = 0
    stream.states["c"][:, 1] = 0
    found = stream.step(X[0])
    assert_close(found[1], y[1], HAND["float64"])
    assert not np.array_equal(found[0], y[0])
    with pytest.raises(ValueError, match="read-only"):  # of the past: nothing would read it
        h[0] = 1
    stream.states["h"] *= 0
    stream.states["c"][...] = 0
    stream.reset(rows=[0])  # what was written for the other rows is not lost
    assert_close(stream.step(X[0]), y, HAND["float64"])
    with pytest.raises(TypeError, match=r"changed in place.*stream.states\['h'\]\[...\] = value"):
        stream.states["h"] = np.ones((2, 3, 4))
    saved = dict(stream.states)
    wanted = stream.step(X[1])
    stream.reset(tuple(saved.values()))
    assert_same(stream.step(X[1]), wanted)
    assert type(pickle.loads(pickle.dumps(stream.states))) is dict


def test_a_count_is_written_too():
    layer = layer_of("count")
    stream = layer.stream(rows=3)
    stream.states["t"][...] = [[4, 0, 2], [4, 0, 2]]
    assert_same(stream.counts, stream.states["t"])
    y = stream.step(fed(layer, X[0]))
    assert_same(y, layer.infer(fed(layer, X[:1]), (None, np.array([[4, 0, 2]] * 2)))[0][0])
    assert_same(stream.counts, np.array([[5, 1, 3]] * 2))
    stream.states["t"][0, 0] = -1
    with pytest.raises(ValueError, match="from 0 to 2"):
        stream.step(fed(layer, X[0]))
    assert stream.t == 1


def test_weights_are_those_of_before_until_refresh():
    layer, other = layer_of("lstm"), layer_of("lstm")
    stream, same = layer.stream(rows=3), other.stream(rows=3)
    for _ in range(2):
        stream.step(X[0]), same.step(X[0])
    for array in layer.params.values():
        array *= 0.5
    assert_same(stream.step(X[1]), same.step(X[1]))  # nothing is seen
    state = tuple(a.copy() for a in stream.state)
    stream.refresh()
    assert_same(stream.step(X[2]), layer.infer(X[2:3], state)[0][0])
    layer.load_state_dict(other.state_dict())  # other arrays
    stream.refresh()
    assert stream.t == 4
    stream.reset()
    same.reset()
    assert_same(stream.step(X[2]), same.step(X[2]))
    with pytest.raises(ShapeError, match="missing 'weight_ih_l0'"):
        stream.refresh({})
    stack = Stack("lstm", 4, 4, dtype="float64")
    weights = stack.init(0)
    alone = stack.stream(weights, rows=3)
    weights["weight_ih_l0"][...] = 0
    before = alone.step(X[0])
    alone.reset()
    alone.refresh()
    assert_same(alone.step(X[0]), stack.infer(weights, X[:1]).outputs["h"][0])
    assert not np.array_equal(before, alone.step(X[0]))


def test_a_stream_is_evaluation():
    layer = layer_of("lstm", dropout=0.5)
    assert layer.training
    assert_same(layer.stream(rows=3).step(X[0]), layer.infer(X[:1])[0][0])


@pytest.mark.parametrize("more", [{"bidirectional": True}, {"go_backwards": True}])
def test_what_runs_from_the_end_has_no_stream(more):
    with pytest.raises(ValueError, match="stream: a direction that runs from the end needs the whole sequence"):
        layer_of("lstm", **more).stream()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda s: s.step(X), ShapeError, r"input 'x' must have shape \(3, 4\), got \(6, 3, 4\)"),
        (lambda s: s.step(X[0, 0]), ShapeError, r"must have shape \(3, 4\), got \(4,\)"),
        (lambda s: s.step(X[0].astype("float32")), DtypeError, "dtype float32"),
        (lambda s: s.step({"y": X[0]}), ShapeError, "unknown input 'y'"),
        (lambda s: s.step({}), ShapeError, "missing input 'x'"),
        (lambda s: s.step((X[0], X[0])), ShapeError, "one array"),
        (lambda s: s.reset(X[:1]), ShapeError, "tuple of 2 arrays"),
        (lambda s: s.reset((X[:1], None), rows=[1]), ShapeError, r"must have shape \(2, 1, 4\)"),
        (lambda s: s.reset(rows=[3]), ValueError, "numbers of rows from 0 to 2"),
        (lambda s: pickle.dumps(s), TypeError, "can't be copied or pickled"),
    ],
)
def test_messages(call, error, message):
    layer = layer_of("lstm")
    stream = layer.stream(rows=3)
    stream.step(X[0])
    before = {n: a.copy() for n, a in stream.states.items()}
    with pytest.raises(error, match=message):
        call(stream)
    assert_same(stream.states, before)
    assert stream.t == 1
    assert_same(stream.step(X[1]), layer.infer(X[:2])[0][1])


def test_rows():
    layer = layer_of("lstm")
    assert layer.stream(rows=0).step(X[0, :0]).shape == (0, 4)
    for rows in (True, -1, 1.5):
        with pytest.raises(ValueError, match="rows must be a whole number of at least 0"):
            layer.stream(rows=rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_one_step_is_the_step_of_a_sequence(kind):
    """What runs in what the last call left gives what the whole gives: for other states, weights
    and rows than those of the call before."""
    layer, state = layer_of(kind), None
    layer.eval()
    whole = layer(fed(layer, X))
    for t in range(6):
        for _ in range(2):  # the second one with weights that were seen before
            found = layer.infer(fed(layer, X[t : t + 1]), state)
        assert_same(named(found[0]), {i: a[t : t + 1] for i, a in named(whole[0]).items()})
        if len(found) == 3:
            assert_same(found[2], {n: a[t : t + 1] for n, a in whole[2].items()})
        state = found[1]
    assert_same(named(state), named(whole[1]))
    for array in layer.params.values():
        array *= 0.5  # in place
    for rows in (3, 2, 3):
        for _ in range(3):
            found = layer.infer(fed(layer, X[:1, :rows]))
        assert_same(named(found[0]), named(layer(fed(layer, X[:1, :rows]))[0]))
        assert_same(named(found[1]), named(layer(fed(layer, X[:1, :rows]))[1]))
