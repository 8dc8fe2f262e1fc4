"""Properties of second derivatives: the tangent of the adjoint against its own symmetry, complex
steps of the adjoint, and differences in 50 digits; the kernel's products against it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import product as product_of
from typing import Any

import mpmath
import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.backends.numbers import FLOAT64, Numbers
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.properties.conditioning import measure
from rnnspec.check.properties.derivatives import GRADIENT, SHAPES, Groups, agree, directions
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.stopped import with_stopped
from rnnspec.check.subject import Subject, collect, of_trained
from rnnspec.check.tolerances import (
    COMPLEX_STEP,
    FIFTY_DIGITS,
    KERNEL,
    KINK_COMPARISON,
    KINK_DERIVATIVE,
    STEP_50,
    SYMMETRY,
)
from rnnspec.language.spec import STEP, TANGENT, tangent_of
from rnnspec.symbolic.adjoint import adjoint, gradient_of

COLUMNS = 2
TINY = 1e-40  # of a complex step
UPSTREAM = {"d_outputs": "tangent_outputs", "d_final": "tangent_final"}
SMALL = (Shapes(3, 2, (2, 1, 3)), Shapes(2, 1, (1, 2, 2)))
HVP = {
    ArrayKind.PARAM_GRADIENT: ArrayKind.PARAM_HVP,
    ArrayKind.INPUT_GRADIENT: ArrayKind.INPUT_HVP,
    ArrayKind.STATE_GRADIENT: ArrayKind.STATE_HVP,
}


@at_sizes(lambda known: SHAPES)
def hessian_symmetry(known: Subject, shapes: Shapes) -> Outcome:
    """u'Hv = v'Hu, H the second derivatives by everything at once."""
    return symmetry(known, known.draw(shapes, f"Hessian, symmetry {shapes.number}"))


def symmetry(known: Subject, case: Case, least: float = 0.0) -> Outcome:
    """`hessian_symmetry` at one point. least: what the difference is measured by at least."""
    rng = np.random.default_rng(known.seed)
    u, v = directions(known, case, rng), directions(known, case, rng)
    (left, scale), (right, _) = (product(second(known, case, b), a) for a, b in ((u, v), (v, u)))
    return agree(
        left, right, max(scale, least), SYMMETRY, case.about(), lambda n: product(second(known, case, v, n), u)[0]
    )


@at_sizes(lambda known: SHAPES)
def hessian_complex_step(known: Subject, shapes: Shapes) -> Outcome:
    """u'Hv, and what directions of the gradients from outside add to it, against the adjoint with a
    complex step: u imag(g(x + i e v)) / e. What stop_gradient and straight_through stop is held at
    its values."""
    return against_complex_step(known, known.draw(shapes, f"Hessian, complex step {shapes.number}", KINK_DERIVATIVE))


def against_complex_step(known: Subject, case: Case, least: float = 0.0) -> Outcome:
    """`hessian_complex_step` at one point. least: what the difference is measured by at least."""
    rng = np.random.default_rng(known.seed)
    u, v = directions(known, case, rng), directions(known, case, rng) | upstream(case, rng)
    found, scale = product(second(known, case, v), u)
    (graph, held), still = with_stopped(known.graph, case), known.spec.no_gradient
    moved = {g: {n: a + 1j * TINY * v[g][n] for n, a in getattr(case, g).items()} for g in (*GRADIENT, *UPSTREAM)}
    shared: dict[str, Any] = {"lengths": case.lengths, "sizes": case.sizes, "numbers": numbers.COMPLEX128}
    inputs = moved["inputs"] | held
    run = reference.forward(graph, moved["params"], inputs, moved["states"], lead=case.lead, **shared)
    reverse = adjoint(graph, (*still, *held))
    grad = reference.backward(reverse, moved["params"], inputs, run, moved["d_outputs"], moved["d_final"], **shared)
    values = {HVP[k]: {n: a.imag / TINY for n, a in arrays.items()} for k, arrays in _gradients(grad).items()}
    expected, _ = product(values, u)

    def definition(given: Numbers) -> float:
        return product(second(known, case, v, given), u)[0]

    return agree(found, expected, max(scale, least), COMPLEX_STEP, case.about(), definition)


@at_sizes(lambda known: SMALL)
def hessian_differences(known: Subject, shapes: Shapes) -> Outcome:
    """u'Hv against second differences of the loss itself, in 50 digits."""
    case = known.draw(shapes, f"Hessian, 50 digits {shapes.number}", KINK_DERIVATIVE)
    rng = np.random.default_rng([known.seed, shapes.number])
    u, v = directions(known, case, rng), directions(known, case, rng)
    found, scale = product(second(known, case, v), u)
    graph, held = with_stopped(known.graph, case)
    digits = numbers.mpmath_numbers()
    with mpmath.workdps(50):
        step = mpmath.mpf(STEP_50)

        def loss(along_u: int, along_v: int) -> Any:
            moved = {
                g: {
                    n: digits.array(a) + step * (along_u * digits.array(u[g][n]) + along_v * digits.array(v[g][n]))
                    for n, a in getattr(case, g).items()
                }
                for g in GRADIENT
            }
            given = (moved["params"], moved["inputs"] | held, moved["states"], case.lengths)
            run = reference.forward(graph, *given, sizes=case.sizes, numbers=digits, lead=case.lead)
            terms = [run.outputs[n] * digits.array(g) for n, g in case.d_outputs.items()]
            terms += [run.final[n] * digits.array(g) for n, g in case.d_final.items()]
            return sum((t.sum() for t in terms), mpmath.mpf(0))

        corners = {signs: loss(*signs) for signs in product_of((1, -1), repeat=2)}
        expected = float(sum(a * b * corners[a, b] for a, b in corners) / (4 * step * step))
        # of a Hessian that is 0 the differences are the rounding of long sums
        rounding = float(1000 * max(map(abs, corners.values())) * mpmath.eps / (step * step))

    def definition(given: Numbers) -> float:
        return product(second(known, case, v, given), u)[0]

    return agree(found, expected, max(scale, rounding / FIFTY_DIGITS), FIFTY_DIGITS, case.about(), definition)


