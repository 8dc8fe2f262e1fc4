"""Every cell on the CUDA backend: its PTX, run in the interpreter, against the reference, with
races, bounds and uninitialised reads found.

Compiled and interpreted, not run on a GPU.
"""

from __future__ import annotations

import pytest
from cells import case, expected
from cuda_budgets import STANDARD
from cuda_cells import CELLS
from emulated import assert_clean, gpu, needs_compiler
from tolerances import CUDA, assert_close

import rnnspec

needs_compiler()
SCHEDULES, STEPS, ROWS = 3, 3, 3
RAGGED = (1, 3, 2)
SM_80 = {"capability": (8, 0), "shared": 166912}


def check(name: str, library, kernel, lengths, schedules: int = 1, **sizes: int) -> None:
    """Forward, inference and backward of a small ragged batch, each on some random schedules."""
    c = case(kernel, max(lengths or (STEPS,)), ROWS, lengths=lengths, **sizes)
    want, tolerance = expected(c, name), CUDA[str(kernel.dtype)]
    for number in range(schedules):
        library.seed += 1000 * number
        run = c.forward()
        grad = c.backward(run)
        inferred = run if number else kernel.infer(c.params, c.inputs, c.states, c.lengths)
        for got, right, what in (
            (run.outputs, want.outputs, "output"),
            (inferred.outputs, want.outputs, "inferred"),
            (run.final, want.final, "final state"),
            (grad.params, want.params, "gradient of"),
            (grad.inputs, {n: want.inputs[n] for n in grad.inputs}, "gradient of"),
            (grad.states, want.states, "gradient of state"),
        ):
            assert_close(got, {n: right[n] for n in got}, tolerance, f"{name}: {what}")
        assert_clean(library)


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_on_three_schedules(name):
    """In tier 1, two rows to a block, of which one is none."""
    with gpu(processors=1) as library:
        check(name, library, rnnspec.compile(name, backend="cuda", tier=1), RAGGED, SCHEDULES)


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_stage_by_stage(name):
    with gpu(seed=7, **SM_80) as library:
        check(name, library, rnnspec.compile(name, backend="cuda", tier=3), RAGGED)


@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_cell_in_float64_on_sm_80(name):
    for tier in (1, 3):
        with gpu(seed=tier, **SM_80) as library:
            check(name, library, rnnspec.compile(name, backend="cuda", dtype="float64", tier=tier), None)


@pytest.mark.parametrize("name", STANDARD)
def test_columns_whose_terms_are_shared(name):
    """At H = 16 a block has threads to spare, and several take parts of the terms of one sum."""
    with gpu(seed=3) as library:
        check(name, library, rnnspec.compile(name, backend="cuda", tier=1), (4, 1, 2), H=16)


@pytest.mark.parametrize("size", [64, 112])
@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_cell_at_a_larger_size(name, size):
    """Weights in registers, and in shared memory."""
    with gpu(seed=size, processors=1) as library:
        check(name, library, rnnspec.compile(name, backend="cuda", tier=1), RAGGED, H=size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [128, 256])
def test_lstm_beyond_one_block(size):
    with gpu(seed=size) as library:
        check("lstm", library, rnnspec.compile("lstm", backend="cuda", tier=3), RAGGED, H=size)
