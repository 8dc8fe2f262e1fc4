"""The operators `rnnspec::jvp` and `rnnspec::hvp` of torch.ops: layers along directions.

Arguments are those of `rnnspec::forward` (torch_ops.py); then directions of params, inputs and
states, those that there are, one after another, and which they are (`places`: their numbers among
all of these). Results that are whole numbers, a count of steps, have no direction and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy import ndarray as Array
from torch import Tensor

from rnnspec.interop.torch_ops import (
    ARGUMENTS,
    DEVICES,
    array_of,
    call_of,
    chosen,
    gradients_of,
    split,
    stack_for,
    tensors_of,
    with_gradient,
)
from rnnspec.layers.description import Layers
from rnnspec.layers.stack import Stack

ALONG = f"{ARGUMENTS}, int threads, Tensor[] moved, int[] places"


def _directions(
    stack: Stack, fed: int, given: int, counts: Sequence[int], moved: Sequence[Tensor], places: Sequence[int]
) -> tuple[dict[str, Array] | None, dict[str, Array], list[Array | None]]:
    """The directions of weights, inputs and states, as a Stack takes them. What never has one,
    fixed weights and a count of steps, has none."""
    layers = stack.description
    found: list[dict[str, Array]] = [{}, {}, {}]
    groups = (list(layers.shapes), chosen(layers.inputs, fed), chosen(layers.carried, given))
    names = [(kind, name) for kind, group in enumerate(groups) for name in group]
    assert len(names) == sum(counts), "a name for each tensor"
    for place, tensor in zip(places, moved, strict=True):
        kind, name = names[place]
        found[kind][name] = array_of(tensor)
    params = {n: a for n, a in found[0].items() if n not in layers.fixed}
    return params or None, found[1], [found[2].get(n) for n in layers.states]


def with_direction(layers: Layers) -> list[bool]:
    """Of each value that layers give, outputs, final states and recorded values, whether it has a
    direction."""
    return [True] * len(layers.outputs) + [n in layers.states for n in layers.carried] + [True] * len(layers.steps)


@torch.library.custom_op("rnnspec::jvp", mutates_args=(), device_types=DEVICES, schema=f"({ALONG}) -> Tensor[]")
def jvp(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, threads, moved, places
):
    """The directions of outputs, final states and recorded values."""
    stack = stack_for(config, params, inputs, threads or torch.get_num_threads())
    call = call_of(stack, params, inputs, states, fed, given, lengths, resets, seed)
    counts = (len(params), len(inputs), len(states))
    run = stack.jvp(call, *_directions(stack, fed, given, counts, moved, places))
    return tensors_of([*run.outputs.values(), *run.final, *run.steps.values()])


@torch.library.custom_op(
    "rnnspec::hvp",
    mutates_args=(),
    device_types=DEVICES,
    schema=f"({ALONG}, Tensor[] grads, int which, Tensor[] moved_grads, int which_moved) -> Tensor[]",
)
def hvp(  # type: ignore[no-untyped-def]
    config,
    params,
    inputs,
    states,
    fed,
    given,
    lengths,
    resets,
    seed,
    threads,
    moved,
    places,
    grads,
    which,
    moved_grads,
    which_moved,
):
    """The directions of gradients, then the gradients, both as `backward` has them; then the
    directions of what layers give, as `jvp` has them. grads, moved_grads: gradients from outside
    and their directions, of those values for which a bit of `which` and of `which_moved` is set."""
    stack = stack_for(config, params, inputs, threads or torch.get_num_threads())
    layers = stack.description
    call = call_of(stack, params, inputs, states, fed, given, lengths, resets, seed)
    counts = (len(params), len(inputs), len(states))
    along = _directions(stack, fed, given, counts, moved, places)
    (dy, dstate, dsteps), (ty, tstate, tsteps) = (
        _upstream(layers, tensors, of) for tensors, of in ((grads, which), (moved_grads, which_moved))
    )
    tangent_params, tangent_x, tangent_state = along
    found = stack.hvp(
        call,
        dy,
        dstate,
        dsteps,
        tangent_params=tangent_params,
        tangent_x=tangent_x,
        tangent_state=tangent_state,
        tangent_dy=ty,
        tangent_dstate=tstate,
        tangent_dsteps=tsteps,
    )
    results = [
        t
        for result in (found.tangent_gradients, found.gradients)
        for t in gradients_of(layers, result, params, inputs, states, fed, given)
    ]
    run = found.tangent
    return results + tensors_of([*run.outputs.values(), *run.final, *run.steps.values()])


def _upstream(layers: Layers, tensors: Sequence[Tensor], which: int) -> tuple[Any, Any, Any]:
    """Gradients from outside as a Stack takes them."""
    names = [*layers.outputs, *layers.carried, *layers.steps]
    found = dict(zip(chosen(range(len(names)), which), map(array_of, tensors), strict=True))
    values = [found.get(i) for i in range(len(names))]
    dy, dstate, dsteps = split(values, (len(layers.outputs), len(layers.carried)))
    return dict(zip(layers.outputs, dy)), dstate[: len(layers.states)], dict(zip(layers.steps, dsteps))


# --- shapes, for tracing


def _values(layers: Layers, like: Tensor) -> list[Tensor]:
    """Tensors in the shapes of what layers give of inputs like this one, without counts of
    steps."""
    steps, rows = like.shape[:2]
    outputs, recorded = (
        [like.new_empty((steps, rows, *s)) for s in known.values()] for known in (layers.outputs, layers.steps)
    )
    return [*outputs, *(like.new_empty((s[0], rows, *s[1:])) for s in layers.states.values()), *recorded]


@jvp.register_fake
def _(config, params, inputs, states, *_):  # type: ignore[no-untyped-def]
    return _values(stack_for(config, params, inputs).description, inputs[0])


@hvp.register_fake
def _(config, params, inputs, states, fed, *_):  # type: ignore[no-untyped-def]
    layers = stack_for(config, params, inputs).description
    of_gradients = with_gradient(layers, params, inputs, states, fed)
    return [x.new_empty(x.shape) for _ in range(2) for x in of_gradients] + _values(layers, inputs[0])
