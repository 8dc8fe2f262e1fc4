"""A branch that `where`, min, max or clip does not take leaves no trace: NaN and infinity in steps,
rows and units that are left out reach no gradient."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rnnspec
from rnnspec.backends import reference
from rnnspec.lowering.pipeline import graphs, stages

HEAD = """rnnspec: 1
name: c
inputs: {{{inputs}}}
states: {{h: H{states}}}
parameters: {{{parameters}}}
equations: |
  {equations}
outputs: [h]
"""
A = "a[t] = W @ x[t] + U @ h[t-1] + b\n  "
WHOLE = {  # cells whose step is left out where m[t] is 0
    "tanh": "n[t] = tanh(W @ x[t] + U @ h[t-1] + b)\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "in two steps": A
    + "n[t] = tanh(a[t])\n  k[t] = n[t] * sigmoid(a[t]) * c\n  h[t] = where(m[t] > 0.5, k[t], h[t-1])",
    "nested": A
    + "n[t] = where(a[t] > 0, tanh(a[t]), a[t] / 2)\n  h[t] = where(m[t] > 0.5, where(m[t] < 2, n[t], 0), h[t-1])",
    "softmax": A + "n[t] = softmax(a[t])\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "layer_norm": A + "n[t] = layer_norm(a[t], 1e-5)\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "max": A + "n[t] = a[t] - max(a[t])\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "sums": A + "n[t] = cumsum(a[t]) * mean(x[t]) + norm(x[t])\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "transposed": "n[t] = tanh(V.T @ x[t] + U @ h[t-1] + b)\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])",
    "gate": A + "z[t] = sigmoid(a[t])\n  h[t] = where(m[t] > 0.5, z[t] * h[t-1] + (1 - z[t]) * tanh(W @ x[t]), h[t-1])",
    "reset": A + "n[t] = tanh(a[t])\n  h[t] = where(m[t] > 0.5, n[t], 0)",
    "matrix": "M[t] = where(m[t] > 0.5, M[t-1] + outer(U @ h[t-1], x[t]), M[t-1])\n"
    "  y[t] = tanh(M[t] @ x[t]) + b\n  h[t] = where(m[t] > 0.5, y[t], h[t-1])",
    "product of matrices": "P[t] = outer(W @ x[t], b) @ M[t-1]\n"
    "  M[t] = where(m[t] > 0.5, P[t] + outer(b, x[t]), M[t-1])\n"
    "  h[t] = h[t-1] / 2 + M[t] @ V @ b",
}
QUICK = ("tanh", "matrix")  # the others: of the reference alone, unless slow tests are wanted
SIZES = {"D": 3, "H": 5}
T, B = 4, 3


def spec(equations, m="[]"):
    shapes = {"W": "[H, D]", "V": "[D, H]", "U": "[H, H]", "b": "[H]", "c": "[]"}
    parameters = ", ".join(f"{n}: {s}" for n, s in shapes.items() if re.search(rf"\b{n}\b", equations))
    inputs = f"x: D, m: {m}" if "m[t]" in equations else "x: D"
    states = ", M: [H, D]" if "M[t]" in equations else ""
    text = HEAD.format(equations=equations, inputs=inputs, states=states, parameters=parameters)
    return rnnspec.loads(text)


def case(own, dtype, bad, seed=0):
    """Inputs of which step 1 of row 0 and step 2 of rows 0 and 1 are left out, and `bad`."""
    rng = np.random.default_rng(seed)
    params = {n: np.asarray(rng.standard_normal([SIZES[s] for s in own.shapes[n]]) / 2, dtype) for n in own.parameters}
    x, m = rng.standard_normal((T, B, SIZES["D"])).astype(dtype), np.ones((T, B), dtype)
    m[1, 0] = m[2, 0] = m[2, 1] = 0
    x[m == 0] = bad
    return params, {"x": x, "m": m}, rng.standard_normal((T, B, SIZES["H"])).astype(dtype)


def gradients(own, dtype, bad, **options):
    params, inputs, dy = case(own, dtype, bad)
    k = rnnspec.compile(own, dtype=dtype, **options)
    run = k.forward(params, inputs)
    found = k.backward(run, {"h": dy})
    return {**found.params, **found.inputs, **found.states}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in WHOLE])
def test_steps_that_are_left_out_leave_no_trace(name):
    own = spec(WHOLE[name])
    for dtype in ("float64", "float32") if name in ("tanh", "matrix") else ("float64",):
        for options in ({"threads": 1}, {"threads": 1, "memory": "low"}):
            plain = gradients(own, dtype, 0.0, **options)
            for bad in (np.nan, np.inf, -np.inf):
                for key, array in gradients(own, dtype, bad, **options).items():
                    np.testing.assert_array_equal(array, plain[key], f"{name}, {bad}: {key}")


@pytest.mark.parametrize("name", WHOLE)
def test_the_reference_leaves_the_same_out(name):
    own = spec(WHOLE[name])
    graph, reverse = graphs(own)
    found = []
    for bad in (0.0, np.nan):
        params, inputs, dy = case(own, np.float64, bad)
        run = reference.forward(graph, params, inputs, sizes=SIZES)
        back = reference.backward(reverse, params, inputs, run, {"h": dy}, sizes=SIZES)
        found.append([*back.params.values(), *back.inputs.values(), *back.states.values()])
    for plain, other in zip(*found):
        np.testing.assert_allclose(other, plain, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("function", ["clip(v[t], -1, 1)", pytest.param("max(v[t], 0)", marks=pytest.mark.slow)])
def test_infinite_input_beyond_a_limit_leaves_no_trace(function):
    own = spec("v[t] = W @ x[t]\n  h[t] = " + function + " + 0.5 * h[t-1]")
    k = rnnspec.compile(own, dtype="float64", threads=1)
    params = {n: np.ones([SIZES[s] for s in own.shapes[n]]) for n in own.parameters}
    x = np.ones((2, 1, 3)) / 4
    x[1, 0, 0] = -np.inf
    run = k.forward(params, {"x": x})
    found = k.backward(run, {"h": np.ones((2, 1, 5))})
    assert all(np.isfinite(a).all() for a in (*found.params.values(), *found.inputs.values()))
    assert found.inputs["x"][1].any() == 0


def test_weights_of_a_unit_that_is_left_out_leave_no_trace():
    """Element by element: of five units two are never taken, and their weights are NaN."""
    own = spec("n[t] = tanh(W @ x[t] + U @ h[t-1] + b)\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])", m="H")
    found = []
    for bad in (0.0, np.nan, np.inf):
        params, inputs, dy = case(own, np.float64, 1.0)
        params["W"][[1, 4]] = params["U"][[1, 4]] = bad
        mask = np.ones((T, B, 5))
        mask[..., [1, 4]] = 0
        k = rnnspec.compile(own, dtype="float64", threads=1)
        run = k.forward(params, {"x": inputs["x"], "m": mask})
        back = k.backward(run, {"h": dy})
        found.append([*back.params.values(), *back.inputs.values(), *back.states.values()])
    for other in found[1:]:
        for plain, array in zip(found[0], other):
            np.testing.assert_array_equal(array, plain)


def test_a_unit_that_is_taken_has_its_trace():
    """Of a step with NaN the units that are taken get NaN, as they must, and the others nothing."""
    own = spec("n[t] = tanh(W @ x[t] + b)\n  h[t] = where(m[t] > 0.5, n[t], 0.5)", m="H")
    params, inputs, dy = case(own, np.float64, 1.0)
    inputs["x"][1, 0, 0] = np.nan
    mask = np.ones((T, B, 5))
    mask[1, 0, :3] = 0
    k = rnnspec.compile(own, dtype="float64", threads=1)
    back = k.backward(k.forward(params, {"x": inputs["x"], "m": mask}), {"h": dy})
    assert np.isfinite(back.params["W"][:3]).all()
    assert np.isnan(back.params["W"][3:]).all()


def test_directions_and_rows_that_end():
    own = spec(WHOLE["tanh"])
    inputs = case(own, np.float64, 0.0)[1]
    found = []
    for bad in (0.0, np.nan):
        layer = rnnspec.Recurrent(own, 3, 5, dtype="float64", seed=1, bidirectional=True)
        x = inputs["x"].copy()
        x[inputs["m"] == 0] = bad
        x[3, 2] = bad  # beyond its row's end
        y, _ = layer({"x": x, "m": inputs["m"]}, lengths=[4, 4, 3])
        dx, _ = layer.backward(np.ones_like(y))
        found.append([y, dx["x"], *layer.grads.values()])
    for plain, other in zip(*found):
        np.testing.assert_array_equal(other, plain)


def test_cells_without_a_choice_have_nothing_to_leave_out():
    for name in ("lstm", "gru", "rnn", "mlstm_matrix", "peephole_lstm"):
        if name in rnnspec.spec_names():
            assert not stages(rnnspec.load(name)).backward.left, name


@pytest.mark.parametrize("outputs", ["[h, n]", "[h, y]"])
def test_what_is_left_out_may_be_an_output_too(outputs):
    """An output whose gradient nobody gives takes no part."""
    spec = rnnspec.loads(
        "rnnspec: 1\nname: c\ninputs: {x: D, m: []}\nstates: {h: H}\nparameters: {W: [H, D], U: [H, H]}\nequations: |\n"
        "  y[t] = W @ x[t]\n  n[t] = tanh(y[t] + U @ h[t-1])\n  h[t] = where(m[t] > 0.5, n[t], h[t-1])\n"
        f"outputs: {outputs}\n"
    )
    kernel = rnnspec.compile(spec, dtype="float64", threads=1)
    params, rng = kernel.init(D=3, H=4, seed=0), np.random.default_rng(0)
    x, m = rng.standard_normal((5, 2, 3)), np.ones((5, 2))
    m[2, 0] = 0
    found = []
    for bad in (0.0, np.nan, np.inf):
        x[2, 0] = bad
        run = kernel.forward(params, {"x": x, "m": m})
        found.append(kernel.backward(run, {"h": np.ones((5, 2, 4))}))
    for other in found[1:]:
        for name, array in found[0].params.items():
            np.testing.assert_array_equal(other.params[name], array)


def test_nothing_times_an_infinite_derivative_is_nothing():
    forms = ["abs(x[t]) ** 0.25", "x[t] ** -3", "1 / x[t]", "1 / (x[t] * x[t])", "x[t] ** (-0.5)", "sqrt(x[t]) / x[t]"]
    names = [f"y{n}" for n in range(len(forms))]
    equations = "".join(f"  {n}[t] = {form}\n" for n, form in zip(names, forms))
    spec = rnnspec.loads(
        f"rnnspec: 1\nname: c\ninputs: {{x: []}}\nstates: {{h: []}}\nequations: |\n{equations}  h[t] = x[t]\n"
        f"outputs: [{', '.join(names)}, h]\n"
    )
    kernel = rnnspec.compile(spec, dtype="float64", threads=1)
    run = kernel.forward({}, {"x": np.zeros((1, 1))})
    assert kernel.backward(run, {"h": np.ones((1, 1))}).inputs["x"].tolist() == [[1.0]]