@at_sizes(lambda known: (known.shapes()[1], known.shapes()[-1]))
def hessian_of_kernel(known: Subject, shapes: Shapes) -> Outcome:
    """The kernel's `hvp` along several directions at once, of everything and of the gradients from
    outside, against the tangent of the definition's adjoint along each."""
    case = known.draw(shapes, f"Hessian {shapes.number}", KINK_COMPARISON)
    rng = np.random.default_rng([known.seed, shapes.number, zlib.crc32(known.spec.name.encode())])
    along = columns(known, case, rng)
    given: dict[str, Any] = {UPSTREAM.get(g, f"tangent_{g}"): arrays for g, arrays in along.items()}
    found = known.compiled().hvp(
        case.params,
        case.inputs,
        case.states,
        case.lengths,
        outputs=case.d_outputs,
        final=case.d_final,
        **given,
        **case.extent,
    )
    moved = {HVP[k]: a for k, a in _gradients(found.tangent_gradients).items()}
    ours = {**collect(found, found.gradients), **moved}

    def definition(numbers: Numbers) -> Values:
        return _second_of_all(known, case, along, numbers)

    error, name = measure(ours, definition(FLOAT64), definition, known.dtype, KERNEL[known.dtype])
    return Outcome(error, KERNEL[known.dtype], f"{name} at {case.about()}")


@at_sizes(lambda known: (known.shapes()[1],))
def gauss_newton(known: Subject, shapes: Shapes) -> Outcome:
    """v'Gv = sum of c (J v)^2, G the kernel's Gauss-Newton matrix and c a diagonal curvature; along
    several directions at once."""
    case = known.draw(shapes, f"Gauss-Newton {shapes.number}", KINK_COMPARISON)
    rng = np.random.default_rng([known.seed, shapes.number])
    along = {g: a for g, a in columns(known, case, rng).items() if g in GRADIENT}
    given: dict[str, Any] = {f"tangent_{g}": arrays for g, arrays in along.items()}
    diagonal = {n: rng.uniform(0, 1, g.shape).astype(known.dtype) for n, g in case.d_outputs.items()}
    found = known.compiled().ggn(
        case.params,
        case.inputs,
        case.states,
        case.lengths,
        curvature=diagonal,
        **given,
        **case.extent,
    )
    outcomes = []
    for k in range(COLUMNS):
        terms = [c.astype(float) * found.tangent_outputs[n][k].astype(float) ** 2 for n, c in diagonal.items()]
        expected = float(sum(t.sum() for t in terms))
        moved = {g: {n: a[k].astype(float) for n, a in arrays.items()} for g, arrays in along.items()}
        products = {kind: {n: a[k] for n, a in arrays.items()} for kind, arrays in _gradients(found.products).items()}
        ours, scale = product({HVP[kind]: arrays for kind, arrays in products.items()}, moved)
        outcomes.append(agree(ours, expected, scale, KERNEL[known.dtype], f"direction {k} at {case.about()}"))
    return largest(outcomes)


