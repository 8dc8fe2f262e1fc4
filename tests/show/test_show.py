"""`rnnspec show`: facts of the page, not its looks."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from cells import CORE
from tiny import cell

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.load import load, loads, spec_names
from rnnspec.language.sizes import SizeError
from rnnspec.show.adjoint import backward_equations
from rnnspec.show.counts import counts, parameter_count, parameter_formula
from rnnspec.show.facts import facts
from rnnspec.show.page import show
from rnnspec.show.reading import reading
from rnnspec.show.stages import STAGES


@pytest.mark.parametrize(
    "name, formula, count",
    [
        ("lstm", "4*D*H + 4*H + 4*H*H", 4 * (128 * 128 * 2 + 128)),
        ("gru", "3*D*H + 4*H + 3*H*H", 3 * 128 * 128 * 2 + 4 * 128),
        ("indrnn", "D*H + 2*H", 128 * 128 + 2 * 128),
    ],
)
def test_parameters_are_counted(name, formula, count):
    spec = load(name)
    assert parameter_formula(spec) == formula
    assert parameter_count(spec, {"D": 128, "H": 128}) == count
    assert facts(spec)["parameter_count"] == {
        "formula": formula,
        "at": {"D": 128, "H": 128},
        "count": count,
        "depends_on_T": False,
    }
    assert f"{count:,} at D = H = 128" in show(spec)


def test_a_count_is_the_one_of_the_list_and_names_its_sizes():
    """A size that nothing tells is 8, one with a default is what that says."""
    text = cell(
        "h[t] = V @ tanh(W @ x[t]) + U @ h[t-1]",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [K, D], V: [H, K], U: [H, H]}",
    )
    found = facts(loads(text))["parameter_count"]
    assert (
        found["at"] == {"D": 128, "H": 128, "K": 8}
        and found["count"] == 2 * 8 * 128 + 128 * 128 == counts(loads(text))["parameters"]
    )
    assert f"{found['count']:,} at D = H = 128, K = 8)" in show(loads(text))
    of_default = loads(text.replace("name: tested", "name: tested\nsizes: {K: {meaning: inner, default: 2*H}}"))
    assert "128, K = 256)" in show(of_default) and counts(of_default)["parameters"] == 2 * 256 * 128 + 128 * 128


@pytest.mark.parametrize("name", CORE)
def test_the_formula_counts_what_init_makes(name):
    import rnnspec

    spec = load(name)
    sizes = {n: 3 + i for i, n in enumerate(facts(spec)["sizes"])}
    made = rnnspec.compile(spec, dtype="float64").init(**sizes)
    assert parameter_count(spec, sizes) == sum(a.size for a in made.values())


def test_a_missing_size_is_named():
    with pytest.raises(SizeError, match="H"):
        parameter_count(load("lstm"), {"D": 3})


@pytest.mark.parametrize(
    "name, forward, backward",
    [("lstm", 1, 1), ("gru", 1, 1), ("gru_reset_before", 2, 2), ("mgu", 2, 2), ("indrnn", 0, 0)],
)
def test_stages_that_wait(name, forward, backward):
    assert facts(load(name))["program"]["recurrent_stages"] == {"forward": forward, "backward": backward}
    assert f"recurrent stages: {forward} forward" in show(load(name))


def test_the_derived_backward_equations_of_lstm():
    lines = [line.strip() for line in show(load("lstm")).splitlines()]
    for line in (
        "d_c = d_c_next + d_h * o * (1 - tanh(c) * tanh(c))",
        "with a_o = W_o @ x + U_o @ h_prev + b_o",
        "d_c_prev = d_c * f",
        "d_W_i = sum over t, b of d_a_i x^T",
        "d_U_o = sum over t, b of d_a_o h_prev^T",
        "d_b_f = sum over t, b of d_a_f",
        "with h_prev = h[t-1]",
        "d_h_prev = U_o.T @ d_a_o + U_g.T @ d_a_g + U_f.T @ d_a_f + U_i.T @ d_a_i",
    ):
        assert line in lines
    assert lines.index("with a_o = W_o @ x + U_o @ h_prev + b_o") + 1 == lines.index("d_a_o = d_o * (o * (1 - o))")
    assert not any("_d_U_" in line or "_d_W_" in line for line in lines), (
        "a product that is read once stands where it is read"
    )


def test_what_is_hoisted_and_what_is_saved():
    program = facts(load("lstm"))["program"]
    assert "a_i = W_i @ x + b_i" in program["hoisted"]["before the forward loop"]
    assert any(line.startswith("d_x = W_o.T") for line in program["hoisted"]["after the backward loop"])
    assert {b["name"] for b in program["tape"]} == {"h_history", "c_history", "x", "i", "f", "g", "o", "tanh_c"}


@pytest.mark.parametrize("name", CORE)
def test_pages_json_and_latex(name):
    spec = load(name)
    page, plain, latex = show(spec), json.loads(show(spec, as_json=True)), show(spec, latex=True)
    assert all(e.text in page for e in spec.equations) and spec.title in page
    assert plain["name"] == name and plain["equations"] == [e.text for e in spec.equations]
    assert latex.count(r"\begin{align*}") == latex.count(r"\end{align*}") == 2
    assert latex.count("{") == latex.count("}") and latex.count(r"\left(") == latex.count(r"\right)")


def test_latex_keeps_the_order_of_operations():
    spec = loads(cell("h[t] = (x[t] - (h[t-1] - 2)) / 3 * where(x[t] > 0, x[t]**2, -x[t])"))
    assert r"\frac{x_{t} - \left(h_{t-1} - 2\right)}{3}" in show(spec, latex=True)


@pytest.mark.parametrize(
    "stage, text",
    [
        ("spec", "f[t] * c[t-1]"),
        ("graph", "graph lstm"),
        ("adjoint", "graph lstm adjoint"),
        ("program", "# backward"),
        ("cpu", "def kernel(call):"),
    ],
)
def test_stages(stage, text):
    assert text in show(load("lstm"), stage=stage)
    assert json.loads(show(load("lstm"), stage=stage, as_json=True))["stage"] == stage


def test_a_stage_that_is_not():
    with pytest.raises(ValueError, match=", ".join(STAGES[:-1])):
        show(load("lstm"), stage="ptx")


def test_a_choice_is_shown():
    assert "phi: tanh, relu, identity (now relu)" in show(load("rnn", phi="relu"))
    assert np.isfinite(facts(load("rnn"))["parameter_count"]["count"])


def unexplained(name: str) -> list[str]:
    """Lines of the backward equations with a name that no line above says, and those that say a
    name again (that of a sum may be that of what is summed)."""
    spec = load(name)
    found = backward_equations(reading(spec))
    known = {*spec.shapes, *spec.sizes, *FUNCTIONS, *FEATURES, *"DHTtb", "where", "or", "and", "not", "zeros"}
    known |= {f"d_{s}_next" for s in reading(spec).reverse.states} | {f"d_{o}_out" for o in spec.outputs}
    known |= {"sum", "over", "of", "from", "the", "end"}
    bad, said = [], set()
    for line in [*(text for text, _ in found.lines), *found.sums]:
        left, right = line.removeprefix("with ").split(" = ", 1)
        used = set(re.findall(r"(?<![\d.])[A-Za-z_]\w*", right))
        bad += [line] if used - known or left in said or left in spec.shapes else []
        said.add(left)
        known |= {left, left.removesuffix("[t]")} if left.endswith("[t]") else {left}
    return bad


@pytest.mark.parametrize(
    "name",
    [
        "gru",
        "antisymmetric_rnn",
        "qrnn",
        "fastgrnn_lowrank",
        "ln_gru",
        "on_lstm",
        *(pytest.param(n, marks=pytest.mark.slow) for n in spec_names()),
    ],
)
def test_every_name_of_the_backward_equations_is_explained_once(name: str) -> None:
    assert unexplained(name) == []
