"""Forward mode: `jvp` against `backward`, many directions against each alone, subsets, awkward
sizes, threads, lengths; what is refused; and Jacobians of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cells import Case, case, kernel
from tiny import cell
from tolerances import assert_same

import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.results import Jvp
from rnnspec.lowering.pipeline import JVP

ROOT = cell("h[t] = sqrt(abs(x[t])) + 0 * h[t-1]", name="root", states="{h: []}")
STILL = cell(
    "h[t] = m[t] * h[t-1] + w * x[t]\ny[t] = m[t] + 0",
    name="still",
    inputs="{x: [], m: []}",
    parameters="{w: []}",
    no_gradient="[m]",
    outputs="[h, y]",
)
SIGNS = cell(
    "h[t] = tanh(W @ sign(x[t]) + U @ sign(h[t-1]) + h[t-1])",
    name="signs",
    inputs="{x: D}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H]}",
)
CELLS = ["lstm", "gru_reset_before", "deltanet", "antisymmetric_rnn", "mogrifier_lstm"]
MORE = ["ln_lstm_torch", "lstm_projected", "linear_attention", "qrnn", "leaky_rnn", "clockwork_rnn", "cornn", "rwkv7"]


def along(one: Case, columns: int | None, seed: int = 1) -> dict[str, dict[str, np.ndarray]]:
    """Directions of all that has one: the arguments of `jvp`."""
    rng, still = np.random.default_rng(seed), one.kernel.spec.no_gradient
    lead = () if columns is None else (columns,)
    groups = {"params": one.params, "inputs": one.inputs, "states": one.states}
    return {
        f"tangent_{group}": {
            n: rng.uniform(-1, 1, (*lead, *a.shape)).astype(a.dtype) for n, a in arrays.items() if n not in still
        }
        for group, arrays in groups.items()
    }


def jvp(one: Case, **given: Any) -> Jvp:
    return one.kernel.jvp(one.params, one.inputs, one.states, one.lengths, **given)


def column(given: dict[str, dict[str, np.ndarray]], k: int) -> dict[str, dict[str, np.ndarray]]:
    return {group: {n: a[k] for n, a in arrays.items()} for group, arrays in given.items()}


def loss(one: Case, found: Jvp) -> float:
    pairs = [(found.tangent_outputs[n], g) for n, g in one.dy.items()]
    pairs += [(found.tangent_final[n], g) for n, g in one.dfinal.items()]
    return float(sum(np.vdot(a, g) for a, g in pairs))


@pytest.mark.parametrize("lengths", [None, [7, 0, 3]])
@pytest.mark.parametrize("name", [*CELLS, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_jvp_is_the_transpose_of_backward(name, lengths):
    one = case(kernel(name), 7, 3, lengths=lengths)
    given, grad = along(one, None), one.backward()
    pairs = [(grad.params, "params"), (grad.inputs, "inputs"), (grad.states, "states")]
    right = sum(np.vdot(g[n], d) for g, group in pairs for n, d in given[f"tangent_{group}"].items() if n in g)
    found = jvp(one, **given)
    assert loss(one, found) == pytest.approx(right, rel=1e-11, abs=1e-11)
    inferred = one.kernel.infer(one.params, one.inputs, one.states, lengths)
    for ours, theirs in ((found.outputs, inferred.outputs), (found.final, inferred.final)):
        for n, array in theirs.items():
            np.testing.assert_allclose(ours[n], array, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("steps", "rows", "columns"), [(5, 3, 1), (4, 1, 17), (0, 2, 3), (3, 0, 2), (2, 5, 0)])
def test_many_directions_are_each_of_them_alone(dtype, steps, rows, columns):
    one = case(kernel("lstm", dtype), steps, rows, D=3, H=13)
    given = along(one, columns)
    found = jvp(one, **given)
    assert found.tangent_outputs["h"].shape == (columns, steps, rows, 13)
    assert found.tangent_final["c"].shape == (columns, rows, 13)
    assert found.tangent_outputs["h"].dtype == dtype
    for k in range(columns):
        alone = jvp(one, **column(given, k))
        assert_same({n: a[k] for n, a in found.tangent_outputs.items()}, alone.tangent_outputs)
        assert_same({n: a[k] for n, a in found.tangent_final.items()}, alone.tangent_final)


@pytest.mark.parametrize("groups", [(), ("params",), ("inputs",), ("states",), ("params", "states")])
def test_what_has_no_direction_counts_as_zero(groups):
    one = case(kernel("lstm"), 5, 3, D=3, H=5)
    given = along(one, 2)
    zeros = {
        group: {n: a if group.removeprefix("tangent_") in groups else 0 * a for n, a in arrays.items()}
        for group, arrays in given.items()
    }
    part = {f"tangent_{g}": given[f"tangent_{g}"] for g in groups}
    if groups == ("params",):  # one of them alone
        part["tangent_params"] = {"U_f": part["tangent_params"]["U_f"]}
        zeros["tangent_params"] = {n: a * (n == "U_f") for n, a in zeros["tangent_params"].items()}
    whole, some = jvp(one, **zeros), jvp(one, **part)
    for n in ("h",):
        ours = some.tangent_outputs[n] if groups else np.stack([some.tangent_outputs[n]] * 2)
        np.testing.assert_allclose(ours, whole.tangent_outputs[n], rtol=1e-12, atol=1e-13)
    assert set(some.tangent_final) == {"h", "c"}


@pytest.mark.parametrize("rows", [1, 6])
def test_threads_and_chunks_change_no_bit(rows):
    one = case(kernel("lstm"), 9, rows, lengths=None if rows == 1 else [9, 2, 5, 0, 9, 1], D=3, H=37)
    given = along(one, 3)
    right = jvp(one, **given)
    for threads, cache in ((2, 1 << 20), (3, 1), (1, 1)):
        other = one.kernel.like(threads=threads)
        other.limits = Limits(flops_per_thread=1, flops_per_barrier=1, cache_bytes=cache, least_rows=1)
        found = jvp(one.changed(kernel=other), **given)
        assert_same(found.tangent_outputs, right.tangent_outputs)
        assert_same(found.tangent_final, right.tangent_final)


def test_rows_end_where_they_end():
    one = case(kernel("lstm"), 6, 3, lengths=[6, 2, 0], D=3, H=5)
    given = along(one, 2)
    right = jvp(one, **given)
    for row, length in enumerate(one.lengths):
        given["tangent_inputs"]["x"][:, length:, row] = np.nan
        assert not right.tangent_outputs["h"][:, length:, row].any()
    again = jvp(one, **given)
    assert_same(again.tangent_outputs, right.tangent_outputs)
    np.testing.assert_array_equal(again.tangent_final["c"][:, 2], given["tangent_states"]["c"][:, 2])


def test_directions_of_any_strides_are_left_as_they_are():
    one = case(kernel("lstm"), 4, 3, D=3, H=5)
    given = along(one, 2)
    right = jvp(one, **given)

    def strided(array: np.ndarray) -> np.ndarray:
        wide = np.zeros((*array.shape[::-1][:-1], 2 * array.shape[0])).T[::2]
        wide[...] = array
        wide.flags.writeable = False
        return wide

    turned = {group: {n: strided(a) for n, a in arrays.items()} for group, arrays in given.items()}
    found = one.kernel.jvp(one.kernel.pack(one.params), one.inputs, one.states, **turned)
    assert_same(found.tangent_outputs, right.tangent_outputs)
    assert_same(found.tangent_final, right.tangent_final)


def test_a_direction_of_zero_goes_through_an_infinite_slope():
    of = kernel(ROOT)
    found = of.jvp({}, {"x": np.zeros((1, 1))}, tangent_inputs={"x": np.array([[[0.0]], [[1.0]]])})
    assert found.tangent_outputs["h"].ravel().tolist() == [0.0, 0.0]  # abs' is 0 at 0


def test_what_never_varies_has_a_direction_of_zeros():
    of, x = kernel(STILL), np.ones((2, 3))
    found = of.jvp({"w": np.array(2.0)}, {"x": x, "m": x}, tangent_inputs={"x": np.stack([x, 3 * x])})
    assert found.tangent_outputs["y"].shape == (2, 2, 3) and not found.tangent_outputs["y"].any()
    assert found.tangent_outputs["h"][1, -1].tolist() == [12.0] * 3
    with pytest.raises(rnnspec.ShapeError, match=r"'m' of 'still' has no derivative \(no_gradient\)"):
        of.jvp({"w": np.array(2.0)}, {"x": x, "m": x}, tangent_inputs={"m": x})


def test_what_has_no_slope_is_not_multiplied():
    of = kernel(SIGNS)
    assert "panels" in of.layout("jvp_inputs") and not of.layout("jvp_inputs")["columns"]["inputs"]
    assert not of.layout("jvp_states")["columns"]["flops"]  # U @ sign'(h) dh is nothing
    assert of.layout("jvp_params")["columns"]["flops"] == (("H", "D"), ("H", "H"))


def test_directions_that_do_not_fit_are_all_named():
    one = case(kernel("lstm"), 4, 3, D=3, H=5)
    with pytest.raises(rnnspec.ShapeError, match=r"input 'x' has shape \(4, 3, 2\), expected \(4, 3, 3\)\."):
        jvp(one, tangent_inputs={"x": np.zeros((4, 3, 2))})
    with pytest.raises(rnnspec.ShapeError, match=r"state 'h' has shape \(3, 5\), expected \(2, 3, 5\).*'x'.* 2 direct"):
        jvp(one, tangent_inputs={"x": np.zeros((2, 4, 3, 3))}, tangent_states={"h": np.zeros((3, 5))})
    with pytest.raises(rnnspec.ShapeError, match="unknown direction of state 'x'"):
        jvp(one, tangent_states={"x": np.zeros((3, 5))})
    with pytest.raises(rnnspec.DtypeError, match="direction of parameter 'U_f' has dtype float32"):
        jvp(one, tangent_params={"U_f": np.zeros((5, 5), np.float32)})


def test_only_what_varies_is_in_a_text():
    of = kernel("lstm")
    assert set(JVP) == {"jvp", "jvp_params", "jvp_inputs", "jvp_states"}
    for mode, still in JVP.items():
        columns = of.layout(mode)["columns"]
        assert bool(columns["parameters"]) == ("parameter" not in still)
        assert bool(columns["inputs"]) == ("input" not in still)
    assert "columns" not in of.layout("forward")


# --- Jacobians


@pytest.mark.parametrize("name", ["lstm", "deltanet"])
def test_the_product_of_all_steps_is_the_jvp_of_the_sequence(name):
    one = case(kernel(name), 5, 3)
    direction = along(one, None)["tangent_states"]
    found = one.kernel.jacobian(one.params, one.inputs, one.states)
    flowing = direction
    for t in range(5):
        flowing = {
            after: sum(
                np.einsum("bij,bj->bi", m[t].reshape(3, flowing[after].size // 3, -1), flowing[b].reshape(3, -1))
                for b, m in row.items()
            ).reshape(flowing[after].shape)
            for after, row in found.items()
        }
    right = jvp(one, tangent_states=direction).tangent_final
    for n, array in right.items():
        np.testing.assert_allclose(flowing[n], array, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("name", "columns"), [("indrnn", [1]), ("lstm", [7, 1]), ("deltanet", [2])])
def test_a_sparse_jacobian_takes_few_directions(name, columns, monkeypatch):
    of = kernel(name)
    one, seen, plain = case(of, 2, 3, H=7) if name != "deltanet" else case(of, 2, 3, D=3, V=7, K=2), [], of.jvp
    monkeypatch.setattr(of, "jvp", lambda *a, **k: seen.append(k["tangent_states"]) or plain(*a, **k))
    found = of.jacobian(one.params, one.inputs, one.states)
    assert [len(a) for given in seen for a in given.values()] == columns
    for matrices in found.values():
        assert all(m.shape[:2] == (2, 3) for m in matrices.values())


@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (2, 0), (1, 1)])
def test_jacobians_of_no_steps_or_rows(steps, rows):
    one = case(kernel("lstm"), steps, rows, D=3, H=5)
    found = one.kernel.jacobian(one.params, one.inputs, one.states)
    assert {m.shape for row in found.values() for m in row.values()} == {(steps, rows, 5, 5)}
