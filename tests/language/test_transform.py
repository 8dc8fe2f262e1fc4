"""Cells made from cells: every result is a cell like any other, and is what its name says."""

from __future__ import annotations

import dataclasses

import pytest
from tiny import cell

import rnnspec
from rnnspec import transform
from rnnspec.compare.verdict import diff
from rnnspec.errors import RnnspecError
from rnnspec.language.load import digest, load, loads, spec_names
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Call, Number, Ref, Unary, to_text, walk
from rnnspec.language.transforms.change import signed_terms, terms_of
from rnnspec.lowering.pipeline import stages
from rnnspec.show.page import show
from rnnspec.symbolic.build import build

GENERAL = {
    "diagonal": transform.diagonal_recurrence,
    "rank_2": lambda spec: transform.low_rank_recurrence(spec, 2),
    "multiplicative": transform.multiplicative_integration,
    "layer_norm": transform.layer_norm,
    "leaky": lambda spec: transform.leak(spec, 0.25, state="h"),
}


def extended(tmp_path, base: str, name: str, rest: str):
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"rnnspec: 1\nname: {name}\nextends: {base}\n{rest}")
    return load(path)


def signed(value):
    """The tree with numbers below 0 as numbers: a constant may be one, and is written -20."""
    match value:
        case Unary("-", Number() as number):
            return dataclasses.replace(number, value=-number.value)
        case Unary(arg=arg):
            return dataclasses.replace(value, arg=signed(arg))
        case Binary(left=left, right=right):
            return dataclasses.replace(value, left=signed(left), right=signed(right))
        case Call(args=args):
            return dataclasses.replace(value, args=tuple(map(signed, args)))
    return value


@pytest.mark.parametrize("name", spec_names())
def test_a_spec_can_be_written_and_read_again(name):
    spec = load(name)
    again = loads(transform.to_yaml(spec))
    found, expected = ([(e.target, signed(e.value)) for e in s.equations] for s in (again, spec))
    assert found == expected
    left_out = {
        "equations": (),
        "constants": {},
        "choices": {},
        "examples": (),
        "same_as": {},
        "file": "",
    }  # numbers and options are in the equations
    assert (
        dataclasses.replace(again, **left_out) == dataclasses.replace(spec, **left_out, notes=again.notes)
        and again.notes.strip() == spec.notes.strip()
    )
    assert digest(again) == digest(spec) and list(again.shapes) == list(spec.shapes)


@pytest.mark.parametrize("suffix", GENERAL)
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_each_makes_a_cell(name, suffix):
    base = load(name)
    made = GENERAL[suffix](base)
    assert (
        made.name == f"{name}_{suffix}"
        and made.title.startswith(base.title)
        and made.states.keys() == base.states.keys()
    )
    build(made).verify()
    assert show(made, stage="spec") and digest(loads(transform.to_yaml(made))) == digest(made)
    assert not diff(base, made).same


def test_a_dropped_gate_is_the_short_extends(tmp_path):
    made = transform.drop_gate(load("lstm"), "i")
    assert made.name == "lstm_no_i" and "W_i" not in made.parameters and not made.layouts
    found = diff(made, extended(tmp_path, "lstm", "nig", "equations: |\n  i[t] = 1\n"))
    assert found.same and found.how == "symbolically"


def test_coupled_gates_are_cifg():
    made = transform.couple_gates(load("lstm"), "f", "i")
    assert made.name == "lstm_coupled_f_i" and diff(made, "lstm_cifg").same


def test_peepholes_on_and_off():
    made = transform.peepholes(load("lstm"))
    assert diff(made, "lstm_peephole").same and made.parameters["p_o"] == ("H",)
    assert diff(transform.peepholes(made, on=False), "lstm").same
    assert diff(transform.peepholes(load("lstm_peephole"), on=False), "lstm").same


def test_a_diagonal_rnn_is_an_indrnn():
    made = transform.diagonal_recurrence(load("rnn", phi="relu"))
    assert made.parameters["u"] == ("H",) and "U" not in made.parameters
    assert stages(made).forward.recurrent_stages() == 0
    found = diff(made, "indrnn")
    assert found.same, found.to_text()


