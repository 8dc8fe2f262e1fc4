"""Properties of however a kernel is called: arrays of any strides, again, with nothing, with very
much, step by step, with little memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers
from rnnspec.check.difference import worst
from rnnspec.check.kinds import GIVEN, ArrayKind, Values, flat
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.parts import rows, same_but_for_sums, steps, with_inputs
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Subject, run_kernel, run_reference
from rnnspec.check.tolerances import EXACT, KERNEL, LARGE
from rnnspec.engine.results import Gradients
from rnnspec.language.spec import STEP

NUMBERS = {"float64": numbers.FLOAT64, "float32": numbers.Numbers(np.float32, float, numbers.FLOAT64.primitives)}


@at_sizes(lambda known: (Shapes(3, 4, (known.lanes() + 1, 3, 2), ragged=True),))
def untouched(known: Subject, shapes: Shapes) -> Outcome:
    """No array of the caller is written to."""
    kernel, case = known.compiled(), known.draw(shapes, "untouched")
    copies, frozen = case.map(np.copy), case.map(_read_only)
    run_kernel(kernel, frozen)
    kernel.infer(frozen.params, frozen.inputs, frozen.states, frozen.lengths, **frozen.extent)
    kernel.step(frozen.params, {n: a[0] for n, a in frozen.inputs.items()}, frozen.states)
    gap = worst(_given(frozen), _given(copies))
    return Outcome(gap.error, EXACT, f"{gap.text} written to" if gap.error else "nothing written")


@at_sizes(lambda known: (Shapes(5, 5, (known.lanes() + 1, 3, 2), ragged=True),))
def second_run(known: Subject, shapes: Shapes) -> Outcome:
    """A second run, and a second backward of the first run, give the same bits. Between the runs
    another one leaves NaN in the memory that is used again: what a run does not write it must not
    read."""
    kernel, case = known.compiled(), known.draw(shapes, "second run")
    run = kernel.forward(case.params, case.inputs, case.states, case.lengths, **case.extent)
    first, later = (_gradients(kernel.backward(run, case.d_outputs, final=case.d_final)) for _ in range(2))
    backward = worst(later, first)
    before = run_kernel(kernel, case)
    run_kernel(kernel, with_inputs(replace(case, lengths=None), lambda a: np.full_like(a, np.nan)))
    again = worst(run_kernel(kernel, case), before)
    return largest(
        [
            Outcome(again.error, EXACT, f"{again.text} in a second run, at {case.about()}"),
            Outcome(backward.error, EXACT, f"{backward.text} of a second backward, at {case.about()}"),
        ]
    )


def _gradients(gradients: Gradients) -> Values:
    return {
        ArrayKind.PARAM_GRADIENT: gradients.params,
        ArrayKind.INPUT_GRADIENT: gradients.inputs,
        ArrayKind.STATE_GRADIENT: gradients.states,
    }


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "Fortran order": lambda a: np.array(a, order="F"),
    "every second of a larger array": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "negative strides": lambda a: np.ascontiguousarray(a[::-1])[::-1] if a.ndim else a,
    "a view of a transposed array": lambda a: (
        np.ascontiguousarray(a.swapaxes(0, a.ndim - 1)).swapaxes(0, a.ndim - 1) if a.ndim > 1 else a
    ),
}


@at_sizes(lambda known: (Shapes(3, 4, (known.lanes() + 1, 3, 2)),))
def strides(known: Subject, shapes: Shapes) -> Outcome:
    """Arrays of any strides give the same bits, as does a gradient broadcast from one number."""
    kernel, case = known.compiled(), known.draw(shapes, "strides")
    expected = run_kernel(kernel, case)
    outcomes = []
    for layout, change in LAYOUTS.items():
        gap = worst(run_kernel(kernel, case.map(change)), expected)
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} for {layout}, at {case.about()}"))
    one = np.ones((), case.d_outputs[next(iter(case.d_outputs))].dtype)
    spread = replace(case, d_outputs={n: np.broadcast_to(one, a.shape) for n, a in case.d_outputs.items()})
    gap = worst(run_kernel(kernel, spread), run_kernel(kernel, spread.map(np.copy)))
    outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} for a broadcast gradient, at {case.about()}"))
    return largest(outcomes)


@at_sizes(lambda known: (Shapes(3, 3, (3, 2, 5)),))
def zero_sizes(known: Subject, shapes: Shapes) -> Outcome:
    """No steps, or no rows: shapes hold, states and their gradients pass through, gradients of
    parameters are 0."""
    kernel, whole, untrained = known.compiled(), known.draw(shapes, "zero"), known.spec.no_gradient
    outcomes = []
    for case in (steps(whole, slice(0, 0)), rows(whole, slice(0, 0)), rows(steps(whole, slice(0, 0)), slice(0, 0))):
        expected = {
            ArrayKind.OUTPUT: {n: np.zeros_like(a) for n, a in case.d_outputs.items()},
            ArrayKind.FINAL: case.states,
            ArrayKind.PARAM_GRADIENT: {n: np.zeros_like(a) for n, a in case.params.items() if n not in untrained},
            ArrayKind.INPUT_GRADIENT: {n: np.zeros_like(a) for n, a in case.inputs.items() if n not in untrained},
            ArrayKind.STATE_GRADIENT: case.d_final,
        }
        gap = worst(run_kernel(kernel, case), expected)
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} at {case.about()}"))
    return largest(outcomes)


@at_sizes(lambda known: (Shapes(3, 4, (known.lanes() + 1, 3, 2)),))
def saturation(known: Subject, shapes: Shapes) -> Outcome:
    """Inputs of +-1e4: what the definition gives as a finite number is finite. Not counted is what
    the definition itself, in numbers of this dtype, takes beyond their range."""
    case = known.draw(shapes, "saturation")
    large = replace(case, inputs={n: np.copysign(LARGE, a).astype(a.dtype) for n, a in case.inputs.items()})
    found = flat(run_kernel(known.compiled(), large))
    narrow = flat(run_reference(known, large, NUMBERS[known.dtype]))
    excused = 0
    for key, expected in flat(run_reference(known, large)).items():
        lost = np.isfinite(expected) & ~np.isfinite(found[key])
        if (lost & np.isfinite(narrow[key])).any():
            where = tuple(int(i) for i in np.argwhere(lost & np.isfinite(narrow[key]))[0])
            detail = (
                f"{key}{list(where) if where else ''} is {found[key][where]}, expected {expected[where]:.9g}, for"
                f" inputs of +-1e4 at {case.about()}"
            )
            return Outcome(float("inf"), EXACT, detail)
        excused += int(lost.sum())
    return Outcome(
        detail=f"inputs of +-1e4{f'; {excused} numbers are beyond {known.dtype}' if excused else ''}, at {case.about()}"
    )


@at_sizes(lambda known: (Shapes(7, 3, (known.lanes() + 1, 3, 2), ragged=True), Shapes(10, 1, (3, 2, known.lanes()))))
def low_memory(known: Subject, shapes: Shapes) -> Outcome:
    """`memory="low"` gives what the full tape gives."""
    case = known.draw(shapes, f"low memory {shapes.number}")
    full, low = (run_kernel(known.compiled().like(memory=memory), case) for memory in ("full", "low"))
    return largest(same_but_for_sums(low, full, known.dtype, f'with memory="low" at {case.about()}'))


@at_sizes(lambda known: (Shapes(4, 3, (known.lanes() + 1, 3, 2)),))
def step_by_step(known: Subject, shapes: Shapes) -> Outcome:
    """A stream, and `step` with the states handed on, give the bits of `infer` over the whole
    sequence. `forward`, whose kernel is another (what goes to the tape is rounded, what does not
    may be fused), gives the same but for rounding. Rows of a cell that counts its steps start at
    counts of their own."""
    kernel, case = known.compiled(), known.draw(shapes, "step by step")
    begin = case.states | ({STEP: 3 * np.arange(case.rows)} if known.spec.counts else {})
    whole = kernel.infer(case.params, case.inputs, begin, **case.extent)
    trained = kernel.forward(case.params, case.inputs, begin, **case.extent)
    gap = worst({ArrayKind.OUTPUT: whole.outputs}, {ArrayKind.OUTPUT: trained.outputs})
    outcomes = [Outcome(gap.error, KERNEL[known.dtype], f"{gap.text} of infer beside forward, at {case.about()}")]
    stream = kernel.stream(case.params, begin, rows=case.rows, **case.sizes)
    state: Mapping[str, Array] = begin
    for t in range(case.steps):
        now = {n: a[t] for n, a in case.inputs.items()}
        single = kernel.step(case.params, now, state)
        outputs, state = {"a stream": stream.step(now), "step()": single.outputs}, dict(single)
        for what, arrays in outputs.items():
            gap = worst({ArrayKind.OUTPUT: arrays}, {ArrayKind.OUTPUT: {n: a[t] for n, a in whole.outputs.items()}})
            outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of {what} at step {t}, at {case.about()}"))
    for what, states in {"a stream": stream.states, "step()": state}.items():
        gap = worst({ArrayKind.FINAL: states}, {ArrayKind.FINAL: whole.final})
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of {what}, at {case.about()}"))
    return largest(outcomes)


def _read_only(array: Array) -> Array:
    array = np.array(array)
    array.flags.writeable = False
    return array


def _given(case: Case) -> Values:
    return {kind: getattr(case, kind.value) for kind in GIVEN}
