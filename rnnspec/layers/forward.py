"""The passes of a Stack over a sequence: forward, layer after layer and direction after direction,
and backward.

Arrays are [T, B, ...]. A direction that runs from the end reads and writes them in place: by
negative strides where all rows have all steps, else as pieces (pieces.py). Outputs are written
where they belong in the merged array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from rnnspec.engine import noise
from rnnspec.engine.arrays import with_defaults
from rnnspec.engine.results import Run, Taped
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Weights
from rnnspec.language.draws import Draw
from rnnspec.layers.layer import Layer

if TYPE_CHECKING:
    from rnnspec.layers.runs import StackWeights
    from rnnspec.layers.stack import Stack
from numpy import ndarray as Array

from rnnspec.layers.runs import LayerRun, Named, StackRun


def forward(
    stack: Stack,
    weights: StackWeights,
    inputs: Named,
    state: tuple[Array | None, ...],
    lengths: Array | None,
    pieces: Mapping[bool, Pieces | None],
    *,
    training: bool,
    seed: tuple[int, ...],
    call: Literal["forward", "record", "infer"],
) -> StackRun:
    """All layers. See `Stack.forward`. call: the method of the layers' kernels, whatever backend
    they are of."""
    steps, rows = next(iter(inputs.values())).shape[:2]
    final = tuple(np.empty((shape[0], rows, *shape[1:]), stack.dtype) for shape in stack.states.values())
    recorded: Named = {}
    kept: list[LayerRun] = []
    main, outputs = inputs.get(stack.layers[0].main), Named()
    for depth, layer in enumerate(stack.layers):
        below, own = main, LayerRun()
        if depth and training and stack.dropout and main is not None:
            own.mask = dropout_mask(seed, depth, main.shape, stack.dropout, stack.dtype)
            main = np.multiply(main, own.mask, order="C")
        own.main = main if depth and stack.memory == "low" else None
        given = read_by(layer, main, inputs)
        arrays, targets = _targets(stack, depth, steps, rows)
        for d, direction in enumerate(stack.directions):
            split = pieces[direction.reverse]
            place = depth * len(stack.directions) + d
            own_state = started(stack, state, depth, d)
            before = _before(layer, own_state, weights.initial[place], split, rows)
            turn = direction.reverse and split is None
            params, streams = call_inputs(
                layer, weights.cells[place], given, (steps, rows), turn, (*seed, depth, d) if training else None
            )
            run = getattr(layer.kernel, call)(
                params,
                streams,
                before,
                None if split is not None else lengths,
                pieces=split,
                out=turned(targets[d], turn),
            )
            for name, array in run.final.items():
                index, at = stack.state_place(depth, d, name)
                final[index][at] = array if split is None else array[split.last]
            if isinstance(run, Run):
                # or the outputs of every layer would live as long as the tapes, which do not need
                # them
                run.outputs = {}
            if isinstance(run, Run | Taped):
                own.runs.append(run)
                own.given.append(frozenset(own_state))
            end = stack.suffix(depth, d)
            recorded |= {
                f"{n}{end}": targets[d][n].copy() if n in stack.emitted[depth] else targets[d][n]
                for n in stack.recorded[depth]
            }
        outputs = _merge(stack, depth, arrays, targets)
        own.parts = targets if stack.merge == "product" else []
        main = outputs[stack.emitted[depth][0]]
        if stack.residual and depth:
            main += below
        kept.append(own)
    return StackRun(
        outputs, final, recorded, steps, rows, tuple(inputs), tuple(kept) if call != "infer" else (), pieces
    )


def dropout_mask(seed: tuple[int, ...], depth: int, shape: tuple[int, ...], rate: float, dtype: np.dtype) -> Array:
    """1 / (1 - rate) where an input of a layer is kept, 0 where it is dropped, [T, B, ...]
    (Zaremba, Sutskever & Vinyals 2014, arXiv 1409.2329)."""
    how = Draw("dropout", rate, "step") if rate < 1 else Draw("bernoulli", 0.0, "step")
    return noise.draw_one(how, "dropout between layers", shape[:2], shape[2:], (*seed, depth), dtype)


def _noise(layer: Layer, steps: int, rows: int, seed: tuple[int, ...] | None) -> Named:
    """What the cell's noise is in a call: drawn, or what is expected of it where there is no seed.
    By step, not by the order of steps."""
    spec, sizes, dtype = layer.spec, layer.sizes, layer.kernel.dtype
    return (
        noise.mean(spec, sizes, steps, rows, dtype)
        if seed is None
        else noise.draw(spec, sizes, steps, rows, seed, dtype)
    )


def read_by(layer: Layer, main: Array | None, inputs: Named) -> Named:
    """The inputs of a layer that are given: main from the layer below, or the caller."""
    return {n: a for n, a in ((layer.main, main), *((n, inputs.get(n)) for n in layer.others)) if a is not None}


def call_inputs(
    layer: Layer,
    params: Mapping[str, Array] | Weights,
    inputs: Named,
    lead: tuple[int, int],
    turn: bool,
    seed: tuple[int, ...] | None,
) -> tuple[Mapping[str, Array] | Weights, Named]:
    """Parameters and inputs as the kernel takes them, with the cell's noise and what was left at
    its default. lead: (T, B); turn: the last step first; seed: of the noise, None for what is
    expected of it. Packed weights hold what is expected of that of parameters.
    """
    drawn = _noise(layer, *lead, seed)
    own = {n: a for n, a in drawn.items() if n in layer.spec.parameters}
    if own and not isinstance(params, Weights):
        params = {**params, **own}
    elif own and seed is not None:
        raise ValueError(
            f"the noise of {layer.spec.name!r} is in its parameters too, and packed weights hold what is expected of"
            " it: in training give params."
        )
    streams = inputs | {n: a for n, a in drawn.items() if n not in own}
    if layer.spec.defaults:  # here and not in the kernel, so that they too go by step and not by the order of steps
        streams = with_defaults(layer.spec, streams, lead, layer.sizes, layer.kernel.dtype)
    return params, turned(streams, turn)


# --- directions


def turned(arrays: Named, turn: bool) -> Named:
    """The last step first, as views."""
    return {name: array[::-1] for name, array in arrays.items()} if turn else arrays


def _targets(stack: Stack, depth: int, steps: int, rows: int) -> tuple[Named, list[Named]]:
    """Where a layer's outputs go: the merged arrays, and for each direction the array that its
    kernel writes."""
    layer, many = stack.layers[depth], len(stack.directions)
    arrays: Named = {}
    targets: list[Named] = [{} for _ in range(many)]
    for name, shape in layer.outputs.items():
        if many == 1 or name not in stack.emitted[depth] or stack.merge != "concat":
            for target in targets:
                target[name] = np.empty((steps, rows, *shape), stack.dtype)
        else:
            whole = arrays[name] = np.empty((steps, rows, many * shape[0]), stack.dtype)
            for d, target in enumerate(targets):
                target[name] = whole[..., d * shape[0] : (d + 1) * shape[0]]
    return arrays, targets


def _merge(stack: Stack, depth: int, arrays: Named, targets: list[Named]) -> Named:
    """What a layer emits, from the outputs of its directions."""
    if len(targets) > 1 and stack.merge == "concat":
        return arrays
    found = {}
    for name in stack.emitted[depth]:
        first, *second = (target[name] for target in targets)
        if not second:
            found[name] = first
            continue
        found[name] = first * second[0] if stack.merge == "product" else first + second[0]
        if stack.merge == "mean":
            found[name] *= stack.dtype.type(0.5)
    return found


def started(stack: Stack, states: tuple[Array | None, ...], depth: int, d: int) -> Named:
    """The states of one direction of a layer, [B, ...], where they are given."""
    found = {}
    for name in stack.layers[depth].states:
        index, at = stack.state_place(depth, d, name)
        array = states[index]
        if array is not None:
            found[name] = array[at]
    return found


def _before(layer: Layer, given: Named, initial: Mapping[str, Array], split: Pieces | None, rows: int) -> Named:
    """The states before the first step of every row, or of every piece: what is given, after a
    reset and elsewhere the initial one."""
    found = {}
    for name, shape in layer.states.items():
        own, start = given.get(name), initial.get(name)
        if split is not None and own is not None:
            whole = np.zeros((len(split), *shape), own.dtype)
            if start is not None:
                whole[...] = start
            first = split.first[~split.fresh[split.first]]
            whole[first] = own[split.row[first]]
            found[name] = whole
        elif own is not None:
            found[name] = own
        elif start is not None:
            found[name] = np.broadcast_to(start, (rows if split is None else len(split), *shape))
    return found
