"""Faults that engines like this one have had (numbered as in the project's list): gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from cells import CORE, DTYPES, LINEAR, LINEAR_ROWS, Case, case, kernel, ones, run_scalar
from tiny import cell
from tolerances import DIFFERENCE_STEP, DIFFERENCES, HAND, assert_close, assert_same

KINDS = ("params", "inputs", "states")

# one equation per fault, each an output of its own, so that one kernel serves them all
EDGES = {
    "h": "h[t-1] + v * x[t]",
    "signed": "sign(k[t]) * v",
    "cut": "clip(k[t], -1, 1)",
    "bounded": "maximum(-1, minimum(1, k[t]))",
    "soft": "softsign(k[t])",
    "written": "k[t] / (1 + abs(k[t]))",
    "size": "abs(k[t])",
    "hinge": "relu(k[t])",
    "root": "sqrt(maximum(0, r[t]))",
    "chosen": "where(c[t] > 0, sqrt(c[t]), 0)",
    "ratio": "where(c[t] == 0, 1, sin(c[t]) / c[t])",
    "logistic": "1 / (1 + exp(-e[t]))",
}
ALL_EDGES = cell(
    "\n".join(f"{name}[t] = {text}" for name, text in EDGES.items()),
    name="edges",
    parameters="{v: []}",
    inputs="{x: [], k: [], r: [], c: [], e: []}",
    outputs=f"[{', '.join(EDGES)}]",
)


def edge(output: str, x: list[float], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of one output at x, and its derivatives; the other outputs' inputs are 1."""
    of, at = kernel(ALL_EDGES, dtype), EDGES[output].split("[t]")[0][-1]
    inputs = {n: np.ones((1, len(x)), dtype) for n in of.spec.inputs} | {at: np.array([x], dtype)}
    run = of.forward({"v": np.array(2.0, dtype)}, inputs)
    return run.outputs[output][0], of.backward(run, ones(run, output)).inputs[at][0]


def test_H18_a_gradient_is_the_sum_over_time():
    of, run = run_scalar(LINEAR, np.ones(4), w=1, u=0)
    assert of.backward(run, ones(run)).params["w"] == 4
    of, run = run_scalar(LINEAR, np.ones((4, 3)), w=1, u=0)
    assert of.backward(run, ones(run)).params["w"] == 12


def difference(one: Case, kind: str, name: str, direction: np.ndarray) -> float:
    """The derivative of the loss along a direction of one argument, by central differences."""
    losses = []
    for step in (DIFFERENCE_STEP, -DIFFERENCE_STEP):
        group: dict[str, Any] = getattr(one, kind)
        losses.append(one.loss(**{kind: group | {name: group[name] + step * direction}}))
    return (losses[0] - losses[1]) / (2 * DIFFERENCE_STEP)


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("lengths", [None, [6, 2, 0, 5]])
def test_H18_gradients_are_central_differences(name, lengths):
    """Along a random direction of every argument: each parameter, input and initial state."""
    one = case(kernel(name), 6, 4, seed=1, lengths=lengths)
    back, rng = one.backward(), np.random.default_rng(2)
    for kind in KINDS:
        for argument, gradient in getattr(back, kind).items():
            direction = rng.choice([-1.0, 1.0], gradient.shape)
            exact = float(np.vdot(gradient, direction))
            assert_close(difference(one, kind, argument, direction), exact, DIFFERENCES, f"{kind} {argument}")


@pytest.mark.parametrize("name", CORE)
def test_gradients_are_linear_in_what_flows_in(name):
    """backward(a * f + b * g) = a * backward(f) + b * backward(g), whichever of outputs and final
    states are left out."""
    one = case(kernel(name), 5, 3, seed=4)
    run = one.forward()
    whole, outputs, final = (
        one.backward(run),
        one.kernel.backward(run, one.dy),
        one.kernel.backward(run, final=one.dfinal),
    )
    doubled = one.kernel.backward(
        run, {o: 2 * g for o, g in one.dy.items()}, final={s: 2 * g for s, g in one.dfinal.items()}
    )
    nothing = one.kernel.backward(run)
    for kind in KINDS:
        assert_close(
            {n: g + getattr(final, kind)[n] for n, g in getattr(outputs, kind).items()},
            getattr(whole, kind),
            HAND["float64"],
        )
        assert_same(getattr(doubled, kind), {n: 2 * g for n, g in getattr(whole, kind).items()})
        assert all((g == 0).all() for g in getattr(nothing, kind).values())


