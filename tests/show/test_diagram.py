"""Drawings: everything is in them, nothing lies on anything else, none is wider than a page."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from tiny import cell

from rnnspec.commands.cli import main
from rnnspec.language.lift import named_constants
from rnnspec.language.load import load, loads, spec_names
from rnnspec.language.syntax.tree import Ref, walk
from rnnspec.show.drawing import VIEWS
from rnnspec.show.drawing.forward import step
from rnnspec.show.drawing.layout import PAGE, placed
from rnnspec.show.drawing.svg import marks_of, svg

SPACE = "{http://www.w3.org/2000/svg}"
FEW = ("lstm", "gru", "rwkv7", "ei_rnn", "phased_lstm", "ln_lstm_tfa", "adex", "lmu", "fast_slow_rnn", "mogrifier_lstm")


def check_picture(text: str) -> None:
    """Rectangles inside the frame and apart, or one inside the other, texts inside the frame."""
    root = ElementTree.fromstring(text)
    assert float(root.get("width")) <= PAGE + 40 and "nan" not in text
    frame, *rects = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in root.iter(f"{SPACE}rect")]
    for i, (x, y, w, h) in enumerate(rects):
        assert frame[0] <= x and frame[1] <= y and x + w <= frame[0] + frame[2] and y + h <= frame[1] + frame[3]
        for x2, y2, w2, h2 in rects[:i]:
            apart = x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
            within = x2 <= x and y2 <= y and x + w <= x2 + w2 and y + h <= y2 + h2  # gates of an unrolled step
            assert apart or within
    for t in root.iter(f"{SPACE}text"):
        assert frame[0] <= float(t.get("x")) <= frame[0] + frame[2]


@pytest.mark.parametrize("name", spec_names())
def test_a_step_has_all_of_the_cell(name: str) -> None:
    """Its values by name, all parameters and constants, no sizes among what flows."""
    spec = named_constants(load(name)).spec
    marks = step(spec)
    words = " ".join(" ".join((*m.text, m.name, *m.edge)) for m in marks.values())
    for e in spec.equations:
        assert any(m.name == e.target for m in marks.values()) if e.timed else f"{e.target} = " in words
    read = {r.name for e in spec.equations for r in walk(e.value) if isinstance(r, Ref)}
    assert all(p in words for p in spec.parameters if p in read)
    before = {key.partition("[")[0] for key, m in marks.items() if m.kind in ("input", "state")}
    assert before <= set(spec.shapes) and not any(f"{size}[t]" in marks for size in ("D", "H", *spec.sizes))
    assert {f"leaves {n}" for n in (*spec.states, *spec.outputs)} <= set(marks)
    layers = placed(marks)
    for layer in layers:
        for left, right in pairwise(layer):
            a, b = marks[left], marks[right]
            assert a.x - a.core / 2 + a.width <= b.x - b.core / 2 + 1e-6
    assert max(m.x - m.core / 2 + m.width for m in marks.values()) <= PAGE + 20


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", FEW)
def test_pictures_fit_a_page_and_have_no_overlaps(name: str, view: str) -> None:
    check_picture(svg(load(name), view))


@pytest.mark.slow
@pytest.mark.parametrize("name", spec_names())
def test_all_pictures_fit(name: str) -> None:
    for view in VIEWS:
        check_picture(svg(load(name), view))


def test_a_lstm_looks_as_in_textbooks() -> None:
    marks = step(load("lstm"))
    assert [(marks[g].kind, marks[g].text, marks[g].edge) for g in "fg"] == [
        ("gate", ("σ",), ("W_f, U_f, b_f",)),
        ("function", ("tanh",), ("W_g, U_g, b_g",)),
    ], "tanh is no gate"
    assert marks["f"].reads == {"x[t]": "matrix", "h[t-1]": "matrix"}
    assert marks["c"].text == ("+",) and marks["h"].text == ("×",) and marks["h"].reads["o"] == "thin"
    assert sorted(m.text[0] for m in marks.values() if m.kind == "operation") == ["+", "×", "×", "×"]


def test_what_is_computed_once_has_its_parameters_and_sizes_are_no_states() -> None:
    text = cell(
        "A = W - W.T - 0.1 * eye(H)\nh[t] = tanh(A @ h[t-1] + x[t]) * H", parameters="{W: [H, H]}", states="{h: H}"
    )
    marks = step(loads(text))
    assert marks["A"].kind == "once" and "W - W.T" in " ".join(marks["A"].text)
    assert {n for n, m in marks.items() if m.kind == "state"} == {"h[t-1]"} and marks["h"].edge == ("H",)
    assert any(m.reads.get("A") == "once" and "A" in m.edge for m in marks.values())


def test_the_backward_view_runs_from_the_next_step_to_the_one_before() -> None:
    marks = marks_of(load("lstm"), "backward")
    assert {"d_h_next", "d_c_next", "d_h_out"} <= set(marks) and marks["d_c"].reads == {
        "d_c_next": "thin",
        "d_h": "thin",
    }
    assert marks["d_a_f"].edge == ("→ W_f, U_f, b_f",) and marks["d_c_prev"].kind == "output"


@pytest.mark.parametrize(
    ("value", "text", "edge", "lines"),
    [
        ("x[t] - u", "−", ("u",), {"thin"}),
        ("u - x[t]", "u−", (), {"thin"}),
        ("threshold - x[t]", "−", ("from threshold",), {"thin"}),
        ("r[t] - x[t]", "−", (), {"thin", "minus"}),
        ("u * x[t] - u * r[t]", "−", (), {"thin", "minus"}),
        ("r[t] / x[t]", "÷", (), {"thin", "divisor"}),
        ("x[t] / u", "÷", ("u",), {"thin"}),
        ("r[t] - x[t] - u", "±", ("−u",), {"thin", "minus"}),
    ],
)
def test_what_is_taken_away_and_what_divides_is_seen(value: str, text: str, edge: object, lines: set[str]) -> None:
    """`ltc` had "−mu" beside a "−", and nothing told a - b from b - a."""
    used = [name for name in ("u", "threshold") if name in re.findall(r"\w+", value)]
    parameters = f"{{{''.join(f'{name}: [D], ' for name in used)}w: [D]}}"
    equations = f"r[t] = tanh(w * x[t])\ns[t] = {value}\nh[t] = s[t] + r[t]"
    spec = loads(cell(equations, inputs="{x: [D]}", states="{h: [D]}", parameters=parameters))
    mark = step(spec)["s"]
    assert (mark.text, mark.edge, set(mark.reads.values())) == ((text,), edge, lines)
    drawn = svg(spec)
    check_picture(drawn)
    assert (drawn.count(">−<") + drawn.count(">÷<")) == len(lines) - 1 + (text in "−÷")


def test_a_value_is_drawn_once() -> None:
    marks = step(load("mogrifier_lstm"))
    assert marks["x[t]"].kind == "input" and marks["u_0"].text == ("=",)


@pytest.mark.parametrize(
    ("value", "sign"),
    [("r*r", "×"), ("r+r", "+"), ("r-r", "−"), ("r/r", "÷"), ("r*r + r*r*r", "+"), ("dot(r, r)", "dot")],
)
def test_a_value_that_is_read_twice_has_two_arrows(value: str, sign: str) -> None:
    """r * r was a circle with one line, like a function of one value."""
    equations = f"r[t] = tanh(u * x[t])\nh[t] = {value.replace('r', 'r[t]')}"
    states = "{h: []}" if "dot" in value else "{h: [D]}"
    spec = loads(cell(equations, inputs="{x: [D]}", states=states, parameters="{u: [D]}"))
    marks = step(spec)
    assert marks["h"].text == (sign,)
    assert all(len(mark.reads) == 2 for mark in marks.values() if mark.text in (("×",), (sign,)) and mark.name != "r")
    placed(marks)
    assert len(marks["h"].reads) == 2
    check_picture(svg(spec))


def test_the_command_writes_the_picture(tmp_path, capsys):
    file = tmp_path / "lstm.svg"
    assert main(["show", "lstm", "--svg", str(file)]) == 0 and file.read_text() == svg(load("lstm"))
    assert main(["show", "lstm", "--svg", str(file), "--view", "backward"]) == 0
    assert file.read_text() == svg(load("lstm"), "backward")
    assert main(["show", "lstm", "--view", "backward"]) == 2 and "with --svg" in capsys.readouterr().err
    assert (
        main(["show", "lstm", "--svg", str(file), "--latex"]) == 2
        and "without --stage, --latex and --json" in capsys.readouterr().err
    )
    assert (
        main(["show", "lstm", "--svg", str(tmp_path / "absent" / "lstm.svg")]) == 2
        and "absent" in capsys.readouterr().err
    )


def test_a_drawing_goes_into_a_file_of_its_kind_in_a_folder_that_is_there(tmp_path, capsys):
    assert main(["show", "lstm", "--svg", str(tmp_path / "lstm.png")]) == 2
    assert "--svg writes SVG" in capsys.readouterr().err
    assert main(["show", "lstm", "--svg", str(tmp_path / "none" / "lstm.svg")]) == 2
    assert "there is no folder" in capsys.readouterr().err and not list(tmp_path.iterdir())
