"""The tapes of layers as plain bytes, for a caller that owns that memory, as torch's autograd does.

A run is a function of the call and of these arrays alone, so that another Stack of the same layers,
in another process even, can run it backwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine.results import Taped
from rnnspec.errors import ShapeError
from rnnspec.layers.calls import cell_call, inputs_of
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import LayerRun, StackCall, StackRun


def count(layers: Layers, training: bool) -> int:
    """How many arrays `to_bytes` gives."""
    return sum(
        len(layers.directions) + len(_shapes(layers, depth, 0, 0, training)) for depth in range(layers.num_layers)
    )


def to_bytes(layers: Layers, run: StackRun) -> list[Array]:
    """Rows of bytes, uint8 [n]: of each layer the tape of each direction, and what else backward
    reads. The cells of the run were run by `run_record`."""
    rows: list[Array] = []
    for depth, layer_run in enumerate(run.layers):
        rows += [taped.tape for taped in layer_run.runs if isinstance(taped, Taped)]
        arrays = [a for a in (layer_run.mask, layer_run.main) if a is not None]
        arrays += [part[name] for part in layer_run.parts for name in layers.emitted[depth]]
        rows += [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
    return rows


def from_bytes(layers: Layers, call: StackCall, rows: list[Array]) -> StackRun:
    """The StackRun for `backward`, without outputs, from the call and what `to_bytes` gave.

    The rows of bytes are not copied. Raises ShapeError where they are not those of these layers.
    """
    training = call.seed is not None
    if len(rows) != count(layers, training):
        raise ShapeError(f"{len(rows)} arrays were kept, but these layers keep {count(layers, training)}.")
    left, layer_runs = iter(rows), []
    for depth, layer in enumerate(layers.layers):
        tapes = [next(left) for _ in layers.directions]
        layer_run = _layer_run(layers, depth, call, left)
        if layers.memory == "low":
            main = layer_run.main if depth else call.inputs.get(layer.main)
        else:  # of inputs the shapes alone are read
            shape = layer.full(layer.spec.inputs[layer.main])
            main = np.broadcast_to(layers.dtype.type(0), (call.steps, call.rows, *shape))
        inputs = inputs_of(layer, main, call.inputs)
        for d, tape in enumerate(tapes):
            layer_run.runs.append(layer.kernel.run_resume(cell_call(layers, call, depth, d, inputs), tape))
        layer_runs.append(layer_run)
    given = tuple(array is not None for array in call.state)
    return StackRun({}, (), {}, call.steps, call.rows, tuple(call.inputs), given, tuple(layer_runs), call.pieces)


def _shapes(layers: Layers, depth: int, steps: int, rows: int, training: bool) -> list[tuple[int, ...]]:
    """The shapes of what a layer keeps beside tapes: the mask and the input, and the outputs of
    each direction."""
    layer = layers.layers[depth]
    main = [layer.full(layer.spec.inputs[layer.main])] if depth else []
    shapes = main * bool(training and layers.dropout) + main * (layers.memory == "low")
    if layers.merge == "product":
        shapes += [layer.outputs[name] for _ in layers.directions for name in layers.emitted[depth]]
    return [(steps, rows, *shape) for shape in shapes]


def _numbers(row: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """The array of a row of bytes: on its memory, where numbers may lie there."""
    size = math.prod(shape) * dtype.itemsize
    row = row.view(np.ndarray) if isinstance(row, np.ndarray) else row  # nobody else changes its shape
    if not isinstance(row, np.ndarray) or row.dtype != np.uint8 or row.shape != (size,):
        raise ShapeError(f"a row of {size} bytes (uint8) was kept here, as `run_record` gave it; got another array.")
    array = np.ascontiguousarray(row).view(dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _layer_run(layers: Layers, depth: int, call: StackCall, left: Iterator[Array]) -> LayerRun:
    """What a layer keeps beside tapes, from the next rows of bytes."""
    training = call.seed is not None
    shapes = _shapes(layers, depth, call.steps, call.rows, training)
    arrays = [_numbers(next(left), shape, layers.dtype) for shape in shapes]
    layer_run = LayerRun(pins=Pins(arrays))
    if depth and training and layers.dropout:
        layer_run.mask = arrays.pop(0)
    if depth and layers.memory == "low":
        layer_run.main = arrays.pop(0)
    while arrays:
        layer_run.parts.append({name: arrays.pop(0) for name in layers.emitted[depth]})
    return layer_run
