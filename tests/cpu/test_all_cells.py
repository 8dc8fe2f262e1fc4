"""Every cell of specs/: its kernels against the reference. Most carry the slow marker: `pytest -m
slow` runs them."""

from __future__ import annotations

import numpy as np
import pytest
from cells import CORE, case, counts_after, kernel, reference_stages
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends import reference

FORMS = (
    "antisymmetric_rnn",
    "gru_d",
    "ln_lstm_haste",
    "mlstm_matrix",
    "mogrifier_lstm",
    "on_lstm",
    "rhn",
    "slstm",
    "tau_gru",
)  # of the whole language
OTHERS = [n for n in rnnspec.spec_names() if n not in CORE + FORMS]  # CORE is compared in many other tests


@pytest.mark.parametrize("name", [*FORMS, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)])
def test_kernels_compute_what_the_reference_does(name):
    own, made = kernel(name, threads=2), reference_stages(name)
    for steps, count, lengths in ((4, 3, None), (5, 4, [5, 0, 2, 4])):
        c = case(own, steps, count, lengths=lengths)
        run, inferred = (
            own.forward(c.params, c.inputs, c.states, c.lengths),
            own.infer(c.params, c.inputs, c.states, c.lengths),
        )
        want = reference.forward(made.graph, c.params, c.inputs, c.states, c.lengths, sizes=c.sizes)
        grad = own.backward(run, c.dy, final=c.dfinal)
        wanted = reference.backward(made.adjoint, c.params, c.inputs, want, c.dy, c.dfinal, c.lengths, sizes=c.sizes)
        for got, expected in (
            (run.outputs, want.outputs),
            (inferred.outputs, want.outputs),
            (run.final, want.final | counts_after(c)),
            (run.states, want.states),
            (grad.params, wanted.params),
            (grad.inputs, wanted.inputs),
            (grad.states, wanted.states),
        ):
            for n, a in got.items():
                assert np.isfinite(expected[n]).all(), f"{name}: {n} is not finite in the reference"
                assert_close(
                    a,
                    expected[n],
                    REFERENCE["float64"] * max(1.0, float(np.abs(expected[n]).max(initial=0))),
                    f"{name} {n}",
                )
