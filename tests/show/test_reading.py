"""The step as it is read has the values of the step that is computed."""

from __future__ import annotations

import numpy as np
import pytest
from cells import whole_sizes

from rnnspec.backends import reference
from rnnspec.language.load import load
from rnnspec.language.sizes import full_shape
from rnnspec.lowering.pipeline import graphs
from rnnspec.show.reading import reading


@pytest.mark.parametrize("name", ["ln_gru", "on_lstm", "rwkv7", "lstm", "fast_weights"])
def test_what_keeps_numbers_in_range_changes_no_gradient(name: str) -> None:
    spec = load(name)
    known, sizes, rng = reading(spec), whole_sizes(spec), np.random.default_rng(0)
    assert not any(word in known.reverse.to_text() for word in ("rescaled(", "shifted(", "mean_of(", "unscaled("))
    params = {n: rng.uniform(0.2, 1, full_shape(s, sizes)) for n, s in spec.parameters.items()}
    inputs = {n: rng.uniform(-1, 1, (3, 2, *full_shape(s, sizes))) for n, s in spec.inputs.items()}
    dy = {n: rng.uniform(-1, 1, (3, 2, *full_shape(spec.shapes[n], sizes))) for n in spec.outputs}
    found = []
    for graph, reverse in (graphs(spec), (known.graph, known.reverse)):
        run = reference.forward(graph, params, inputs, sizes=sizes)
        back = reference.backward(reverse, params, inputs, run, dy, sizes=sizes)
        found.append({**run.outputs, **back.params, **{f"of {n}": g for n, g in back.inputs.items()}})
    for key, value in found[0].items():
        np.testing.assert_allclose(found[1][key], value, rtol=1e-9, atol=1e-12, err_msg=key)
