"""Properties that a kernel has whatever the cell: rows, threads, padding, arrays and runs do not influence one another."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rnnspec.check.outcome import Outcome, largest
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Array, Subject, Values, run_kernel, threaded, worst
from rnnspec.check.tolerances import EXACT, REORDERED
from rnnspec.symbolic.graph import Read

PER_ROW = ("output", "final", "gradient of input", "gradient of initial")
FLOPS = 15_000_000  # of a run that is worth three threads (backends/cpu/rows.py: 4 million each)


def split_sequence(known: Subject) -> Outcome:
    """T steps are T1 steps and then the rest, with the states carried forward and their gradients carried back."""
    if any(isinstance(node, Read) and node.kind == "step" for node in known.graph.nodes.values()):
        return Outcome(skipped="the cell reads the step's number, which starts again at 0")
    kernel, case = known.compiled(), known.draw(Shapes(7, 3, (known.lanes() + 1, known.lanes() - 1, 3)), "split")
    first, rest = steps(case, slice(None, 3)), steps(case, slice(3, None))
    early = kernel.forward(first.params, first.inputs, first.states)
    late = kernel.forward(rest.params, rest.inputs, early.final)
    after = kernel.backward(late, rest.d_outputs, final=case.d_final)
    before = kernel.backward(early, first.d_outputs, final=after.states)
    joined = {f"output {n}": np.concatenate([a, late.outputs[n]]) for n, a in early.outputs.items()}
    joined |= {f"final {n}": a for n, a in late.final.items()}
    joined |= {f"gradient of {n}": a + after.params[n] for n, a in before.params.items()}
    joined |= {f"gradient of input {n}": np.concatenate([a, after.inputs[n]]) for n, a in before.inputs.items()}
    joined |= {f"gradient of initial {n}": a for n, a in before.states.items()}
    error, name = worst(joined, run_kernel(kernel, case))
    return Outcome(error, REORDERED[known.dtype], f"{name} at {case.about()}, split after step 3")


def batch_independence(known: Subject) -> Outcome:
    """Rows give the same bits alone and together, and a row of NaN stays alone."""
    kernel, case = known.compiled(), known.draw(Shapes(4, known.lanes() + 1, (known.lanes() + 1, 3, 2)), "batch")
    together = run_kernel(kernel, case)
    outcomes = []
    for row in (0, case.rows // 2, case.rows - 1):
        alone = run_kernel(kernel, rows(case, slice(row, row + 1)))
        error, name = worst(_rows_of(alone, slice(None)), _rows_of(together, slice(row, row + 1)))
        outcomes.append(Outcome(error, EXACT, f"{name} of row {row} alone, at {case.about()}"))
    sick = replace(case, inputs={n: a.copy() for n, a in case.inputs.items()})
    for array in sick.inputs.values():
        array[:, 1] = np.nan
    others = [r for r in range(case.rows) if r != 1]
    error, name = worst(_rows_of(run_kernel(kernel, sick), others), _rows_of(together, others))
    outcomes.append(Outcome(error, EXACT, f"{name} of other rows, beside a row of NaN, at {case.about()}"))
    return largest(outcomes)


def thread_independence(known: Subject) -> Outcome:
    """1, 2 and 3 threads: the same bits, but for sums over rows."""
    wide = (193, 131, 97)  # few rows, so that the sums over rows are short and float32 keeps them
    work = 2 * 7 * sum(a.size for a in known.draw(Shapes(1, 1, wide), "threads").params.values() if a.ndim > 1)
    case = known.draw(Shapes(min(600, FLOPS // max(1, work) + 1), 7, wide), "threads")
    single = run_kernel(threaded(known.compiled(), 1), case)
    outcomes = []
    for threads in (2, 3):
        several = run_kernel(threaded(known.compiled(), threads), case)
        for part, tolerance in ((True, EXACT), (False, REORDERED[known.dtype])):
            error, name = worst(_part(several, part), _part(single, part))
            outcomes.append(Outcome(error, tolerance, f"{name} on {threads} threads at {case.about()}"))
    return largest(outcomes)


def padding(known: Subject) -> Outcome:
    """What stands past a row's end reaches nothing: outputs and gradients there are 0, NaN or not."""
    kernel, case = known.compiled(), known.draw(Shapes(5, 5, (known.lanes() + 1, 3, 2), ragged=True), "padding")
    assert case.lengths is not None
    past = np.arange(case.steps)[:, None] >= case.lengths
    filled = [replace(case, inputs=_fill(case.inputs, past, v), d_outputs=_fill(case.d_outputs, past, v)) for v in (0.0, np.nan, np.inf)]
    clean, *others = (run_kernel(kernel, c) for c in filled)
    outcomes = []
    for found in (clean, *others):
        error, name = worst(found, clean)
        outcomes.append(Outcome(error, EXACT, f"{name} with NaN or inf in the padding, at {case.about()}"))
        for key, array in found.items():
            if key.startswith(("output", "gradient of input")) and array[past].any():
                outcomes.append(Outcome(float("inf"), EXACT, f"{key} is not 0 past the end of a row, at {case.about()}"))
    return largest(outcomes)


