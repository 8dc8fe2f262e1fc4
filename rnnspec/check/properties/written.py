"""Properties of what is written: the graph and the kernels against a walk over the syntax trees of
the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.outcome import Outcome, at_sizes
from rnnspec.check.properties.conditioning import measure
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Subject
from rnnspec.check.tolerances import AS_WRITTEN, KERNEL, KINK_COMPARISON
from rnnspec.check.written import run_as_written

DIGITS = 50
ULP = 2.0**-52
# numbers that meet often: neighbours, whose difference is all rounding; both zeros; large ones
HARD = (0.0, -0.0, 1.0, 1 + ULP, 1 - ULP / 2, -1.0, 0.1, 3.0, 1e10, -1e10, 1e-10, np.inf, -np.inf, np.nan)
CHANCES = (2, 2, 4, 4, 4, 2, 3, 3, 2, 2, 2, 1, 1, 1)


@at_sizes(lambda known: (Shapes(2, 64, (1,)), Shapes(3, 64, (1,))))
def kept_as_written(known: Subject, shapes: Shapes) -> Outcome:
    """The graph's values are those of the equations as they stand, operation by operation, among
    numbers that cancel, overflow and are NaN."""
    case = known.draw(shapes, f"as written {shapes.number}")
    rng = np.random.default_rng([known.seed, shapes.number])
    chances = np.array(CHANCES) / sum(CHANCES)
    case = case.map(lambda a: rng.choice(HARD, a.shape, p=chances) if a.ndim else np.asarray(rng.choice(HARD[2:9])))
    wanted = run_as_written(known.spec, case)
    found = reference.forward(known.graph, case.params, case.inputs, case.states, sizes=case.sizes, lead=case.lead)
    error, where = 0.0, "all arrays"
    for kind, theirs, ours in (("output", wanted.outputs, found.outputs), ("final", wanted.final, found.final)):
        for name, expected in theirs.items():
            if name in ours:
                error, where = max((error, where), (_relative(ours[name], expected), f"{kind} {name}"))
    return Outcome(error, AS_WRITTEN, f"{where} at {case.about()}")


def _relative(found: Array, expected: Array) -> float:
    """The largest difference of an element, relative to it; infinite where one is NaN, infinite or
    of another sign and the other isn't."""
    found = np.asarray(found, np.float64)
    same = (found == expected) & (np.signbit(found) == np.signbit(expected)) | np.isnan(found) & np.isnan(expected)
    if same.all():
        return 0.0
    a, b = found[~same], expected[~same]
    if not (np.isfinite(a) & np.isfinite(b)).all() or (np.signbit(a) != np.signbit(b)).any():
        return float("inf")
    return float((np.abs(a - b) / np.maximum(np.abs(a), np.abs(b))).max())


@at_sizes(lambda known: known.shapes()[2:3])
def run_is_as_written(known: Subject, shapes: Shapes) -> Outcome:
    """The kernel's values against the equations as they stand in numbers of 50 digits, and in
    float64 where inputs are NaN or infinite: each row has these just where they belong."""
    import mpmath

    case = known.draw(shapes, "as written", KINK_COMPARISON)
    kernel = known.compiled()

    def definition(kind: numbers.Numbers, case: Case = case) -> Values:
        given = (case.params, case.inputs, case.states)
        run = reference.forward(known.graph, *given, sizes=case.sizes, numbers=kind, lead=case.lead)
        return {ArrayKind.OUTPUT: run.outputs, ArrayKind.FINAL: {n: run.final[n] for n in known.spec.states}}

    def inferred(case: Case) -> Values:
        run = kernel.infer(case.params, case.inputs, case.states, **case.extent)
        return {ArrayKind.OUTPUT: run.outputs, ArrayKind.FINAL: {n: run.final[n] for n in known.spec.states}}

    with mpmath.workdps(DIGITS):
        exact = _values(known, case, numbers.mpmath_numbers())
    error, name = measure(inferred(case), exact, definition, known.dtype, KERNEL[known.dtype])
    odd = _with_odd_rows(case)
    bad, where = _patterns(inferred(odd), _values(known, odd, numbers.FLOAT64))
    error, name = max((error, name), (bad, f"rows of NaN and infinity, {where}"))
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}")


def _values(known: Subject, case: Case, kind: numbers.Numbers) -> Values:
    run = run_as_written(known.spec, case, kind)
    outputs = {n: np.asarray(a, np.float64) for n, a in run.outputs.items()}
    return {
        ArrayKind.OUTPUT: outputs,
        ArrayKind.FINAL: {n: np.asarray(run.final[n], np.float64) for n in known.spec.states},
    }


def _with_odd_rows(case: Case) -> Case:
    """The case with one element NaN in the first row of every input, one infinite in the second."""
    inputs = {n: a.copy() for n, a in case.inputs.items()}
    for array in inputs.values():
        for row, value in ((0, np.nan), (1, np.inf)):
            if row < case.rows and array[0, row].size:
                array[0, row].reshape(-1)[:1] = value
                if not array[0, row].ndim:
                    array[0, row] = value
    return replace(case, inputs=inputs)


def _patterns(found: Values, expected: Values) -> tuple[float, str]:
    """Infinite where NaN or infinity stands where none is expected, or the other way round."""
    shown = {k: {n: np.where(np.isfinite(a), 0.0, a) for n, a in arrays.items()} for k, arrays in expected.items()}
    ours = {k: {n: np.where(np.isfinite(a), 0.0, a) for n, a in arrays.items()} for k, arrays in found.items()}
    gap = worst(ours, shown)
    return gap.error, gap.text
