"""The backward pass of layers: the last layer first.

Arrays are [T, B, ...]. A direction that runs from the end reads and writes them in place, as in the
forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine.arrays import row_sum
from rnnspec.engine.results import Gradients, Run
from rnnspec.engine.spans import Pieces
from rnnspec.layers.calls import states_of, turned, turns
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import Named, StackGradients, StackRun

# goes back through the cell of one direction of a layer: layers, the run, the numbers of the layer
# and the direction, the gradients of its outputs and of its final states
BackCell = Callable[[Layers, StackRun, int, int, Named, Named], Gradients]


def run_backward(layers: Layers, run: StackRun, depth: int, d: int, outputs: Named, final: Named) -> Gradients:
    """Goes back through a layer's cell by its tape."""
    return layers.layers[depth].kernel.backward(_tape_of(run, depth, d), outputs, final=final)


def run_backward_rows(layers: Layers, run: StackRun, depth: int, d: int, outputs: Named, final: Named) -> Gradients:
    """Goes back through a layer's cell by its tape; the gradients of parameters are of each row."""
    return layers.layers[depth].kernel.backward(_tape_of(run, depth, d), outputs, final=final, per_row=True)


def _tape_of(run: StackRun, depth: int, d: int) -> Run:
    cell_run = run.layers[depth].runs[d]
    if not isinstance(cell_run, Run):
        raise TypeError("what `record` returns is for `resume`; give backward the run that this returns.")
    return cell_run


def backward(
    layers: Layers,
    run: StackRun,
    outputs: Named,
    final: tuple[Array | None, ...],
    steps: Named,
    back: BackCell = run_backward,
) -> StackGradients:
    """Gradients of weights, inputs and initial states of a run of `forward`.

    layers: those that ran; run: of `forward`, with its tapes; outputs: gradients of outputs by
    name, [T, B, ...]; final: of the states after the last step, one for each of `Layers.states`;
    steps: of recorded values by name. What is left out counts as zero. back: goes back through one
    cell; with run_backward_rows gradients of weights are of each row, [B, ...]. Raises TypeError
    for a run that keeps its tapes as bytes.
    """
    with Pins([*outputs.values(), *(a for a in final if a is not None), *steps.values()]):
        return _backward(layers, run, outputs, final, steps, back)


def _backward(
    layers: Layers, run: StackRun, outputs: Named, final: tuple[Array | None, ...], steps: Named, back: BackCell
) -> StackGradients:
    params: Named = {}
    inputs: Named = {}
    states = tuple(np.zeros((shape[0], run.rows, *shape[1:]), layers.dtype) for shape in layers.states.values())
    dy = outputs
    for depth in reversed(range(layers.num_layers)):
        layer, layer_run = layers.layers[depth], run.layers[depth]
        total: Named = {}
        for d in range(len(layers.directions)):
            given = _output_gradients(layers, run, depth, d, dy, steps)
            gradients = _one_direction(layers, run, depth, d, given, final, back)
            for name, array in gradients.inputs.items():
                _add(total, name, array)
            end = layers.weight_suffix(depth, d)
            for name, array in _weights(layer, gradients.params).items():
                _add(params, f"{name}{end}", array)
            _file_states(layers, run, depth, d, gradients.states, params, states, back is run_backward_rows)
        below = total.pop(layer.main, None)
        for name, array in total.items():
            _add(inputs, name, array)
        if below is not None and layer_run.mask is not None:
            below = np.multiply(below, layer_run.mask, order="C")
        if layers.residual and depth and (above := dy.get(layers.emitted[depth][0])) is not None:
            below = above if below is None else below + above
        if depth:
            dy = {} if below is None else {layers.emitted[depth - 1][0]: below}
        elif below is not None:
            _add(inputs, layer.main, below)  # a layer above may read it too, beside what comes from below
    return StackGradients(
        {n: params[n] for n in layers.shapes if n not in layers.fixed},
        {n: inputs[n] for n in run.inputs if n in inputs},
        states,
    )


