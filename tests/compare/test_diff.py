"""Whether two cells are the same function: a proof, a difference, or what was tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import cell

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.compare.verdict import diff
from rnnspec.language.load import load, loads, spec_names

SPECS = Path(__file__).resolve().parents[1] / "specs"
VECTORS = {"inputs": "{x: D}", "states": "{h: H}"}
RNN = cell("h[t] = tanh(W @ x[t] + U @ h[t-1] + b)", parameters="{W: [H, D], U: [H, H], b: [H]}", **VECTORS)


def both(a: str, b: str):
    """Compares two texts, the second under another name."""
    return diff(loads(a), loads(b.replace("name: tested", "name: other")))


@pytest.mark.parametrize("name", spec_names())
def test_every_cell_is_itself(name):
    found = diff(name, name)
    assert found.same and found.how == "symbolically"
    assert not found.mapping, "each parameter is that of its own name, also where terms may change places"


def test_two_biases_are_their_sum():
    found = diff("lstm", SPECS / "lstm_two_biases.yaml")
    assert found.same and found.how == "symbolically"
    assert set(found.mapping) == {f"b_{k} = b_h{k} + b_i{k}" for k in "ifgo"}
    assert diff(SPECS / "lstm_two_biases.yaml", "lstm").same


def test_a_concatenation_is_two_products():
    found = diff("lstm", "lstm_concat")
    assert found.same and found.how == "symbolically"
    assert "W_i = W_i[:, 0:D]" in found.mapping and "U_o = W_o[:, D:D + H]" in found.mapping
    assert diff("lstm_concat", SPECS / "lstm_two_biases.yaml").same


def test_packed_gates_are_parts():
    packed = cell(
        "a[t] = W @ x[t] + U @ h[t-1] + b\ni[t] = sigmoid(part(a[t], 0, H))\nf[t] = sigmoid(part(a[t], H, H))\ng[t] ="
        " tanh(part(a[t], 2 * H, H))\no[t] = sigmoid(part(a[t], 3 * H, H))\nc[t] = f[t] * c[t-1] + i[t] * g[t]\nh[t] ="
        " o[t] * tanh(c[t])",
        inputs="{x: D}",
        states="{h: H, c: H}",
        parameters="{W: [4 * H, D], U: [4 * H, H], b: [4 * H]}",
    )
    found = diff("lstm", loads(packed))
    assert found.same and found.how == "symbolically" and "W_f = W[H:2*H]" in found.mapping


@pytest.mark.parametrize(
    "equations",
    [
        "h[t] = tanh(b + U @ h[t-1] + W @ x[t])",
        "a[t] = W @ x[t]\nh[t] = tanh(a[t] - (0 - U @ h[t-1]) + b)",
        "h[t] = -tanh(-(W @ x[t]) - U @ h[t-1] - b)",
        "h[t] = tanh(U @ (h[t-1] + 0) + (W @ (2 * x[t])) / 2 + b)",
    ],
)
def test_algebra_shows_the_same(equations):
    found = both(RNN, cell(equations, parameters="{W: [H, D], U: [H, H], b: [H]}", **VECTORS))
    assert found.same and found.how == "symbolically", found.to_text()


def test_what_algebra_does_not_show_is_not_called_the_same():
    other = "a[t] = exp(2 * (W @ x[t] + U @ h[t-1] + b))\nh[t] = (a[t] - 1) / (a[t] + 1)"
    found = both(RNN, cell(other, parameters="{W: [H, D], U: [H, H], b: [H]}", **VECTORS))
    assert not found.same and not found.different and found.verdict == "no difference found"
    tried = found.tried
    assert tried.points > 300 and tried.largest < 1e-25 and tried.digits == 50 and tried.steps is None
    assert tried.magnitudes[0] < 1e-29 and tried.magnitudes[1] > 1e29 and {"D": 2, "H": 3} in tried.sizes
    assert "no proof" in found.to_text() and f"tried: {tried.points} points" in found.to_text()


def test_other_names_are_found():
    found = both(
        RNN,
        cell(
            "s[t] = tanh(A @ u[t] + B @ s[t-1] + c)",
            parameters="{A: [H, D], B: [H, H], c: [H]}",
            inputs="{u: D}",
            states="{s: H}",
            outputs="[s]",
        ),
    )
    assert found.same and found.mapping == ("U = B", "W = A", "b = c")


def test_other_names_are_found_by_numbers_too():
    found = both(
        RNN,
        cell(
            "a[t] = exp(2 * (A @ x[t] + B @ h[t-1] + c))\nh[t] = (a[t] - 1) / (a[t] + 1)",
            parameters="{A: [H, D], B: [H, H], c: [H]}",
            **VECTORS,
        ),
    )
    assert found.verdict == "no difference found" and set(found.mapping) == {"W = A", "U = B", "b = c"}


def test_other_names_of_sizes():
    found = both(RNN, RNN.replace("D", "M").replace("H", "N"))
    assert found.same and found.how == "symbolically" and found.notes == ("sizes of 'other': M is D, N is H",)


def test_the_other_polarity_of_a_gate(tmp_path):
    """TensorFlow 1 couples the gates the other way round: the same function, the gate's weights
    with other signs."""
    (tmp_path / "tf.yaml").write_text("rnnspec: 1\nname: tf\nextends: lstm\nequations: |\n  i[t] = 1 - f[t]\n")
    found = diff("lstm_cifg", tmp_path / "tf.yaml")
    assert found.same and set(found.mapping) == {"W_i = -W_f", "U_i = -U_f", "b_i = -b_f"}
    (tmp_path / "z.yaml").write_text(
        "rnnspec: 1\nname: z\nextends: gru\nequations: |\n  h[t] = z[t] * n[t] + (1 - z[t]) * h[t-1]\n"
    )
    found = diff("gru", tmp_path / "z.yaml")
    assert not found.same and found.notes == (
        "they are the same with the signs of U_z, W_z, b_z changed in one of them",
    )


def test_what_has_no_counterpart_is_named():
    found = both(
        RNN, cell("h[t] = A @ x[t] + tanh(B @ h[t-1]) + c", parameters="{A: [H, D], B: [H, H], c: [H]}", **VECTORS)
    )
    assert not found.same and "nothing was found in 'other' for W, U, b of 'tested'" in found.notes[0]


def test_exchanged_gates_differ_and_say_so():
    lstm = loads(
        Path(load("lstm").file)
        .read_text()
        .replace("f[t] * c[t-1] + i[t] * g[t]", "i[t] * c[t-1] + f[t] * g[t]")
        .split("examples:")[0]
    )
    found = diff("lstm", lstm)
    assert not found.same and found.difference.equation == "c"
    assert any("W_f = W_i" in note for note in found.notes)


def test_reset_before_and_after_differ():
    found = diff("gru", "gru_reset_before")
    assert not found.same and found.how == "numerically" and found.difference.equation == "n"
    assert (
        "c_n" in found.reason
        and "r[t] * h[t-1]" in found.difference.text_b
        and found.difference.a != found.difference.b
    )
    assert "first equation that differs: n" in found.to_text()


def test_the_point_of_a_difference_can_be_repeated():
    """The values of the message are those of the reference on the printed numbers."""
    import numpy as np

    from rnnspec.backends import reference
    from rnnspec.symbolic.build import build

    d = diff("gru", "gru_reset_before").difference
    for name, value in (("gru", d.a), ("gru_reset_before", d.b)):
        params, inputs, states = (
            {n: np.array(v) for n, v in group.items()} for group in (d.parameters, d.inputs, d.states)
        )
        run = reference.forward(build(load(name)), params, inputs, states, sizes=d.sizes)
        np.testing.assert_allclose(run.outputs["h"][d.step, 0], value, rtol=1e-12)


def test_a_parameter_more_may_be_nothing_at_zero():
    found = both(
        RNN,
        cell(
            "h[t] = tanh(W @ x[t] + U @ h[t-1] + b + p * h[t-1])",
            parameters="{W: [H, D], U: [H, H], b: [H], p: [H]}",
            **VECTORS,
        ),
    )
    assert not found.same and "p, which only one of them has, is not 0; no difference was found where 0" in found.reason


def test_other_states_are_told_at_once():
    found = diff("lstm", "gru")
    assert not found.same and found.how == "by declaration" and "'lstm' has the state c [H]" in found.reason


def test_stop_gradient_is_noted():
    found = both(RNN, RNN.replace("U @ h[t-1]", "U @ stop_gradient(h[t-1])"))
    assert found.same and "stop_gradient" in found.notes[0]


def test_what_happens_at_large_values_only_is_seen():
    step = cell("h[t] = where(w * x[t] + h[t-1] > 1, 1, 0)", parameters="{w: []}")
    assert both(step, step).same and not both(step, step.replace("1, 0)", "2, 0)")).same


def test_a_side_not_chosen_may_divide_by_zero():
    one = cell("r[t] = relu(x[t] - 9)\nh[t] = where(r[t] == 0, exp(x[t]), 1 / r[t])")
    found = both(one, one.replace("exp(x[t])", "exp(x[t] / 2) ** 2"))
    assert found.verdict == "no difference found" and "r below 0" in found.tried.unreached


def test_values_that_are_no_numbers_are_null_in_json():
    found = both(
        cell("h[t] = w * x[t]", parameters="{w: []}"), cell("h[t] = w * x[t] + log(-1 - w * w)", parameters="{w: []}")
    )
    assert not found.same and "NaN" not in json.dumps(found.to_dict()) and "Infinity" not in json.dumps(found.to_dict())


V = "v[t] = W @ x[t] + U @ h[t-1] + b\nh[t] = "
TANH = "tanh(v[t])"
APART = (  # cells that differ in a corner
    (TANH, "where(t > 1, 0, tanh(v[t]))"),
    (TANH, "where(t > 50, 0, tanh(v[t]))"),
    (TANH, "where(t == 99, 0, tanh(v[t]))"),
    (TANH, "where(t == 123456, 0, tanh(v[t]))"),
    (TANH, "where(v[t] > 100, 0, tanh(v[t]))"),
    (TANH, "where(v[t] > 100 and v[t] < 100.000001, 0, tanh(v[t]))"),
    (TANH, "where(v[t] == 0.1, 0, tanh(v[t]))"),
    (TANH, "where(3 * v[t] + 1 == 0.25, 0, tanh(v[t]))"),
    (TANH, "where(abs(v[t]) < 1e-12, 0, tanh(v[t]))"),
    (TANH, "where(1e-40 * v[t] > 1, 0, tanh(v[t]))"),
    (TANH, "tanh(v[t]) + 1e-6 * v[t]"),
    (TANH, "tanh(v[t]) + 1e-25 * v[t]"),
    (TANH, "tanh(v[t]) + 1e-20"),
    (TANH, "tanh(v[t]) + 1e-9 * t"),
    ("softplus(v[t])", "where(v[t] > 20, v[t], softplus(v[t]))"),
    ("where(v[t] > 0.3, 1, 0)", "where(v[t] >= 0.3, 1, 0)"),
    ("v[t]", "clip(v[t], -1000000, 1000000)"),
    ("relu(v[t])", "where(v[t] > 1e-12, v[t], 0)"),
)


def weighted(value: str) -> str:
    return cell(V + value, parameters="{W: [H, D], U: [H, H], b: [H]}", **VECTORS)


@pytest.mark.parametrize(("a", "b"), APART, ids=[b for _, b in APART])
def test_what_differs_in_a_corner_differs_both_ways(a, b):
    """It ran two steps at moderate numbers, and said that these are the same."""
    one, other = both(weighted(a), weighted(b)), both(weighted(b), weighted(a))
    assert one.verdict == other.verdict == "different"
    d, e = one.difference, other.difference
    assert (d.kind, d.name, d.step, d.a, d.b, d.text_a) == (e.kind, e.name, e.step, e.b, e.a, e.text_b)
    assert (d.sizes, d.inputs, d.states, d.parameters) == (e.sizes, e.inputs, e.states, e.parameters)


MIRRORED = (
    ("gru", "gru_reset_before"),
    ("lstm", "lstm_concat"),
    ("lstm_cifg", "lstm"),
    (RNN, RNN.replace("name: tested", "name: zz").replace("D", "M").replace("H", "N").replace("W", "A")),
)


@pytest.mark.parametrize(("a", "b"), MIRRORED, ids=range(len(MIRRORED)))
def test_the_other_way_round_is_the_mirror_image(a, b):
    specs = [load(s) if "\n" not in s else loads(s) for s in (a, b)]
    one, other = diff(*specs), diff(*reversed(specs))
    assert (one.a, one.b, one.verdict, one.how) == (other.b, other.a, other.verdict, other.how)
    flipped = {" = ".join(reversed(m.split(" = "))) for m in one.mapping}
    assert flipped == set(other.mapping)
    if one.difference:
        assert (one.difference.a, one.difference.text_a) == (other.difference.b, other.difference.text_b)


def test_conditions_that_no_point_reaches_are_said():
    inner = "where(v[t] ** 2 < 0, 5, tanh(v[t]))"
    found = both(weighted("tanh(v[t])"), weighted(inner))
    assert found.verdict == "no difference found" and "v**2 below 0" in found.tried.unreached
    assert "never reached: v**2 below 0" in found.to_text()


POLES = {  # is h + x where it is a number
    "a pole, in two equations": "u[t] = 1 / x[t]\nh[t] = h[t-1] + u[t] * x[t] ** 2",
    "a pole": "h[t] = h[t-1] + x[t] ** 2 / x[t]",
    "a logarithm": "h[t] = h[t-1] + x[t] + log(x[t]) - log(x[t])",
    "a logarithm times 0": "h[t] = h[t-1] + x[t] + 0 * log(x[t])",
    "a root": "h[t] = h[t-1] + (x[t] ** 0.5) ** 2",
}


@pytest.mark.parametrize("equations", POLES.values(), ids=POLES)
def test_what_is_not_defined_everywhere_does_not_cancel(equations):
    one = cell(equations)
    assert both(one, cell("h[t] = h[t-1] + x[t]")).verdict == "different"
    assert both(one, one).same


def test_pieces_that_overlap_are_no_proof():
    """Rows 0 to H and 1 to H + 1 of one vector can't be two vectors of their own."""
    names = {"inputs": "{x: H}", "states": "{h: H}"}
    two = cell("h[t] = tanh(x[t] + a) + b * h[t-1]", parameters="{a: [H], b: [H]}", **names)
    for first, length in (("1", "1 + H"), ("H", "2 * H")):
        value = f"h[t] = tanh(x[t] + part(c, 0, H)) + part(c, {first}, H) * h[t-1]"
        found = both(two, cell(value, parameters=f"{{c: [{length}]}}", **names))
        assert found.same is (first == "H"), found.to_text()


