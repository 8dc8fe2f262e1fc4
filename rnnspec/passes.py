"""The passes of a Stack over a sequence: forward, layer after layer and direction after direction, and backward.

Arrays are [T, B, ...]. A direction that runs from the end reads and writes them in place: by negative strides where all rows have all
steps, else as pieces (pieces.py). Outputs are written where they belong in the merged array.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from rnnspec import noise
from rnnspec.arrays import with_defaults
from rnnspec.language.draws import Draw
from rnnspec.layer import Layer
from rnnspec.pieces import Pieces
from rnnspec.run import Run, Taped
from rnnspec.weights import Weights

if TYPE_CHECKING:
    from rnnspec.stack import Stack, StackWeights

Array = np.ndarray
Named = dict[str, Array]


@dataclass(frozen=True)
class Direction:
    """suffix: of the names of its weights; reverse: whether it runs from the last step to the first."""

    suffix: str
    reverse: bool


@dataclass
class LayerRun:
    """What a layer keeps for its backward pass. runs: of each direction; parts: its outputs in each direction, where merge='product'
    needs them; given: the states that the caller gave; mask: what its input was multiplied by (dropout), or None; main: its input, where
    it comes from a layer below and memory="low" reads it again."""

    runs: list[Run | Taped] = field(default_factory=list)
    parts: list[Named] = field(default_factory=list)
    given: list[frozenset[str]] = field(default_factory=list)
    mask: Array | None = None
    main: Array | None = None


@dataclass(frozen=True)
class StackRun:
    """outputs: name -> [T, B, ...]; final: the states after the last step, one array for each of `Stack.states`, [L * D, B, ...];
    steps: recorded values, name -> [T, B, ...], at the step they belong to in either direction. kept: the tapes, layer by layer; none of
    `infer`. given: the inputs that were, and were not left at their defaults. pieces: by direction, False forward, True reverse."""

    outputs: Named
    final: tuple[Array, ...]
    steps: Named
    steps_taken: int
    rows: int
    given: tuple[str, ...]
    kept: tuple[LayerRun, ...] = field(repr=False)
    pieces: Mapping[bool, Pieces | None] = field(repr=False)

    @property
    def tape_bytes(self) -> int:
        """What the tapes take, beside outputs and weights."""
        return sum(run.tape_bytes for layer in self.kept for run in layer.runs)


def forward(stack: Stack, weights: StackWeights, inputs: Named, state: tuple[Array | None, ...], lengths: Array | None,
            pieces: Mapping[bool, Pieces | None], *, training: bool, seed: tuple[int, ...], call: Literal["forward", "record", "infer"]) -> StackRun:
    """All layers. See `Stack.forward`. call: the method of the layers' kernels, whatever backend they are of."""
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
            params, streams = call_inputs(layer, weights.cells[place], given, (steps, rows), turn, (*seed, depth, d) if training else None)
            run = getattr(layer.kernel, call)(params, streams, before, None if split is not None else lengths, pieces=split, out=_turned(targets[d], turn))
            for name, array in run.final.items():
                index, at = stack.state_place(depth, d, name)
                final[index][at] = array if split is None else array[split.last]
            if isinstance(run, Run):
                run.outputs = {}  # or the outputs of every layer would live as long as the tapes, which do not need them
            if isinstance(run, Run | Taped):
                own.runs.append(run)
                own.given.append(frozenset(own_state))
            end = stack.suffix(depth, d)
            recorded |= {f"{n}{end}": targets[d][n].copy() if n in stack.emitted[depth] else targets[d][n] for n in stack.recorded[depth]}
        outputs = _merge(stack, depth, arrays, targets)
        own.parts = targets if stack.merge == "product" else []
        main = outputs[stack.emitted[depth][0]]
        if stack.residual and depth:
            main += below
        kept.append(own)
    return StackRun(outputs, final, recorded, steps, rows, tuple(inputs), tuple(kept) if call != "infer" else (), pieces)


def backward(stack: Stack, run: StackRun, outputs: Named, final: tuple[Array | None, ...],
             steps: Named) -> tuple[Named, Named, tuple[Array, ...]]:
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
            gradients = layer.kernel.backward(taken, _turned(given, turn), final=_final(layer, started(stack, final, depth, d), split))
            for name, array in _turned(gradients.inputs, turn).items():
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


