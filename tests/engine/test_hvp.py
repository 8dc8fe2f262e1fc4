"""Second order: `hvp` against differences of `backward` and against itself, awkward sizes, threads,
little memory, pieces; `ggn`; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cells import Case, case, kernel
from tiny import cell
from tolerances import assert_same

import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.results import Gradients, Hvp
from rnnspec.engine.spans import cut
from rnnspec.lowering.pipeline import HVP

GROUPS = ("params", "inputs", "states")
ONCE = cell(
    "h[t] = tanh(W @ x[t] + exp(u) * h[t-1])",
    name="exponential",
    inputs="{x: H}",
    states="{h: H}",
    parameters="{W: [H, H], u: [H]}",
)
STEEP = cell(
    "h[t] = x[t] ** 1.5 + 0.5 * h[t-1]",
    name="steep",
    inputs="{x: H}",
    states="{h: H}",
)


def along(one: Case, columns: int | None, seed: int = 1) -> dict[str, dict[str, np.ndarray]]:
    """Directions of all that `hvp` takes."""
    rng, still = np.random.default_rng(seed), one.kernel.spec.no_gradient
    lead = () if columns is None else (columns,)
    groups = {"params": one.params, "inputs": one.inputs, "states": one.states, "outputs": one.dy, "final": one.dfinal}
    return {
        f"tangent_{group}": {
            n: rng.uniform(-1, 1, (*lead, *a.shape)).astype(a.dtype) for n, a in arrays.items() if n not in still
        }
        for group, arrays in groups.items()
    }


def hvp(one: Case, **given: Any) -> Hvp:
    return one.kernel.hvp(one.params, one.inputs, one.states, one.lengths, outputs=one.dy, final=one.dfinal, **given)


def column(given: dict[str, dict[str, np.ndarray]], k: int) -> dict[str, dict[str, np.ndarray]]:
    return {group: {n: a[k] for n, a in arrays.items()} for group, arrays in given.items()}


def moved(one: Case, given: dict[str, dict[str, np.ndarray]], step: float) -> Gradients:
    groups = {"params": one.params, "inputs": one.inputs, "states": one.states, "dy": one.dy, "dfinal": one.dfinal}
    names = {"dy": "outputs", "dfinal": "final"}
    changed = {
        g: {n: a + step * given[f"tangent_{names.get(g, g)}"].get(n, 0) for n, a in arrays.items()}
        for g, arrays in groups.items()
    }
    return one.changed(**changed).backward()


def assert_is_the_difference(one: Case, given: dict[str, Any], found: Hvp, step: float = 1e-6) -> None:
    ahead, behind = moved(one, given, step), moved(one, given, -step)
    for group in GROUPS:
        for n, array in getattr(found.tangent_gradients, group).items():
            right = (getattr(ahead, group)[n] - getattr(behind, group)[n]) / (2 * step)
            np.testing.assert_allclose(array, right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "name", ["lstm", ONCE, *(pytest.param(n, marks=pytest.mark.slow) for n in ("deltanet", "ln_lstm_torch"))]
)
def test_hvp_is_the_difference_of_gradients(name):
    one = case(kernel(name), 7, 3, lengths=[7, 0, 3])
    given = along(one, None)
    found, grad, run = hvp(one, **given), one.backward(), one.forward()
    for group in GROUPS:
        for n, array in getattr(grad, group).items():
            np.testing.assert_allclose(getattr(found.gradients, group)[n], array, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.outputs["h" if "h" in run.outputs else "o"], next(iter(run.outputs.values())))
    assert_is_the_difference(one, given, found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("steps", "rows", "columns"), [(5, 3, 1), (4, 1, 17), (0, 2, 3), (3, 0, 2), (2, 5, 0)])
def test_many_directions_are_each_of_them_alone(dtype, steps, rows, columns):
    one = case(kernel("lstm", dtype), steps, rows, D=3, H=13)
    given = along(one, columns)
    found = hvp(one, **given)
    for group in GROUPS:
        for n, array in getattr(found.tangent_gradients, group).items():
            assert array.shape == (columns, *getattr(one, group)[n].shape) and array.dtype == dtype
    for k in range(columns):
        alone = hvp(one, **column(given, k)).tangent_gradients
        for group in GROUPS:
            ours = {n: a[k] for n, a in getattr(found.tangent_gradients, group).items()}
            for n, array in getattr(alone, group).items():
                np.testing.assert_allclose(ours[n], array, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize("groups", [("params",), ("inputs",), ("states",), ("outputs", "final"), ()])
def test_what_has_no_direction_counts_as_zero(groups):
    one = case(kernel("rnn"), 5, 3, D=3, H=5)
    given = along(one, 2)
    zeros = {g: {n: a if g[8:] in groups else 0 * a for n, a in arrays.items()} for g, arrays in given.items()}
    whole = hvp(one, **zeros).tangent_gradients
    some = hvp(one, **{g: a for g, a in given.items() if g[8:] in groups}).tangent_gradients
    for group in GROUPS:
        for n, array in getattr(whole, group).items():
            ours = getattr(some, group)[n] if groups else np.stack([getattr(some, group)[n]] * 2)
            np.testing.assert_allclose(ours, array, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rows", [1, 6])
def test_threads_chunks_and_little_memory_change_no_bit(rows):
    one = case(kernel("lstm"), 9, rows, lengths=None if rows == 1 else [9, 2, 5, 0, 9, 1], D=3, H=37)
    given = along(one, 3)
    right = hvp(one, **given)
    for threads, memory in ((2, "full"), (3, "low"), (1, "low")):
        other = one.kernel.like(threads=threads, memory=memory)
        other.limits = Limits(flops_per_thread=1, flops_per_barrier=1, cache_bytes=1 << 20, least_rows=128)
        found = hvp(one.changed(kernel=other), **given)
        for group in ("inputs", "states"):
            assert_same(getattr(found.tangent_gradients, group), getattr(right.tangent_gradients, group))
        for n, array in right.tangent_gradients.params.items():
            np.testing.assert_allclose(found.tangent_gradients.params[n], array, rtol=1e-12, atol=1e-12)


def test_pieces_are_rows_of_their_own():
    one = case(kernel("lstm"), 6, 2, D=3, H=5)
    resets = np.zeros((6, 2), bool)
    resets[2, 0] = resets[4, 1] = True
    pieces = cut(6, 2, None, resets, reverse=False)
    states = {n: np.stack([a[0]] * len(pieces)) for n, a in one.states.items()}
    apart = one.changed(states=states, dfinal={n: np.stack([a[0]] * len(pieces)) for n, a in one.dfinal.items()})
    given = along(apart, None)
    found = apart.kernel.hvp(
        apart.params, apart.inputs, apart.states, pieces=pieces, outputs=apart.dy, final=apart.dfinal, **given
    )
    total = {n: np.zeros_like(a) for n, a in one.params.items()}
    for r, (row, start, length) in enumerate(zip(pieces.row, pieces.start, pieces.length)):
        steps, own = (slice(start, start + length), slice(row, row + 1)), slice(r, r + 1)
        alone = Case(
            one.kernel,
            one.sizes,
            one.params,
            {n: a[steps] for n, a in one.inputs.items()},
            {n: a[own] for n, a in states.items()},
            None,
            {n: a[steps] for n, a in one.dy.items()},
            {n: a[own] for n, a in apart.dfinal.items()},
        )
        part = {
            g: {n: a[steps] if g in ("tangent_inputs", "tangent_outputs") else a[own] for n, a in arrays.items()}
            for g, arrays in given.items()
        } | {"tangent_params": given["tangent_params"]}
        right = hvp(alone, **part).tangent_gradients
        np.testing.assert_allclose(found.tangent_gradients.inputs["x"][steps], right.inputs["x"], rtol=1e-12)
        for n, array in right.states.items():
            np.testing.assert_allclose(found.tangent_gradients.states[n][own], array, rtol=1e-11, atol=1e-13)
        total = {n: a + right.params[n] for n, a in total.items()}
    for n, array in total.items():
        np.testing.assert_allclose(found.tangent_gradients.params[n], array, rtol=1e-11, atol=1e-12)


def test_nothing_is_written_to_and_strides_are_any():
    one = case(kernel("lstm"), 4, 3, D=3, H=5)
    given = along(one, 2)
    right = hvp(one, **given)

    def strided(array: np.ndarray) -> np.ndarray:
        wide = np.zeros((*array.shape[::-1][:-1], 2 * array.shape[0])).T[::2]
        wide[...] = array
        wide.flags.writeable = False
        return wide

    turned = {group: {n: strided(a) for n, a in arrays.items()} for group, arrays in given.items()}
    packed = one.changed()
    packed.params = one.kernel.pack(one.params)
    found = hvp(packed, **turned)
    for group in GROUPS:
        assert_same(getattr(found.tangent_gradients, group), getattr(right.tangent_gradients, group))


def test_what_flows_in_a_direction_flows_where_nothing_flows():
    """x ** 1.5 has an infinite second slope at 0; a gradient of 0 has a direction all the same."""
    of = kernel(STEEP)
    x, one = np.array([[[4.0, 0.0]]]), np.array([[[1.0, 1.0]]])
    given = {"outputs": {"h": 0 * one}, "tangent_outputs": {"h": one}}
    found = of.hvp({}, {"x": x}, **given).tangent_gradients.inputs["x"]
    np.testing.assert_allclose(found, [[[3.0, 0.0]]])
    found = of.hvp({}, {"x": x}, outputs={"h": 0 * one}, tangent_inputs={"x": one}).tangent_gradients.inputs["x"]
    assert found.tolist() == [[[0.0, 0.0]]]  # not 0 * infinity


def test_gauss_newton_is_two_products_and_a_curvature():
    one = case(kernel("lstm"), 5, 3, lengths=[5, 2, 0], D=3, H=5)
    given = {g: a for g, a in along(one, 2).items() if g[8:] in GROUPS}
    args = (one.params, one.inputs, one.states, one.lengths)
    diagonal = {"h": np.random.default_rng(0).uniform(0, 1, (5, 3, 5))}
    found = one.kernel.ggn(*args, curvature=diagonal, **given)
    run = one.kernel.jvp(*args, **given)
    assert_same(found.tangent_outputs, run.tangent_outputs)
    tape = one.forward()
    for k in range(2):
        right = one.kernel.backward(tape, {"h": diagonal["h"] * run.tangent_outputs["h"][k]})
        for group in GROUPS:
            for n, array in getattr(right, group).items():
                np.testing.assert_allclose(getattr(found.products, group)[n][k], array, rtol=1e-11, atol=1e-13)

    def whole(run: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        return {"h": diagonal["h"] * run.tangent_outputs["h"]}, {"c": 2 * run.tangent_final["c"]}

    more = one.kernel.ggn(*args, curvature=whole, **given).products
    right = one.kernel.backward(
        tape, {"h": diagonal["h"] * run.tangent_outputs["h"][1]}, final={"c": 2 * run.tangent_final["c"][1]}
    )
    np.testing.assert_allclose(more.params["U_f"][1], right.params["U_f"], rtol=1e-11, atol=1e-13)
    with pytest.raises(rnnspec.ShapeError, match=r"curvature of output 'h' has shape \(5, 5\), expected \(5, 3, 5\)"):
        one.kernel.ggn(*args, curvature={"h": np.zeros((5, 5))}, **given)
    for wrong in (lambda run: None, lambda run: {"h": diagonal["h"]}, lambda run: (diagonal["h"], {})):
        with pytest.raises(TypeError, match="must give two dicts by name, of outputs and of final states"):
            one.kernel.ggn(*args, curvature=wrong, **given)
    with pytest.raises(TypeError, match=r"what the Hessian of the loss by the outputs is.*got None"):
        one.kernel.ggn(*args, curvature=None, **given)
    beyond = {"h": diagonal["h"].copy()}
    beyond["h"][:, 2] = np.inf  # of a row of no steps
    right = found.products.params
    assert_same(one.kernel.ggn(*args, curvature=beyond, **given).products.params, right)


def test_what_does_not_fit_is_named():
    one = case(kernel("lstm"), 4, 3, D=3, H=5)
    with pytest.raises(rnnspec.ShapeError, match=r"output gradient 'h' has shape \(4, 3, 2\), expected \(4, 3, 5\)"):
        hvp(one, tangent_outputs={"h": np.zeros((4, 3, 2))})
    with pytest.raises(rnnspec.ShapeError, match="unknown direction of final state gradient 'x'"):
        hvp(one, tangent_final={"x": np.zeros((3, 5))})


def test_only_what_varies_is_in_a_text():
    of = kernel("rnn")
    for (ahead, back), still in HVP.items():
        for mode in (ahead, back) if ahead == "jvp_params_taped" else (ahead,):
            columns = of.layout(mode)["columns"]
            assert bool(columns["parameters"]) == ("parameter" not in still)
    assert "columns" not in of.layout("backward")
