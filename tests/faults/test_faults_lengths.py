"""Faults that engines like this one have had (numbered as in the project's list): rows of different
lengths, and none at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from cells import CORE, DTYPES, LINEAR, Case, case, expected, kernel, reference_stages, whole_sizes
from tolerances import HAND, REFERENCE, assert_close, assert_same

from rnnspec.backends import reference
from rnnspec.backends.cpu.launch import memory
from rnnspec.backends.cpu.launch.rows import Limits

KINDS = ("params", "inputs", "states")
LENGTHS = np.array([7, 3, 5, 1, 0, 7, 2])


def linear(x, lengths, h0=None, dtype="float64", u=0.5):
    """The linear RNN, w = 1, on x [T, B]."""
    of, x = kernel(LINEAR, dtype), np.asarray(x, dtype)
    params = {"w": np.array(1.0, dtype), "u": np.array(u, dtype)}
    return of, of.forward(params, {"x": x}, None if h0 is None else {"h": np.asarray(h0, dtype)}, lengths)


def turned(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Each row of x [T, B, ...] the other way round, what lies past its end left where it is: the
    reverse direction."""
    out = x.copy()
    for row, n in enumerate(lengths):
        out[:n, row] = x[:n, row][::-1]
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_H11_the_reverse_direction_starts_at_the_last_valid_step(dtype):
    lengths, x = np.array([3, 2]), np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 99.0]])
    _, forward = linear(x, lengths, dtype=dtype)
    _, reverse = linear(turned(x, lengths), lengths, dtype=dtype)
    assert_close(forward.outputs["h"][:, 1], [1, 2.5, 0], HAND[dtype])
    assert_close(turned(reverse.outputs["h"], lengths)[:, 1], [2, 2, 0], HAND[dtype])
    assert_close(forward.final["h"], [4.25, 2.5], HAND[dtype])
    assert_close(reverse.final["h"], [2.75, 2.0], HAND[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_H12_zero_past_the_end_and_the_last_valid_state(dtype):
    of, run = linear(np.ones((4, 2)), [4, 2], dtype=dtype)
    assert_close(run.outputs["h"], [[1, 1], [1.5, 1.5], [1.75, 0], [1.875, 0]], HAND[dtype])
    assert_close(run.states["h"], run.outputs["h"], 0)
    assert_close(run.final["h"], [1.875, 1.5], HAND[dtype])
    inferred = of.infer(
        {"w": np.array(1, dtype), "u": np.array(0.5, dtype)}, {"x": np.ones((4, 2), dtype)}, lengths=[4, 2]
    )
    assert_same(inferred.outputs, run.outputs)
    assert_same(inferred.final, run.final)


@pytest.mark.parametrize("lengths", [[4, 0], [0, 4], [0, 0]])
def test_H13_a_row_of_length_0_takes_no_step(lengths):
    of, run = linear(np.ones((4, 2)), lengths, [7.0, 7.0])
    back = of.backward(run, {"h": np.full((4, 2), 3.0)}, final={"h": np.array([11.0, 13.0])})
    for row, n in enumerate(lengths):
        if n == 0:
            assert (run.outputs["h"][:, row] == 0).all() and run.final["h"][row] == 7
            assert back.states["h"][row] == (11, 13)[row] and (back.inputs["x"][:, row] == 0).all()
        else:
            assert_close(run.outputs["h"][:, row], [4.5, 3.25, 2.625, 2.3125], HAND["float64"])
    if not any(lengths):
        assert back.params == {"w": 0, "u": 0}


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (5, 0), (0, 0)])
def test_H14_no_steps_or_no_rows(name, steps, batch):
    one = case(kernel(name), steps, batch, D=3, H=5)
    for lengths in (None, np.zeros(batch, int)):
        run = one.forward(lengths=lengths)
        assert run.outputs["h"].shape == (steps, batch, 5)
        assert_same(run.final, one.states)
        back = one.backward(run)
        assert all((g == 0).all() for g in back.params.values())
        assert back.inputs["x"].shape == (steps, batch, 3)
        assert_same(back.states, one.dfinal)
        assert_same(one.kernel.infer(one.params, one.inputs, one.states, lengths).final, one.states)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([4, 5], ["lengths[1] is 5", "4 steps"]),
        ([4, -1], ["lengths[1] is -1", "between 0 and 4"]),
        ([4], ["(2,)", "(1,)"]),
        ([[4, 2]], ["(2,)", "(1, 2)"]),
        ([4.0, 2.5], ["integers", "float64"]),
        (4, ["(2,)", "()"]),
        ([True, True], ["integers", "bool"]),
        (["4", "2"], ["integers"]),
        (np.array([4, 2**40]), ["lengths[1]", str(2**40)]),
        (np.array([4, 2**64 - 1], np.uint64), ["lengths[1]"]),
    ],
)
def test_H15_lengths_out_of_range_or_of_the_wrong_kind(lengths, words):
    with pytest.raises(ValueError) as caught:
        linear(np.ones((4, 2)), lengths)
    assert all(w in str(caught.value) for w in words), caught.value


