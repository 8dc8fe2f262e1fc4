"""Properties of derivatives: the adjoint against complex steps and against the tangent, the kernel
against differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.backends.numbers import Numbers
from rnnspec.check.kinds import ArrayKind, Key, Values
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.properties.conditioning import allowed, rounding_spread
from rnnspec.check.sampling import Case, Shapes, UndecidedError
from rnnspec.check.stopped import with_stopped
from rnnspec.check.subject import Subject, run_kernel, run_reference
from rnnspec.check.tolerances import COMPLEX_STEP, DIFFERENCES, DOT_PRODUCT, FREEDOM, KINK_DERIVATIVE, ROUNDING, STEP
from rnnspec.language.spec import tangent_of
from rnnspec.symbolic.graph import Graph

SHAPES = (Shapes(4, 2, (3, 2, 5)), Shapes(3, 3, (1, 4, 2), ragged=True))
TINY = 1e-40  # of a complex step: its square is nothing beside 1
Stopped = tuple[Graph, dict[str, Array]]  # what `with_stopped` gives
Groups = dict[str, dict[str, Array]]  # "params", "inputs", "states" -> name -> array
GRADIENT = {"params": ArrayKind.PARAM_GRADIENT, "inputs": ArrayKind.INPUT_GRADIENT, "states": ArrayKind.STATE_GRADIENT}


@at_sizes(lambda known: SHAPES)
def complex_step(known: Subject, shapes: Shapes) -> Outcome:
    """The adjoint along random directions of each parameter, input and state: imag(L(v + i e d)) /
    e, which has no truncation error. Comparisons look at the real part, so it is right on both
    sides of a kink. What stop_gradient and straight_through stop is held at its values, as inputs.
    """
    case = known.draw(shapes, f"complex step {shapes.number}", KINK_DERIVATIVE)
    gradients, stopped = run_reference(known, case), with_stopped(known.graph, case)
    rng = np.random.default_rng([known.seed, shapes.number])
    outcomes = []
    for group, kind in GRADIENT.items():
        for name, array in getattr(case, group).items():
            if name not in gradients[kind]:
                continue
            along = {group: {name: rng.uniform(-1, 1, array.shape)}}
            found, size = reverse_derivative(gradients, along)

            def definition(numbers: Numbers, along: Groups = along) -> float:
                return reverse_derivative(run_reference(known, case, numbers), along)[0]

            outcomes.append(
                agree(
                    found,
                    complex_derivative(stopped, case, along),
                    size,
                    COMPLEX_STEP,
                    f"{Key(kind, name)} at {case.about()}",
                    definition,
                )
            )
    return largest(outcomes)


def complex_derivative(stopped: Stopped, case: Case, along: Groups) -> float:
    """The derivative of the loss along a direction of some or all arrays, by a complex step of the
    definition. stopped: its graph, and the inputs that hold what is stopped."""
    graph, held = stopped
    moved = {
        g: {n: a + 1j * TINY * along[g][n] if n in along.get(g, {}) else a for n, a in getattr(case, g).items()}
        for g in GRADIENT
    }
    run = reference.forward(
        graph,
        moved["params"],
        moved["inputs"] | held,
        moved["states"],
        case.lengths,
        sizes=case.sizes,
        numbers=numbers.COMPLEX128,
        lead=case.lead,
    )
    return _loss({n: a.imag for n, a in run.outputs.items()}, {n: a.imag for n, a in run.final.items()}, case)[0] / TINY


def forward_derivative(known: Subject, case: Case, along: Groups) -> tuple[float, float]:
    """The derivative along directions of all arrays by the tangent graph, and the norm of its
    terms."""
    both = {g: getattr(case, g) | {tangent_of(n): d for n, d in along[g].items()} for g in GRADIENT}
    given = (both["params"], both["inputs"], both["states"], case.lengths)
    run = reference.forward(known.forward_mode, *given, sizes=case.sizes, lead=case.lead)
    products = [run.outputs[tangent_of(n)] * g for n, g in case.d_outputs.items()]
    products += [run.final[tangent_of(n)] * g for n, g in case.d_final.items()]
    return _sum_and_norm(products)


def reverse_derivative(gradients: Values, along: Groups) -> tuple[float, float]:
    """The derivative along a direction by gradients, those of a kernel or of the adjoint graph, and
    the norm of its terms."""
    pairs = [(gradients[GRADIENT[g]].get(n), d) for g in along for n, d in along[g].items()]
    return _sum_and_norm([gradient * d for gradient, d in pairs if gradient is not None])


def _sum_and_norm(products: list[Array]) -> tuple[float, float]:
    return float(sum(p.sum() for p in products)), float(np.sqrt(sum((p**2).sum() for p in products)))


def _loss(outputs: Mapping[str, Array], final: Mapping[str, Array], case: Case) -> tuple[float, float]:
    """What the gradients are of, and the norm of its terms: the outputs and final states, weighted
    by the gradients that come from outside."""
    terms = [(outputs[n], g) for n, g in case.d_outputs.items()] + [(final[n], g) for n, g in case.d_final.items()]
    return _sum_and_norm([a.astype(np.float64) * g.astype(np.float64) for a, g in terms])


def agree(
    found: float,
    expected: float,
    scale: float,
    tolerance: float,
    detail: str,
    definition: Callable[[Numbers], float] | None = None,
) -> Outcome:
    """The outcome of comparing two numbers.

    found, expected: the numbers. scale: what their difference is measured by, where `expected` is
    not larger. tolerance, detail: of the outcome. definition: what gives `found` in given numbers;
    where rounding alone moves it by more than the tolerance allows for, that is the measure. Raises
    UndecidedError where the error is above what ILL_CONDITIONED allows and yet no more than
    rounding does.
    """
    scale = max(scale, abs(expected))
    gap = abs(found - expected)
    if definition is not None and gap > tolerance * scale:
        (spread,) = rounding_spread(
            lambda n: {detail: np.asarray(definition(n))}, {detail: np.asarray(found)}, "float64"
        ).values()
        scale = max(scale, allowed(spread, tolerance, scale))
        detail += f" (rounding alone changes it by {spread:.1e})"
        if tolerance * scale < gap <= FREEDOM * spread:
            raise UndecidedError(f"{detail}, as much as the error")
    error = gap / scale if scale else 0.0
    return Outcome(error if np.isfinite(error) else float("inf"), tolerance, detail)


@at_sizes(lambda known: SHAPES)
def dot_product(known: Subject, shapes: Shapes) -> Outcome:
    """<ybar, J v> = <J^T ybar, v>, J v by the tangent graph and J^T ybar by the adjoint."""
    case = known.draw(shapes, f"dot product {shapes.number}")
    along = directions(known, case, np.random.default_rng([known.seed, shapes.number]))
    left, scale = forward_derivative(known, case, along)
    right, _ = reverse_derivative(run_reference(known, case), along)
    return agree(right, left, scale, DOT_PRODUCT, case.about())


def directions(known: Subject, case: Case, rng: np.random.Generator) -> Groups:
    """Random directions of everything; none for inputs that never get a gradient."""
    still = known.spec.no_gradient
    return {
        g: {n: np.zeros(a.shape) if n in still else rng.uniform(-1, 1, a.shape) for n, a in getattr(case, g).items()}
        for g in GRADIENT
    }


@at_sizes(lambda known: (*SHAPES, Shapes(6, 5, (known.lanes() + 1, known.lanes() - 1), ragged=True)))
def differences(known: Subject, shapes: Shapes) -> Outcome:
    """The kernel's own gradients against central differences of the kernel, along random directions
    of everything at once; of a cell that stops gradients, against those of the definition with what
    is stopped as inputs."""
    if known.dtype != "float64":
        return Outcome(skipped="differences need float64")
    small = shapes.number < len(SHAPES)  # the larger case has too many values to keep all of them far from kinks
    case = known.draw(shapes, f"differences {shapes.number}", KINK_DERIVATIVE if small else 10 * STEP)
    gradients = run_kernel(known.compiled(), case)
    along = directions(known, case, np.random.default_rng([known.seed, shapes.number]))
    step = STEP if small else STEP / 10
    stopped = with_stopped(known.graph, case)
    (ahead, size), (behind, _) = (_moved_loss(known, stopped, case, along, s) for s in (step, -step))
    found, scale = reverse_derivative(gradients, along)
    unseen = (
        FREEDOM * ROUNDING["float64"] * size / step
    )  # what the rounding of the loss hides, where gradients vanish along a deep chain
    return agree(found, (ahead - behind) / (2 * step), max(scale, unseen / DIFFERENCES), DIFFERENCES, case.about())


def _moved_loss(known: Subject, stopped: Stopped, case: Case, along: Groups, step: float) -> tuple[float, float]:
    groups: dict[str, Any] = {g: {n: a + step * along[g][n] for n, a in getattr(case, g).items()} for g in GRADIENT}
    moved = replace(case, **groups)
    graph, held = stopped
    if held:
        given = (moved.params, moved.inputs | held, moved.states, moved.lengths)
        frozen = reference.forward(graph, *given, sizes=moved.sizes, lead=moved.lead)
        return _loss(frozen.outputs, frozen.final, case)
    run = known.compiled().infer(moved.params, moved.inputs, moved.states, moved.lengths, **moved.extent)
    return _loss(run.outputs, run.final, case)