def test_H19_jacobians_are_multiplied_in_the_right_order():
    text = cell(
        "p[t] = p[t-1] + m[t] * q[t-1]\nq[t] = q[t-1] + k[t] * p[t-1]",
        name="shears",
        inputs="{m: [], k: []}",
        states="{p: [], q: []}",
        outputs="[q]",
    )
    of = kernel(text)
    run = of.forward(
        {}, {"m": np.array([[2.0], [0.0]]), "k": np.array([[0.0], [3.0]])}, {"p": np.array([1.0]), "q": np.array([2.0])}
    )
    assert (run.final["p"][0], run.final["q"][0]) == (5, 17)
    back = of.backward(run, final={"q": np.ones(1)})
    assert (back.states["p"][0], back.states["q"][0]) == (3, 7)


def test_H20_gradients_through_the_final_state_the_last_output_and_both():
    of, run = run_scalar(LINEAR, np.ones(3), w=1, u=0.5)
    last = np.array([[0.0], [0.0], [1.0]])
    for dy, final, right in ((None, 1, [0.25, 0.5, 1]), (last, 1, [0.5, 1, 2]), (last, None, [0.25, 0.5, 1])):
        back = of.backward(run, None if dy is None else {"h": dy}, final=final and {"h": np.ones(1)})
        assert_close(back.inputs["x"][:, 0], right, HAND["float64"])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_H21_a_gradient_of_stride_0_is_read_as_what_it_is(name):
    one = case(kernel(name, "float32"), 5, 3, D=3, H=5)
    run = one.forward()
    ones_ = np.ones((5, 3, 5), np.float32)
    right = one.kernel.backward(run, {"h": ones_}, final={"h": ones_[0]})
    flat = np.broadcast_to(np.float32(1), (5, 3, 5))
    got = one.kernel.backward(run, {"h": flat}, final={"h": flat[0]})
    for kind in KINDS:
        assert_same(getattr(got, kind), getattr(right, kind))


