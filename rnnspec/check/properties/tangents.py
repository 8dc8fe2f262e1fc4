"""Properties of forward mode: the tangent against complex steps, the kernel's directions against
the tangent, Jacobians against both and against their claimed structure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.numbers import FLOAT64, Numbers
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.properties.conditioning import measure
from rnnspec.check.properties.derivatives import (
    GRADIENT,
    SHAPES,
    Groups,
    agree,
    complex_derivative,
    directions,
    forward_derivative,
)
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.stopped import with_stopped
from rnnspec.check.subject import Subject
from rnnspec.check.tolerances import COMPLEX_STEP, EXACT, KERNEL, KINK_COMPARISON, KINK_DERIVATIVE, RANK
from rnnspec.language.sizes import evaluate_size
from rnnspec.language.spec import STEP, tangent_of
from rnnspec.symbolic.structure import Structure, structure

COLUMNS = 3
SUBSETS = (("inputs", "states"), ("params",))  # beside all of them: one for each half of the cells


@at_sizes(lambda known: SHAPES)
def tangent_complex_step(known: Subject, shapes: Shapes) -> Outcome:
    """The tangent along a random direction of everything: imag(L(v + i e d)) / e, as for the
    adjoint."""
    case = known.draw(shapes, f"tangent, complex step {shapes.number}", KINK_DERIVATIVE)
    along = directions(known, case, np.random.default_rng([known.seed, shapes.number]))
    ahead, size = forward_derivative(known, case, along)
    expected = complex_derivative(with_stopped(known.graph, case), case, along)
    return agree(ahead, expected, size, COMPLEX_STEP, case.about())


@at_sizes(lambda known: (known.shapes()[1], known.shapes()[-1]))
def directions_of_kernel(known: Subject, shapes: Shapes) -> Outcome:
    """The kernel's `jvp` along several directions at once, of everything, and of some of it,
    against the tangent of the definition along each."""
    case = known.draw(shapes, f"directions {shapes.number}", KINK_COMPARISON)
    subset = SUBSETS[(zlib.crc32(known.spec.name.encode()) + shapes.number) % len(SUBSETS)]
    return largest([_directions(known, case, groups, shapes.number) for groups in (tuple(GRADIENT), subset)])


def _directions(known: Subject, case: Case, groups: tuple[str, ...], number: int) -> Outcome:
    rng = np.random.default_rng([known.seed, number, len(groups)])
    still = known.spec.no_gradient
    along: Groups = {
        g: {
            n: rng.uniform(-1, 1, (COLUMNS, *a.shape)).astype(known.dtype)
            for n, a in getattr(case, g).items()
            if n not in still and g in groups and n != STEP
        }
        for g in GRADIENT
    }
    given: dict[str, Any] = {f"tangent_{g}": arrays for g, arrays in along.items() if arrays}
    if not given:  # of parameters that are all fixed
        return Outcome(detail=f"nothing of {', '.join(groups)} has a direction")
    run = known.compiled().jvp(case.params, case.inputs, case.states, case.lengths, **given, **case.extent)
    found = {
        ArrayKind.OUTPUT: run.outputs,
        ArrayKind.FINAL: {n: run.final[n] for n in run.tangent_final},
        ArrayKind.OUTPUT_TANGENT: run.tangent_outputs,
        ArrayKind.FINAL_TANGENT: run.tangent_final,
    }

    def definition(numbers: Numbers) -> Values:
        return _tangents(known, case, along, numbers)

    error, name = measure(found, definition(FLOAT64), definition, known.dtype, KERNEL[known.dtype])
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}, directions of {', '.join(groups)}")


def _tangents(known: Subject, case: Case, along: Groups, numbers: Numbers) -> Values:
    """Values and directions by the tangent graph, column after column."""
    runs = []
    for k in range(COLUMNS):
        moving = {g: {n: a[k] for n, a in arrays.items()} for g, arrays in along.items()}
        runs.append(_run(known, case, moving, numbers))
    outputs, states = list(known.graph.outputs), list(known.graph.states)
    return {
        ArrayKind.OUTPUT: {n: runs[0].outputs[n] for n in outputs},
        ArrayKind.FINAL: {n: runs[0].final[n] for n in states},
        ArrayKind.OUTPUT_TANGENT: {n: np.stack([r.outputs[tangent_of(n)] for r in runs]) for n in outputs},
        ArrayKind.FINAL_TANGENT: {n: np.stack([r.final[tangent_of(n)] for r in runs]) for n in states},
    }


def _run(known: Subject, case: Case, along: Mapping[str, Mapping[str, Array]], numbers: Numbers) -> Any:
    """The tangent graph along one direction; zero where it is left out."""
    both = {}
    for g in GRADIENT:
        arrays = getattr(case, g)
        moved = {tangent_of(n): along.get(g, {}).get(n, np.zeros(np.shape(a))) for n, a in arrays.items()}
        both[g] = {**arrays, **moved}
    given = (both["params"], both["inputs"], both["states"], case.lengths)
    return reference.forward(known.forward_mode, *given, sizes=case.sizes, numbers=numbers, lead=case.lead)


# --- Jacobians


@at_sizes(lambda known: (Shapes(3, 2, (3, 2, 4)), Shapes(2, 3, (1, 3, 2))))
def jacobians(known: Subject, shapes: Shapes) -> Outcome:
    """The kernel's Jacobians of all steps, against the tangent along each unit vector."""
    case = known.draw(shapes, f"Jacobians {shapes.number}", KINK_COMPARISON)
    found = known.compiled().jacobian(case.params, case.inputs, case.states, **case.extent)
    matrices = {f"{a} by {b}": m for a, row in found.items() for b, m in row.items()}

    def definition(numbers: Numbers) -> Values:
        expected = _jacobians(known, case, numbers)
        return {
            ArrayKind.JACOBIAN: {f"{a} by {b}": m.reshape(case.lead + m.shape[1:]) for (a, b), m in expected.items()}
        }

    ours = {ArrayKind.JACOBIAN: matrices}
    error, name = measure(ours, definition(FLOAT64), definition, known.dtype, KERNEL[known.dtype])
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}")


