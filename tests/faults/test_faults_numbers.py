"""Faults that engines like this one have had (numbered as in the project's list): overflow, NaN,
infinities, dtypes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from cells import CORE, DTYPES, case, kernel, ones
from tiny import cell
from tolerances import HAND, SIX_DIGITS, assert_close, assert_same

import rnnspec
from rnnspec import DtypeError, Recurrent
from rnnspec.backends.cpu.frontend import lower
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.cpu import CpuKernel

KINDS = ("params", "inputs", "states")

LITERALS = cell(
    "h[t] = 0.1 * x[t] + x[t] / 3 + exp(2 * x[t]) + (1/3) * abs(h[t-1]) ** 1.5 + t + tanh(1 + x[t]) + x[t] ** 3",
    name="literals",
)

# Beck et al. 2024, xLSTM: exponential gates with a stabiliser m
SLSTM = cell(
    """m[t] = maximum(f[t] + m[t-1], i[t])
c[t] = exp(f[t] + m[t-1] - m[t]) * c[t-1] + exp(i[t] - m[t]) * z[t]
n[t] = exp(f[t] + m[t-1] - m[t]) * n[t-1] + exp(i[t] - m[t])
h[t] = c[t] / n[t]""",
    name="slstm_gates",
    inputs="{i: [], f: [], z: []}",
    states="{c: [], n: [], m: []}",
)


def test_H29_a_fully_saturated_lstm_passes_its_cell_on():
    of, huge = kernel("lstm", "float32"), {"b_i": 1e4, "b_f": -1e4, "b_g": 1e4, "b_o": 1e4}
    params = {n: np.full([1] * len(shape), huge.get(n, 0), np.float32) for n, shape in of.spec.parameters.items()}
    run = of.forward(
        params,
        {"x": np.ones((1, 1, 1), np.float32)},
        {"h": np.zeros((1, 1), np.float32), "c": np.ones((1, 1), np.float32)},
    )
    assert run.final["c"][0, 0] == 1
    assert_close(run.final["h"][0, 0], 0.761594, SIX_DIGITS)
    back = of.backward(run, ones(run))
    assert (
        all(g == 0 for g in back.params.values())
        and back.inputs["x"] == 0
        and back.states["h"] == 0
        and back.states["c"] == 0
    )


def test_H30_results_have_the_dtype_of_the_kernel():
    for name in ("lstm", "gru"):
        one = case(kernel(name, "float32"), 3, 2, D=3, H=5)
        run, back = one.forward(), one.backward()
        inferred = one.kernel.infer(one.params, one.inputs)
        found = [
            run.outputs,
            run.final,
            run.states,
            back.params,
            back.inputs,
            back.states,
            inferred.outputs,
            inferred.final,
        ]
        assert {a.dtype for group in found for a in group.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", ["lstm", LITERALS], ids=["lstm", "literals"])
@pytest.mark.parametrize("mode", ["forward", "backward"])
def test_H30_a_float32_kernel_has_no_double_in_it(name, mode):
    names: dict[str, Any] = {"__name__": "no_double"}
    text = kernel(name, "float32").source(mode)
    exec(text, names)
    lines = [line for line in lower(text, names, ["kernel"]).splitlines() if " = " in line]
    assert not [line for line in lines if re.search(r"\bdouble\b", line)]
    assert [line for line in lines if re.search(r"= f(add|mul)\b.*\bfloat\b", line)]


@pytest.mark.parametrize("wrong", [np.float64, np.int64, np.float16, np.complex64, ">f4", object])
def test_H31_other_dtypes_are_refused_by_name(wrong):
    layer = Recurrent("lstm", 3, 4)
    x, h, c = np.ones((5, 2, 3), np.float32), np.zeros((1, 2, 4), np.float32), np.zeros((1, 2, 4), np.float32)
    y, _ = layer(x, (h, c))
    for call in (
        lambda: layer(x.astype(wrong)),
        lambda: layer.infer(x.astype(wrong)),
        lambda: layer(x, (h.astype(wrong), c)),
        lambda: layer.backward(y.astype(wrong)),
        lambda: layer.backward(None, (h, c.astype(wrong))),
    ):
        with pytest.raises(DtypeError) as caught:
            call()
        assert isinstance(caught.value, TypeError)
        assert str(np.dtype(wrong)) in str(caught.value) and "float32" in str(caught.value)
    layer.params["weight_ih_l0"] = layer.params["weight_ih_l0"].astype(wrong)
    with pytest.raises(DtypeError, match="weight_ih_l0"):
        layer(x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64", "single precision"])
def test_H31_kernels_are_made_for_two_dtypes(dtype):
    with pytest.raises(ValueError, match=f"{dtype}.*float32.*float64"):
        rnnspec.compile("lstm", dtype=dtype)


@pytest.mark.parametrize("poison", [np.nan, 3e38, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("threads", [1, 3])
def test_H32_a_row_knows_nothing_of_its_neighbours(name, poison, threads, monkeypatch):
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1))
    one = case(kernel(name, "float32", threads), 4, 4, D=3, H=5)
    others, results = [0, 2, 3], []
    for filler in (1.0, poison):
        one.inputs["x"][:, 1] = filler
        run = one.forward()
        back = one.backward(run)
        results.append(
            (run.outputs["h"][:, others], back.inputs["x"][:, others], *(back.states[s][others] for s in back.states))
        )
    for clean, dirty in zip(*results):
        assert np.isfinite(clean).all()
        assert_same(dirty, clean)


@pytest.mark.parametrize("dtype", DTYPES)
def test_H33_exponential_gates_with_a_stabiliser(dtype):
    of = kernel(SLSTM, dtype)
    run = of.forward({}, {n: np.array([[v]], dtype) for n, v in {"i": 1000, "f": 0, "z": np.tanh(0.5)}.items()})
    assert_close(run.outputs["h"][0, 0], np.tanh(0.5), HAND[dtype])
    assert run.final["m"][0] == 1000
    back = of.backward(run, ones(run), final={s: np.ones(1, dtype) for s in ("c", "n", "m")})
    assert all(np.isfinite(g).all() for kind in KINDS for g in getattr(back, kind).values())
    assert_close(back.inputs["z"][0, 0], 2, HAND[dtype])  # 1 / n, and 1 by way of the final c


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_H63_division_by_zero_is_ieee_and_raises_nothing(dtype, threads, monkeypatch):
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1))
    of = kernel(cell("h[t] = x[t] / s[t]", inputs="{x: [], s: []}"), dtype, threads)
    x = np.tile(np.array([[1, 0, -1, 4]], dtype), (1, 500))
    s = np.tile(np.array([[0, 0, 0, 2]], dtype), (1, 500))
    run = of.forward({}, {"x": x, "s": s})
    assert_same(run.outputs["h"], np.tile(np.array([[np.inf, np.nan, -np.inf, 2]], dtype), (1, 500)))
    back = of.backward(run, ones(run))
    assert_same(back.inputs["x"], np.tile(np.array([[np.inf, np.inf, np.inf, 0.5]], dtype), (1, 500)))


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("poison", [np.nan, "state"])
def test_H65_nan_is_not_swallowed_and_stays_in_its_row(name, poison):
    one = case(kernel(name), 4, 5)
    clean, clean_back = one.forward(), one.backward()
    if poison == "state":
        for state in one.states.values():
            state[2] = np.nan
    else:
        next(iter(one.inputs.values()))[1, 2] = np.nan
    run, back = one.forward(), one.backward()
    first = 0 if poison == "state" else 1
    for o, y in run.outputs.items():
        assert np.isnan(y[first:, 2]).any(axis=tuple(range(1, y.ndim - 1))).all(), f"{o} lost the NaN"
        assert_same(np.delete(y, 2, axis=1), np.delete(clean.outputs[o], 2, axis=1), o)
        assert_same(y[:first], clean.outputs[o][:first])
    for i, dx in back.inputs.items():
        assert_same(np.delete(dx, 2, axis=1), np.delete(clean_back.inputs[i], 2, axis=1), i)
    assert any(np.isnan(g).any() for g in back.params.values()), "no gradient shows the NaN"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_and_the_smallest_numbers(dtype):
    """Sums of squares beyond the range become inf, below it 0, as IEEE says; nothing raises."""
    top = np.finfo(dtype).max
    of = kernel(cell("h[t] = x[t] * x[t]"), dtype)
    run = of.forward({}, {"x": np.array([[top, -top, 0.0, 1.0]], dtype)})
    assert_same(run.outputs["h"], np.array([[np.inf, np.inf, 0, 1]], dtype))


def test_H41_division_of_literals_is_exact_in_both_dtypes():
    for dtype in DTYPES:
        of = kernel(cell("h[t] = 1/2*x[t] + x[t]*(1/4)"), dtype)
        assert of.forward({}, {"x": np.full((1, 1), 3.0, dtype)}).outputs["h"][0, 0] == 2.25


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_of_a_row_do_not_depend_on_how_many_rows_there_are(dtype: str) -> None:
    """`reassoc` let LLVM round d_a_z * z * (1 - z) of mut1_raw otherwise in the copies of an
    unrolled loop over rows."""
    own = rnnspec.compile("mut1_raw", dtype=dtype, threads=1)
    rng, params = np.random.default_rng(0), own.init(H=3, seed=0)
    x, h, dy = (rng.standard_normal(shape).astype(dtype) for shape in ((1, 8, 3), (8, 3), (1, 8, 3)))
    whole = own.backward(own.forward(params, {"x": x}, {"h": h}), {"h": dy}).inputs["x"]
    for b in range(8):
        alone = own.backward(
            own.forward(params, {"x": x[:, b : b + 1]}, {"h": h[b : b + 1]}), {"h": dy[:, b : b + 1]}
        ).inputs["x"]
        assert np.array_equal(alone[:, 0], whole[:, b])