def dropout_mask(seed: tuple[int, ...], depth: int, shape: tuple[int, ...], rate: float, dtype: np.dtype) -> Array:
    """1 / (1 - rate) where an input of a layer is kept, 0 where it is dropped, [T, B, ...] (Zaremba, Sutskever & Vinyals 2014, arXiv 1409.2329)."""
    how = Draw("dropout", rate, "step") if rate < 1 else Draw("bernoulli", 0.0, "step")
    return noise.draw_one(how, "dropout between layers", shape[:2], shape[2:], (*seed, depth), dtype)


def _noise(layer: Layer, steps: int, rows: int, seed: tuple[int, ...] | None) -> Named:
    """What the cell's noise is in a call: drawn, or what is expected of it where there is no seed. By step, not by the order of steps."""
    spec, sizes, dtype = layer.spec, layer.sizes, layer.kernel.dtype
    return noise.mean(spec, sizes, steps, rows, dtype) if seed is None else noise.draw(spec, sizes, steps, rows, seed, dtype)


def read_by(layer: Layer, main: Array | None, inputs: Named) -> Named:
    """The inputs of a layer that are given: main from the layer below, or the caller."""
    return {n: a for n, a in ((layer.main, main), *((n, inputs.get(n)) for n in layer.others)) if a is not None}


def call_inputs(layer: Layer, params: Mapping[str, Array] | Weights, inputs: Named, lead: tuple[int, int], turn: bool,
                seed: tuple[int, ...] | None) -> tuple[Mapping[str, Array] | Weights, Named]:
    """Parameters and inputs as the kernel takes them, with the cell's noise and what was left at its default. lead: (T, B); turn: the last
    step first; seed: of the noise, None for what is expected of it. Packed weights hold what is expected of that of parameters."""
    drawn = _noise(layer, *lead, seed)
    own = {n: a for n, a in drawn.items() if n in layer.spec.parameters}
    if own and not isinstance(params, Weights):
        params = {**params, **own}
    elif own and seed is not None:
        raise ValueError(f"the noise of {layer.spec.name!r} is in its parameters too, and packed weights hold what is expected of it: in training give params.")
    streams = inputs | {n: a for n, a in drawn.items() if n not in own}
    if layer.spec.defaults:  # here and not in the kernel, so that they too go by step and not by the order of steps
        streams = with_defaults(layer.spec, streams, lead, layer.sizes, layer.kernel.dtype)
    return params, _turned(streams, turn)


# --- directions


def _turned(arrays: Named, turn: bool) -> Named:
    """The last step first, as views."""
    return {name: array[::-1] for name, array in arrays.items()} if turn else arrays


def _targets(stack: Stack, depth: int, steps: int, rows: int) -> tuple[Named, list[Named]]:
    """Where a layer's outputs go: the merged arrays, and for each direction the array that its kernel writes."""
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


def _direction_gradients(stack: Stack, depth: int, d: int, dy: Named, own: LayerRun, steps: Named) -> Named:
    """The gradients of the outputs of a direction's kernel, from those of the layer's merged outputs and of recorded values."""
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
    """The states before the first step of every row, or of every piece: what is given, after a reset and elsewhere the initial one."""
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


def _final(layer: Layer, given: Named, split: Pieces | None) -> Named:
    """The gradients of the states after every row's last step, as the kernel takes them."""
    if split is None:
        return given
    found = {}
    for name, array in given.items():
        found[name] = np.zeros((len(split), *layer.states[name]), array.dtype)
        found[name][split.last] = array
    return found


def _state_gradients(stack: Stack, depth: int, d: int, found: Mapping[str, Array], given: frozenset[str], split: Pieces | None, params: Named,
                     before: tuple[Array, ...]) -> None:
    """Files the gradients of the states before the first steps: with what each row began with, and with the learned initial state."""
    for name, array in found.items():
        index, at = stack.state_place(depth, d, name)
        if split is None:
            before[index][at] = array
            learned = array[:0] if name in given else array
        else:
            fresh = split.fresh.copy()
            before[index][at] = np.where(fresh[split.first].reshape(-1, *(1,) * (array.ndim - 1)), 0, array[split.first])
            if name not in given:
                fresh[split.first] = True
            learned = array[fresh]
        if stack.learn_initial:
            params[f"initial_{name}{stack.suffix(depth, d)}"] = learned.sum(axis=0)
