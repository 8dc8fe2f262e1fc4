"""The forward pass of layers over a sequence: layer after layer and direction after direction.

Outputs are written where they belong in the merged array.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import noise
from rnnspec.engine.call import Call
from rnnspec.engine.results import Inference, Run, Taped
from rnnspec.language.draws import Draw
from rnnspec.layers.calls import cell_call, counts_after, inputs_of, turned, turns
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import LayerRun, Named, StackCall, StackRun

RunCell = Callable[[Layer, Call, Named], Run | Inference]
MakeCall = Callable[[Layers, StackCall, int, int, Named], Call]


def run_forward(layer: Layer, call: Call, out: Named) -> Run:
    """Runs a layer's cell with a tape that the Run keeps."""
    run = layer.kernel.run_forward(call, out)
    run.outputs.clear()  # else every layer's outputs would stay in memory until backward, which does not read them
    return run


def run_record(layer: Layer, call: Call, out: Named) -> Taped:
    """Runs a layer's cell with a tape that comes as bytes."""
    return layer.kernel.run_record(call, out)


def run_infer(layer: Layer, call: Call, out: Named) -> Inference:
    """Runs a layer's cell without a tape."""
    return layer.kernel.run_infer(call, out)


def forward(layers: Layers, call: StackCall, run: RunCell, made: MakeCall = cell_call) -> StackRun:
    """Runs all layers over a sequence. run: runs the cell of one direction of a layer, writing its
    outputs to the arrays that it is handed; what it keeps is in the StackRun; made: makes the Call
    that it runs. main: what a layer reads; below: the same before dropout, for the residual."""
    final = tuple(np.empty((shape[0], call.rows, *shape[1:]), layers.dtype) for shape in layers.states.values())
    layer_runs, recorded, outputs = list[LayerRun](), Named(), Named()
    main = call.inputs.get(layers.layers[0].main)
    for depth, layer in enumerate(layers.layers):
        layer_run, below = LayerRun(), main
        if depth and main is not None:
            main = _dropped(layers, call, depth, main, layer_run)
        inputs = inputs_of(layer, main, call.inputs)
        merged, targets = _targets(layers, depth, call.steps, call.rows)
        for d, target in enumerate(targets):
            out = turned(target, turns(layers, call.pieces, d))
            result = run(layer, made(layers, call, depth, d, inputs), out)
            _file_final(layers, call, depth, d, result.final, final)
            if isinstance(result, Run | Taped):
                layer_run.runs.append(result)
            recorded |= _record_steps(layers, depth, d, target)
        outputs = _merge(layers, depth, merged, targets)
        layer_run.parts = targets if layers.merge == "product" else []
        main = outputs[layers.emitted[depth][0]]
        if layers.residual and depth:
            main += below
        layer_runs.append(layer_run)
    given = tuple(array is not None for array in call.state)
    tapes = tuple(layer_run for layer_run in layer_runs if layer_run.runs)
    final += counts_after(layers, call)
    return StackRun(outputs, final, recorded, call.steps, call.rows, tuple(call.inputs), given, tapes, call.pieces)


def _dropped(layers: Layers, call: StackCall, depth: int, main: Array, layer_run: LayerRun) -> Array:
    """What a layer above the first reads of the one below, after dropout; files what its backward
    pass needs of it."""
    if layers.dropout and call.seed is not None:
        layer_run.mask = dropout_mask(call.seed, depth, main.shape, layers.dropout, layers.dtype)
        main = np.multiply(main, layer_run.mask, order="C")
    layer_run.main = main if layers.memory == "low" else None
    return main


def dropout_mask(seed: tuple[int, ...], depth: int, shape: tuple[int, ...], rate: float, dtype: np.dtype) -> Array:
    """1 / (1 - rate) where an input of a layer is kept, 0 where it is dropped, [T, B, ...]
    (Zaremba, Sutskever & Vinyals 2014, arXiv 1409.2329).

    seed, depth: with the number of the layer in its stack they decide what is drawn; shape: [T, B,
    ...]; rate: the chance that a number is dropped; dtype: of the result.
    """
    how = Draw("dropout", rate, "step") if rate < 1 else Draw("bernoulli", 0.0, "step")
    return noise.draw_one(how, "dropout between layers", shape[:2], shape[2:], (*seed, depth), dtype)


def _file_final(layers: Layers, call: StackCall, depth: int, d: int, states: Named, final: tuple[Array, ...]) -> None:
    """Files the states of a kernel after every row's last step, where `final` has them."""
    pieces, places = call.pieces[layers.directions[d].reverse], layers.state_places[layers.place(depth, d)]
    for name, (index, at) in places.items():
        final[index][at] = states[name] if pieces is None else states[name][pieces.last]


def _record_steps(layers: Layers, depth: int, d: int, target: Named) -> Named:
    """The recorded values of one direction of a layer; copies of those that it emits, for these are
    the caller's too, or may be added to."""
    end, emitted = layers.suffix(depth, d), layers.emitted[depth]
    return {f"{n}{end}": target[n].copy() if n in emitted else target[n] for n in layers.recorded[depth]}


def _targets(layers: Layers, depth: int, steps: int, rows: int) -> tuple[Named, list[Named]]:
    """Where a layer's outputs go: the merged arrays, and for each direction the array that its
    kernel writes."""
    count = len(layers.directions)
    merged: Named = {}
    targets: list[Named] = [{} for _ in range(count)]
    for name, shape in layers.layers[depth].outputs.items():
        if count == 1 or name not in layers.emitted[depth] or layers.merge != "concat":
            for target in targets:
                target[name] = np.empty((steps, rows, *shape), layers.dtype)
        else:
            merged[name] = np.empty((steps, rows, count * shape[0]), layers.dtype)
            for d, target in enumerate(targets):
                target[name] = merged[name][..., d * shape[0] : (d + 1) * shape[0]]
    return merged, targets


def _merge(layers: Layers, depth: int, merged: Named, targets: list[Named]) -> Named:
    """What a layer emits, from the outputs of its directions."""
    if len(targets) > 1 and layers.merge == "concat":
        return merged
    outputs: Named = {}
    for name in layers.emitted[depth]:
        first, *second = (target[name] for target in targets)
        if not second:
            outputs[name] = first
            continue
        outputs[name] = first * second[0] if layers.merge == "product" else first + second[0]
        if layers.merge == "mean":
            outputs[name] *= layers.dtype.type(0.5)
    return outputs
