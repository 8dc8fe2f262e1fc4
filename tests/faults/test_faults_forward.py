"""Faults that engines like this one have had (numbered as in the project's list): what one step and
one layer compute."""

from __future__ import annotations

import numpy as np
import pytest
from cells import CORE, DTYPES, LINEAR, LINEAR_ROWS, case, expected, kernel, run_scalar, spec_of
from tiny import cell
from tolerances import HAND, REFERENCE, SIX_DIGITS, assert_close, assert_same

import rnnspec
from rnnspec import Recurrent
from rnnspec.language.layouts import unpack

# T, B, D, H: nothing, one, a vector less or more one (4, 8 or 16 lanes), primes, more rows than a
# chunk
AWKWARD = [
    (1, 1, 1, 1),
    (2, 3, 2, 4),
    (5, 2, 7, 3),
    (3, 5, 5, 7),
    (2, 2, 9, 8),
    (4, 1, 1, 9),
    (3, 2, 15, 17),
    (2, 3, 33, 31),
    (41, 7, 3, 5),
    (0, 2, 3, 5),
    (2, 0, 3, 5),
]


@pytest.mark.parametrize("name", CORE)
def test_every_cell_is_its_reference_at_awkward_sizes(name):
    of = kernel(name)
    for steps, rows, d, h in AWKWARD:
        sizes = {n: v for n, v in {"D": d, "H": h}.items() if n in of.spec.sizes}
        one = case(of, steps, rows, seed=steps * 100 + h, **sizes)
        right = expected(one, name)
        run = one.forward()
        gradients = one.backward(run)
        for kind in ("outputs", "final"):
            assert_close(
                getattr(run, kind), getattr(right, kind), REFERENCE["float64"], f"{(steps, rows, d, h)} {kind}"
            )
        for kind in ("params", "inputs", "states"):
            assert_close(
                getattr(gradients, kind),
                getattr(right, kind),
                REFERENCE["float64"],
                f"{(steps, rows, d, h)} gradients of {kind}",
            )


@pytest.mark.parametrize("name", CORE)
def test_infer_and_steps_are_forward(name):
    of = kernel(name)
    one = case(of, 5, 3)
    run = one.forward()
    inferred = of.infer(one.params, one.inputs, one.states)
    assert_close(inferred.outputs, run.outputs, HAND["float64"])
    assert_close(inferred.final, run.final, HAND["float64"])
    state = one.states
    for t in range(5):
        state = of.step(one.params, {n: x[t] for n, x in one.inputs.items()}, state)
        assert_close(state.outputs, {o: y[t] for o, y in run.outputs.items()}, HAND["float64"])
        assert_close(dict(state), {s: h[t] for s, h in run.states.items()}, HAND["float64"])


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_float32_is_near_the_reference(name):
    one = case(kernel(name, "float32"), 23, 5, D=7, H=33)
    right, run = expected(one, name), one.forward()
    assert_close(run.outputs, right.outputs, REFERENCE["float32"])
    gradients = one.backward(run)
    for kind in ("params", "inputs", "states"):
        assert_close(getattr(gradients, kind), getattr(right, kind), REFERENCE["float32"], kind)


def test_H01_the_reverse_direction_ends_at_the_first_step():
    x = np.array([1.0, 2.0, 3.0])
    _, forward = run_scalar(LINEAR, x, w=1, u=0.5)
    _, reverse = run_scalar(LINEAR, x[::-1], w=1, u=0.5)
    assert_close(forward.outputs["h"][:, 0], [1, 2.5, 4.25], HAND["float64"])
    y = reverse.outputs["h"][::-1, 0]
    assert_close(y, [2.75, 3.5, 3], HAND["float64"])
    assert forward.final["h"][0] == 4.25 and reverse.final["h"][0] == y[0] == 2.75


@pytest.mark.parametrize("dtype", DTYPES)
def test_H03_batch_first_leaves_the_states_alone(dtype):
    x = np.array([[[1], [2]], [[3], [4]]], dtype)  # [B, T, 1]
    for batch_first in (True, False):
        layer = Recurrent(spec_of(LINEAR_ROWS), 1, 1, batch_first=batch_first, dtype=dtype)
        layer.params["w_l0"][...], layer.params["u_l0"][...] = 1, 0.5
        y, h_n = layer(x if batch_first else x.swapaxes(0, 1))
        y = y if batch_first else y.swapaxes(0, 1)
        assert_close(y[..., 0], [[1, 2.5], [3, 5.5]], HAND[dtype])
        assert h_n.shape == (1, 2, 1)
        assert_close(h_n[0, :, 0], [2.5, 5.5], HAND[dtype])
        dx, dh = layer.backward(None, np.array([[[1], [10]]], dtype))
        dx = dx if batch_first else dx.swapaxes(0, 1)
        assert_close(dx[..., 0], [[0.5, 1], [5, 10]], HAND[dtype])
        assert dh.shape == (1, 2, 1)


def onnx(cell_name: str, layout: str = "onnx", **arrays: list[float]) -> dict[str, np.ndarray]:
    """Parameters of one unit from arrays of the ONNX operator, all 0 but those given."""
    blocks = next(b for n, b in spec_of(cell_name).layouts.items() if n.startswith(layout))
    zeros = {
        b: np.zeros((len(p), 1) if len(spec_of(cell_name).parameters[p[0]]) == 2 else len(p)) for b, p in blocks.items()
    }
    found = zeros | {b: np.array(v, float).reshape(zeros[b].shape) for b, v in arrays.items()}
    name = next(n for n in spec_of(cell_name).layouts if n.startswith(layout))
    return unpack(spec_of(cell_name), name, found)


