"""Layers along directions: `Stack.jvp` and `Stack.hvp` against differences of runs and of
gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rnnspec
from rnnspec.layers.stack import Stack

T, B, D, H = 6, 3, 4, 5
LENGTHS, RESETS = np.array([6, 0, 4]), np.zeros((T, B), bool)
RESETS[2, 0] = RESETS[3, 2] = True
LAYERS: dict[str, dict[str, Any]] = {
    "one": {},
    "two both ways": {"num_layers": 2, "bidirectional": True, "return_all_states": True},
    "summed": {"num_layers": 2, "bidirectional": True, "merge": "sum", "learn_initial": True},
    "mean": {"bidirectional": True, "merge": "mean", "share_directions": True},
    "residual": {"num_layers": 3, "residual": True, "dropout": 0.5, "bias": False},
    "from the end": {"go_backwards": True, "memory": "low"},
}


def numbers(rng: np.random.Generator, like: Any) -> Any:
    """Random numbers in the shape of arrays."""
    if isinstance(like, dict):
        return {n: numbers(rng, a) for n, a in like.items()}
    return tuple(numbers(rng, a) for a in like) if isinstance(like, tuple) else rng.uniform(-1, 1, like.shape)


def shifted(value: Any, direction: Any, step: float) -> Any:
    if isinstance(value, dict):
        return {n: shifted(a, direction[n], step) for n, a in value.items()}
    if isinstance(value, tuple):
        return tuple(shifted(a, d, step) for a, d in zip(value, direction, strict=True))
    return value + step * direction


def assert_difference(found: Any, ahead: Any, behind: Any, step: float) -> None:
    if isinstance(found, dict):
        for n, array in found.items():
            assert_difference(array, ahead[n], behind[n], step)
    elif isinstance(found, tuple):
        for parts in zip(found, ahead, behind, strict=True):
            assert_difference(*parts, step)
    else:
        np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rows", ["whole", "ragged", "reset"])
@pytest.mark.parametrize("name", LAYERS)
def test_directions_are_differences(name, rows):
    options = {"whole": {}, "ragged": {"lengths": LENGTHS}, "reset": {"lengths": LENGTHS, "resets": RESETS}}[rows]
    rng, made = np.random.default_rng(0), LAYERS[name]
    width = H if made.get("residual") else D
    stack = Stack("lstm", width, H, dtype="float64", threads=1, **made)
    params = {n: a + 0.2 * rng.uniform(-1, 1, a.shape) for n, a in stack.init(0).items()}
    x = rng.uniform(-1, 1, (T, B, width))
    state = None if made.get("learn_initial") else numbers(rng, stack.infer(params, x).final)
    run = stack.forward(params, x, state, **options)
    upstream = numbers(rng, (run.outputs, run.final, run.steps))
    moved = numbers(rng, (params, x, state) if state else (params, x))
    outside = numbers(rng, upstream)

    call = stack.call(params, x, state, **options)
    found = stack.hvp(
        call,
        *upstream,
        **dict(zip(("tangent_params", "tangent_x", "tangent_state"), moved)),
        **dict(zip(("tangent_dy", "tangent_dstate", "tangent_dsteps"), outside)),
    )
    ahead_only = stack.jvp(call, *moved)

    def at(step: float) -> tuple[Any, Any]:
        given = shifted((params, x, state) if state else (params, x), moved, step)
        run = stack.forward(*given, **options)
        return run, stack.backward(run, *shifted(upstream, outside, step))

    step = 1e-6
    (ran, ahead), (back, behind) = at(step), at(-step)
    for part in ("outputs", "final", "steps"):
        assert_difference(getattr(found.tangent, part), getattr(ran, part), getattr(back, part), step)
        assert_difference(getattr(ahead_only, part), getattr(ran, part), getattr(back, part), step)
    own = stack.backward(run, *upstream)
    for part in ("params", "inputs", "states"):
        assert_difference(getattr(found.tangent_gradients, part), getattr(ahead, part), getattr(behind, part), step)
        ours, right = getattr(found.gradients, part), getattr(own, part)
        for a, b in zip(*(v.values() if isinstance(v, dict) else v for v in (ours, right)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_what_is_left_out_counts_as_zero():
    stack = Stack("lstm", D, H, 2, dtype="float64", threads=1)
    params, x = stack.init(0), np.ones((T, B, D))
    call = stack.call(params, x)
    zeros = stack.hvp(call, np.ones((T, B, H))).tangent_gradients
    assert not any(a.any() for a in zeros.params.values()) and not zeros.inputs["x"].any()
    some = stack.jvp(call, {"weight_hh_l1": params["weight_hh_l1"]})
    assert some.outputs["h"].any() and not some.final[0][0].any()


def test_products_and_states_that_are_not_given_are_refused():
    stack = Stack("lstm", D, H, bidirectional=True, merge="product", dtype="float64")
    call = stack.call(stack.init(0), np.ones((T, B, D)))
    with pytest.raises(rnnspec.UnsupportedError, match="merge='concat', 'sum' and 'mean' have them"):
        stack.jvp(call)
    one = Stack("gru", D, H, dtype="float64")
    call = one.call(one.init(0), np.ones((T, B, D)))
    with pytest.raises(rnnspec.ShapeError, match="state 'h' has a direction, and the call was not given it"):
        one.jvp(call, tangent_state=np.ones((1, B, H)))


def test_what_is_no_call_of_these_layers_is_refused():
    x, other = np.zeros((2, 1, 3)), Stack("gru", 3, 4, dtype="float64")
    stack = Stack("rnn", 3, 4, dtype="float64")
    params = stack.init(0)
    for wrong in (params, stack.forward(params, x), x):
        for run in (stack.jvp, stack.hvp):
            with pytest.raises(TypeError, match=r"give jvp and hvp what call\(params, x, ...\) of these layers gave"):
                run(wrong)  # type: ignore[arg-type]
    with pytest.raises(rnnspec.ShapeError, match="unknown parameter 'W'"):
        other.jvp(stack.call(params, x), tangent_x=x)
    stack.dropout = 0.0  # the layers are the same, described anew
    assert stack.jvp(stack.call(params, x), tangent_x=x).outputs["h"].shape == (2, 1, 4)
