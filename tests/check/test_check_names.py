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
from rnnspec.engine.compile import compile
from rnnspec.language.load import load, loads
from rnnspec.show.page import show
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


@pytest.mark.parametrize(
    "names", [("x", "h", "d_h_next", "h_prev", "d_h_prev"), ("d_x_out", "h", "d_h", "h_next", "b")]
)
def test_arrows_of_an_adjoint_are_those_of_states(names):
    """What comes from the step behind is read from the graph, whatever ends with _next or _prev."""

    def arrows(spec):
        return show(spec, latex="backward").count("leftarrow")

    assert arrows(loads(plain_rnn(*names))) == arrows(loads(plain_rnn("x", "h", "W", "U", "b")))


def test_names_that_begin_with_the_same_1100_letters():
    """LLVM takes identifiers of over 1,024 letters for one another where those are equal."""
    long = [letter * 1100 + end for letter, end in zip("xhppp", ("", "", "a", "b", "c"))]
    runs = []
    for names in (long, ("x", "h", "W", "U", "b")):
        text = plain_rnn(*names)
        for name in names if names is long else ():
            text = text.replace(f"{{{name}:", f"{{? {name} :").replace(f", {name}:", f", ? {name} :")
        kernel = compile(loads(text), dtype="float64", threads=1)
        params = {n: np.full(s, 0.3 + i) for i, (n, s) in enumerate(zip(names[2:], ((3, 2), (3, 3), (3,))))}
        run = kernel.forward(params, {names[0]: np.ones((2, 1, 2)) / 7})
        found = kernel.backward(run, {names[1]: np.ones((2, 1, 3))})
        runs.append([run.outputs[names[1]], *(found.params[n] for n in names[2:]), found.inputs[names[0]]])
    for one, other in zip(*runs):
        np.testing.assert_array_equal(one, other)


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