def one_step(name: str, params: dict[str, np.ndarray], **states: float) -> dict[str, float]:
    run = kernel(name).forward(
        params, {"x": np.zeros((1, 1, 1))}, {s: np.full((1, 1), float(v)) for s, v in states.items()}
    )
    return {s: float(v[0, 0]) for s, v in run.final.items()}


@pytest.mark.parametrize(("name", "h"), [("gru", 0.880797), ("gru_reset_before", 0.952574)])
def test_H04_the_reset_gate_stands_where_the_cell_says(name, h):
    params = onnx(name, R=[0, 0, 1], B=[0, 0, 0, 0, 0, 1])
    assert_close(one_step(name, params, h=1)["h"], h, SIX_DIGITS)


@pytest.mark.parametrize(
    ("layout", "block", "c", "h"), [("torch", "bias_ih", 0.75, 0.317574), ("onnx", "B", 0.5, 0.346588)]
)
def test_H05_the_order_of_gates_is_the_librarys(layout, block, c, h):
    bias = np.zeros(4 if layout == "torch" else 8)
    bias[1] = np.log(3)
    found = one_step("lstm", onnx("lstm", layout, **{block: bias}), h=0, c=1)
    assert_close([found["c"], found["h"]], [c, h], SIX_DIGITS)


def test_H06_peepholes_come_as_i_o_f():
    found = one_step("lstm_peephole", onnx("lstm_peephole", P=[0, 0, np.log(3)]), h=0, c=1)
    assert_close([found["c"], found["h"]], [0.75, 0.317574], SIX_DIGITS)


def test_H07_a_projected_state_has_the_size_of_the_projection():
    layer = Recurrent("lstm_projected", 3, 4, proj_size=2, dtype="float64")
    assert {n: a.shape for n, a in layer.params.items()} == {
        "weight_ih_l0": (16, 3),
        "weight_hh_l0": (16, 2),
        "bias_ih_l0": (16,),
        "bias_hh_l0": (16,),
        "weight_hr_l0": (2, 4),
    }
    y, (h, c) = layer(np.ones((5, 2, 3)))
    assert (y.shape, h.shape, c.shape) == ((5, 2, 2), (1, 2, 2), (1, 2, 4))
    assert layer.output_size == 2
    assert_same(h[0], y[-1])


@pytest.mark.parametrize(
    "equations", ["p[t] = q[t-1]\nq[t] = p[t-1]\ns[t] = x[t]", "q[t] = p[t-1]\np[t] = q[t-1]\ns[t] = x[t]"]
)
@pytest.mark.parametrize(("steps", "p", "q"), [(1, 2, 1), (2, 1, 2), (3, 2, 1)])
def test_H08_states_are_made_from_their_old_values(equations, steps, p, q):
    text = cell(equations, name="swap", states="{p: [], q: []}", outputs="[p, q, s]")
    of, run = run_scalar(text, np.zeros(steps), states={"p": 1, "q": 2})
    assert (run.final["p"][0], run.final["q"][0]) == (p, q)
    assert (run.outputs["p"][-1, 0], run.outputs["q"][-1, 0]) == (p, q)
    back = of.backward(run, final={"p": np.array([3.0]), "q": np.array([5.0])})
    assert (back.states["p"][0], back.states["q"][0]) == ((5, 3) if steps % 2 else (3, 5))


def test_H09_no_bias_is_a_zero_bias_in_every_row_of_every_call():
    heap = [np.full(n, np.nan) for n in (64, 1000, 20000, 300000) for _ in range(20)]
    without, with_zeros = (Recurrent("gru", 2, 3, bias=b, dtype="float64", seed=3) for b in (False, True))
    assert set(without.params) == {"weight_ih_l0", "weight_hh_l0"}
    for name, array in with_zeros.params.items():
        array[...] = without.params.get(name, 0.0)
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    del heap
    right, _ = with_zeros(x)
    with_zeros.backward(np.ones_like(right))
    for _ in range(3):
        y, _ = without(x)
        without.backward(np.ones_like(y))
        assert np.isfinite(y).all()
        assert_same(y, right)
        assert_same(without.grads, {n: with_zeros.grads[n] for n in without.params})


def test_H10_one_row_without_a_batch_axis():
    layer = Recurrent("lstm", 3, 4, dtype="float64")
    rng = np.random.default_rng(0)
    x, h0, c0 = rng.normal(size=(5, 3)), rng.normal(size=(1, 4)), rng.normal(size=(1, 4))
    for state, batched in ((None, None), ((h0, c0), (h0[:, None], c0[:, None]))):
        y, (h, c) = layer(x, state)
        dx, (dh, dc) = layer.backward(np.ones_like(y), (h, c))
        assert (y.shape, h.shape, c.shape, dx.shape, dh.shape, dc.shape) == (
            (5, 4),
            (1, 4),
            (1, 4),
            (5, 3),
            (1, 4),
            (1, 4),
        )
        right, (h_b, c_b) = layer(x[:, None], batched)
        dx_b, (dh_b, dc_b) = layer.backward(np.ones_like(right), (h_b, c_b))
        for one, many in ((y, right), (dx, dx_b)):
            assert_same(one, many[:, 0])
        for one, many in ((h, h_b), (c, c_b), (dh, dh_b), (dc, dc_b)):
            assert_same(one, many[:, 0])
    with pytest.raises(rnnspec.ShapeError, match=r"\(1, 4\), got \(1, 1, 4\)"):
        layer(x, (h0[:, None], c0[:, None]))
