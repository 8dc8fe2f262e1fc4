"""Fixed parameters: what a file says of them, and what becomes of them when a cell is made of
another."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec import transform
from rnnspec.compare.verdict import diff
from rnnspec.errors import SpecError
from rnnspec.language.load import digest, load, loads, spec_names
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.roles import bias_names
from rnnspec.show.counts import parameter_count
from rnnspec.show.facts import facts
from rnnspec.show.page import show

EQUATION, PARAMETERS = "h[t] = tanh(W @ x[t] + (U * M) @ h[t-1] + m)", "{W: [H, D], U: [H, H], M: [H, H], m: [H]}"
SHAPES = {"inputs": "{x: D}", "states": "{h: H}", "parameters": PARAMETERS}


def masked(**keys: str) -> str:
    return cell(EQUATION, **{**SHAPES, "fixed": "[m, M]", **keys})


def test_what_is_fixed_is_given_and_not_trained():
    spec = loads(masked())
    assert spec.fixed == ("M", "m") and list(spec.trained) == ["W", "U"] and list(spec.weights) == ["W", "U", "M", "m"]
    assert set(spec.no_gradient) == {"M", "m"} and bias_names(spec) == ()
    assert parameter_count(spec, {"D": 2, "H": 3}) == 2 * 3 + 3 * 3
    assert facts(spec)["fixed"] == ["M", "m"] and facts(spec)["no_gradient"] == []
    page = show(spec)
    assert "fixed parameters (given, not trained, and not in that number)\n  M: [H, H]\n  m: [H]" in page
    assert "d_M" not in page and "d_m" not in page and "D*H + H*H numbers in all" in page


def test_it_is_part_of_the_cell():
    plain, held = loads(masked(fixed="")), loads(masked())
    assert plain != held and digest(plain) != digest(held)
    again = loads(to_yaml(held))
    assert again.fixed == held.fixed and digest(again) == digest(held) and again.no_gradient == held.no_gradient
    found = diff(plain, held)
    assert found.same and any("M is fixed in" in note for note in found.notes)


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"fixed": "[N]"}, "'N' in fixed is not a parameter. Known here: W, U, M, m."),
        ({"fixed": "[x]"}, "'x' in fixed is not a parameter."),
        ({"fixed": "[h]"}, "'h' in fixed is not a parameter."),
        ({"fixed": "[M, m, M]"}, "'M' is given twice in fixed."),
        ({"fixed": "{M: 1}"}, "fixed"),
        ({"noise": "{M: dropout(0.5)}"}, "'M' is noise, drawn anew for every call, and can't be fixed"),
        (
            {"layouts": "{torch.X: {weight: [W], other: [U, M], b: [m]}}"},
            "the block 'other' of 'torch.X' holds 'M', which is fixed, beside 'U', which is trained",
        ),
        ({"layouts": "{torch.X: {weight: [W], other: [U]}}"}, "the layout 'torch.X' lacks M, m"),
        (
            {
                "examples": "\n  - sizes: {D: 1, H: 1}\n    inputs: {x: [[1.0]]}\n    outputs: {h: [[0.0]]}\n"
                "    gradients: {M: [[0.0]]}"
            },
            "'M' under gradients of an example is not known there.",
        ),
    ],
)
def test_what_is_wrong_with_it_is_said(keys, message):
    with pytest.raises(SpecError) as caught:
        loads(masked(**keys))
    assert message in str(caught.value)


def test_a_cell_of_another_inherits_replaces_and_drops_it(tmp_path):
    (tmp_path / "base.yaml").write_text(masked().replace("name: tested", "name: base"))

    def extending(text: str):
        path = tmp_path / "own.yaml"
        path.write_text(f"rnnspec: 1\nname: own\nextends: base.yaml\n{text}")
        return load(path)

    assert extending("").fixed == ("M", "m")
    assert extending("fixed: [M]\n").fixed == ("M",)
    assert extending("fixed: []\n").fixed == ()
    without = extending("equations: |\n  h[t] = tanh(W @ x[t] + (U * M) @ h[t-1])\n")
    assert without.fixed == ("M",) and "m" not in without.parameters


def test_a_matrix_in_the_place_of_a_fixed_one_is_fixed():
    esn = load("leaky_esn")
    assert transform.diagonal_recurrence(esn).trained == {}
    low = transform.low_rank_recurrence(esn, rank=2)
    assert low.fixed == ("W", "R_left", "R_right") and not low.trained
    assert transform.dropconnect(esn, 0.5).fixed == ("W", "R")
    assert transform.leak(esn, 0.5).fixed == ("W", "R")


def test_the_cells_whose_sources_hold_parameters_for_constants_say_so():
    found = {name: spec.fixed for name in spec_names() if (spec := load(name)).fixed}
    assert found == {
        "ei_rnn": ("M", "d"),
        "es2n": ("W", "R", "O", "b"),
        "gru_d": ("x_mean",),
        "leaky_esn": ("W", "R"),
        "lmu": ("A", "B"),
        "retention": ("theta",),
    }
