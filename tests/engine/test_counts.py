"""The step's number goes on: in windows, streams, single steps and tapes, of each row by itself."""

from __future__ import annotations

import numpy as np
import pytest
from cells import case, counts_after, expected, kernel
from counting import BOTH, COUNTING, NAMES, SHIPPED
from tiny import cell
from tolerances import HAND, REFERENCE, assert_close, assert_same

import rnnspec
from rnnspec import DtypeError, ShapeError
from rnnspec.engine.spans import cut


def left_out(c):
    """The inputs that a call must give."""
    return {n: a for n, a in c.inputs.items() if n not in c.kernel.spec.defaults}


def test_cells_that_count_are_known():
    assert {"phased_lstm", "surnn"} <= set(SHIPPED)
    assert "lstm" not in SHIPPED and "clockwork_rnn" not in SHIPPED  # its phase is a state
    assert "counts" not in kernel("lstm").layout("infer")["fields"]
    with pytest.raises(ShapeError, match="unknown state 't'"):
        kernel("rnn").infer(case(kernel("rnn"), 1, 1).params, {"x": np.zeros((1, 1, 3))}, {"t": 1})


@pytest.mark.parametrize("name", COUNTING, **NAMES)
def test_windows_streams_and_steps_are_the_whole(name):
    own = kernel(name)
    c = case(own, 9, 3)
    x, begin = left_out(c), c.states | {"t": np.array([0, 5, 40])}
    whole, run = own.infer(c.params, x, begin), own.forward(c.params, x, begin)
    assert_same(whole.final["t"], np.array([9, 14, 49]))
    assert_same(run.final["t"], whole.final["t"])
    states, runs = begin, []
    for a, b in ((0, 4), (4, 4), (4, 9)):
        runs.append(own.forward(c.params, {n: v[a:b] for n, v in x.items()}, states))
        states = runs[-1].final
    for o, y in run.outputs.items():
        assert_close(np.concatenate([r.outputs[o] for r in runs]), y, HAND["float64"])
    assert_close(states, run.final, HAND["float64"])
    back, after = own.backward(run, c.dy, final=c.dfinal), c.dfinal
    total = {n: np.zeros_like(a) for n, a in c.params.items()}
    for (a, b), r in reversed(list(zip(((0, 4), (4, 4), (4, 9)), runs))):
        part = own.backward(r, {o: g[a:b] for o, g in c.dy.items()}, final=after)
        after, total = part.states, {n: total[n] + g for n, g in part.params.items()}
    assert_close(after, back.states, HAND["float64"])
    assert_close(total, back.params, HAND["float64"])
    stream, state = own.stream(c.params, begin, rows=3, **c.sizes), begin
    for t in range(9):
        now = {n: a[t] for n, a in x.items()}
        single = own.step(c.params, now, state)
        for outputs in (stream.step(now), single.outputs):
            assert_same(outputs, {o: y[t] for o, y in whole.outputs.items()})
        state = dict(single)
        if t == 5:  # saved, and taken up by another stream
            stream = own.stream(c.params, stream.states, rows=3, **c.sizes)
    for found in (stream.states, state):
        assert_same(found, whole.final)


@pytest.mark.parametrize("memory", ["full", "low"])
@pytest.mark.parametrize("lengths", [None, [7, 0, 3, 6]])
def test_each_row_counts_for_itself(memory, lengths):
    """Values and gradients are the reference's; a tape carries the counts."""
    own = kernel(BOTH).like(memory=memory)
    c = case(own, 7, 4, lengths=lengths)
    counts = np.array([3, 0, 100, 7])
    c.states["t"] = counts
    c.inputs["time"] = np.broadcast_to(np.arange(7.0)[:, None] + counts, (7, 4))
    want = expected(c, BOTH)
    run = own.forward(c.params, left_out(c), c.states, c.lengths)
    taped = own.record(c.params, left_out(c), c.states, c.lengths)
    again = own.resume(c.params, left_out(c), taped.tape.copy(), c.lengths)
    assert_same(taped.final, run.final)
    assert_same(run.final["t"], counts_after(c)["t"])
    assert_close(run.outputs, want.outputs, REFERENCE["float64"])
    for made in (run, again):
        back = own.backward(made, c.dy, final=c.dfinal)
        assert_close(back.states, want.states, REFERENCE["float64"])
        assert_close(back.inputs["x"], want.inputs["x"], REFERENCE["float64"])
    with pytest.raises(ShapeError, match=r"a tape of \d+ bytes is not of these arguments"):
        own.resume(c.params, left_out(c), taped.tape[8:], c.lengths)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_piece_counts_from_its_own_start(reverse):
    """In its own direction; an input that defaults to t has the same number in both."""
    own, rng = kernel(BOTH), np.random.default_rng(0)
    x, resets = rng.standard_normal((6, 2, 3)), np.zeros((6, 2), bool)
    resets[[2, 5], [0, 1]] = True
    pieces = cut(6, 2, np.array([6, 5]), resets, reverse)
    counts = 10 * np.arange(len(pieces))
    found = own.infer({}, {"x": x}, {"t": counts}, pieces=pieces)
    assert_same(found.final["t"], counts + pieces.length)
    for i in range(len(pieces)):
        steps = pieces.start[i] + np.arange(pieces.length[i]) * (-1 if reverse else 1)
        time = np.arange(pieces.length[i], dtype=float)[:: -1 if reverse else 1] + counts[i]
        alone = {"x": x[steps, pieces.row[i]][:, None], "time": time[:, None]}
        y = own.infer({}, alone, {"t": counts[i]}).outputs["h"][:, 0]
        assert_same(found.outputs["h"][steps, pieces.row[i]], y)


