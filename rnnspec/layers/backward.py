"""The backward pass of a Stack: the last layer first.

Arrays are [T, B, ...]. A direction that runs from the end reads and writes them in place: by
negative strides where all rows have all steps, else as spans (engine/spans.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rnnspec.engine.results import Run
from rnnspec.engine.spans import Pieces
from rnnspec.layers.layer import Layer

if TYPE_CHECKING:
    from rnnspec.layers.stack import Stack
from numpy import ndarray as Array

from rnnspec.layers.forward import started, turned
from rnnspec.layers.runs import LayerRun, Named, StackRun


def backward(
    stack: Stack, run: StackRun, outputs: Named, final: tuple[Array | None, ...], steps: Named
) -> tuple[Named, Named, tuple[Array, ...]]:
    """Gradients of weights, inputs and initial states. See `Stack.backward`."""
    params: Named = {}
    inputs: Named = {}
    before = tuple(np.zeros((shape[0], run.rows, *shape[1:]), stack.dtype) for shape in stack.states.values())
    dy = outputs
    for depth in reversed(range(stack.num_layers)):
        layer, own = stack.layers[depth], run.kept[depth]
        total: Named = {}
        for d, direction in enumerate(stack.directions):
            split = run.pieces[direction.reverse]
            turn = direction.reverse and split is None
            given = _direction_gradients(stack, depth, d, dy, own, steps)
            taken = own.runs[d]
            if not isinstance(taken, Run):
                raise TypeError("what `record` returns is for `resume`; give backward the run that this returns.")
            gradients = layer.kernel.backward(
                taken, turned(given, turn), final=_final(layer, started(stack, final, depth, d), split)
            )
            for name, array in turned(gradients.inputs, turn).items():
                _add(total, name, array)
            end = stack.suffix(depth, 0 if stack.share_directions else d)
            for name, array in layer.weights(gradients.params, gradients=True).items():
                _add(params, f"{name}{end}", array)
            _state_gradients(stack, depth, d, gradients.states, own.given[d], split, params, before)
        below = total.pop(layer.main, None)
        for name, array in total.items():
            _add(inputs, name, array)
        if below is not None and own.mask is not None:
            below = np.multiply(below, own.mask, order="C")
        if stack.residual and depth and (above := dy.get(stack.emitted[depth][0])) is not None:
            below = above if below is None else below + above
        if depth:
            dy = {} if below is None else {stack.emitted[depth - 1][0]: below}
        elif below is not None:
            _add(inputs, layer.main, below)  # a layer above may read it too, beside what comes from below
    return {n: params[n] for n in stack.shapes}, {n: inputs[n] for n in run.given if n in inputs}, before


def _add(sums: Named, name: str, array: Array) -> None:
    """Adds to what is there, in place, or files the array itself, which is nobody else's."""
    if name in sums:
        sums[name] += array
    else:
        sums[name] = array


def _direction_gradients(stack: Stack, depth: int, d: int, dy: Named, own: LayerRun, steps: Named) -> Named:
    """The gradients of the outputs of a direction's kernel, from those of the layer's merged
    outputs and of recorded values."""
    layer, found = stack.layers[depth], Named()
    for name, array in dy.items():
        if len(stack.directions) == 1 or stack.merge == "sum":
            found[name] = array
        elif stack.merge == "concat":
            width = layer.outputs[name][0]
            found[name] = array[..., d * width : (d + 1) * width]
        elif stack.merge == "mean":
            found[name] = array * stack.dtype.type(0.5)
        else:
            found[name] = array * own.parts[1 - d][name]
    for name in stack.recorded[depth]:
        more = steps.get(f"{name}{stack.suffix(depth, d)}")
        if more is not None:
            found[name] = found[name] + more if name in found else more
    return found


def _final(layer: Layer, given: Named, split: Pieces | None) -> Named:
    """The gradients of the states after every row's last step, as the kernel takes them."""
    if split is None:
        return given
    found = {}
    for name, array in given.items():
        found[name] = np.zeros((len(split), *layer.states[name]), array.dtype)
        found[name][split.last] = array
    return found


def _state_gradients(
    stack: Stack,
    depth: int,
    d: int,
    found: Mapping[str, Array],
    given: frozenset[str],
    split: Pieces | None,
    params: Named,
    before: tuple[Array, ...],
) -> None:
    """Files the gradients of the states before the first steps: with what each row began with, and
    with the learned initial state."""
    for name, array in found.items():
        index, at = stack.state_place(depth, d, name)
        if split is None:
            before[index][at] = array
            learned = array[:0] if name in given else array
        else:
            fresh = split.fresh.copy()
            before[index][at] = np.where(
                fresh[split.first].reshape(-1, *(1,) * (array.ndim - 1)), 0, array[split.first]
            )
            if name not in given:
                fresh[split.first] = True
            learned = array[fresh]
        if stack.learn_initial:
            params[f"initial_{name}{stack.suffix(depth, d)}"] = learned.sum(axis=0)
