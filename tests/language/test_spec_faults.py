"""Faults that engines like this one have had (their reports are named in the project's list), as
far as they concern loading."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tiny import cell, close, h_of, run

from rnnspec.errors import SpecError
from rnnspec.language.load import digest, load, loads, spec_names


def refused(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        loads(text)
    return caught.value


ATTACKS = [
    '__import__("os").system("touch pwned")',
    "().__class__.__bases__[0].__subclasses__()",
    "print(x[t])",
    "x[t].__class__",
    "x.__class__",
    "[c for c in (1,2)]",
    "lambda: 1",
    'open("/etc/passwd").read()',
    "(y := 1)",
    "{1: 2}",
    "x[t] if 1 else 2",
    'f"{x}"',
    "exec(1)",
    "getattr(x, y)",
    "tanh(*x)",
    "tanh(v=x[t])",
    "await x",
    "...",
    "x[t:1]",
    "True",
    "1j",
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("where", ["{}", "h[t] = {}", "h[t] = tanh({})", "h[t] = where(x[t] > 0, {}, 0)"])
def test_H34_equations_are_never_run(attack, where, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert refused(cell(where.format(attack))).errors[-1].line == 7
    assert not os.listdir(tmp_path) and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("attack", ATTACKS)
def test_H34_functions_and_sizes_are_never_run(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(cell("h[t] = f(x[t])", functions=f"\n  f(a): '{attack.replace(chr(39), chr(34))}'"))
    refused(cell("h[t] = x[t]", inputs=f"\n  x: '{attack.replace(chr(39), chr(34))}'"))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "name", list("ESNIQOC") + ["pi", "beta", "gamma", "zeta", "oo", "zoo", "nan", "inf", "e", "j", "re", "im", "Max"]
)
def test_H35_H36_names_that_mean_something_to_sympy(name):
    assert h_of(f"h[t] = {name} * x[t]", parameters={name: 2.0}) == 6.0


def test_H36_greek_names():
    assert h_of("h[t] = beta * x[t] + gamma", parameters={"beta": 2.0, "gamma": 1.0}) == 7.0


@pytest.mark.parametrize("name", ["lambda", "class", "is", "None", "def", "import"])
def test_H36_a_python_keyword_is_called_one(name):
    for text in (cell(f"h[t] = {name} * x[t]", parameters=f"{{{name}: []}}"), cell(f"{name}[t] = x[t]\nh[t] = x[t]")):
        messages = [e.message for e in refused(text).errors]
        assert any(f"'{name}' is a Python keyword" in m for m in messages), messages


def test_H38_names_that_look_like_temporaries():
    for a, b in (("x0", "x1"), ("t0", "tmp0"), ("cse0", "x_0")):
        values = {"k": 2.0, a: 2.0, b: 3.0}
        assert h_of(f"h[t] = k*({a}+1)**2 + {b}*({a}+1)**2 + 0*x[t]", parameters=values) == 45.0
    assert "start with a letter" in str(refused(cell("h[t] = _x0 * x[t]", parameters="{_x0: []}")))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("sigmod", "sigmoid"), ("tahn", "tanh"), ("Tanh", "tanh"), ("sofplus", "softplus"), ("were", "where")],
)
def test_H39_a_misspelt_function_is_found_at_load(wrong, right):
    (problem,) = refused(cell(f"h[t] = {wrong}(x[t])")).errors
    assert f"unknown function '{wrong}' in the equation for 'h'. Did you mean '{right}'?" in problem.message
    assert (problem.line, problem.column, problem.width) == (7, 10, len(wrong))


def test_H40_an_undeclared_name_is_found_at_load():
    (problem,) = refused(cell("h[t] = w * x[t] + bb", parameters="{w: []}")).errors
    assert "unknown name 'bb' in the equation for 'h'. Known here: w." in problem.message
    problems = refused(cell("h[t] = w * x[t] + bb", parameters="{w: [], b: []}")).errors
    assert "Known here: w, b. Did you mean 'b'?" in problems[-1].message


@pytest.mark.parametrize(
    ("equation", "result"),
    [
        ("1/2*x[t]", 1.5),
        ("x[t]*(1/4)", 0.75),
        ("-x[t]**2", -9.0),
        ("2**(1/2)", 2**0.5),
        ("x[t]**-2", 1 / 9),
        ("2**2**3", 256.0),
    ],
)
def test_H41_division_of_whole_numbers_is_division(equation, result):
    assert close(h_of(f"h[t] = {equation} + 0*x[t]"), result)


def test_H41_floor_division_is_refused():
    assert "Division is '/'" in refused(cell("h[t] = x[t]//2")).errors[0].message


def test_H42_the_order_of_lines_has_no_meaning():
    text = Path(load("gru").file).read_text()
    head, rest = text.split("equations: |\n")
    lines = rest.split("\n")
    turned = head + "equations: |\n" + "\n".join(lines[:4][::-1] + lines[4:])
    first, second = loads(text), loads(turned)
    assert [e.target for e in second.equations] == ["z", "r", "n", "h"]
    rng = np.random.default_rng(0)
    parameters = {n: rng.normal(size=[{"D": 2, "H": 3}[s] for s in shape]) for n, shape in first.parameters.items()}
    x = rng.normal(size=(4, 2))
    np.testing.assert_array_equal(run(first, parameters, {"x": x})["h"], run(second, parameters, {"x": x})["h"])


@pytest.mark.parametrize(
    ("equations", "cycle"),
    [
        ("r[t] = z[t]\nz[t] = r[t]\nh[t] = r[t] + x[t]", "r -> z -> r"),
        ("h[t] = c[t] + x[t]\na[t] = b[t]\nb[t] = c[t]\nc[t] = a[t]", "a -> b -> c -> a"),
        ("h[t] = h[t] + x[t]", "h -> h"),
    ],
)
def test_H42_a_cycle_is_printed(equations, cycle):
    assert any(cycle in e.message for e in refused(cell(equations)).errors)


def test_H42_two_cycles_are_both_found():
    messages = str(refused(cell("a[t] = b[t]\nb[t] = a[t]\nc[t] = d[t]\nd[t] = c[t]\nh[t] = x[t] + a[t] + c[t]")))
    assert "a -> b -> a" in messages and "c -> d -> c" in messages


def test_H44_the_digest_does_not_depend_on_the_hash_seed():
    code = "from rnnspec.language.load import *; print([digest(load(n)) for n in spec_names()])"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "012"
    }
    assert found == {f"{[digest(load(n)) for n in spec_names()]}\n"}


def test_H46_exponents_without_a_point_are_numbers():
    constants = "{a: 1e-3, b: 1e3, c: 1E-3, d: 1.0e3, e: -.5, f: +2., g: 010}"
    spec = loads(cell("h[t] = a*x[t] + 0*(b + c + d + e + f + g)", constants=constants))
    assert list(spec.constants.values()) == [Fraction(1, 1000), 1000, Fraction(1, 1000), 1000, Fraction(-1, 2), 2, 10]
    assert close(h_of("h[t] = a*x[t]", x=2.0, constants="{a: 1e-3}"), 0.002)


@pytest.mark.parametrize(
    "number", ["1e999", "0x10", ".inf", "nan", "1_000", "yes", "1e-999999999", "'1 2'", "1:30", ""]
)
def test_H46_what_is_no_number_is_refused(number):
    assert "is a number, like" in refused(cell("h[t] = a*x[t]", constants=f"{{a: {number}}}")).errors[0].message


@pytest.mark.parametrize(
    ("sections", "equations", "lines"),
    [
        ({}, "h[t] = x[t]\nf[t] = 1\nf[t] = 2", (9, 8)),
        ({"parameters": "\n  w: []\n  w: []"}, "h[t] = w * x[t]", (8, 7)),
        ({"parameters": "\n  w, v: []\n  u, w: []"}, "h[t] = u * v * w * x[t]", (8, 7)),
        ({"notes": "a\nnotes: b"}, "h[t] = x[t]", (7, 6)),
    ],
)
def test_H47_a_duplicate_names_both_lines(sections, equations, lines):
    (problem,) = refused(cell(equations, **sections)).errors
    assert problem.line == lines[0] and f"here and on line {lines[1]}" in problem.message


def test_H47_a_name_of_two_kinds_names_both_lines():
    (problem,) = refused(cell("h[t] = w * x[t]", parameters="{w: []}", constants="\n  w: 2")).errors
    assert "'w' is a parameter (line 6) and can't be a constant too" in problem.message and problem.line == 8


@pytest.mark.parametrize("name", ["on", "off", "yes", "no", "y", "n", "true", "false", "null", "N", "Y", "Off"])
def test_H48_words_of_yaml_are_ordinary_names(name):
    spec = loads(cell(f"{name}[t] = x[t] + {name}[t-1]", states=f"{{{name}: []}}", outputs=f"[{name}]"))
    assert list(spec.states) == [name] and spec.outputs == (name,)


def test_H48_several_at_once():
    spec = loads(
        cell(
            "on[t] = y[t]\nno[t] = on[t]\noff[t] = no[t]",
            inputs="{y: []}",
            states="{on: [], no: [], off: []}",
            outputs="[no]",
        )
    )
    assert list(spec.states) == ["on", "no", "off"]


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * width)}]" for k in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(("levels", "width"), [(9, 9), (60, 1), (30, 2), (4, 33)])
def test_H49_alias_bombs_cost_nothing(levels, width):
    bomb_text = bomb(levels, width)
    inside = cell("h[t] = x[t]", same_as="\n  layer:\n" + "\n".join(f"    {line}" for line in bomb_text.split("\n")))
    for text in [bomb_text, inside] if width > 1 else [bomb_text]:
        start = time.process_time()
        refused(text)
        assert time.process_time() - start < 1
        tracemalloc.start()
        refused(text)
        assert tracemalloc.get_traced_memory()[1] < 50e6
        tracemalloc.stop()


def test_H49_small_anchors_work_and_recursive_ones_do_not():
    spec = loads(cell("h[t] = v * (W @ x[t])", inputs="{x: D}", states="{h: &h H}", parameters="{W: [*h, D], v: *h}"))
    assert spec.shapes["v"] == ("H",) and spec.shapes["W"] == ("H", "D")
    assert "inside what it names" in str(refused("rnnspec: &a [*a]"))


def test_H49_over_100_aliases_are_refused():
    text = cell(
        "h[t] = " + " + ".join(f"p{k}" for k in range(90)) + " + x[t]",
        parameters="\n  p: &p []\n" + "".join(f"  q{k}: *p\n" for k in range(101)),
    )
    assert "over 100 aliases" in str(refused(text))


@pytest.mark.parametrize(
    "text",
    [
        'name: !!python/object/apply:os.system ["touch pwned2"]',
        "name: !!python/name:os.system",
        "rnnspec: !!int 1",
        "name: !!str lstm",
        "states: !!omap [h: H]",
        "name: !local x",
        "!!python/object/new:os.system {name: x}",
        "%TAG ! tag:x,2000:\n---\nname: !y x",
    ],
)
def test_H50_tags_are_refused_and_nothing_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "tag" in refused(text).errors[0].message
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (cell("h[t] = x[t]", activaton="relu"), "unknown key 'activaton'."),
        (cell("h[t] = x[t]", output="[h]"), "unknown key 'output'. Did you mean 'outputs'?"),
        (cell("h[t] = x[t]", Notes="a"), "unknown key 'Notes'. Did you mean 'notes'?"),
        (cell("h[t] = x[t]", sizes="\n  H: {meanin: units}"), "unknown key 'meanin'. Did you mean 'meaning'?"),
        (cell("h[t] = x[t]", examples="\n  - {tittle: a}"), "unknown key 'tittle'. Did you mean 'title'?"),
        (
            cell("h[t] = w * x[t]", parameters="{w: []}", init="{w: orthogonl}"),
            "unknown initialiser 'orthogonl'. Did you mean 'orthogonal'?",
        ),
        (cell("h[t] = w * x[t]", parameters="{w: []}", init="{v: zeros}"), "init names 'v', which is no parameter."),
        (
            cell("h[t] = w * x[t]", parameters="{w: []}", layouts="{torch: {weight: [w, ww]}}"),
            "names 'ww', which is no parameter.",
        ),
        (cell("h[t] = x[t]", no_gradient="[xx]"), "'xx' in no_gradient is not an input."),
    ],
)
def test_H51_unknown_keys_are_errors_at_every_level(text, message):
    assert message in str(refused(text))