def test_low_rank_products():
    made = transform.low_rank_recurrence(load("rnn"), 3)
    assert made.parameters["U_left"] == ("H", "3") and made.parameters["U_right"] == ("3", "H")
    assert made.equations[0].text == "h[t] = tanh(W @ x[t] + U_left @ (U_right @ h[t-1]) + b)"


def test_multiplicative_integration_and_layer_norm_of_an_rnn(tmp_path):
    made = transform.multiplicative_integration(load("rnn"))
    assert diff(
        made, extended(tmp_path, "rnn", "mi", "equations: |\n  h[t] = tanh((W @ x[t]) * (U @ h[t-1]) + b)\n")
    ).same
    made = transform.layer_norm(load("rnn"))
    same = (
        "parameters: {gain_h: [H]}\nequations: |\n  h[t] = tanh(layer_norm(W @ x[t] + U @ h[t-1], 1e-5) * gain_h + b)\n"
    )
    assert diff(made, extended(tmp_path, "rnn", "ln", same)).same and made.init["gain_h"].args == (1.0,)


def test_one_sum_has_one_gain():
    base = loads(
        cell(
            "n[t] = where(W @ x[t] >= 0, W @ x[t] + 0.5, sigmoid(W @ x[t]))\nh[t] = n[t] + h[t-1]",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D]}",
        )
    )
    made = transform.layer_norm(base)
    assert list(made.parameters) == ["W", "gain_n"] and made.equations[0].text.count("gain_n") == 3


def test_a_gate_computed_once_stays_so():
    base = loads(cell("k = sigmoid(a)\nh[t] = k * h[t-1] + (1 - k) * x[t]", parameters="{a: []}"))
    assert transform.drop_gate(base, "k").equations[0].text == "k = 1"


def test_a_leak_goes_part_of_the_way(tmp_path):
    made = transform.leak(load("rnn"), 0.1)
    assert float(made.constants["alpha"]) == 0.1
    same = "equations: |\n  h[t] = 0.9 * h[t-1] + 0.1 * tanh(W @ x[t] + U @ h[t-1] + b)\n"
    assert diff(made, extended(tmp_path, "rnn", "slow", same)).same
    assert diff(transform.leak(load("rnn"), 1), "rnn").same


def test_they_go_one_after_another():
    made = transform.layer_norm(transform.peepholes(transform.drop_gate(load("lstm"), "i")))
    assert (
        made.name == "lstm_no_i_peepholes_layer_norm"
        and {"p_f", "gain_f"} <= made.parameters.keys()
        and "gain_i" not in made.parameters
    )
    build(made).verify()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda: transform.drop_gate(load("lstm"), "g"),
            (
                "'g' is nothing between 0 and 1 that something is multiplied by in 'lstm', so it is no gate. "
                "Its gates: i, f, o."
            ),
        ),
        (lambda: transform.drop_gate(load("rnn"), "h"), "'h' is a state in 'rnn', so it is no gate. Its gates: none."),
        (lambda: transform.couple_gates(load("lstm"), "f", "f"), "can't be coupled to itself"),
        (lambda: transform.peepholes(load("gru")), "'gru' has no cell state"),
        (lambda: transform.peepholes(load("lstm"), on=False), "there are none to take out"),
        (lambda: transform.peepholes(load("lstm_peephole")), "that it does not see already"),
        (lambda: transform.diagonal_recurrence(load("lstm_projected")), "only a square matrix has a diagonal"),
        (lambda: transform.diagonal_recurrence(load("indrnn")), "multiplies nothing that comes from the step before"),
        (lambda: transform.low_rank_recurrence(load("lstm"), 0), "whole number from 1, not 0"),
        (
            lambda: transform.diagonal_recurrence(load("rhn")),
            "matrices that are no whole parameters: R_h[1] @ s_0[t], R_t[1] @ s_0[t], R_h[2] @ s_1[t]",
        ),
        (
            lambda: transform.diagonal_recurrence(load("antisymmetric_rnn")),
            "write the cell with a parameter [H, H] in place of the matrix of A @ h[t-1]",
        ),
        (
            lambda: transform.low_rank_recurrence(load("ei_rnn"), 2),
            (
                "low_rank_recurrence: 'ei_rnn' multiplies what comes from the step before by matrices that are no "
                "whole parameters: A @ relu(h[t-1])."
            ),
        ),
        (lambda: transform.low_rank_recurrence(load("low_rank_rnn"), 2), "no whole parameters: N.T @ tanh(h[t-1])"),
        (
            lambda: transform.multiplicative_integration(load("indrnn")),
            "adds no product with an input to a product with a state",
        ),
        (lambda: transform.layer_norm(loads(cell("h[t] = tanh(x[t])"))), "no vector that a matrix"),
        (lambda: transform.leak(load("rnn"), 1.5), "above 0 and up to 1, not 1.5"),
        (lambda: transform.leak(load("lstm"), 0.5, state="k"), "say which state of 'lstm' leaks"),
    ],
)
def test_where_it_makes_no_sense_the_error_says_why(change, message):
    with pytest.raises(RnnspecError) as caught:
        change()
    assert message in str(caught.value)