@at_sizes(lambda known: (Shapes(2, 2, (3, 2, 4)), Shapes(2, 2, (2, 7, 3))))
def claimed_structure(known: Subject, shapes: Shapes) -> Outcome:
    """The structure that a Graph says a step's Jacobian has: what is 0 by it is exactly 0, and no
    rank is larger."""
    case = known.draw(shapes, f"structure {shapes.number}")
    claimed, made = structure(known.graph), _jacobians(known, case, FLOAT64)
    outcomes = []
    for (after, before), matrix in made.items():
        told = claimed[after][before]
        outcomes.append(Outcome(_beyond(told, matrix, case.sizes), EXACT, f"{after} by {before}: {told.to_text()}"))
    return largest(outcomes)


def _beyond(told: Structure, matrix: Array, sizes: Mapping[str, int]) -> float:
    """The largest element [N, ...after, ...before] that is not 0 where it is said to be, or how far
    a rank is beyond its bound."""
    if told.rank and told.axes is None and told.rank != "full":
        flat = matrix.reshape(len(matrix), int(np.prod(matrix.shape[1 : 1 + len(told.rows)])), -1)
        most = evaluate_size(told.rank, sizes)
        values = np.linalg.svd(flat, compute_uv=False) if min(flat.shape) else np.zeros((1, 0))
        beyond = values[:, most:].max(initial=0.0)
        return float(beyond) if beyond > RANK * max(values.max(initial=0.0), RANK) else 0.0
    if told.rank:
        return 0.0
    outside = np.ones(matrix.shape[1:], bool)
    if told.axes is not None:
        grid = np.indices(matrix.shape[1:], sparse=True)
        inside = np.ones(matrix.shape[1:], bool)
        for a, b in told.axes:
            inside &= grid[a] == grid[len(told.rows) + b]
        outside = ~inside
    return float(np.abs(matrix[:, outside]).max(initial=0.0))


def _jacobians(known: Subject, case: Case, numbers: Numbers) -> dict[tuple[str, str], Array]:
    """(state after, state before) -> [T * B, ...after, ...before], by the tangent graph: every step
    is a row of a run of one step."""
    steps, rows = case.lead
    shared: dict[str, Any] = {"sizes": case.sizes, "numbers": numbers, "lead": case.lead}
    run = reference.forward(known.graph, case.params, case.inputs, case.states, **shared)
    states = {n: a.reshape(steps * rows, *a.shape[2:]) for n, a in run.before.items()}
    if known.spec.counts:
        first = np.broadcast_to(run.first, (rows,))
        states[STEP] = (first + np.arange(steps)[:, None]).reshape(-1)
    inputs = {n: a.reshape(1, steps * rows, *a.shape[2:]) for n, a in case.inputs.items()}
    alone = Case(case.sizes, 1, steps * rows, case.params, inputs, states, None, {}, {})
    found: dict[tuple[str, str], Array] = {}
    for before in known.graph.states:
        shape = states[before].shape
        columns = []
        for number in np.ndindex(shape[1:]):
            unit, place = np.zeros(shape), (slice(None), *number)
            unit[place] = 1.0
            columns.append(_run(known, alone, {"states": {before: unit}}, numbers).final)
        for after in known.graph.states:
            own = [c[tangent_of(after)] for c in columns]
            full = (*states[after].shape, *shape[1:])
            found[after, before] = np.stack(own, axis=-1).reshape(full) if own else np.zeros(full)
    return found
