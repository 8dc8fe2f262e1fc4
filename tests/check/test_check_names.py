"""What users may call their parameters, inputs and states: `rnnspec check` looks at what an array
is, never at the letters of its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny import cell

from rnnspec.check import check_cells
from rnnspec.check.run import PROPERTIES, run_property
from rnnspec.check.subject import subject
from rnnspec.language.load import load, loads
from rnnspec.symbolic.graph import Pointwise

PLAIN = {
    "input_w, initial_b": ("x", "h", "input_w", "input_u", "initial_b"),
    "output_x, state_h": ("output_x", "state_h", "output_w", "state_u", "final"),
    "gradient_of, final": ("final", "gradient_of", "gradient", "initial", "input"),
}


def plain_rnn(x: str, h: str, w: str, u: str, b: str) -> str:
    """A tanh RNN under the given names."""
    return cell(
        f"{h}[t] = tanh({w} @ {x}[t] + {u} @ {h}[t-1] + {b})",
        inputs=f"{{{x}: D}}",
        states=f"{{{h}: H}}",
        parameters=f"{{{w}: [H, D], {u}: [H, H], {b}: [H]}}",
        outputs=f"[{h}]",
        title="an RNN",
    )


@pytest.mark.parametrize("names", PLAIN.values(), ids=PLAIN)
def test_a_right_cell_passes_whatever_its_names(names):
    report = check_cells([loads(plain_rnn(*names))], dtypes=("float64",))
    assert report.passed, report.to_text()


def test_an_example_of_nan_says_which_array():
    spec = load("lstm")
    known = subject(spec)
    nodes = {**known.graph.nodes, "g": Pointwise(known.graph.nodes["g"].expr * float("nan"))}
    examples = next(p for p in PROPERTIES if p.name == "examples")
    bad = replace(known, graph=replace(known.graph, nodes=nodes))
    with np.errstate(all="ignore"):
        result = run_property(examples, lambda: bad, known.dtype)
    assert not result.passed
    assert "'one unit, two steps': output h is [[[nan]]" in result.detail, result.detail