def test_primitives_that_are_not_partial_are_defined_everywhere():
    import numpy as np

    from rnnspec.backends.numbers import FLOAT64
    from rnnspec.compare.normal import PARTIAL

    at = np.linspace(-3, 3, 13)
    with np.errstate(all="ignore"):
        some = {n for n, f in FLOAT64.primitives.items() if not np.isfinite(f(at)).all()}
    assert some == PARTIAL - {"power"}


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["diff", "lstm", "lstm_concat"]) == 0
    assert capsys.readouterr().out.startswith("same: symbolically")
    assert main(["diff", "mgu", "rnn", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["a"] == "mgu" and found["same"] is False and found["verdict"] == "different"
    for name, value in (("one", "x[t] ** 2 / (x[t] ** 2 + 1)"), ("other", "1 - 1 / (x[t] ** 2 + 1)")):
        Path(f"{name}.yaml").write_text(cell(f"h[t] = {value}", name=name))
    assert main(["diff", "one.yaml", "other.yaml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is False and found["verdict"] == "no difference found" and found["tried"]["points"] > 100
    assert main(["diff", "lstm", "lsmt"]) == 2
    assert "Did you mean 'lstm'?" in capsys.readouterr().err


def test_it_is_public():
    assert rnnspec.diff is diff


def test_a_size_that_one_cell_alone_has() -> None:
    assert not diff("rnn", "low_rank_rnn").same and not diff("low_rank_rnn", "rnn").same


@pytest.mark.parametrize("a, b", [("lstm", "lstm_nfg"), ("lstm_nfg", "lstm"), ("lstm_vanilla", "lstm_nog")])
def test_the_first_equation_that_differs_may_be_a_number(a, b):
    found = diff(a, b).difference
    assert found.equation == ("o" if "nog" in b else "f") and found.text_a != found.text_b
