"""What a Stack keeps for backward as plain bytes: for who owns that memory himself, as torch's
autograd does.

A run is a function of the arguments of the call and of these arrays alone, so that another Stack of
the same layers, in another process even, can run it backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.results import Taped
from rnnspec.engine.spans import Pieces
from rnnspec.errors import ShapeError
from rnnspec.layers.forward import call_inputs, read_by, started
from rnnspec.layers.runs import LayerRun, Named, StackRun

if TYPE_CHECKING:
    from rnnspec.layers.runs import StackWeights
    from rnnspec.layers.stack import Stack


def count(stack: Stack, training: bool) -> int:
    """How many arrays `pack` gives."""
    return sum(len(stack.directions) + len(_shapes(stack, depth, 0, 0, training)) for depth in range(stack.num_layers))


def pack(stack: Stack, run: StackRun) -> list[Array]:
    """Rows of bytes, uint8 [n]: of each layer the tape of each direction, and what else is kept.
    `run` comes from `Stack.record`."""
    found: list[Array] = []
    for depth, own in enumerate(run.kept):
        found += [taped.tape for taped in own.runs if isinstance(taped, Taped)]
        more = [a for a in (own.mask, own.main) if a is not None]
        more += [part[name] for part in own.parts for name in stack.emitted[depth]]
        found += [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in more]
    return found


def unpack(
    stack: Stack,
    kept: list[Array],
    weights: StackWeights,
    inputs: Named,
    state: tuple[Array | None, ...],
    lengths: Array | None,
    pieces: Mapping[bool, Pieces | None],
    *,
    training: bool,
    seed: tuple[int, ...],
) -> StackRun:
    """The StackRun for `Stack.backward`, from what was kept and the arguments of the call."""
    if len(kept) != count(stack, training):
        raise ShapeError(f"{len(kept)} arrays were kept, but these layers keep {count(stack, training)}.")
    steps, rows = next(iter(inputs.values())).shape[:2]
    left, layers = iter(kept), []
    for depth, layer in enumerate(stack.layers):
        tapes = [next(left) for _ in stack.directions]
        own = _layer_run(stack, depth, steps, rows, left, training)
        if stack.memory == "low":
            main = own.main if depth else inputs.get(layer.main)
        else:  # of inputs the shapes alone are read
            main = np.broadcast_to(stack.dtype.type(0), (steps, rows, *layer.full(layer.spec.inputs[layer.main])))
        given = read_by(layer, main, inputs)
        for d, (direction, tape) in enumerate(zip(stack.directions, tapes)):
            split, place = pieces[direction.reverse], depth * len(stack.directions) + d
            turn = direction.reverse and split is None
            params, streams = call_inputs(
                layer, weights.cells[place], given, (steps, rows), turn, (*seed, depth, d) if training else None
            )
            own.runs.append(
                layer.kernel.resume(params, streams, tape, None if split is not None else lengths, pieces=split)
            )
            own.given.append(frozenset(started(stack, state, depth, d)))
        layers.append(own)
    return StackRun({}, (), {}, steps, rows, tuple(inputs), tuple(layers), pieces)


def _shapes(stack: Stack, depth: int, steps: int, rows: int, training: bool) -> list[tuple[int, ...]]:
    """The shapes of what a layer keeps beside tapes: the mask and the input, and the outputs of
    each direction."""
    layer = stack.layers[depth]
    read = [layer.full(layer.spec.inputs[layer.main])] if depth else []
    found = read * bool(training and stack.dropout) + read * (stack.memory == "low")
    if stack.merge == "product":
        found += [layer.outputs[name] for _ in stack.directions for name in stack.emitted[depth]]
    return [(steps, rows, *shape) for shape in found]


def _layer_run(stack: Stack, depth: int, steps: int, rows: int, left: Iterator[Array], training: bool) -> LayerRun:
    arrays = [next(left).view(stack.dtype).reshape(shape) for shape in _shapes(stack, depth, steps, rows, training)]
    own = LayerRun()
    if depth and training and stack.dropout:
        own.mask = arrays.pop(0)
    if depth and stack.memory == "low":
        own.main = arrays.pop(0)
    while arrays:
        own.parts.append({name: arrays.pop(0) for name in stack.emitted[depth]})
    return own
