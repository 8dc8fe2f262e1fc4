"""What is written out of habit from elsewhere gets the hint that a person needs."""

from __future__ import annotations

import re

import pytest
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.language.load import NEAR, load, loads, spec_names
from rnnspec.language.syntax import habits
from rnnspec.language.syntax.parse import parse_expression

HINTS = [
    ("σ(b * x[t])", "Write sigmoid(v) for the function"),
    ("b ⊙ h[t-1]", "Write '*' for a product element by element, '@' for that of a matrix"),
    ("b · h[t-1]", "Write '*'"),
    ("b × h[t-1]", "Write '*'"),
    ("b * h[t−1]", "Write the '-' of the keyboard."),
    ("b * h[t-1]²", "Write '** 2'."),
    ("β * h[t-1]", "Write beta."),
    ("λ * h[t-1]", "Write lam."),
    ("b\u00a0* h[t-1]", "It looks like a blank and is none (no-break space)"),
    ("np.tanh(b * x[t])", "Write tanh(...), without 'np.'."),
    ("torch.nn.functional.relu(x[t])", "Write relu(...), without 'torch.nn.functional.'."),
    ("np.arctan(x[t])", "There is no 'arctan' here."),
    ("np.concatenate(x[t])", "Write concat(a, b)."),
    ("b.dot(x[t])", "Write a @ b."),
    ("x[t].tanh()", "Write tanh(...), with what it is applied to in the brackets."),
    ("matmul(b, x[t])", "Write a @ b."),
    ("sigma(b * x[t])", "Write sigmoid(v)."),
    ("self.b * x[t]", "Write b alone."),
    ("np.pi * x[t]", "Declare the number under constants: constants: {pi: ...}."),
    ("b * h_prev", "Write h[t-1] for the value of that step."),
    ("b * prev_h", "Write h[t-1]"),
    ("b * htm1", "Write h[t-1]"),
    ("b * h_t_1", "Write h[t-1]"),
    ("b * x_t", "Write x[t]"),
    ("b * xt", "Write x[t]"),
    ("b * h_{t-1}", "h_{t-1} is written h[t-1]"),
    ("\\sigma(b * x[t])", "What LaTeX writes \\sigma(v) is sigmoid(v) here"),
    ("softmax(x[t], axis=0)", "Leave axis=... out"),
    ("torch.softmax(x[t] * (b + 1), dim=-1)", "softmax(v) is over all of it"),
    ("sum(softmax(x[t]), keepdims=1)", "sum(v) is over all of it"),
    ("concat([x[t], h[t-1]])", "concat(a, b)"),
]


def messages(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        loads(text)
    return [e.message for e in caught.value.errors]


@pytest.mark.parametrize(("right", "said"), HINTS, ids=[r for r, _ in HINTS])
def test_a_habit_is_answered_by_what_to_write(right: str, said: str) -> None:
    found = messages(cell(f"h[t] = {right}", parameters="{b: H}", inputs="{x: H}", states="{h: H}"))
    assert any(said in m for m in found), found


def test_a_stream_that_is_meant_is_not_called_unused() -> None:
    found = messages(cell("h[t] = b * x_t + h_prev", parameters="{b: H}", inputs="{x: H}", states="{h: H}"))
    assert len(found) == 2 and not any("used in no equation" in m for m in found)


def test_a_name_of_its_own_is_no_habit() -> None:
    """An intermediate x_t beside an input x leaves x unused, and says so."""
    found = messages(
        cell("x_t[t] = 2 * h[t-1]\nh[t] = b * x_t[t]", parameters="{b: H}", inputs="{x: H}", states="{h: H}")
    )
    assert found == ["the input 'x' is used in no equation. Use it or take it out."]


def test_a_matrix_in_a_dot_product() -> None:
    found = messages(cell("h[t] = dot(U, h[t-1]) * x[t]", parameters="{U: [H, H]}", inputs="{x: H}", states="{h: H}"))
    assert "Write '@' for the product of a matrix and a vector." in found[0]


@pytest.mark.parametrize("name", ["matmul", "Sigma", "CLAMP", "detach", "layernorm", "swish", "step", "zeros", "T"])
def test_what_is_said_to_be_written_can_be_read(name: str) -> None:
    said = habits.of_call(name)
    parse_expression(re.fullmatch(r" Write (.*)\.", said)[1] if said else "0")


@pytest.mark.parametrize(
    "text", ["rnnspec: 1\nname: a\n", "h[t] = tanh(x[t])", cell("h[t] = x[t] / 2"), "name: a", "a: b/c\n\n d"]
)
def test_a_text_given_to_load(text: str) -> None:
    with pytest.raises(SpecError, match=r"no name and no path of a file\. The text of a spec is read by loads\(text\)"):
        load(text)


@pytest.mark.parametrize("name", ["lstm", "my/lstm.yaml", "lstm.yaml"])
def test_a_name_given_to_loads(name: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"loads() takes a text: load({name!r}).")):
        loads(name)


def test_a_text_of_one_line_is_a_text() -> None:
    one = "{rnnspec: 1, name: a, inputs: {x: H}, states: {h: H}, outputs: [h], equations: 'h[t] = x[t] / 2'}"
    assert loads(one).name == "a"


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [("lsmt", "lstm", {"slstm"}), ("peephole", "lstm_peephole", {"lstm_tf_peephole"}), ("GRU", "gru", set())],
)
def test_an_unknown_cell_gets_the_nearest_names_and_not_all(name: str, first: str, others: set[str]) -> None:
    with pytest.raises(SpecError) as caught:
        load(name)
    text = str(caught.value)
    shown = {n for n in spec_names() if re.search(rf"\b{n}\b", text)}
    assert f"Did you mean '{first}'?" in text and others <= shown and len(shown) <= NEAR + 1
    assert f"`rnnspec list` has all {len(spec_names())}" in text


def test_an_unknown_cell_like_none() -> None:
    with pytest.raises(SpecError) as caught:
        load("zzz")
    assert "Did you mean" not in str(caught.value) and "Near it" not in str(caught.value)