@pytest.mark.parametrize("name", [*COUNTING, "lstm"], **NAMES)
@pytest.mark.parametrize("which", [[1], [False, True, False], np.array([2, 1]), np.array([], int), []])
def test_some_rows_of_a_stream_start_again(name, which):
    own = kernel(name)
    c = case(own, 7, 3)
    x, one = left_out(c), [own.stream(c.params, rows=1, **c.sizes) for _ in range(3)]
    stream = own.stream(c.params, rows=3, **c.sizes)
    chosen = np.flatnonzero(which) if np.asarray(which).dtype == bool else np.asarray(which, int)
    assert_same(stream.counts, np.zeros(3, np.int64))
    for t in range(7):
        if t == 3:  # from zero
            stream.reset(rows=which)
            for row in chosen:
                one[row].reset()
            assert_same(stream.counts, np.where(np.isin(np.arange(3), chosen), 0, 3))
        if t == 5:  # from states, each with a count of its own
            given = {n: a[: len(chosen)] for n, a in c.states.items()}
            given |= {"t": 10 + np.arange(len(chosen))} if own.spec.counts else {}
            stream.reset(given, rows=which)
            for number, row in enumerate(chosen):
                one[row].reset({n: a[number : number + 1] for n, a in given.items()})
        outputs = stream.step({n: a[t] for n, a in x.items()})
        for row in range(3):
            alone = one[row].step({n: a[t, row : row + 1] for n, a in x.items()})
            assert_close({o: a[row] for o, a in outputs.items()}, {o: a[0] for o, a in alone.items()}, HAND["float64"])
    assert stream.t == 7
    assert_same(stream.counts, np.concatenate([s.counts for s in one]))
    stream.reset()
    assert stream.t == 0 and not stream.counts.any()


def test_what_is_wrong_with_a_count_or_with_rows_is_said():
    own, x = kernel(BOTH), {"x": np.zeros((4, 3, 2))}
    for count, error, words in (
        (np.zeros(3), DtypeError, "in integers; got dtype float64"),
        (np.array([True, False, True]), DtypeError, "dtype bool"),
        (np.arange(2), ShapeError, r"shape \(2,\), expected \(3,\)"),
        (-1, ValueError, "from 0 to 2"),
        (2**60, ValueError, "got 1152921504606846976"),
    ):
        with pytest.raises(error, match=words):
            own.infer({}, x, {"t": count})
    assert_same(own.infer({}, x, {"t": 5}).final["t"], np.full(3, 9))
    stream = own.stream({}, rows=3, H=2)
    for rows in ([3], [-1], [True, False], [0.5], [[0]], "1"):
        with pytest.raises(ValueError, match="rows must be 3 booleans, or numbers of rows from 0 to 2"):
            stream.reset(rows=rows)
    with pytest.raises(ValueError, match="names a row twice"):
        stream.reset(rows=[1, 1])
    with pytest.raises(ShapeError, match=r"state 'h' has shape \(3, 2\), expected \(1, 2\)"):
        stream.reset({"h": np.zeros((3, 2))}, rows=[1])


def test_a_size_can_not_be_called_as_the_language_calls_something():
    for name, what in (("t", "the step's number"), ("tanh", "a function of the language"), ("where", "a word of it")):
        text = cell("h[t] = h[t-1] + t + x[t]", inputs=f"{{x: {name}}}", states=f"{{h: {name}}}")
        with pytest.raises(rnnspec.SpecError, match=f"'{name}' is reserved: it is {what}"):
            rnnspec.loads(text)


def test_a_cell_without_inputs_counts_too():
    own = kernel(cell("h[t] = 0.5 * h[t-1] + t", name="clock", inputs="{}", states="{h: []}"))
    h = {"h": np.zeros(2), "t": np.array([0, 5])}
    whole = own.infer({}, {}, h, steps=6)
    first = own.infer({}, {}, h, steps=2)
    rest = own.infer({}, {}, first.final, steps=4)
    assert_same(np.concatenate([first.outputs["h"], rest.outputs["h"]]), whole.outputs["h"])
    assert_same(rest.final, whole.final)
    stream = own.stream({}, h, rows=2)
    assert_same(np.stack([stream.step()["h"].copy() for _ in range(6)]), whole.outputs["h"])
