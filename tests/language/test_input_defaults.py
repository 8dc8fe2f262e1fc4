"""`defaults`: inputs that a call may leave out."""

from __future__ import annotations

import numpy as np
import pytest
from cells import kernel
from tiny import cell
from tolerances import assert_same

import rnnspec
from rnnspec.errors import ShapeError, SpecError
from rnnspec.language.load import digest, loads
from rnnspec.language.rewrite import to_yaml

TEXT = cell(
    "h[t] = keep[t] * h[t-1] + (1 - keep[t]) * tanh(x[t] + 0.1 * time[t] * below[t])",
    name="defaults",
    inputs="{x: H, keep: H, time: [], below: H}",
    states="{h: H}",
    no_gradient="[keep, time]",
    defaults="{keep: 0.25, time: t, below: 0}",
)


def inputs(steps: int, rows: int, units: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((steps, rows, units))
    clock = np.broadcast_to(np.arange(steps, dtype=float)[:, None], (steps, rows))
    return {"x": x, "keep": np.full_like(x, 0.25), "time": clock, "below": np.zeros_like(x)}


def test_what_is_left_out_is_the_default():
    of, whole = kernel(TEXT), inputs(5, 3, 7)
    full, short = (of.forward({}, {n: whole[n] for n in names}) for names in (whole, ("x",)))
    assert_same(short.outputs, full.outputs)
    ones = {"h": np.ones_like(whole["x"])}
    assert_same(of.backward(short, ones).inputs, of.backward(full, ones).inputs)
    assert_same(of.infer({}, {"x": whole["x"], "time": whole["time"]}).outputs, full.outputs)
    other = {"x": whole["x"], "below": whole["x"]}
    assert not np.array_equal(of.infer({}, other).outputs["h"], full.outputs["h"])
    with pytest.raises(ShapeError, match="missing input 'x'"):
        of.infer({}, {"keep": whole["keep"]})


def test_a_stream_counts_its_steps():
    of, whole = kernel(TEXT), inputs(5, 3, 7)
    wanted = of.infer({}, whole).outputs["h"]
    stream = of.stream({}, rows=3, H=7)
    assert_same(np.stack([stream.step({"x": x})["h"].copy() for x in whole["x"]]), wanted)
    stream.reset()
    stream.step({"x": whole["x"][0], "below": whole["x"][0]})
    stream.reset()  # what was given once is not remembered
    assert_same(stream.step({"x": whole["x"][0]})["h"], wanted[0])
    assert_same(of.step({}, {"x": whole["x"][0]}).outputs["h"], wanted[0])
    with pytest.raises(ShapeError, match="missing input 'x'"):
        stream.step({"x": None, "keep": None})


def test_a_layer_takes_one_array_and_gives_its_gradient():
    layer = rnnspec.Recurrent(loads(TEXT), 7, 7, dtype="float64")
    x = inputs(5, 3, 7)["x"]
    y, _ = layer(x)
    dx, _ = layer.backward(np.ones_like(y))
    assert dx.shape == x.shape
    layer({"x": x, "below": x})
    both, _ = layer.backward(np.ones_like(y))
    assert set(both) == {"x", "below"}


def test_written_read_and_inherited(tmp_path):
    spec = loads(TEXT)
    assert spec.defaults == {"keep": 0.25, "time": None, "below": 0.0}
    assert loads(to_yaml(spec)).defaults == spec.defaults
    assert digest(loads(TEXT.replace("keep: 0.25", "keep: 0.5"))) == digest(spec), "no kernel depends on it"
    (tmp_path / "defaults.yaml").write_text(TEXT)
    (tmp_path / "child.yaml").write_text(
        "rnnspec: 1\nname: child\nextends: defaults.yaml\ndefaults: {keep: 1}\n"
        "equations: |\n  h[t] = keep[t] * h[t-1] + x[t] * below[t]\n"
    )
    assert rnnspec.load(tmp_path / "child.yaml").defaults == {"keep": 1.0, "below": 0.0}, "time went with its input"


@pytest.mark.parametrize(
    "value, message",
    [
        ("{m: 1}", "'m' in defaults is not an input"),
        ("{keep: one}", "the default of the input 'keep' is a number, like 1, or t"),
        ("{keep: [1]}", "the default of 'keep' is a text"),
        ("[keep]", "defaults is a mapping"),
    ],
)
def test_what_is_no_default(value, message):
    with pytest.raises(SpecError, match=message):
        loads(TEXT.replace("{keep: 0.25, time: t, below: 0}", value))