# --- by the definition


def upstream(case: Case, rng: np.random.Generator) -> Groups:
    """Random directions of the gradients from outside."""
    return {g: {n: rng.uniform(-1, 1, a.shape) for n, a in getattr(case, g).items()} for g in UPSTREAM}


def columns(known: Subject, case: Case, rng: np.random.Generator) -> Groups:
    """COLUMNS random directions of everything that has one, and of the gradients from outside."""
    still = (*known.spec.no_gradient, STEP)
    return {
        g: {
            n: rng.uniform(-1, 1, (COLUMNS, *a.shape)).astype(known.dtype)
            for n, a in getattr(case, g).items()
            if n not in still
        }
        for g in (*GRADIENT, *UPSTREAM)
    }


def second(known: Subject, case: Case, along: Groups, given: Numbers = FLOAT64) -> Values:
    """The directions of all gradients, by the tangent of the adjoint; those left out are zero."""
    return _second(known, case, along, given)[1]


def product(found: Values, along: Groups) -> tuple[float, float]:
    """Directions of gradients times other directions, and the norm of the terms."""
    products = [
        found[HVP[kind]][n] * d for g, kind in GRADIENT.items() for n, d in along[g].items() if n in found[HVP[kind]]
    ]
    return float(sum(p.sum() for p in products)), float(np.sqrt(sum((p.astype(float) ** 2).sum() for p in products)))


def _second(known: Subject, case: Case, along: Mapping[str, Mapping[str, Array]], given: Numbers) -> tuple[Any, Values]:
    """The run ahead with its directions and the gradients, and the directions of these."""
    ahead, reverse = known.second_order

    def both(group: str) -> dict[str, Array]:
        arrays, moved = getattr(case, group), along.get(group, {})
        return {**arrays, **{tangent_of(n): moved.get(n, np.zeros(np.shape(a))) for n, a in arrays.items()}}

    params, inputs, states = both("params"), both("inputs"), both("states")
    shared: dict[str, Any] = {"lengths": case.lengths, "sizes": case.sizes, "numbers": given}
    run = reference.forward(ahead, params, inputs, states, lead=case.lead, **shared)
    flowing = {o: case.d_outputs.get(o, np.zeros_like(run.outputs[o])) for o in known.graph.outputs}
    moved = {
        tangent_of(gradient_of(o)): along.get("d_outputs", {}).get(o, np.zeros(a.shape)) for o, a in flowing.items()
    }
    grad = reference.backward(reverse, params, {**inputs, **moved}, run, flowing, both("d_final"), **shared)
    values = of_trained(known.spec, collect(run, grad))
    split = {k: {n: a for n, a in arrays.items() if n.startswith(TANGENT)} for k, arrays in _gradients(grad).items()}
    found = {HVP[k]: {n.removeprefix(TANGENT): a for n, a in arrays.items()} for k, arrays in split.items()}
    trained = {n: a for n, a in found[ArrayKind.PARAM_HVP].items() if n in known.spec.trained}
    return values, {**found, ArrayKind.PARAM_HVP: trained}


def _second_of_all(known: Subject, case: Case, along: Groups, given: Numbers) -> Values:
    """Values, gradients and, column after column, directions of gradients."""
    runs = [
        _second(known, case, {g: {n: a[k] for n, a in arrays.items()} for g, arrays in along.items()}, given)
        for k in range(COLUMNS)
    ]
    own = {kind: {n: a for n, a in arrays.items() if not n.startswith(TANGENT)} for kind, arrays in runs[0][0].items()}
    stacked = {
        kind: {n: np.stack([r[1][kind][n] for r in runs]) for n in arrays} for kind, arrays in runs[0][1].items()
    }
    return {**own, **stacked}


def _gradients(grad: Any) -> dict[ArrayKind, Mapping[str, Array]]:
    return {
        ArrayKind.PARAM_GRADIENT: grad.params,
        ArrayKind.INPUT_GRADIENT: grad.inputs,
        ArrayKind.STATE_GRADIENT: grad.states,
    }
