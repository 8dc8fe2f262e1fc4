"""Layers along directions: forward, and back for the directions of gradients.

In: the StackCall of a sequence, and another one that holds the directions of its arrays. The walks
through the layers are those of forward.py and backward.py: all between kernels is linear, so that
directions go the same way. One walk has the values that each kernel reads, the next their
directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import pinned
from rnnspec.engine.call import Call
from rnnspec.engine.directions import Directions
from rnnspec.engine.results import Gradients, Inference, Jvp, Linear, Run
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError
from rnnspec.layers.backward import backward, run_backward
from rnnspec.layers.calls import direction_call
from rnnspec.layers.description import Layers
from rnnspec.layers.forward import RunCell, forward, run_forward
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import LayerRun, Named, StackCall, StackGradients, StackRun

States = tuple[Array | None, ...]
Flow = tuple[Named, Named]  # gradients of the outputs and of the final states of one cell


@dataclass(frozen=True)
class StackUpstream:
    """Gradients from outside, as `backward` takes them, or their directions."""

    outputs: Named
    final: States
    steps: Named

    def copied(self) -> StackUpstream:
        """Its own arrays: the caller's may change before the way back begins."""
        final = tuple(None if a is None else a.copy() for a in self.final)
        outputs, steps = ({n: a.copy() for n, a in own.items()} for own in (self.outputs, self.steps))
        return StackUpstream(outputs, final, steps)


@dataclass(frozen=True)
class StackHvp:
    """tangent: directions of outputs, final states and recorded values; gradients; and the
    directions of these."""

    tangent: StackRun
    gradients: StackGradients
    tangent_gradients: StackGradients


def jvp(layers: Layers, call: StackCall, along: StackCall) -> StackRun:
    """The directions of all that a run gives, as a StackRun of them.

    along: the directions of the call's arrays, in their places. Raises UnsupportedError for
    merge="product".
    """
    left = iter(_run(layers, call)[0])

    def run(layer: Layer, direction: Call, out: Named) -> Inference:
        called = next(left)
        return _filed(layer.kernel.run_jvp(called, _directions(layer, direction)), out)

    return forward(layers, along, run, direction_call)


def hvp(layers: Layers, call: StackCall, along: StackCall, upstream: StackUpstream, moved: StackUpstream) -> StackHvp:
    """Gradients of a run, and the directions of all that it gives and of its gradients.

    along: as for `jvp`; upstream, moved: the gradients from outside, and their directions. Raises
    UnsupportedError for merge="product".
    """
    calls, run = _run(layers, call)
    left, kept = iter(calls), list[tuple[Linear, Directions]]()

    def ahead(layer: Layer, direction: Call, out: Named) -> Inference:
        own = _directions(layer, direction)
        kept.append((layer.kernel.run_linear(next(left), own), own))
        return _filed(kept[-1][0].run, out)

    tangent = forward(layers, along, ahead, direction_call)
    flows, gradients = _flows(layers, run, upstream), dict[tuple[int, int], Gradients]()

    def back(layers: Layers, run: StackRun, depth: int, d: int, outputs: Named, final: Named) -> Gradients:
        linear, own = kept[layers.place(depth, d)]
        own = replace(own, outputs=_columns(outputs), final=_columns(final))
        gradients[depth, d], of_direction = linear.backward(*flows[depth, d], own)
        return of_direction

    def known(layers: Layers, run: StackRun, depth: int, d: int, outputs: Named, final: Named) -> Gradients:
        return gradients[depth, d]

    of_gradients = backward(layers, run, moved.outputs, moved.final, moved.steps, back)
    own = backward(layers, run, upstream.outputs, upstream.final, upstream.steps, known)
    return StackHvp(tangent, own, of_gradients)


def _run(layers: Layers, call: StackCall) -> tuple[list[Call], StackRun]:
    """What every cell is called with, layer by layer and in each direction, and the run, with tapes
    where there are layers above others. A single layer need not run for it."""
    if layers.merge == "product" and len(layers.directions) > 1:
        raise UnsupportedError(
            "layers with merge='product' have neither forward-mode nor second derivatives: merge='concat', 'sum' and"
            " 'mean' have them."
        )
    calls = list[Call]()
    run = forward(layers, call, _noting(calls, runs=layers.num_layers > 1))
    return calls, run if run.layers else replace(run, layers=(LayerRun(),) * layers.num_layers)


def _noting(calls: list[Call], *, runs: bool) -> RunCell:
    """Notes calls; runs: whether they are run too."""

    def run(layer: Layer, call: Call, out: Named) -> Run | Inference:
        calls.append(call)
        if runs:
            return run_forward(layer, call, out)
        return Inference({}, _zero_states(layer, _starts(call.rows, call.pieces)))

    return run


def _directions(layer: Layer, direction: Call) -> Directions:
    """The directions of a cell's Call, one column of them."""
    still, params = layer.spec.no_gradient, direction.params
    assert not isinstance(params, Weights), "directions are not packed"
    groups = [
        _columns({n: a for n, a in group.items() if n not in still})
        for group in (params, direction.inputs, direction.states)
    ]
    return Directions(groups[0], groups[1], groups[2], {}, {}, 1, True, pinned([a for g in groups for a in g.values()]))


def _columns(arrays: Named) -> Named:
    return {n: a[None] for n, a in arrays.items()}


def _filed(found: Jvp, out: Named) -> Inference:
    """Directions in place of what they are directions of, those of outputs in the arrays that the
    walk has for them."""
    for name, array in out.items():
        array[...] = found.tangent_outputs[name]
    return Inference(out, found.tangent_final)


def _flows(layers: Layers, run: StackRun, upstream: StackUpstream) -> dict[tuple[int, int], Flow]:
    """The gradients of the outputs and final states of every cell, [T, B, ...] in the order in
    which it steps."""
    flows: dict[tuple[int, int], Flow] = {}

    def back(layers: Layers, run: StackRun, depth: int, d: int, outputs: Named, final: Named) -> Gradients:
        flows[depth, d] = outputs, final
        if depth:
            return run_backward(layers, run, depth, d, outputs, final)
        return _nothing(layers.layers[0], _starts(run.rows, run.pieces[layers.directions[d].reverse]))

    backward(layers, run, upstream.outputs, upstream.final, upstream.steps, back)
    return flows


def _nothing(layer: Layer, starts: int) -> Gradients:
    """Gradients of a cell for a walk that looks at none: nothing is below it."""
    params = {n: np.zeros(layer.full(s), layer.kernel.dtype) for n, s in layer.spec.trained.items()}
    return Gradients(params, {}, _zero_states(layer, starts))


def _zero_states(layer: Layer, starts: int) -> Named:
    return {n: np.zeros((starts, *shape), layer.kernel.dtype) for n, shape in layer.states.items()}


def _starts(rows: int, pieces: Pieces | None) -> int:
    """How many states a cell begins with."""
    return rows if pieces is None else len(pieces)
