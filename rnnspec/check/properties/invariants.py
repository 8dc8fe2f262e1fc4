"""Properties that a kernel has whatever the cell: rows, steps, threads and padding do not influence
one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.rows import Limits, chunk_rows
from rnnspec.check.difference import worst
from rnnspec.check.kinds import TIMED, ArrayKind, Key, per_row, summed
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.parts import Rows, alone, of_rows, of_steps, rows, same_but_for_sums, steps, with_inputs
from rnnspec.check.sampling import Case, Shapes, size_values
from rnnspec.check.subject import Subject, run_kernel
from rnnspec.check.tolerances import EXACT, REORDERED, REORDERED_LONG
from rnnspec.engine.cpu import CpuKernel

FLOPS = 15_000_000  # of a run that is worth three threads (backends/cpu/rows.py: 4 million each)


WIDE = (193, 131, 97)
WIDER = (
    397,
    401,
    409,
)  # for which it is worth the barriers that three threads share the units of one row (backends/cpu/rows.py)


def _short_and_long(known: Subject) -> tuple[Shapes, ...]:
    """A short sequence, and one that a kernel works through in several chunks."""
    kernel = known.compiled()
    layouts = [kernel.layout(mode) for mode in ("forward", "backward")]
    chunk = chunk_rows(layouts, size_values(known.spec, WIDE), kernel.dtype.itemsize)
    return Shapes(7, 3, (known.lanes() + 1, known.lanes() - 1, 3)), Shapes(20, max(3, chunk // 8), WIDE)


@at_sizes(_short_and_long)
def split_sequence(known: Subject, shapes: Shapes) -> Outcome:
    """T steps are T1 steps and then the rest, with the states (and the count of steps) carried
    forward and their gradients carried back."""
    kernel, case = known.compiled(), known.draw(shapes, "split" if not shapes.number else "split long")
    middle = case.steps // 2
    first, rest = steps(case, slice(None, middle)), steps(case, slice(middle, None))
    early = kernel.forward(first.params, first.inputs, first.states, **first.extent)
    late = kernel.forward(rest.params, rest.inputs, early.final, **rest.extent)
    after = kernel.backward(late, rest.d_outputs, final=case.d_final)
    before = kernel.backward(early, first.d_outputs, final=after.states)
    joined = {
        ArrayKind.OUTPUT: {n: np.concatenate([a, late.outputs[n]]) for n, a in early.outputs.items()},
        ArrayKind.FINAL: {n: late.final[n] for n in before.states},
        ArrayKind.PARAM_GRADIENT: {n: a + after.params[n] for n, a in before.params.items()},
        ArrayKind.INPUT_GRADIENT: {n: np.concatenate([a, after.inputs[n]]) for n, a in before.inputs.items()},
        ArrayKind.STATE_GRADIENT: before.states,
    }
    gap = worst(joined, run_kernel(kernel, case))
    tolerance = REORDERED_LONG if shapes.number else REORDERED
    return Outcome(gap.error, tolerance[known.dtype], f"{gap.text} at {case.about()}, split after step {middle}")


def _batch(known: Subject) -> tuple[Shapes, ...]:
    return (Shapes(4, known.lanes() + 1, (known.lanes() + 1, 3, 2)),)


@at_sizes(_batch)
def rows_alone(known: Subject, shapes: Shapes) -> Outcome:
    """Rows give the same bits alone and together."""
    kernel, case = known.compiled(), known.draw(shapes, "batch")
    together = run_kernel(kernel, case)
    outcomes = []
    for row in sorted({0, case.rows // 2, case.rows - 1}):
        one = slice(row, row + 1)
        gap = worst(per_row(run_kernel(kernel, rows(case, one))), of_rows(together, one))
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of row {row} alone, at {case.about()}"))
    return largest(outcomes)


@at_sizes(_batch)
def permutation(known: Subject, shapes: Shapes) -> Outcome:
    """Rows in another order give the same rows in that order."""
    kernel, case = known.compiled(), known.draw(shapes, "batch")
    order = np.random.default_rng(known.seed).permutation(case.rows)
    straight, mixed = run_kernel(kernel, case), run_kernel(kernel, rows(case, order))
    expected = {**of_rows(straight, order), **summed(straight)}
    return largest(same_but_for_sums(mixed, expected, known.dtype, f"of rows in another order, at {case.about()}"))


@at_sizes(_batch)
def nan_row(known: Subject, shapes: Shapes) -> Outcome:
    """A row of NaN stays alone: the other rows have the same bits."""
    kernel, case = known.compiled(), known.draw(shapes, "batch")
    if case.rows < 2:
        return Outcome(detail="one row has no others")
    sick = replace(case, inputs={n: a.copy() for n, a in case.inputs.items()})
    for array in sick.inputs.values():
        array[:, 1] = np.nan
    others: Rows = [r for r in range(case.rows) if r != 1]
    gap = worst(of_rows(run_kernel(kernel, sick), others), of_rows(run_kernel(kernel, case), others))
    return Outcome(gap.error, EXACT, f"{gap.text} of other rows, beside a row of NaN, at {case.about()}")


@at_sizes(lambda known: (_for_threads(known), Shapes(12, 1, WIDER)))
def thread_independence(known: Subject, shapes: Shapes) -> Outcome:
    """1, 2 and 3 threads: the same bits. Threads share the rows, or the units of one row.

    Before each, the same kernel runs on NaN: memory is used again, and a thread that reads what
    another has not written yet would find there what the run before had written, the right numbers.
    """
    case = known.draw(shapes, "threads")
    single = run_kernel(known.compiled().like(threads=1), case)
    poison = with_inputs(case, lambda a: np.full_like(a, np.nan))
    outcomes = []
    for threads in (2, 3):
        kernel = known.compiled().like(threads=threads)
        if isinstance(kernel, CpuKernel):
            kernel.limits = Limits()  # whether or not threads pay on this machine
        run_kernel(kernel, poison)
        gap = worst(run_kernel(kernel, case), single)
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} on {threads} threads at {case.about()}"))
        inferred = kernel.infer(case.params, case.inputs, case.states, case.lengths, **case.extent)
        gap = worst({ArrayKind.OUTPUT: inferred.outputs}, {ArrayKind.OUTPUT: single[ArrayKind.OUTPUT]})
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of infer on {threads} threads at {case.about()}"))
    return largest(outcomes)


def _for_threads(known: Subject) -> Shapes:
    work = 2 * 7 * sum(a.size for a in known.draw(Shapes(1, 1, WIDE), "threads").params.values() if a.ndim > 1)
    return Shapes(
        min(600, FLOPS // max(1, work) + 1), 7, WIDE
    )  # few rows, so that the sums over rows are short and float32 keeps them


def _ragged(known: Subject) -> tuple[Shapes, ...]:
    return (Shapes(5, 5, (known.lanes() + 1, 3, 2), ragged=True),)


@at_sizes(_ragged)
def padding(known: Subject, shapes: Shapes) -> Outcome:
    """What stands past a row's end reaches nothing: outputs and gradients there are 0, NaN or
    not."""
    kernel, case = known.compiled(), known.draw(shapes, "padding")
    if case.lengths is None:
        return Outcome(detail="without lengths there is no padding")
    past = np.arange(case.steps)[:, None] >= case.lengths
    filled = [
        replace(case, inputs=_fill(case.inputs, past, v), d_outputs=_fill(case.d_outputs, past, v))
        for v in (0.0, np.nan, np.inf)
    ]
    clean, *others = (run_kernel(kernel, c) for c in filled)
    outcomes = []
    for found in (clean, *others):
        gap = worst(found, clean)
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} with NaN or inf in the padding, at {case.about()}"))
        for key in (Key(kind, n) for kind in TIMED for n, array in found[kind].items() if array[past].any()):
            detail = f"{key} is not 0 past the end of a row, at {case.about()}"
            outcomes.append(Outcome(float("inf"), EXACT, detail))
    return largest(outcomes)


@at_sizes(_ragged)
def lengths(known: Subject, shapes: Shapes) -> Outcome:
    """A row with a length gives the bits of that row run alone for so many steps; the sums over
    rows are those of the rows alone."""
    return _rows_of_a_batch(known, known.draw(shapes, "lengths"), lambda array: array, "")


@at_sizes(_ragged)
def reversed_time(known: Subject, shapes: Shapes) -> Outcome:
    """A batch of rows that were each turned around within their length, against the same rows run
    alone over arrays that are read backwards in place (negative strides in time)."""
    return _rows_of_a_batch(known, known.draw(shapes, "reversed"), lambda array: array[::-1], ", time turned around")


def _rows_of_a_batch(known: Subject, case: Case, view: Callable[[Array], Array], how: str) -> Outcome:
    """Compares the batch, in which `view` of each row's steps was copied, with views of rows run
    alone."""
    if case.lengths is None:
        return Outcome(detail="without lengths there is nothing to compare")
    whole = replace(case, inputs=_each_row(case, case.inputs, view), d_outputs=_each_row(case, case.d_outputs, view))
    together = run_kernel(known.compiled(), whole)
    sums = {kind: {n: np.zeros_like(a) for n, a in arrays.items()} for kind, arrays in summed(together).items()}
    outcomes = []
    for row, length in enumerate(case.lengths):
        single = alone(case, row)
        inputs, weights = ({n: view(a) for n, a in arrays.items()} for arrays in (single.inputs, single.d_outputs))
        found = run_kernel(known.compiled(), replace(single, inputs=inputs, d_outputs=weights))
        gap = worst(per_row(found), of_steps(of_rows(together, slice(row, row + 1)), slice(0, length)))
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of row {row} ({length} steps){how}, at {case.about()}"))
        sums = {kind: {n: a + found[kind][n] for n, a in arrays.items()} for kind, arrays in sums.items()}
    gap = worst(sums, summed(together))
    detail = f"{gap.text} summed over rows{how}, at {case.about()}"
    return largest([*outcomes, Outcome(gap.error, REORDERED[known.dtype], detail)])


def _each_row(case: Case, arrays: dict[str, Array], view: Callable[[Array], Array]) -> dict[str, Array]:
    assert case.lengths is not None
    changed = {n: a.copy() for n, a in arrays.items()}
    for name, array in changed.items():
        for row, length in enumerate(case.lengths):
            array[:length, row] = view(arrays[name][:length, row])
    return changed


def _fill(arrays: dict[str, Array], past: Array, value: float) -> dict[str, Array]:
    changed = {n: a.copy() for n, a in arrays.items()}
    for array in changed.values():
        array[past] = value
    return changed
