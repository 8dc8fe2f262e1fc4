"""Random cells: kernels against the reference, and the reference's adjoint against central differences."""
from __future__ import annotations

import re

import numpy as np
import pytest
from random_cells import RandomCell

import rnnspec
from rnnspec import UnsupportedError
from rnnspec.backends import reference
from rnnspec.check.derivatives import dot_product
from rnnspec.check.sampling import Shapes, draw
from rnnspec.check.subject import subject
from rnnspec.language.sizes import evaluate_size
from rnnspec.pipeline import stages
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.once import split_once

SEEDS = (12, 15)  # a product that is also a parameter's gradient; an outer product's operand in a ragged history
SLOW_SEEDS = (4, 9, 17, 30)
FULL_SEEDS = (0, 1, 2)
REFUSED = re.compile("change with time|element by element|of the step's number")
CASES = ((4, 3, {"D": 5, "H": 9, "P": 2}, None), (5, 4, {"D": 8, "H": 7, "P": 17}, [5, 2, 0, 4]))


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW_SEEDS)])
def test_kernels_compute_what_the_reference_does(seed: int) -> None:
    check_kernels(RandomCell(seed).text(), seed)


@pytest.mark.parametrize("seed", [*FULL_SEEDS, *(pytest.param(s, marks=pytest.mark.slow) for s in range(50))])
def test_kernels_compute_what_the_reference_does_in_the_full_language(seed: int) -> None:
    try:
        check_kernels(RandomCell(seed, features=True).text(), seed)
    except UnsupportedError as error:
        assert REFUSED.search(str(error)), error


def check_kernels(text: str, seed: int) -> None:
    spec = rnnspec.loads(text)
    made = stages(spec)
    kernel = rnnspec.compile(spec, dtype="float64", threads=2)
    for steps, rows, sizes, lengths in CASES:
        rng = np.random.default_rng(seed)

        def arrays(shapes, *lead, scale=1.0, rng=rng, sizes=sizes):
            return {n: scale * rng.normal(size=(*lead, *(evaluate_size(s, sizes) for s in shape))) for n, shape in shapes.items()}

        params, x = arrays(spec.parameters, scale=0.5), arrays(spec.inputs, steps, rows)
        states = arrays(kernel.states, rows)
        want = reference.forward(made.graph, params, x, states, lengths, sizes=sizes)
        run, inferred = kernel.forward(params, x, states, lengths), kernel.infer(params, x, states, lengths)
        dy = {o: rng.normal(size=v.shape) for o, v in run.outputs.items()}
        dfinal = {s: rng.normal(size=v.shape) for s, v in run.final.items()}
        gradients = kernel.backward(run, dy, final=dfinal)
        wanted = reference.backward(made.adjoint, params, x, want, dy, dfinal, lengths, sizes=sizes)
        for got, expected in ((run.outputs, want.outputs), (inferred.outputs, want.outputs), (run.final, want.final), (run.states, want.states),
                              (gradients.params, wanted.params), (gradients.inputs, wanted.inputs), (gradients.states, wanted.states)):
            for name in got:
                scale = max(1e-6, np.abs(expected[name]).max(initial=0))
                np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=1e-9 * scale, err_msg=f"{seed} {name}")


@pytest.mark.parametrize("seed", range(40, 60))
def test_the_adjoint_is_the_derivative(seed: int) -> None:
    """On the reference alone, so without compiling: a directional derivative by central differences."""
    check_adjoint(RandomCell(seed).text(), seed)


@pytest.mark.parametrize("seed", [*range(24), *(pytest.param(s, marks=pytest.mark.slow) for s in range(24, 200))])
def test_the_adjoint_is_the_derivative_in_the_full_language(seed: int) -> None:
    """The same over inner loops, steps back, matrices, feature-axis functions and values computed once."""
    text = RandomCell(seed, features=True).text()
    check_adjoint(text, seed)
    outcome = dot_product(subject(rnnspec.loads(text)))
    assert outcome.passed, (outcome, text)


@pytest.mark.parametrize("seed", [*range(8), 1012, 1017, 1025, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1030, 1060))])
def test_what_is_computed_once_can_be_computed_apart(seed: int) -> None:
    """1012 and its like emit a value that is computed once: as a parameter it would not be among the values of a step."""
    known = subject(rnnspec.loads(RandomCell(seed, features=True).text()))
    case, split = draw(known.spec, known.graph, Shapes(3, 2, (3, 4, 2)), 0), split_once(known.graph)
    run = reference.forward(known.graph, case.params, case.inputs, case.states, sizes=case.sizes)
    wanted = reference.backward(known.reverse, case.params, case.inputs, run, case.d_outputs, case.d_final, sizes=case.sizes)
    params = case.params | reference.once(split.once, case.params, case.sizes)
    run = reference.forward(split.step, params, case.inputs, case.states, sizes=case.sizes)
    found = reference.backward(adjoint(split.step), params, case.inputs, run, case.d_outputs, case.d_final, sizes=case.sizes)
    more = reference.once_gradients(adjoint(split.once), case.params, {o: found.params[o] for o in split.once.outputs}, case.sizes)
    for p, gradient in wanted.params.items():
        np.testing.assert_allclose(found.params[p] + more[p], gradient, rtol=1e-8, atol=1e-9 * max(1, np.abs(gradient).max()), err_msg=p)


def check_adjoint(text: str, seed: int) -> None:
    known = subject(rnnspec.loads(text))
    spec, graph, reverse = known.spec, known.graph, known.reverse
    rng, sizes = np.random.default_rng(seed), {"D": 3, "H": 2, "P": 2}

    def arrays(shapes, *lead, scale=1.0):
        return {n: scale * rng.normal(size=(*lead, *(evaluate_size(s, sizes) for s in shape))) for n, shape in shapes.items()}

    carried = {s: spec.shapes[s] for s in graph.states}
    point = [arrays(spec.parameters, scale=0.5), arrays(spec.inputs, 3, 2), arrays(carried, 2)]
    along = [{n: rng.normal(size=np.shape(v)) for n, v in part.items()} for part in point]
    base = reference.forward(graph, *point, sizes=sizes)
    dy = {o: rng.normal(size=v.shape) for o, v in base.outputs.items()}

    def loss(step: float) -> float:
        moved = [{n: v + step * d[n] for n, v in part.items()} for part, d in zip(point, along)]
        return sum(float((v * dy[o]).sum()) for o, v in reference.forward(graph, *moved, sizes=sizes).outputs.items())

    got = reference.backward(reverse, point[0], point[1], base, dy, sizes=sizes)
    analytic = sum(float((g[n] * d[n]).sum()) for g, d in zip((got.params, got.inputs, got.states), along) for n in g)
    numeric = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert analytic == pytest.approx(numeric, rel=1e-6, abs=1e-6), text