def test_the_base_is_left_alone():
    base = load("lstm")
    before = dataclasses.replace(base)
    transform.drop_gate(base, "i")
    assert base == before and rnnspec.transform is transform


def test_a_matrix_that_is_a_state_is_no_parameter_and_stays() -> None:
    base = load("fast_weights")
    made = transform.low_rank_recurrence(base, 2)
    products = [
        [
            n
            for e in spec.equations
            for n in walk(e.value)
            if isinstance(n, Binary) and n.op == "@" and n.left == Ref("A", 0)
        ]
        for spec in (base, made)
    ]
    assert "R_left" in made.parameters and len(products[0]) == 2 and products[0] == products[1]


def test_signs_before_a_term_are_no_part_of_it() -> None:
    whole = parse_expression("a - (b - -c * d) + e * -f / -g - -k")
    assert [(s, to_text(t)) for s, t in signed_terms(whole)] == [
        (1, "a"),
        (-1, "b"),
        (-1, "c * d"),
        (1, "e * f / g"),
        (1, "k"),
    ]
    assert [to_text(t) for t in terms_of(whole)][1:3] == ["-b", "-(c * d)"]


def test_peepholes_that_are_subtracted_are_taken_out_too() -> None:
    text = to_yaml(load("lstm_peephole"))
    turned = loads(text.replace("+ p_i * c[t-1]", "- p_i * c[t-1]"))
    assert turned.equations != load("lstm_peephole").equations
    assert diff(transform.peepholes(turned, on=False), "lstm").same


def test_a_projection_by_a_computed_matrix_is_clipped() -> None:
    base = loads(
        cell(
            "A = R - R.T\nm[t] = tanh(x[t] + h[t-1])\nh[t] = A @ m[t]",
            inputs="{x: H}",
            states="{h: H}",
            parameters="{R: [H, H]}",
        )
    )
    assert transform.clip_projection(base, 0.5).equations[-1].text == "h[t] = clip(A @ m[t], -0.5, 0.5)"


def test_products_inside_functions_along_features_are_changed_too() -> None:
    assert not [
        n for n, shape in transform.diagonal_recurrence(load("on_lstm")).parameters.items() if shape == ("H", "H")
    ]
    assert not [
        n
        for n, shape in transform.low_rank_recurrence(load("on_lstm"), rank=2).parameters.items()
        if shape == ("H", "H")
    ]


def test_a_readout_between_0_and_1_is_no_gate() -> None:
    cell = loads(
        to_yaml(load("rnn"))
        .replace("outputs: [h]", "outputs: [y]")
        .replace("equations: |", "equations: |\n  y[t] = sigmoid(h[t])")
    )
    assert transform.gates(cell) == []


@pytest.mark.parametrize("name", [n for n in transform.__all__ if n != "to_yaml"])
@pytest.mark.parametrize(("given", "told"), [("lstm", r"rnnspec\.load\('lstm'\)"), (None, "what rnnspec.load gives")])
def test_a_name_is_no_spec(name, given, told):
    with pytest.raises(TypeError, match=f"{name} takes a Spec, got {type(given).__name__}: give {told}"):
        getattr(transform, name)(given)
