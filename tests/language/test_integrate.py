"""`d/dt` and the key `integrate`: the equations of a step that they become, what is wrong with
them, and what becomes of them in cells made of another."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec import transform
from rnnspec.errors import SpecError
from rnnspec.language.load import digest, load, loads
from rnnspec.language.meaning.slope import own_slope
from rnnspec.language.methods import METHODS
from rnnspec.language.rewrite import line, to_yaml
from rnnspec.language.spec import Integration, Spec
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import to_text
from rnnspec.show.facts import facts
from rnnspec.show.page import show

RATE = "r[t] = tanh(h[t])\nd/dt h = (-h[t] + R @ r[t] + W @ x[t]) / tau"
KEYS = {
    "inputs": "{x: D, gap: []}",
    "states": "{h: H}",
    "parameters": "{W: [H, D], R: [H, H], tau: H}",
    "outputs": "[r]",
    "integrate": "{method: rk4, dt: gap}",
}


def rate(integrate: str = KEYS["integrate"], equations: str = RATE, **keys: str) -> str:
    return cell(equations, **{**KEYS, "integrate": integrate, **keys})


def lines(spec: Spec) -> list[str]:
    return [line(e) for e in spec.equations]


def test_a_step_of_euler_and_of_the_midpoint_rule():
    assert lines(loads(rate("{method: euler, dt: gap}"))) == [
        "r_k1[t] = tanh(h[t-1])",
        "k1_h[t] = (-h[t-1] + R @ r_k1[t] + W @ x[t]) / tau",
        "h[t] = h[t-1] + gap[t] * k1_h[t]",
        "r[t] = tanh(h[t])",
    ]
    assert lines(loads(rate("{method: midpoint, dt: 0.25}", inputs="{x: D}")))[2:5] == [
        "h_k2[t] = h[t-1] + 0.125 * k1_h[t]",
        "r_k2[t] = tanh(h_k2[t])",
        "k2_h[t] = (-h_k2[t] + R @ r_k2[t] + W @ x[t]) / tau",
    ]


def test_four_stages_and_substeps_under_names_of_their_own():
    spec = loads(rate("{method: rk4, dt: gap, substeps: 2}"))
    assert lines(spec)[0] == "step[t] = gap[t] / 2"
    assert "h_1[t] = h[t-1] + step[t] * (k1_h_1[t] + 2 * k2_h_1[t] + 2 * k3_h_1[t] + k4_h_1[t]) / 6" in lines(spec)
    assert "h_k4_2[t] = h_1[t] + step[t] * k3_h_2[t]" in lines(spec)
    assert lines(spec)[-2].startswith("h[t] = h_1[t] + step[t] * (k1_h_2[t] +")
    # a number is put together exactly: 0.1 / 2 / 6 is 1 / 120
    number = lines(loads(rate("{method: rk4, dt: 0.1, substeps: 2}", inputs="{x: D}")))
    assert "h_1[t] = h[t-1] + (k1_h_1[t] + 2 * k2_h_1[t] + 2 * k3_h_1[t] + k4_h_1[t]) / 120" in number


def test_what_a_method_asks_of_the_unit_itself_is_computed_once():
    spec = loads(rate("{method: exponential_euler, dt: 0.1, substeps: 3}", inputs="{x: D}"))
    once = [line(e) for e in spec.equations if not e.timed]
    assert once == ["c_h = -1 / tau", "gain_h = exprel(c_h / 30)"]
    assert lines(loads(rate("{method: implicit, dt: gap}")))[2:5] == [
        "c_h = -1 / tau",
        "gain_h[t] = 1 / (1 - gap[t] * c_h)",
        "h[t] = h[t-1] + gain_h[t] * (gap[t] * k1_h[t])",
    ]


def test_equations_stand_in_the_order_of_the_file():
    equations = "a[t] = tanh(h[t])\nb[t] = a[t] * x[t]\ne[t] = b[t] + a[t]\nd/dt h = e[t] * b[t] - a[t] - h[t]"
    text = cell(equations, integrate="{method: midpoint, dt: 0.5}")
    assert [e.target for e in loads(text).equations] == [
        *("a_k1", "b_k1", "e_k1", "k1_h"),
        *("h_k2", "a_k2", "b_k2", "e_k2", "k2_h", "h"),
    ]


def test_new_names_evade_those_of_the_file():
    spec = loads(rate(equations="k1_h[t] = 1\nr_k1[t] = k1_h[t]\n" + RATE, outputs="[r, r_k1]"))
    assert "r_k1_[t] = tanh(h[t-1])" in lines(spec) and "k1_h[t] = 1" in lines(spec)


def test_equations_of_one_step_size_are_integrated_together_and_others_one_after_the_other():
    two = "d/dt h = r[t] - h[t]\nd/dt r = h[t] - r[t]"
    keys = {"states": "{h: H, r: H}", "inputs": "{x: D}", "parameters": "{W: [H, D]}"}
    text = rate("{method: {h: euler, r: implicit}, dt: 0.5}", two + " + W @ x[t]", **keys)
    made = lines(loads(text))
    assert "k1_h[t] = r[t-1] - h[t-1]" in made and "k1_r[t] = h[t-1] - r[t-1] + W @ x[t]" in made
    with pytest.raises(SpecError, match="a cycle within one step: h -> r -> h"):
        loads(rate("{method: {h: euler, r: rk4}, dt: 0.5}", two + " + W @ x[t]", **keys))
    apart = "d/dt h = r[t] - h[t]\nd/dt r = h[t-1] - r[t] + W @ x[t]"
    assert "k1_h[t] = r[t] - h[t-1]" in lines(loads(rate("{method: {h: euler, r: rk4}, dt: 0.5}", apart, **keys)))


def test_a_start_is_an_expression_and_gives_values_that_are_no_states():
    equations = "d/dt free = tanh(W @ x[t]) - free[t]\nh[t] = where(free[t] > 1, 0, free[t])"
    keys = {"parameters": "{W: [H, D]}", "inputs": "{x: D}", "outputs": "[h]"}
    made = lines(loads(rate("{method: euler, dt: 0.5, start: {free: '0.5 * h[t-1]'}}", equations, **keys)))
    assert made[0] == "free_start[t] = 0.5 * h[t-1]"
    assert "free[t] = free_start[t] + 0.5 * k1_free[t]" in made
    with pytest.raises(SpecError, match="'free' has no value to start from: declare it under states, or say where"):
        loads(rate("{method: euler, dt: 0.5}", equations, **keys))


def test_the_page_shows_what_was_written_and_the_steps_are_a_stage():
    spec = loads(rate("{method: rk4, dt: gap, substeps: 2}"))
    written = "d/dt h = (-h[t] + R @ r[t] + W @ x[t]) / tau"
    assert spec.integration == {"h": Integration(written, "rk4", "gap[t]", 2, "h[t-1]")}
    assert facts(spec)["equations"] == [written, "r[t] = tanh(h[t])"]
    assert "h: rk4, dt = gap[t] in 2 substeps, from h[t-1]" in show(spec)
    assert "k4_h_2[t] = " in show(spec, "spec")


def test_files_and_transforms_of_the_steps():
    spec = loads(rate("{method: midpoint, dt: gap}"))
    again = loads(to_yaml(spec))
    assert lines(again) == lines(spec) and digest(again) == digest(spec) and not again.integration
    low = transform.low_rank_recurrence(spec, rank=2)
    assert [text for text in lines(low) if "R_left @ (R_right @ r_k" in text] == [lines(low)[1], lines(low)[4]]
    assert loads(rate("{method: euler, dt: rate}", constants="{rate: 0.5}", inputs="{x: D}"), rate=0.25).equations[
        -2
    ].value == parse_expression("h[t-1] + 0.25 * k1_h[t]")


def test_cells_of_another_inherit_replace_and_drop_what_is_integrated(tmp_path):
    (tmp_path / "base.yaml").write_text(rate().replace("name: tested", "name: base"))

    def extending(text: str) -> Spec:
        path = tmp_path / "own.yaml"
        path.write_text(f"rnnspec: 1\nname: own\nextends: base.yaml\n{text}")
        return load(path)

    assert extending("integrate: {method: euler}\n").integration["h"].method == "euler"
    assert extending("integrate: {method: euler}\n").integration["h"].dt == "gap[t]"
    fixed = extending("integrate: {dt: 0.1}\n")
    assert fixed.integration["h"].method == "rk4" and "gap" not in fixed.inputs
    plain = extending("equations: |\n  h[t] = r[t-1] + W @ x[t]\n")
    assert not plain.integration and plain.inputs.keys() == {"x"}
    with pytest.raises(SpecError, match="there is nothing to integrate"):
        extending("integrate: {dt: 0.1}\nequations: |\n  h[t] = r[t-1] + W @ x[t]\n")


@pytest.mark.parametrize(
    "integrate, message",
    [
        ("{method: rk5, dt: gap}", "there is no method 'rk5'. Did you mean 'rk4'?"),
        ("{method: rk4, dt: gap, substep: 2}", "unknown key 'substep' in integrate. Did you mean 'substeps'?"),
        ("{method: rk4, dt: gap, substeps: 65}", "substeps of integrate: 65 is not from 1 to 64."),
        ("{method: rk4, dt: gap, substeps: gap}", "substeps of integrate: gap is not made of whole numbers"),
        ("{method: rk4, dt: gap, substeps: 64}", "names, numbers and operators; at most 8000 are offered"),
        ("{method: rk4, dt: gapp}", "unknown name 'gapp' in the equation for 'h'"),
        ("{method: rk4, dt: 'gap['}", "'dt' of integrate: "),
        ("{method: rk4, dt: {r: gap}}", "'r' stands under dt of integrate, and no equation reads d/dt r"),
        ("{method: rk4}", "d/dt h needs a dt. Write integrate: {method: rk4, dt: 0.1}."),
        ("{dt: gap}", "d/dt h needs a method."),
        ("{method: {h: rk4, g: euler}, dt: gap}", "'g' stands under method of integrate"),
        ("{method: rk4, dt: 'h[t]'}", "a cycle within one step: h -> h"),
        ("{method: rk4, dt: 'mean(r[t])'}", "a cycle within one step"),
        ("{method: rk4, dt: gap, start: 0}", "start says by name where integration begins"),
        ("{method: rk4, dt: gap, start: {h: 'x[t]'}}", "shapes differ: x[t] is [D]"),
        ("{}", "integrate is empty."),
        ("[rk4]", "integrate is a mapping"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(integrate: str, message: str):
    with pytest.raises(SpecError) as caught:
        loads(rate(integrate))
    problems = [e for e in caught.value.errors if message in e.message]
    assert problems and problems[0].line > 0 and problems[0].column > 0


@pytest.mark.parametrize(
    "written, message",
    [
        ("dh/dt = -h[t]", "a derivative is written d/dt h = ..."),
        ("h' = -h[t]", "A derivative is written d/dt v = ..."),
        ("d/dt h[t, 1] = -h[t]", "d/dt stands before a name with one value a step. Write d/dt h = ..."),
        ("d/dt h = -h", "'h' is used without a time."),
        ("d/dt h = W @ x[t] + x[t]", "shapes differ: W @ x[t] is [H], x[t] is [D]."),
        ("d/dt h = -h[t]\nh[t] = 0", "'h' is defined twice"),
        ("d/dt x = -x[t]", "'x' is an input"),
        ("d/dt = 3", "the left side of an equation is a name with its time"),
        ("h[t] = -h[t-1]", "there is nothing to integrate: no equation reads d/dt v = ..."),
    ],
)
def test_what_is_wrong_with_a_derivative(written: str, message: str):
    with pytest.raises(SpecError) as caught:
        loads(rate(equations=f"{written}\nr[t] = h[t-1]"))
    assert any(message in e.message for e in caught.value.errors), caught.value


def test_methods_that_need_a_part_of_the_unit_itself_say_so_where_there_is_none():
    for method in (row.name for row in METHODS.values() if row.gain):
        with pytest.raises(SpecError, match=f"{method} takes part of the change of 'h' to be c .* Use euler, midpoint"):
            loads(rate(f"{{method: {method}, dt: gap}}", "r[t] = tanh(h[t])\nd/dt h = R @ r[t] + (W @ x[t]) / tau"))
        with pytest.raises(SpecError, match="the derivative of 'gelu' can't be written in an equation"):
            loads(rate(f"{{method: {method}, dt: gap}}", RATE.replace("-h[t]", "gelu(h[t])")))


@pytest.mark.parametrize(
    "text, slope",
    [
        ("3 * v[t] - w[t]", "3"),
        ("v[t] ** 2 / 2", "2 * v[t] / 2"),
        ("-(v[t] - 1) / tau", "-1 / tau"),
        ("tanh(v[t]) * w[t]", "(1 - tanh(v[t]) * tanh(v[t])) * w[t]"),
        ("where(w[t] > 0, v[t], 2)", "where(w[t] > 0, 1, 0)"),
        ("u[t] * v[t]", "-v[t] + u[t]"),
        ("R @ v[t] + sum(v[t]) + w[t] / tau", "0"),
        ("w[t] / v[t]", "-(w[t] / v[t]) / v[t]"),
    ],
)
def test_the_slope_by_the_unit_itself(text: str, slope: str):
    assert to_text(own_slope(parse_expression(text), "v", {"u": parse_expression("1 - v[t]")})) == slope
