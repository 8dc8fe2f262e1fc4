"""Cells without inputs: nothing but the caller tells how many steps and rows there are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.check import check_property
from rnnspec.commands.cli import main
from rnnspec.engine.spans import cut
from rnnspec.errors import ShapeError
from rnnspec.language.load import loads

AUTO = cell("h[t] = 0.5 * h[t-1] + a", inputs="{}", states="{h: H}", parameters="{a: [H]}", name="auto")
PLAIN = cell(
    "h[t] = 0.5 * h[t-1] + sin(h[t-2]) + v[t-1] + t\nv[t] = cos(v[t-1])",
    inputs="{}",
    states="{h: H, v: []}",
    name="plain",
    examples="\n  - sizes: {H: 1}\n    inputs: {}\n    outputs: {h: [[0.0], [2.0]]}",
)
A = {"a": np.full(1, 1.0, np.float32)}


def start(*rows: float) -> dict[str, np.ndarray]:
    return {"h": np.array(rows, np.float32)[:, None]}


@pytest.mark.parametrize("memory", ["full", "low"])
def test_steps_are_named_and_rows_too_where_no_state_tells_them(memory):
    kernel = rnnspec.compile(loads(AUTO), threads=1, memory=memory)
    run = kernel.forward(A, {}, start(8), steps=3)
    assert run.outputs["h"].ravel().tolist() == [5, 3.5, 2.75] and (run.steps, run.rows) == (3, 1)
    found = kernel.backward(run, {"h": np.ones((3, 1, 1), np.float32)})
    assert found.params["a"].item() == 4.25 and not found.inputs and found.states["h"].item() == 0.875
    for call in (kernel.forward, kernel.infer):
        assert call(A, {}, steps=2, rows=4).outputs["h"].shape == (2, 4, 1)
        assert call(A, {}, lengths=[0, 2, 1], steps=2).outputs["h"][..., 0].tolist() == [[0, 1, 1], [0, 1.5, 0]]
        assert call(A, {}, start(1, 2), steps=0).outputs["h"].shape == (0, 2, 1)
        assert call(A, {}, start(), steps=2).outputs["h"].shape == (2, 0, 1)
        pieces = cut(3, 2, None, np.array([[0, 0], [1, 0], [0, 0]], bool), reverse=False)
        assert call(A, {}, pieces=pieces, steps=3, rows=2).outputs["h"][..., 0].tolist() == [
            [1, 1],
            [1, 1.5],
            [1.5, 1.75],
        ]
    taped = kernel.record(A, {}, start(8), steps=3)
    resumed = kernel.resume(A, {}, taped.tape, steps=3, rows=1)
    again = kernel.backward(resumed, {"h": np.ones((3, 1, 1), np.float32)})
    assert again.params["a"].item() == 4.25


def test_a_stream_and_a_step_need_no_inputs():
    kernel = rnnspec.compile(loads(AUTO), threads=1)
    stream = kernel.stream(A, start(8))
    assert [stream.step()["h"].item(), stream.step({})["h"].item()] == [5, 3.5]
    assert kernel.step(A, {}, start(8)).outputs["h"].item() == 5
    for weights in (A, kernel.pack(A)):
        state = kernel.step(weights, {}, rows=3)
        assert state.outputs["h"].tolist() == [[1], [1], [1]]
        assert kernel.step(weights, {}, state, rows=3).outputs["h"].tolist() == [[1.5], [1.5], [1.5]]
        assert kernel.step(weights, {}, rows=0).outputs["h"].shape == (0, 1)
    with pytest.raises(ShapeError, match=r"number of rows: give rows=, or the states"):
        kernel.step(A, {})
    with pytest.raises(ShapeError, match="rows is 2, but the arrays that were given have 1"):
        kernel.step(A, {}, start(8), rows=2)
    with pytest.raises(ShapeError, match="rows must be a whole number of at least 0, got True"):
        kernel.step(A, {}, rows=True)


def test_a_step_by_defaults_and_noise_alone_is_told_its_rows():
    text = cell(
        "h[t] = 0.5 * h[t-1] + k[t] + n[t] + time[t] + a",
        inputs="{k: H, n: H, time: []}",
        states="{h: H}",
        parameters="{a: [H]}",
        defaults="{k: 0.25, time: t}",
        noise="{n: bernoulli(0.5)}",
    )
    kernel = rnnspec.compile(loads(text), threads=1)
    state = kernel.step(A, {}, rows=2)
    assert state.outputs["h"].tolist() == [[1.75], [1.75]]
    assert kernel.step(A, {}, state, rows=2).outputs["h"].tolist() == [[3.625], [3.625]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "'auto' is given no input that tells the number of steps: give steps=."),
        ({"steps": 3}, "'auto' is given no input that tells the number of rows: give rows=, or the states."),
        ({"rows": 3}, "the number of steps: give steps=."),
        ({"steps": 3, "rows": 2, "states": start(1)}, "rows is 2, but the arrays that were given have 1."),
        ({"steps": -1, "rows": 2}, "steps must be a whole number of at least 0, got -1."),
        ({"steps": 2.0, "rows": 2}, "steps must be a whole number of at least 0, got 2.0."),
        ({"steps": True, "rows": 2}, "steps must be a whole number of at least 0, got True."),
        ({"steps": 1, "rows": "2"}, "rows must be a whole number of at least 0, got '2'."),
    ],
)
def test_what_is_not_told_is_asked_for(options, message):
    kernel = rnnspec.compile(loads(AUTO), threads=1)
    for call in (kernel.forward, kernel.infer, kernel.record):
        with pytest.raises(ShapeError) as caught:
            call(A, {}, **options)
        assert message in str(caught.value)
    with pytest.raises(ShapeError, match="give rows=, or the states"):
        kernel.step(A, {})


def test_inputs_that_are_there_must_agree_with_what_is_named():
    kernel = rnnspec.compile(loads(cell("h[t] = x[t] + d[t]", inputs="{x: [], d: []}", defaults="{d: t}")), threads=1)
    x = {"x": np.zeros((3, 2), np.float32)}
    assert kernel.infer({}, x, steps=3, rows=2).outputs["h"][:, 0].tolist() == [0, 1, 2]
    for options, message in (({"steps": 4}, "steps is 4, but .* have 3"), ({"rows": 1}, "rows is 1, but .* have 2")):
        with pytest.raises(ShapeError, match=message):
            kernel.infer({}, x, **options)


def test_inputs_that_are_all_left_out_or_drawn_are_like_none():
    text = cell("h[t] = 0.5 * h[t-1] + d[t] + n[t]", inputs="{d: [], n: []}", defaults="{d: t}", noise="{n: normal(1)}")
    kernel = rnnspec.compile(loads(text), threads=1)
    assert kernel.infer({}, {}, steps=3, rows=1).outputs["h"].ravel().tolist() == [0, 1, 2.5]
    assert kernel.forward({}, {}, steps=3, rows=2, noise=4).outputs["h"].shape == (3, 2)
    with pytest.raises(ShapeError, match="give steps="):
        kernel.forward({}, {}, noise=4)


def test_a_size_that_states_alone_tell_is_asked_for():
    kernel = rnnspec.compile(loads(PLAIN), threads=1)
    with pytest.raises(ShapeError, match="do not tell the size H of 'plain': give the states h, h_1 too"):
        kernel.forward({}, {}, steps=3, rows=1)
    assert kernel.forward({}, {}, {"h": np.zeros((1, 2), np.float32)}, steps=3).outputs["h"].shape == (3, 1, 2)
    assert kernel.stream({}, rows=1, H=2).step()["h"].shape == (1, 2)


def test_layers_and_training_say_why_not(tmp_path, capsys):
    path = tmp_path / "auto.yaml"
    path.write_text(AUTO)
    with pytest.raises(ValueError, match=r"has no input, .*steps= and rows="):
        rnnspec.Recurrent(str(path), 1, 1)
    assert main(["train", str(path), "--task", "adding", "--steps", "1", "--out", str(tmp_path / "run")]) != 0
    assert "auto has no input, so it can't be trained on data" in capsys.readouterr().err
    torch_layers = pytest.importorskip("rnnspec.interop.torch")
    with pytest.raises(ValueError, match="has no input"):
        torch_layers.Recurrent(str(path), 1, 1)


@pytest.mark.parametrize("text", [AUTO, PLAIN], ids=["auto", "plain"])
def test_all_else_takes_such_a_cell(text, tmp_path, capsys):
    name = text.split("name: ")[1].split()[0]
    path, pack = tmp_path / f"{name}.yaml", str(tmp_path / "pack")
    path.write_text(text)
    for title in ("compiles", "against the reference", "lengths", "row of NaN", "step by step"):
        result = check_property(str(path), title, "float64")
        assert result.passed, (title, result.detail)
    if name == "plain":
        assert check_property(str(path), "examples", "float64").passed
    assert main(["pack", str(path), "--out", pack]) == 0 and main(["verify", pack]) == 0
    capsys.readouterr()
    assert main(["probe", str(path), "--length", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["norms"]
    for options in ([], ["--latex"], ["--stage", "cuda"]):
        assert main(["show", str(path), *options]) == 0
    assert main(["diff", str(path), str(path)]) == 0