def _one_direction(
    layers: Layers,
    run: StackRun,
    depth: int,
    d: int,
    outputs: Named,
    final: tuple[Array | None, ...],
    back: BackCell,
) -> Gradients:
    """The gradients of a layer in one direction; those of inputs by step, from the first to the
    last."""
    layer, turn = layers.layers[depth], turns(layers, run.pieces, d)
    pieces = run.pieces[layers.directions[d].reverse]
    after = _final(layer, states_of(layers, final, depth, d), pieces)
    gradients = back(layers, run, depth, d, turned(outputs, turn), after)
    return Gradients(gradients.params, turned(gradients.inputs, turn), gradients.states) if turn else gradients


def _weights(layer: Layer, found: Named) -> Named:
    """The gradients of a layer's weights from those of its cell's parameters; of each row, or of
    each of several weights, [N, ...] of [N, ...]."""
    several = {a.shape[0] for n, a in found.items() if a.ndim > len(layer.spec.parameters[n])}
    if not several:
        return layer.weights(found, gradients=True)
    each = [layer.weights({n: a[i] for n, a in found.items()}, gradients=True) for i in range(max(several))]
    names = layer.weights({n: np.zeros(a.shape[1:], a.dtype) for n, a in found.items()}, gradients=True)
    return {n: np.stack([w[n] for w in each]) if each else np.zeros((0, *a.shape), a.dtype) for n, a in names.items()}


def _add(sums: Named, name: str, array: Array) -> None:
    """Adds to what is there, in place, or files the array itself, which is nobody else's."""
    if name in sums:
        sums[name] += array
    else:
        sums[name] = array


def _output_gradients(layers: Layers, run: StackRun, depth: int, d: int, dy: Named, steps: Named) -> Named:
    """The gradients of the outputs of a direction's kernel, from those of the layer's merged
    outputs and of recorded values."""
    layer, gradients = layers.layers[depth], Named()
    for name, array in dy.items():
        if len(layers.directions) == 1 or layers.merge == "sum":
            gradients[name] = array
        elif layers.merge == "concat":
            width = layer.outputs[name][0]
            gradients[name] = array[..., d * width : (d + 1) * width]
        elif layers.merge == "mean":
            gradients[name] = array * layers.dtype.type(0.5)
        else:
            gradients[name] = array * run.layers[depth].parts[1 - d][name]
    for name in layers.recorded[depth]:
        more = steps.get(f"{name}{layers.suffix(depth, d)}")
        if more is not None:
            gradients[name] = gradients[name] + more if name in gradients else more
    return gradients


def _final(layer: Layer, given: Named, pieces: Pieces | None) -> Named:
    """The gradients of the states after every row's last step, as the kernel takes them."""
    if pieces is None:
        return given
    gradients: Named = {}
    for name, array in given.items():
        gradients[name] = np.zeros((len(pieces), *layer.states[name]), array.dtype)
        gradients[name][pieces.last] = array
    return gradients


def _file_states(
    layers: Layers,
    run: StackRun,
    depth: int,
    d: int,
    gradients: Mapping[str, Array],
    params: Named,
    states: tuple[Array, ...],
    per_row: bool,
) -> None:
    """Files the gradients of the states before the first steps: with what each row began with, and
    with the learned initial state."""
    pieces, places = run.pieces[layers.directions[d].reverse], layers.state_places[layers.place(depth, d)]
    for name, array in gradients.items():
        index, at = places[name]
        if pieces is None:
            states[index][at] = array
            rows = np.arange(0 if run.states[index] else run.rows)
            learned = array[rows]
        else:
            fresh = pieces.fresh.copy()
            restarted = fresh[pieces.first].reshape(-1, *(1,) * (array.ndim - 1))
            states[index][at] = np.where(restarted, 0, array[pieces.first])
            if not run.states[index]:
                fresh[pieces.first] = True
            rows, learned = pieces.row[fresh], array[fresh]
        place = f"initial_{name}{layers.suffix(depth, d)}"
        if layers.learn_initial and per_row:
            params[place] = np.zeros((run.rows, *array.shape[1:]), array.dtype)
            np.add.at(params[place], rows, learned)
        elif layers.learn_initial:
            params[place] = row_sum(learned)
