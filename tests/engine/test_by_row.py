"""Gradients by row: each against a backward pass of its row alone, their sum, their norms; lengths,
pieces, memory, noise, threads, awkward sizes, long sequences; what is refused."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
import pytest
from cells import case, kernel
from emulated import gpu
from tiny import cell
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends.cpu.launch.execute import forget_idle
from rnnspec.backends.cpu.launch.memory import POOL
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.spans import cut
from rnnspec.errors import UnsupportedError

# a matrix that a `where` may hide, a piece of a parameter, a value made of parameters alone, a
# matrix element by element, a number, a gradient of one step
PIECES = cell(
    "h[t] = tanh(R[1] @ x[t] + softplus(u) * h[t-1] + R[2] @ sign(h[t-1]) + s)",
    name="pieces",
    inputs="{x: H}",
    states="{h: H}",
    parameters="{R: [2, H, H], u: [H], s: []}",
)
HIDDEN = cell(
    "m[t] = where(x[t] > 0, x[t], 0)\nh[t] = W @ m[t] + 0.5 * h[t-1]",
    name="hidden",
    inputs="{x: H}",
    states="{h: H}",
    parameters="{W: [H, H]}",
)
CELLS = [("lstm", "float64"), ("lstm", "float32"), ("gru_reset_before", "float64")]
CELLS += [(PIECES, "float64"), (HIDDEN, "float64")]


def by_row(one, run=None):
    run = one.forward() if run is None else run
    return one.kernel.backward(run, one.dy, final=one.dfinal, per_row=True)


def alone(one, row):
    """The gradients of one row of a case, run alone."""
    part = slice(row, row + 1)
    run = one.kernel.forward(
        one.params,
        {n: a[:, part] for n, a in one.inputs.items()},
        {n: a[part] for n, a in one.states.items()},
        None if one.lengths is None else one.lengths[part],
    )
    final = {n: a[part] for n, a in one.dfinal.items()}
    return one.kernel.backward(run, {n: a[:, part] for n, a in one.dy.items()}, final=final)


@pytest.mark.parametrize("name, dtype", CELLS)
def test_each_row_is_the_row_alone(name, dtype):
    one = case(kernel(name, dtype), steps=6, rows=3, lengths=[6, 0, 4])
    each = by_row(one)
    for row in range(3):
        for n, array in alone(one, row).params.items():
            assert_close(each.params[n][row], array, REFERENCE[dtype])


@pytest.mark.parametrize("rows, steps", [(0, 3), (3, 0), (1, 1), (5, 2)])
def test_awkward_sizes(rows, steps):
    one = case(kernel("lstm"), steps=steps, rows=rows)
    each, whole = by_row(one), one.backward()
    for n, array in whole.params.items():
        assert each.params[n].shape == (rows, *array.shape)
        assert_close(each.params[n].sum(0), array, REFERENCE["float64"])


def test_sums_of_long_rows_over_several_chunks_and_threads():
    one = case(kernel("lstm", "float32"), steps=700, rows=5)
    threads = one.kernel.like(threads=3)
    threads.limits = Limits(flops_per_thread=1, cache_bytes=1 << 14)
    run = threads.forward(one.params, one.inputs, one.states)
    each = threads.backward(run, one.dy, final=one.dfinal, per_row=True)
    norms = threads.row_norms(run, one.dy, final=one.dfinal)
    single = by_row(one)
    for n, array in one.backward().params.items():
        assert_close(each.params[n].sum(0), array, REFERENCE["float32"])
        assert np.array_equal(each.params[n], single.params[n])  # whatever the threads and chunks
        squares = np.square(each.params[n], dtype=float).reshape(5, -1).sum(1)
        np.testing.assert_allclose(norms.params[n], squares, rtol=1e-12)


def test_norms_hold_few_gradients_at_once():
    """Beside what gradients are made of, about a tape, less than those of some rows: however many
    rows there are."""
    own, held = kernel("lstm", "float32"), []
    params = own.init(D=64, H=64)
    each = sum(array.nbytes for array in params.values())
    for rows in (64, 256):
        run = own.forward(params, {"x": np.ones((2, rows, 64), np.float32)})
        dy = np.ones_like(run.outputs["h"])
        own.row_norms(run, {"h": dy[:, :1].repeat(rows, 1)})  # what is made once
        POOL.idle.clear()
        forget_idle()
        tracemalloc.start()
        norms = own.row_norms(run, {"h": dy})
        held.append(tracemalloc.get_traced_memory()[1] - tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert norms.params["U_f"].shape == (rows,)
    small, large = held
    assert small < 20 * each and large < 30 * each, "of 64 and of 256 rows, whose gradients are 64 and 256 times that"


def test_plans_are_those_of_the_calls_before():
    one = case(kernel("lstm"), steps=2, rows=3)
    run = one.forward()
    by_row(one, run)
    with mock.patch("rnnspec.engine.cpu.plan_like", side_effect=AssertionError("planned again")):
        by_row(one, run)
        by_row(one)


def test_low_memory_and_pieces():
    one = case(kernel("lstm"), steps=9, rows=3)
    low, full = one.kernel.like(memory="low"), by_row(one)
    run = low.forward(one.params, one.inputs, one.states)
    for n, array in low.backward(run, one.dy, final=one.dfinal, per_row=True).params.items():
        assert_close(array, full.params[n], REFERENCE["float64"])
    resets = np.zeros((9, 3), bool)
    resets[4, 1] = resets[2, 2] = resets[7, 2] = True
    parts = cut(9, 3, np.array([9, 8, 9]), resets, reverse=False)
    for own in (one.kernel, low):
        run = own.forward(one.params, one.inputs, pieces=parts)
        each, whole = own.backward(run, one.dy, per_row=True), own.backward(run, one.dy)
        for n, array in whole.params.items():
            assert_close(each.params[n].sum(0), array, REFERENCE["float64"])
        quiet = {n: a * (np.arange(3) == 1)[:, None] for n, a in one.dy.items()}  # what is left is row 1's
        for n, array in own.backward(run, quiet).params.items():
            assert_close(each.params[n][1], array, REFERENCE["float64"])


def test_what_a_branch_hides_leaves_no_trace():
    own = kernel(HIDDEN)
    x = np.array([[[np.inf, 1.0], [1.0, 2.0]]])
    run = own.forward({"W": np.eye(2)}, {"x": np.where(x == np.inf, -np.inf, x)})
    each = own.backward(run, {"h": np.ones((1, 2, 2))}, per_row=True)
    assert np.array_equal(each.params["W"], [[[0, 1], [0, 1]], [[1, 2], [1, 2]]])


def test_a_row_of_nan_stays_alone():
    one = case(kernel("gru"), steps=4, rows=3)
    before = by_row(one)
    one.inputs["x"][:, 1] = np.nan
    after = by_row(one)
    for n in before.params:
        assert np.array_equal(after.params[n][::2], before.params[n][::2])


def test_noise_of_a_call_is_that_of_the_run():
    own = rnnspec.compile(rnnspec.transform.zoneout(rnnspec.load("lstm"), 0.3), dtype="float64")
    params = own.init(D=3, H=4)
    x, dy = np.ones((5, 3, 3)), np.ones((5, 3, 4))
    run = own.forward(params, {"x": x}, noise=3)
    each, whole = own.backward(run, {"h": dy}, per_row=True), own.backward(run, {"h": dy})
    for n, array in whole.params.items():
        assert_close(each.params[n].sum(0), array, REFERENCE["float64"])


def test_a_cell_that_trains_nothing():
    own = kernel("leaky_esn")
    run = own.forward(own.init(D=2, H=3), {"x": np.ones((2, 2, 2))})
    each = own.backward(run, per_row=True)
    assert not each.params and each.inputs["x"].shape == (2, 2, 2) and not own.row_norms(run).params


def test_a_gpu_refuses_and_says_what_to_do():
    with gpu():
        own = rnnspec.compile("rnn", backend="cuda")
        run = own.forward(own.init(D=3, H=4), {"x": np.ones((2, 2, 3), np.float32)})
        for call in (lambda: own.backward(run, per_row=True), lambda: own.row_norms(run)):
            with pytest.raises(UnsupportedError, match="backend='cpu'"):
                call()
