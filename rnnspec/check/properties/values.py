"""Properties of values: the cell's own examples, and kernels against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.properties.conditioning import measure
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Subject, run_kernel, run_reference
from rnnspec.check.tolerances import EXAMPLE, KERNEL, KINK_COMPARISON, REFERENCE
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.errors import BackendUnavailable
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Example, Shape, Spec


def named(known: Subject) -> Outcome:
    """The cell says what it is: a title, and a meaning for every size that is not D or H."""
    spec = known.spec
    unsaid = [n for n, size in spec.sizes.items() if not size.meaning and size.default is None and n not in ("D", "H")]
    if unsaid:
        return Outcome(1.0, 0.0, f"say under sizes what {', '.join(unsaid)} mean{'s' * (len(unsaid) == 1)}")
    return Outcome(
        detail=f"{len(spec.equations)} equations, {len(spec.trained)} parameters, {len(spec.examples)} examples"
    )


def examples(known: Subject) -> Outcome:
    """The values worked by hand: outputs, final states, gradients of the sum of all outputs."""
    spec = known.spec
    if not spec.examples:
        changed = any(c.chosen != c.options[0] for c in spec.choices.values())
        return Outcome(skipped="its examples are for the default choices" if changed else "the spec has no examples")
    return largest([_example(known, example) for example in spec.examples])


def _example(known: Subject, example: Example) -> Outcome:
    case, expected = _given(known, example), _expected(known.spec, example)

    def definition(numbers: numbers.Numbers) -> Values:
        return _those_of(expected, run_reference(known, case, numbers))

    tolerance, detail = EXAMPLE[known.dtype], f"'{example.title}'"
    if known.kernel is None:
        found = definition(numbers.FLOAT64)
        gap = worst(found, expected)
        error, key = gap.error, gap.key
    else:
        found = _those_of(expected, run_kernel(known.kernel, case))
        error, text = measure(found, expected, definition, known.dtype, tolerance, definition(numbers.FLOAT64))
        key = worst(found, expected).key
        detail += f": {text}" if "rounding" in text else ""
    if error > tolerance and key is not None:
        kind, name = key
        detail += f": {key} is {_short(found[kind][name])}, the example says {_short(expected[kind][name])}"
    return Outcome(error, tolerance, detail)


def _those_of(expected: Values, found: Values) -> Values:
    """What an example tells of a run."""
    return {kind: {n: found[kind][n] for n in arrays} for kind, arrays in expected.items()}


def _given(known: Subject, example: Example) -> Case:
    """What an example gives, as a batch of one row, and the gradients of the sum of all outputs."""
    spec, sizes = known.spec, dict(example.sizes)
    dtype = "float64" if known.dtype == REFERENCE else known.dtype

    def array(value: object, shape: Shape, otherwise: float = 0.0) -> Array:
        full = full_shape(shape, sizes)
        return np.full(full, otherwise, dtype) if value is None else np.asarray(value, dtype).reshape(full)

    params = {
        n: array(example.parameters.get(n), s, spec.noise[n].mean if n in spec.noise else 0.0)
        for n, s in spec.parameters.items()
    }
    states = {n: array(example.states.get(n), s)[None] for n, s in spec.states.items()}
    steps = len(next(iter((example.inputs or example.outputs).values())))  # type: ignore[arg-type]
    return Case(
        sizes=sizes,
        steps=steps,
        rows=1,
        params=params,
        inputs={n: np.asarray(v, dtype)[:, None] for n, v in example.inputs.items()},
        states=states,
        lengths=None,
        d_outputs={o: np.ones((steps, 1, *full_shape(spec.shapes[o], sizes)), dtype) for o in spec.outputs},
        d_final={n: np.zeros_like(a) for n, a in states.items()},
    )


def _expected(spec: Spec, example: Example) -> Values:
    """What an example says, shaped as a batch of one row."""
    gradients = {n: np.asarray(v, dtype=np.float64) for n, v in example.gradients.items()}
    return {
        ArrayKind.OUTPUT: {n: np.asarray(v)[:, None] for n, v in example.outputs.items()},
        ArrayKind.FINAL: {n: np.asarray(v)[None] for n, v in example.final.items()},
        ArrayKind.PARAM_GRADIENT: {n: a for n, a in gradients.items() if n in spec.parameters},
        ArrayKind.INPUT_GRADIENT: {n: a[:, None] if a.ndim else a for n, a in gradients.items() if n in spec.inputs},
        ArrayKind.STATE_GRADIENT: {n: a[None] for n, a in gradients.items() if n in spec.states},
    }


def _short(array: Array) -> str:
    return " ".join(np.array2string(array, precision=9, threshold=8).split())


@at_sizes(lambda known: known.shapes())
def against_reference(known: Subject, shapes: Shapes) -> Outcome:
    """Values and all gradients of the kernel at awkward sizes, with given initial states and final
    gradients, one batch ragged."""
    return _compared(known, shapes, known.compiled())


@at_sizes(lambda known: known.shapes()[-1:])
def on_a_gpu(known: Subject, shapes: Shapes) -> Outcome:
    """Values and all gradients of a GPU's kernel, where there is a GPU."""
    try:
        return _compared(known, shapes, compile(known.spec, dtype=known.dtype, backend="cuda"))
    except BackendUnavailable as error:
        return Outcome(skipped=str(error))


def _compared(known: Subject, shapes: Shapes, kernel: Kernel) -> Outcome:
    case = known.draw(shapes, f"against the reference {shapes.number}", KINK_COMPARISON)
    found = run_kernel(kernel, case)
    inferred = kernel.infer(case.params, case.inputs, case.states, case.lengths, **case.extent)
    again = {ArrayKind.OUTPUT: inferred.outputs, ArrayKind.FINAL: {n: inferred.final[n] for n in case.states}}

    def definition(numbers: numbers.Numbers) -> Values:
        return run_reference(known, case, numbers)

    expected = definition(numbers.FLOAT64)
    values = {kind: expected[kind] for kind in again}
    error, name = measure(found, expected, definition, known.dtype, KERNEL[known.dtype])
    alone, where = measure(again, values, definition, known.dtype, KERNEL[known.dtype])
    error, name = max((error, name), (alone, f"infer, {where}"))
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}")


@at_sizes(lambda known: (known.shapes()[1], known.shapes()[4]))
def every_state(known: Subject, shapes: Shapes) -> Outcome:
    """The states that a run kept, at every step."""
    case = known.draw(shapes, "every state", KINK_COMPARISON)

    def definition(numbers: numbers.Numbers) -> Values:
        shared: dict[str, Any] = {"sizes": case.sizes, "numbers": numbers, "lead": case.lead}
        run = reference.forward(known.graph, case.params, case.inputs, case.states, case.lengths, **shared)
        return {ArrayKind.STATE: run.states}

    ours = known.compiled().forward(case.params, case.inputs, case.states, case.lengths, **case.extent)
    found = {ArrayKind.STATE: ours.states}
    error, name = measure(found, definition(numbers.FLOAT64), definition, known.dtype, KERNEL[known.dtype])
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}")
