"""What a layer's kernel is called with in one direction: from a StackCall to the engine's Call.

Here noise is drawn, defaults are filled in and rows that restart get their initial states; a Call
that comes out is complete, and its kernel looks at nothing again. Arrays are [T, B, ...]. A
direction that runs from the end reads and writes them in place: by negative strides where all rows
have all steps, else as pieces (engine/spans.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import noise
from rnnspec.engine.arrays import numbered, with_defaults
from rnnspec.engine.call import Call
from rnnspec.engine.groups import check_rows_of, groups_of
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Weights
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import Named, StackCall


def inputs_of(layer: Layer, main: Array | None, inputs: Named) -> Named:
    """The inputs of a layer that are given: main from the layer below, or the caller."""
    named = {} if main is None else {layer.main: main}
    return named | {n: inputs[n] for n in layer.others if n in inputs}


def turns(layers: Layers, pieces: Mapping[bool, Pieces | None], d: int) -> bool:
    """Whether a direction reads and writes its arrays from the last step to the first: of pieces
    each says itself which way it runs."""
    reverse = layers.directions[d].reverse
    return reverse and pieces[reverse] is None


def turned(arrays: Named, turn: bool) -> Named:
    """The last step first, as views."""
    return {name: array[::-1] for name, array in arrays.items()} if turn else arrays


def states_of(layers: Layers, states: tuple[Array | None, ...], depth: int, d: int) -> Named:
    """The states of one direction of a layer, [B, ...], where they are given."""
    places = layers.state_places[layers.place(depth, d)]
    return {name: array[at] for name, (index, at) in places.items() if (array := states[index]) is not None}


def cell_call(layers: Layers, call: StackCall, depth: int, d: int, inputs: Named) -> Call:
    """The Call of one direction of one of the layers.

    call: the arguments of all layers. depth, d: the numbers of the layer and of the direction.
    inputs: those of the layer that are given, see `inputs_of`. Raises ValueError in training where
    weights are packed with what is expected of their noise.
    """
    layer, place = layers.layers[depth], layers.place(depth, d)
    spec, params = layer.spec, call.weights.cells[place]
    if spec.noise:
        params, inputs = _with_noise(layer, params, inputs, call, depth, d)
    pieces = call.pieces[layers.directions[d].reverse]
    counts = _counts_before(call, place, pieces) if spec.counts else None
    if spec.defaults:  # before a direction turns: they go by step and not by the order of steps
        inputs = with_defaults(spec, inputs, (call.steps, call.rows), layer.sizes, layers.dtype, counts, pieces)
    return _placed(layers, call, depth, d, params, inputs, counts)


def direction_call(layers: Layers, along: StackCall, depth: int, d: int, inputs: Named) -> Call:
    """The directions of the Call of one direction of one of the layers: of what has none nothing is
    drawn or filled in. along: those of the arguments of all layers."""
    return _placed(layers, along, depth, d, along.weights.cells[layers.place(depth, d)], inputs, None)


def _placed(
    layers: Layers,
    call: StackCall,
    depth: int,
    d: int,
    params: Mapping[str, Array] | Weights,
    inputs: Named,
    counts: Array | None,
) -> Call:
    """The Call of parameters and inputs that are complete: with the states before the first steps,
    and read in the order of its steps."""
    layer, place = layers.layers[depth], layers.place(depth, d)
    pieces = call.pieces[layers.directions[d].reverse]
    states = _before(layer, states_of(layers, call.state, depth, d), call.weights.initial[place], pieces, call.rows)
    if pieces is None:
        lengths, inputs = call.lengths, turned(inputs, turns(layers, call.pieces, d))
    else:
        lengths, inputs = pieces.length, {name: numbered(array) for name, array in inputs.items()}
    whole = Call(params, inputs, states, lengths, layer.sizes, call.steps, call.rows, pieces, counts)
    whole = whole._replace(compared=True) if call.weights.compared else whole
    return _by_row(whole, layer) if call.weights.groups else whole


def _by_row(call: Call, layer: Layer) -> Call:
    """A call whose rows have weights of their own."""
    assert not isinstance(call.params, Weights), "Stack.pack takes the same weights for all rows"
    groups = groups_of(call.params, layer.spec.parameters)
    check_rows_of(groups, call.rows)
    return call._replace(groups=groups)


def counts_after(layers: Layers, call: StackCall) -> tuple[Array, ...]:
    """The count of steps after the last one, [L * D, B], as the last array of a state; nothing
    where no layer counts."""
    if call.counts is None:
        return ()
    after = call.counts.copy()
    for place, (_, d) in enumerate(layers.places):
        pieces = call.pieces[layers.directions[d].reverse]
        if pieces is None:
            after[place] += call.steps if call.lengths is None else call.lengths
        else:
            after[place] = (_counts_before(call, place, pieces) + pieces.length)[pieces.last]
    return (after,)


def _counts_before(call: StackCall, place: int, pieces: Pieces | None) -> Array:
    """How many steps each row of a direction of a layer has taken before, or each piece: none after
    a reset."""
    assert call.counts is not None, "a layer counts"
    if pieces is None:
        return call.counts[place]
    counts = np.zeros(len(pieces), np.int64)
    first = pieces.first[~pieces.fresh[pieces.first]]
    counts[first] = call.counts[place][pieces.row[first]]
    return counts


def _with_noise(
    layer: Layer, params: Mapping[str, Array] | Weights, inputs: Named, call: StackCall, depth: int, d: int
) -> tuple[Mapping[str, Array] | Weights, Named]:
    """Parameters and inputs with the cell's noise: drawn in training, else what is expected of it,
    which packed weights hold already."""
    spec, size = layer.spec, (layer.sizes, call.steps, call.rows)
    if call.seed is None:
        arrays = noise.mean(spec, *size, layer.kernel.dtype)
    else:
        whole = None if call.sequence is None else (*call.sequence, depth, d)
        arrays = noise.draw(spec, *size, (*call.seed, depth, d), layer.kernel.dtype, sequence=whole)
    of_params = {n: a for n, a in arrays.items() if n in spec.parameters}
    if of_params and not isinstance(params, Weights):
        params = {**params, **of_params}
    elif of_params and call.seed is not None:
        raise ValueError(
            f"the noise of {spec.name!r} is in its parameters too, and packed weights hold what is expected of"
            " it: in training give params."
        )
    return params, inputs | {n: a for n, a in arrays.items() if n not in of_params}


def _before(layer: Layer, given: Named, initial: Mapping[str, Array], pieces: Pieces | None, rows: int) -> Named:
    """The states before the first step of every row, or of every piece: what is given, after a
    reset and elsewhere the initial one. Those that are zero are left out."""
    if not initial and (pieces is None or not given):
        return given
    states: Named = {}
    for name, shape in layer.states.items():
        array, start = given.get(name), initial.get(name)
        if pieces is not None and array is not None:
            states[name] = np.zeros((len(pieces), *shape), array.dtype)
            if start is not None:
                states[name][...] = start
            first = pieces.first[~pieces.fresh[pieces.first]]
            states[name][first] = array[pieces.row[first]]
        elif array is not None:
            states[name] = array
        elif start is not None:
            states[name] = np.broadcast_to(start, (rows if pieces is None else len(pieces), *shape))
    return states
