"""Cells against second implementations in plain NumPy (plain_cells/part*.py), on the reference
backend: nothing is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from plain_versions import CELLS, domain

from rnnspec.backends import reference
from rnnspec.check.sampling import Shapes, draw
from rnnspec.language.load import load, specs_folder
from rnnspec.lowering.pipeline import stages

STEPS, ROWS = 4, 2
SIZES = (3, 5, 4, 7, 6)
COUNTING = ("clockwork_rnn",)  # its counters start at whole numbers, such as zero


@pytest.mark.parametrize("start", ["random", "zero"])
@pytest.mark.parametrize("name", sorted(CELLS))
def test_values_are_those_of_the_plain_version(name, start):
    if not (specs_folder() / f"{name}.yaml").exists():
        pytest.skip("no such spec")
    if name in COUNTING and start == "random":
        pytest.skip("its counters start at whole numbers")
    spec = load(name)
    graph = stages(spec).graph
    case = draw(spec, graph, Shapes(STEPS, ROWS, SIZES), seed=7)
    states = case.states if start == "random" else {n: np.zeros_like(a) for n, a in case.states.items()}
    case.inputs.update(domain(name, case.inputs))
    run = reference.forward(graph, case.params, case.inputs, states, sizes=case.sizes)
    outputs, final = CELLS[name](case.params, case.inputs, states, {n: float(v) for n, v in spec.constants.items()})
    assert set(outputs) == set(run.outputs)
    for output, value in outputs.items():
        np.testing.assert_allclose(run.outputs[output], value, rtol=1e-10, atol=1e-12, err_msg=output)
    for state in spec.states:
        np.testing.assert_allclose(run.final[state], final[state], rtol=1e-10, atol=1e-12, err_msg=f"final {state}")


def _two(names, start):
    """Outputs of two cells over 30 steps, of the same parameters and inputs."""
    found = []
    for name in names:
        spec = load(name)
        graph = stages(spec).graph
        case = draw(spec, graph, Shapes(30, ROWS, SIZES), seed=3)
        states = {n: start(a) for n, a in case.states.items()}
        found.append(reference.forward(graph, case.params, case.inputs, states, sizes=case.sizes).outputs["h"])
    return found


def test_the_floor_of_slstm_acts_from_given_states_only():
    """The larger of its gates is 1, so that n >= 1 after a step from the zero state."""
    one, other = _two(["slstm", "slstm_floored"], np.zeros_like)
    np.testing.assert_array_equal(one, other)
    one, other = _two(["slstm", "slstm_floored"], lambda a: 1e-3 * np.ones_like(a))
    assert np.abs(one - other).max() > 1e-3


def test_the_fast_cells_hand_on_one_memory():
    assert list(load("fast_slow_rnn").states) == ["h", "s", "c", "cs"]
