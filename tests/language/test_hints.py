"""Hints at what is written correctly and computed badly."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
from tiny import cell

from rnnspec.language.hints import FORMS, SpecHint
from rnnspec.language.load import load, loads, spec_names


@pytest.mark.parametrize("form", [form.written for form in FORMS])
def test_each_form_is_hinted_at_with_its_place_and_what_to_write(form):
    better = next(f.better for f in FORMS if f.written == form)
    written = form.replace("v", "(x[t] + y[t])").replace("di(x[t] + y[t])", "div")
    text = cell(f"n[t] = 2 * ({written}) * h[t-1]\n  h[t] = n[t]", inputs="{x: N, y: N}", states="{h: N}")
    with pytest.warns(SpecHint, match=rf"<text>:\d+:\d+: .*{better[:-3]}\(v\) does not: write that") as found:
        loads(text)
    assert len(found) == 1


@pytest.mark.parametrize(
    "written", ["log(1 + exp(x[t])) + 0 * h[t-1]", "log(2 + exp(x[t])) + h[t-1]", "exp(x[t]) / (1 + exp(h[t-1]))"]
)
def test_only_the_form_itself_is_hinted_at(written):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loads(cell(f"h[t] = {written}"))
    assert len(found) == written.startswith("log(1")


FINE = (
    "log(1 + exp(-abs(x[t])))",
    "log1p(exp(-abs(x[t] + h[t-1])))",
    "log(1 + exp(minimum(x[t], 20)))",
    "log(1 + exp(n[t]))",
    "log(1 + exp(-0.5 * x[t] ** 2))",
    "1 / (1 + exp(-relu(x[t])))",
    "exp(clip(x[t], -5, 5)) / (1 + exp(clip(x[t], -5, 5)))",
    "log(sigmoid(3 * tanh(x[t]) - 2))",
)


@pytest.mark.parametrize("written", FINE)
def test_a_form_whose_argument_stays_where_it_is_good_is_not_hinted_at(written):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(cell(f"n[t] = where(x[t] < 0, -square(x[t]), -3)\n  h[t] = {written} + 0 * n[t] + h[t-1]"))


@pytest.mark.parametrize(
    "equations, better",
    [
        ("e[t] = exp(x[t])\n  y[t] = e[t] / (1 + e[t])", "sigmoid"),
        ("e[t] = exp(x[t])\n  s[t] = 1 + e[t]\n  y[t] = log(s[t])", "softplus"),
        ("s[t] = 1 + exp(-x[t])\n  y[t] = 1 / s[t]", "sigmoid"),
        ("s[t] = sigmoid(x[t])\n  y[t] = log(s[t])", "log_sigmoid"),
        ("e[t] = exp(x[t])\n  d[t] = exp(-x[t])\n  y[t] = (e[t] - d[t]) / (e[t] + d[t])", "tanh"),
        ("y[t] = log(1 + exp(maximum(x[t], 20)))", "softplus"),
        ("y[t] = log(1 + exp(minimum(x[t], 200)))", "softplus"),
    ],
)
def test_a_form_over_names_is_hinted_at(equations, better):
    with pytest.warns(SpecHint, match=rf"{better}\(v\) does not") as found:
        loads(cell(f"{equations}\n  h[t] = y[t] + h[t-1]"))
    assert len(found) == 1


def test_the_value_of_an_earlier_step_is_not_what_its_name_is_now():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(cell("e[t] = exp(x[t])\n  h[t] = h[t-1] + e[t-1] / (1 + e[t]) + log(h[t-1] + e[t-1])"))


def test_no_cell_that_comes_with_rnnspec_has_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in spec_names():
            load(name)


def test_an_equation_that_nothing_reads_is_told():
    text = cell("n[t] = tanh(x[t])\n  nn[t] = x[t] * x[t]\n  h[t] = n[t] + h[t-1]")
    with pytest.warns(SpecHint, match=r"<text>:\d+:\d+: 'nn' is read by no equation.* Did you mean 'n'\?") as found:
        loads(text)
    assert len(found) == 1


def test_an_override_that_was_mistyped_is_told(tmp_path):
    path = tmp_path / "typo.yaml"
    path.write_text("rnnspec: 1\nname: typo\nextends: gru\nequations: |\n  nn[t] = tanh(W_n @ x[t])\n")
    with pytest.warns(SpecHint, match=r"typo\.yaml:5:3: 'nn' is read by no equation"):
        load(path)


@pytest.mark.parametrize(
    "equations, outputs",
    [
        ("q[t] = x[t] * x[t]\n  h[t] = x[t] + h[t-1]", "[h, q]"),  # an output
        ("q[t] = x[t] * x[t]\n  h[t] = q[t-1] + h[t-1]", "[h]"),  # read a step later
        ("a = 2\n  h[t] = a * x[t] + h[t-1]", "[h]"),  # once
    ],
)
def test_what_is_read_is_not(equations, outputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpecHint)
        loads(cell(equations, outputs=outputs))


def test_the_command_tells_a_hint_without_a_line_of_its_own(tmp_path):
    (tmp_path / "typo.yaml").write_text("rnnspec: 1\nname: typo\nextends: rnn\nequations: |\n  hh[t] = W @ x[t]\n")
    shown = subprocess.run(
        [sys.executable, "-m", "rnnspec", "show", "typo.yaml", "--stage", "spec"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert shown.returncode == 0 and shown.stderr.startswith("hint: typo.yaml:5:3: 'hh' is read by no equation")
    assert "cli.py" not in shown.stderr and "load(" not in shown.stderr


def test_a_line_of_a_loop_is_told_of_once():
    body = """s[t, 0] = h[t-1]
  for k in 1..L:
    q[t, k] = tanh(s[t, k-1])
    s[t, k] = log(1 + exp(x[t] + s[t, k-1]))
  h[t] = s[t, L]"""
    with pytest.warns(SpecHint) as found:
        loads(cell(body, inputs="{x: H}", states="{h: H}", sizes="{L: 7}"))
    said = [str(hint.message).split("\n")[0] for hint in found]
    assert len(said) == 2 and "read by no equation" in said[0] and "softplus(v)" in said[1]
