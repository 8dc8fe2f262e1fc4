"""Constants are values of a call: kernels for one value serve every other, and each is right."""

from __future__ import annotations

import numpy as np
import pytest

import rnnspec
from rnnspec.backends import reference
from rnnspec.language.lift import lifted
from rnnspec.language.load import digest, load, loads
from rnnspec.symbolic.build import build

CELL = """rnnspec: 1
name: constants
inputs: {x: H}
states: {h: H}
parameters: {w: [H]}
constants: {alpha: 0.25, beta: 0.25, power: 2, gain: 1e-4}
equations: |
  h[t] = (1 - alpha) * h[t-1] + sqrt(2 * alpha * beta) * tanh(gain * x[t] + w ** power) + where(beta > 0.5, 1, 0)
outputs: [h]
"""


def test_a_constant_becomes_a_parameter_but_for_what_decides_the_form():
    made = lifted(loads(CELL))
    wanted = {"of_alpha": 0.75, "of_alpha_": np.sqrt(0.125), "gain": 1e-4, "beta": 0.25}
    assert made.values == pytest.approx(wanted, rel=1e-15)
    assert set(made.spec.parameters) == {"w", *made.values} and set(made.spec.trained) == {"w"}
    assert digest(made.spec) == digest(lifted(loads(CELL.replace("gain: 1e-4", "gain: 3"))).spec)
    assert digest(made.spec) != digest(lifted(loads(CELL.replace("power: 2", "power: 3"))).spec)
    assert digest(made.spec) == digest(lifted(loads(CELL.replace("beta: 0.25", "beta: 0.75"))).spec)


def test_constants_that_are_equal_by_chance_stay_apart():
    text = CELL.replace("alpha * beta", "alpha + beta").replace("where(beta > 0.5, 1, 0)", "alpha * x[t] + beta * x[t]")
    same, other = lifted(loads(text)), lifted(loads(text.replace("beta: 0.25", "beta: 0.5")))
    assert digest(same.spec) == digest(other.spec) and same.values != other.values


@pytest.mark.parametrize("alpha", [0, 0.0007, 0.2, 1, -3.5])
def test_every_value_gives_its_own_results_with_the_same_kernels(alpha):
    spec = load("leaky_rnn", alpha=alpha)
    kernel = rnnspec.compile(spec, dtype="float64", threads=1)
    rng = np.random.default_rng(0)
    params, x = kernel.init(D=2, H=3, seed=0), rng.standard_normal((4, 2, 2))
    run = kernel.forward(params, {"x": x})
    found = kernel.backward(run, {"h": np.ones((4, 2, 3))})
    wanted = reference.forward(build(spec), params, {"x": x}, {"h": np.zeros((2, 3))}, sizes={"D": 2, "H": 3})
    np.testing.assert_allclose(run.outputs["h"], wanted.outputs["h"], rtol=1e-13, atol=1e-15)
    assert kernel.source() == rnnspec.compile("leaky_rnn", dtype="float64").source()
    assert set(found.params) == set(params) and found.inputs["x"].any() == (alpha != 0)


def test_a_second_value_makes_no_machine_code(monkeypatch):
    def call(kernel: rnnspec.Kernel) -> None:
        params = kernel.init(D=2, H=3, seed=0)
        run = kernel.forward(params, {"x": np.ones((2, 1, 2), np.float32)})
        kernel.backward(run, {"h": np.ones((2, 1, 3), np.float32)})

    call(rnnspec.compile("leaky_rnn", threads=1))
    monkeypatch.setattr("rnnspec.backends.cpu.native.addresses", lambda *_: pytest.fail("compiled again"))
    for alpha in (0.3, 0.31, 0.32):
        call(rnnspec.compile("leaky_rnn", alpha=alpha, threads=1))


def test_a_clip_of_onnx_is_a_constant():
    pytest.importorskip("onnx")
    from rnnspec.interop.onnx_cells import forms_of

    first, second = (forms_of("LSTM", {"clip": clip})[0].spec() for clip in (0.5, 0.75))
    assert digest(lifted(first).spec) == digest(lifted(second).spec) and digest(first) != digest(second)
