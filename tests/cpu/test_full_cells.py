"""Cells that use the whole language (tests/specs and two more): values against plain NumPy, both
derivatives, what is computed once, what prints."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import full_cells
import mpmath
import numpy as np
import pytest
from tolerances import APART, DIGITS, REFERENCE, assert_close

from rnnspec.backends import reference
from rnnspec.backends.numbers import mpmath_numbers
from rnnspec.check.properties.derivatives import complex_step, dot_product
from rnnspec.check.sampling import Case, Shapes, draw
from rnnspec.check.subject import Subject, subject
from rnnspec.language.load import digest, load, spec_path
from rnnspec.lowering.pipeline import stages
from rnnspec.show.page import show
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.once import split_once

FOLDER = Path(__file__).resolve().parents[1] / "specs"
NAMES = sorted(full_cells.STEPS)
SIZES = (Shapes(5, 2, (3, 4)), Shapes(3, 1, (1, 1)), Shapes(2, 3, (7, 5)), Shapes(4, 2, (1, 13)))


@cache
def known(name: str) -> Subject:
    path = FOLDER / f"{name}.yaml"
    return subject(load(path if path.is_file() else name))  # a cell that has become one of the list has left the folder


def case(name: str, shapes: Shapes = SIZES[0]) -> Case:
    return draw(known(name).spec, known(name).graph, shapes, 1)


def test_every_cell_has_a_plain_version():
    assert {path.stem for path in FOLDER.glob("*.yaml")} <= set(full_cells.STEPS)


@pytest.mark.parametrize("shapes", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_paper(name, shapes):
    spec, drawn = known(name).spec, case(name, shapes)
    given = {
        n: v if (n in spec.states and name != "taps") or n == "h" else np.zeros_like(v) for n, v in drawn.states.items()
    }
    found = reference.forward(known(name).graph, drawn.params, drawn.inputs, given, sizes=drawn.sizes)
    for row in range(drawn.rows):
        plain = full_cells.run(
            name,
            drawn.params,
            drawn.inputs["x"][:, row],
            {n: given[n][row] for n in spec.states} | ({"z": given["z"][row]} if name == "taps" else {}),
        )
        for state in spec.states:
            assert_close(found.states[state][:, row], plain[state], REFERENCE["float64"], state)


@pytest.mark.parametrize("name", NAMES)
def test_the_adjoint_is_the_derivative(name):
    outcome = complex_step(known(name))
    assert outcome.measured is not None and outcome.passed, outcome


@pytest.mark.parametrize("name", NAMES)
def test_adjoint_and_tangent_are_transposes(name):
    outcome = dot_product(known(name))
    assert outcome.measured is not None and outcome.passed, outcome


@pytest.mark.parametrize("name", ["on_lstm", "mlstm_matrix", "fast_weights"])
def test_the_adjoint_by_differences_of_thirty_digits(name):
    it, drawn = known(name), case(name, Shapes(2, 1, (2, 2)))
    run = reference.forward(it.graph, drawn.params, drawn.inputs, drawn.states, sizes=drawn.sizes)
    found = reference.backward(
        it.reverse, drawn.params, drawn.inputs, run, {"h": np.ones_like(run.outputs["h"])}, sizes=drawn.sizes
    )
    along = {n: np.random.default_rng(0).normal(size=v.shape) for n, v in drawn.params.items()}
    with mpmath.workdps(40):
        numbers, step = mpmath_numbers(), mpmath.mpf("1e-15")

        def loss(side):
            params = {n: numbers.array(v) + side * step * numbers.array(along[n]) for n, v in drawn.params.items()}
            return (
                reference.forward(it.graph, params, drawn.inputs, drawn.states, sizes=drawn.sizes, numbers=numbers)
                .outputs["h"]
                .sum()
            )

        numeric = float((loss(1) - loss(-1)) / (2 * step))
    assert sum(float((found.params[n] * along[n]).sum()) for n in along) == pytest.approx(numeric, rel=DIGITS)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_computed_once_can_be_computed_apart(name):
    """Step and once, each with its own adjoint, give what the whole graph gives."""
    it, drawn = known(name), case(name)
    whole = reference.forward(it.graph, drawn.params, drawn.inputs, drawn.states, sizes=drawn.sizes)
    wanted = reference.backward(
        it.reverse, drawn.params, drawn.inputs, whole, drawn.d_outputs, drawn.d_final, sizes=drawn.sizes
    )
    split = split_once(it.graph)
    params = drawn.params | reference.once(split.once, drawn.params, drawn.sizes)
    run = reference.forward(split.step, params, drawn.inputs, drawn.states, sizes=drawn.sizes)
    found = reference.backward(
        adjoint(split.step), params, drawn.inputs, run, drawn.d_outputs, drawn.d_final, sizes=drawn.sizes
    )
    more = reference.once_gradients(
        adjoint(split.once), drawn.params, {o: found.params[o] for o in split.once.outputs}, drawn.sizes
    )
    for output, value in whole.outputs.items():
        assert_close(run.outputs[output], value, APART, output)
    for p in drawn.params:
        assert_close(found.params[p] + more.get(p, 0.0), wanted.params[p], APART, p)
    assert set(split.once.outputs) == ({"A"} if name == "antisymmetric_rnn" else set())


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_programs(name):
    made = stages(known(name).spec)
    assert made.forward.states and made.backward.reverse and made.infer.recurrent_stages() >= 0


@pytest.mark.parametrize("name", NAMES)
def test_everything_prints(name):
    it = known(name)
    for text in (it.graph.to_text(), it.reverse.to_text(), it.forward_mode.to_text(), show(it.spec)):
        assert text
    tex = show(it.spec, latex=True)
    assert tex.count("{") == tex.count("}") and "^{\\top}^" not in tex and len(digest(it.spec)) == 64
    assert not [line for line in tex.splitlines() if line.count("&=") > 1]


def test_the_depth_of_a_loop_is_chosen_at_load():
    path = spec_path("rhn")
    assert load(path, L=5).parameters["R_h"] == ("5", "H", "H") and load(path, L=5).constants["L"] == 5
    assert len({digest(load(path, L=depth)) for depth in (1, 2, 3)}) == 3
    assert load(path, L=3) == load(path)
