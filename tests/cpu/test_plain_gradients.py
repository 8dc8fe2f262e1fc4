"""Gradients of cells against torch's autograd through their plain versions
(plain_cells/part*.py that name them in TORCH), on the reference backend: nothing is compiled."""

from __future__ import annotations

import numpy as np
import plain_versions
import pytest

from rnnspec.backends import reference
from rnnspec.check.sampling import Shapes, draw
from rnnspec.language.load import load
from rnnspec.lowering.pipeline import stages

torch = pytest.importorskip("torch")
SHAPES = Shapes(9, 3, (3, 4, 5, 2))


@pytest.mark.parametrize("name", sorted(plain_versions.TORCH))
def test_gradients_are_those_of_the_plain_version(name):
    spec = load(name)
    made = stages(spec)
    case = draw(spec, made.graph, SHAPES, seed=11)
    case.inputs.update(plain_versions.domain(name, case.inputs))
    run = reference.forward(made.graph, case.params, case.inputs, case.states, sizes=case.sizes)
    dy, dfinal = case.d_outputs, case.d_final
    found = reference.backward(made.adjoint, case.params, case.inputs, run, dy, dfinal, sizes=case.sizes)

    params, inputs, states = (
        {n: torch.tensor(a, dtype=torch.float64, requires_grad=True) for n, a in group.items()}
        for group in (case.params, case.inputs, case.states)
    )
    outputs, final = plain_versions.CELLS[name](
        params, inputs, states, {n: float(v) for n, v in spec.constants.items()}
    )
    loss = sum((outputs[n] * torch.tensor(d)).sum() for n, d in dy.items())
    loss = loss + sum((final[n] * torch.tensor(d)).sum() for n, d in dfinal.items())
    loss.backward()
    for wanted, got in ((params, found.params), (inputs, found.inputs), (states, found.states)):
        for n, gradient in got.items():
            want = wanted[n].grad
            want = np.zeros(gradient.shape) if want is None else want.numpy()
            scale = max(1.0, float(np.abs(want).max(initial=0)))
            np.testing.assert_allclose(gradient, want, rtol=0, atol=1e-10 * scale, err_msg=f"{name} {n}")