@pytest.mark.parametrize(
    "kind", ["list", "tuple", "int8", "uint8", "int32", "uint32", "int64", "uint64", ">i4", "strided"]
)
def test_H15_integers_of_every_width(kind):
    every_other = np.array([4, 9, 2, 9])[::2]
    given = {"list": [4, 2], "tuple": (4, 2), "strided": every_other}.get(kind)
    _, run = linear(np.ones((4, 2)), np.array([4, 2]).astype(kind) if given is None else given)
    assert_close(run.final["h"], [1.875, 1.5], HAND["float64"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_H16_what_lies_in_the_padding_reaches_nothing(name, dtype, poison):
    one = case(kernel(name, dtype), 5, 3, lengths=[5, 2, 3], D=3, H=5)
    past = np.arange(5)[:, None] >= one.lengths
    results = []
    for filler in (0.0, poison):
        one.inputs["x"][past] = filler
        one.dy["h"][past] = filler
        run = one.forward()
        results.append((run.outputs, run.final, run.states, *(getattr(one.backward(run), k) for k in KINDS)))
    for clean, dirty in zip(*results):
        assert all(np.isfinite(a).all() for a in dirty.values())
        assert_same(dirty, clean)
    assert (results[1][4]["x"][past] == 0).all()


@pytest.mark.parametrize("name", CORE)
def test_H17_ragged_rows_are_the_reference_and_the_rows_alone(name):
    of = kernel(name)
    one = case(of, 7, len(LENGTHS), lengths=LENGTHS)
    check(one, name)
    run, back = one.forward(), one.backward()
    total = {n: np.zeros_like(p) for n, p in one.params.items()}
    for row, n in enumerate(LENGTHS):
        alone = replace(
            one,
            lengths=None,
            inputs={i: x[:n, [row]] for i, x in one.inputs.items()},
            dy={o: g[:n, [row]] for o, g in one.dy.items()},
            states={s: h[[row]] for s, h in one.states.items()},
            dfinal={s: g[[row]] for s, g in one.dfinal.items()},
        )
        own, gradients = alone.forward(), alone.backward()
        tolerance = HAND["float64"]
        assert_close({o: y[:n, [row]] for o, y in run.outputs.items()}, own.outputs, tolerance)
        assert all((y[n:, row] == 0).all() for y in run.outputs.values())
        assert_close({s: h[[row]] for s, h in run.final.items()}, own.final, tolerance)
        assert_close({i: x[:n, [row]] for i, x in back.inputs.items()}, gradients.inputs, tolerance)
        assert_close({s: h[[row]] for s, h in back.states.items()}, gradients.states, tolerance)
        total = {p: g + gradients.params[p] for p, g in total.items()}
    assert_close(back.params, total, HAND["float64"])


def check(one: Case, name: str) -> None:
    right, run = expected(one, name), one.forward()
    back, tolerance = one.backward(run), REFERENCE[one.kernel.dtype.name]
    assert_close(run.outputs, right.outputs, tolerance, "outputs")
    assert_close(run.final, right.final, tolerance, "final")
    for kind in KINDS:
        assert_close(getattr(back, kind), getattr(right, kind), tolerance, f"gradients of {kind}")


@pytest.fixture
def dirty_memory(monkeypatch) -> Iterator[None]:
    """All memory that a call gets is full of NaN."""
    monkeypatch.setattr(memory.Pool, "take", lambda self, size: np.full(size, 255, np.uint8))
    monkeypatch.setattr(memory.Pool, "give", lambda self, piece: None)
    yield


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("ragged", [False, True])
def test_H09_H12_no_memory_is_read_before_it_is_written(name, ragged, dirty_memory):
    of = kernel(name)
    for width in (3, 8, 9):
        sizes = {n: width for n in whole_sizes(of.spec) if n == "H"}
        check(case(of, 7, len(LENGTHS), seed=width, lengths=LENGTHS if ragged else None, **sizes), name)


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("ragged", [False, True])
def test_chunks_and_blocks_leave_no_seam(name, ragged):
    """A chunk of one step at most, then of a few, and rows dealt out to three threads."""
    for smallest in (1, 11):
        fresh = kernel(name).like(threads=3)
        fresh.limits = Limits(flops_per_thread=1, cache_bytes=1, least_rows=smallest)
        one = case(fresh, 7, len(LENGTHS), lengths=LENGTHS if ragged else None)
        check(one, name)
        inferred, run = fresh.infer(one.params, one.inputs, one.states, one.lengths), one.forward()
        assert_close(inferred.outputs, run.outputs, HAND["float64"])
        assert_close(run.states, {s: expected_states(one, name)[s] for s in run.states}, REFERENCE["float64"])


def expected_states(one: Case, name: str) -> dict[str, np.ndarray]:
    """Every state at every step: the outputs of the cell that emits them all."""
    graph = reference_stages(name).graph
    return dict(reference.forward(graph, one.params, one.inputs, one.states, one.lengths, sizes=one.sizes).states)