def variants(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in other orders of memory."""
    backwards = array[::-1].copy()[::-1]
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    frozen = array.copy()
    frozen.setflags(write=False)
    raw = np.zeros(array.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    axes = tuple(range(array.ndim))[::-1]
    return {
        "negative": backwards,
        "every other": wide[..., ::2],
        "fortran": np.asfortranarray(array),
        "read-only": frozen,
        "transposed": np.ascontiguousarray(array.transpose(axes)).transpose(axes),
        "unaligned": unaligned,
        "swapped": np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1) if array.ndim > 1 else array,
    }


@pytest.mark.parametrize(
    "how", ["negative", "every other", "fortran", "read-only", "transposed", "unaligned", "swapped"]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_H22_arrays_of_any_strides(how, dtype):
    one = case(kernel("lstm", dtype), 5, 3, D=3, H=5)
    run = one.forward()
    back = one.backward(run)
    other = one.changed(lambda a: variants(a)[how])
    kept = {n: a.copy() for group in (other.params, other.inputs, other.states, other.dy) for n, a in group.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = other.forward()
        gradients = other.backward(got)
    assert_same(got.outputs, run.outputs)
    assert_same(got.final, run.final)
    for kind in KINDS:
        assert_same(getattr(gradients, kind), getattr(back, kind))
    assert_same(
        {n: a for group in (other.params, other.inputs, other.states, other.dy) for n, a in group.items()},
        kept,
        "written to:",
    )


def test_results_are_the_callers_own():
    """What one call returned is not changed by the next."""
    one = case(kernel("lstm"), 5, 3, D=3, H=5)
    run = one.forward()
    back = one.backward(run)
    kept = [
        {n: a.copy() for n, a in found.items()}
        for found in (run.outputs, run.final, back.params, back.inputs, back.states)
    ]
    other = case(kernel("lstm"), 5, 3, seed=9, D=3, H=5)
    other.backward()
    run.outputs["h"][...] += 1
    for found, copy in zip((run.final, back.params, back.inputs, back.states), kept[1:]):
        assert_same(found, copy)
    assert_same(one.backward(run).params, kept[2])


def test_H24_the_derivative_of_relu_at_0_is_0():
    of = kernel("rnn", phi="relu")
    zero = {"W": np.zeros((5, 3)), "U": np.zeros((5, 5)), "b": np.zeros(5)}
    run = of.forward(zero, {"x": np.zeros((3, 2, 3))})
    back = of.backward(run, ones(run))
    assert all((g == 0).all() for kind in KINDS for g in getattr(back, kind).values())


X = [-2.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("output", "values", "derivatives"),
    [
        ("signed", [-2, -2, -2, 0, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0]),  # H25: sign, of which SymPy makes DiracDelta
        ("cut", [-1, -1, -0.25, 0, 0.25, 1, 1], [0, 1, 1, 1, 1, 1, 0]),  # H25: clip' = 1 on the closed interval
        ("bounded", [-1, -1, -0.25, 0, 0.25, 1, 1], [0, 0.5, 1, 1, 1, 0.5, 0]),  # H25: a tie shares, as in PyTorch
        ("hinge", [0, 0, 0, 0, 0.25, 1, 2], [0, 0, 0, 0, 1, 1, 1]),  # H24
        ("size", [2, 1, 0.25, 0, 0.25, 1, 2], [-1, -1, -1, 0, 1, 1, 1]),  # H26
        ("soft", [-2 / 3, -0.5, -0.2, 0, 0.2, 0.5, 2 / 3], [1 / 9, 0.25, 0.64, 1, 0.64, 0.25, 1 / 9]),  # H26
        (
            "written",
            [-2 / 3, -0.5, -0.2, 0, 0.2, 0.5, 2 / 3],
            [1 / 9, 0.25, 0.64, 1, 0.64, 0.25, 1 / 9],
        ),  # H26, from abs
    ],
)
def test_H24_H25_H26_derivatives_at_the_kinks(output, values, derivatives, dtype):
    value, derivative = edge(output, X, dtype)
    assert_close(value, values, HAND[dtype])
    assert_close(derivative, derivatives, HAND[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("output", "x", "values", "derivatives"),
    [
        ("root", [-1, 4], [0, 2], [0, 0.25]),
        ("chosen", [-1, 0, 4], [0, 0, 2], [0, 0, 0.25]),
        ("ratio", [0, np.pi], [1, 0], [0, -1 / np.pi]),
    ],
)
def test_H27_what_lies_in_the_branch_not_taken_never_multiplies(output, x, values, derivatives, dtype):
    value, derivative = edge(output, x, dtype)
    assert_close(value, values, HAND[dtype])
    assert_close(derivative, derivatives, HAND[dtype])


@pytest.mark.parametrize(
    ("dtype", "x"), [("float32", x) for x in (60, 89, 1e30)] + [("float64", x) for x in (400, 710, 1e300)]
)
def test_H28_a_logistic_function_written_out_does_not_overflow(dtype, x):
    value, derivative = edge("logistic", [-x, x], dtype)
    assert_close(value, [0, 1], 1e-15)
    assert np.isfinite(derivative).all() and (np.abs(derivative) <= 1e-25).all(), derivative


def test_units_do_not_mix():
    """The gradient of one unit of an elementwise cell depends on that unit alone."""
    one = case(kernel(LINEAR_ROWS), 4, 3, H=9)
    whole = one.backward()
    for unit in range(9):
        alone = one.changed(lambda a, unit=unit: a[..., [unit]], sizes={"H": 1})
        for kind in KINDS:
            assert_close(
                {n: g[..., [unit]] for n, g in getattr(whole, kind).items()},
                getattr(alone.backward(), kind),
                HAND["float64"],
            )