def untouched(known: Subject) -> Outcome:
    """No array of the caller is written to, and a second run gives the same bits."""
    kernel, case = known.compiled(), known.draw(Shapes(3, 4, (known.lanes() + 1, 3, 2), ragged=True), "untouched")
    kept = case.map(np.copy)
    frozen = case.map(_read_only)
    first = run_kernel(kernel, frozen)
    kernel.infer(frozen.params, frozen.inputs, frozen.states, frozen.lengths)
    kernel.step(frozen.params, {n: a[0] for n, a in frozen.inputs.items()}, frozen.states)
    error, name = worst(_arrays(frozen), _arrays(kept))
    again, other = worst(run_kernel(kernel, frozen), first)
    return largest([Outcome(error, EXACT, f"{name} written to" if error else "nothing written, second run identical"),
                    Outcome(again, EXACT, f"{other} in a second run")])


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "Fortran order": lambda a: np.array(a, order="F"),
    "every second of a larger array": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "negative strides": lambda a: np.ascontiguousarray(a[::-1])[::-1] if a.ndim else a,
    "a view of a transposed array": lambda a: np.ascontiguousarray(a.swapaxes(0, a.ndim - 1)).swapaxes(0, a.ndim - 1) if a.ndim > 1 else a,
}


def strides(known: Subject) -> Outcome:
    """Arrays of any strides give the same bits, as does a gradient broadcast from one number."""
    kernel, case = known.compiled(), known.draw(Shapes(3, 4, (known.lanes() + 1, 3, 2)), "strides")
    expected = run_kernel(kernel, case)
    outcomes = []
    for layout, change in LAYOUTS.items():
        error, name = worst(run_kernel(kernel, case.map(change)), expected)
        outcomes.append(Outcome(error, EXACT, f"{name} for {layout}, at {case.about()}"))
    one = np.ones((), case.d_outputs[next(iter(case.d_outputs))].dtype)
    spread = replace(case, d_outputs={n: np.broadcast_to(one, a.shape) for n, a in case.d_outputs.items()})
    error, name = worst(run_kernel(kernel, spread), run_kernel(kernel, spread.map(np.copy)))
    outcomes.append(Outcome(error, EXACT, f"{name} for a broadcast gradient, at {case.about()}"))
    return largest(outcomes)


def zero_sizes(known: Subject) -> Outcome:
    """No steps, or no rows: shapes hold, states and their gradients pass through, gradients of parameters are 0."""
    kernel, whole = known.compiled(), known.draw(Shapes(2, 3, (3, 2, 5)), "zero")
    outcomes = []
    for case in (steps(whole, slice(0, 0)), rows(whole, slice(0, 0)), rows(steps(whole, slice(0, 0)), slice(0, 0))):
        expected = {f"output {n}": np.zeros_like(a) for n, a in case.d_outputs.items()} | {f"final {n}": a for n, a in case.states.items()}
        expected |= {f"gradient of {n}": np.zeros_like(a) for n, a in case.params.items() if n not in known.spec.no_gradient}
        expected |= {f"gradient of input {n}": np.zeros_like(a) for n, a in case.inputs.items() if n not in known.spec.no_gradient}
        expected |= {f"gradient of initial {n}": a for n, a in case.d_final.items()}
        error, name = worst(run_kernel(kernel, case), expected)
        outcomes.append(Outcome(error, EXACT, f"{name} at {case.about()}"))
    return largest(outcomes)


# --- parts of cases and of results -----------------------------------------------------------------------------------


def steps(case: Case, which: slice) -> Case:
    timed: dict[str, Any] = {g: {n: a[which] for n, a in getattr(case, g).items()} for g in ("inputs", "d_outputs")}
    return replace(case, **timed, steps=len(range(case.steps)[which]))


def rows(case: Case, which: slice) -> Case:
    changed: dict[str, Any] = {g: {n: a[:, which] for n, a in getattr(case, g).items()} for g in ("inputs", "d_outputs")}
    changed |= {g: {n: a[which] for n, a in getattr(case, g).items()} for g in ("states", "d_final")}
    return replace(case, **changed, rows=len(range(case.rows)[which]), lengths=None if case.lengths is None else case.lengths[which])


def _part(values: Values, per_row: bool) -> Values:
    return {n: a for n, a in values.items() if n.startswith(PER_ROW) == per_row}


def _rows_of(values: Values, which: slice | list[int]) -> Values:
    return {n: a[:, which] if n.startswith(("output", "gradient of input")) else a[which] for n, a in _part(values, True).items()}


def _fill(arrays: dict[str, Array], past: Array, value: float) -> dict[str, Array]:
    changed = {n: a.copy() for n, a in arrays.items()}
    for array in changed.values():
        array[past] = value
    return changed


def _read_only(array: Array) -> Array:
    array = np.array(array)
    array.flags.writeable = False
    return array


def _arrays(case: Case) -> Values:
    groups = ("params", "inputs", "states", "d_outputs", "d_final")
    return {f"{g} {n}": a for g in groups for n, a in getattr(case, g).items()}
