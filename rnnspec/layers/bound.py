"""Calls of one layer that come again with arrays of the same shapes: what depends on shapes alone
was decided in an earlier call, and is found by one look-up.

In: what was given to `Recurrent`, for layers that are as most are (`_facts`). Out: results, bit for
bit those of stack.py's way; or None wherever an array is not as it mostly is, or too much would
have to be kept: then that way is gone, which says what is wrong. Every line here counts: a call
takes ten microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import address
from rnnspec.backends.pins import Pins
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.recent import Recent
from rnnspec.engine.weights import Idle, Weights
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import Named, StackGradients, StackWeights
from rnnspec.storage.locks import once_only

MOST_WEIGHTS = 1 << 18  # bytes: more are compared with those of the last call before they are packed


@dataclass(frozen=True)
class Facts:
    """What is read in every call of one layer. weights: name and shape of each array; twice: the
    names of two arrays whose sum parameters are; parts: of each array that has a gradient the
    parameters in it, one under another; width: the shape of a row of the input; states: name and
    shape; kind: the dtype."""

    layer: Layer
    kernel: Kernel
    weights: list[tuple[str, Array | tuple[int, ...]]]
    twice: list[tuple[int, int]]
    parts: Mapping[str, tuple[str, ...]]
    output: str
    width: tuple[int, ...]
    full: tuple[int, ...]
    states: list[tuple[str, tuple[int, ...]]]
    kind: np.dtype


class Ready(NamedTuple):
    """Arguments that fit: x [T, B, ...], whether it came without rows, and the states that are
    given."""

    x: Array
    single: bool
    states: Named


class BoundCalls:
    """The calls of layers that are one. layers: what they are; recent: the weights of their last
    calls. A copy or a pickle keeps nothing."""

    def __init__(self, layers: Layers, recent: Recent[StackWeights]):
        self._layers, self._recent, self._idle = layers, recent, Idle(8)

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundCalls, (self._layers, self._recent)

    @once_only
    def facts(self) -> Facts | None:
        """None for layers that are not run here."""
        return _facts(self._layers)

    def ready(self, x: Any, state: Any, batch_first: bool) -> Ready | None:
        """The arguments of a call, where they are plain arrays that fit."""
        facts = self.facts
        if facts is None or type(x) is not Array:
            return None
        x = x.view()  # before it is looked at: nobody else changes its shape
        kind, axes = facts.kind, x.ndim - len(facts.width)
        if x.dtype is not kind or not x.flags.aligned:
            return None
        if axes == 1:
            x = x[:, None]
        elif axes != 2:
            return None
        elif batch_first:
            x = x.swapaxes(0, 1)
        steps, rows, *width = x.shape
        if tuple(width) != facts.width or not steps or not rows:
            return None
        if state is None:
            return Ready(x, axes == 1, {})
        before = _plain_states(facts, state, rows, axes == 1)
        return None if before is None else Ready(x, axes == 1, before)

    def infer(self, params: Mapping[str, Array], call: Ready) -> tuple[Array, tuple[Array, ...]] | None:
        """The output [T, B, ...] and the states after it, of weights that equal those of an earlier
        call; else None."""
        facts, packed = self.facts, self._recent.again(params) if type(params) is dict else None
        if facts is None or packed is None:
            return None
        x, _, before = call
        steps, rows = x.shape[:2]
        weights = packed.cells[0]
        if type(weights) is not Weights:
            return None
        key, sizes = ("bound", steps, rows), facts.layer.sizes
        direct = packed.idle.borrow(key, lambda: facts.kernel.bound_inference(weights, sizes, steps, rows))
        if direct is None:
            packed.idle.give_back(key, None)
            return None
        y = np.empty((steps, rows, *facts.full), facts.kind)
        with Pins([x, *before.values()]):
            direct.start(before)
            direct.point(direct.inputs[facts.layer.main], x)
            direct.point(direct.outputs[facts.output], y)
            direct.run()
        final = tuple([direct.carries[name].copy() for name, _ in facts.states])
        packed.idle.give_back(key, direct)
        return y, final

    def weights(self, params: Mapping[str, Array]) -> list[Array] | None:
        """The weights as `forward` takes them, where they are plain arrays that fit, and few."""
        return None if self.facts is None else _plain_weights(self.facts, params)

    def forward(self, arrays: list[Array], call: Ready) -> tuple[BoundRun, tuple[Array, ...]] | None:
        """A run with its tape, and the states after it."""
        facts = self.facts
        if facts is None:
            return None
        x, _, before = call
        steps, rows = x.shape[:2]
        key = (steps, rows)
        with Pins([*arrays, x, *before.values()]):
            work = self._idle.borrow(key, lambda: _work(facts, arrays, steps, rows))
            if work is None:
                self._idle.give_back(key, None)
                return None
            work.pack(arrays)
            y, direct = np.empty((steps, rows, *facts.full), facts.kind), work.training.forward
            direct.start(before)
            direct.point(direct.inputs[facts.layer.main], x)
            direct.point(direct.outputs[facts.output], y)
            direct.run()
        final = tuple([direct.carries[name].copy() for name, _ in facts.states])
        return BoundRun(facts, {facts.output: y}, work, self._idle, key), final


class _Work:
    """What a forward and a backward run work in. sums: buffers of weights that are the sum of
    two."""

    def __init__(self, facts: Facts, training: Any, sums: list[Array]):
        self.training, self._sums = training, list(zip(facts.twice, sums))
        self.gradients = training.gradients_in(facts.parts)

    def pack(self, arrays: Sequence[Array]) -> None:
        """Packs the weights, in the order of Facts."""
        for (first, second), sum_ in self._sums:
            np.add(arrays[first], arrays[second], out=sum_)
        self.training.pack([address(a) for a in arrays])


class BoundRun:
    """A run of `BoundCalls.forward`, for its backward pass. When it dies what it worked in is left
    to the next. outputs: by name; work: what that is; steps_taken, rows: T and B."""

    def __init__(self, facts: Facts, outputs: Named, work: _Work, idle: Idle, key: tuple[int, int]):
        self.facts, self.outputs, self.work, self._idle, self._key = facts, outputs, work, idle, key
        self.steps_taken, self.rows = key

    def __del__(self) -> None:
        self._idle.give_back(self._key, self.work)

    def flowing(
        self, dy: Any, dstate: Any, batch_first: bool, single: bool
    ) -> tuple[Named, tuple[Array | None, ...], Named] | None:
        """Gradients from outside as `backward` takes them, where they are plain arrays that fit."""
        facts, outputs = self.facts, Named()
        if dy is not None:
            if type(dy) is not Array:
                return None
            dy = dy.view()
            if dy.dtype is not facts.kind or not dy.flags.aligned:
                return None
            dy = dy[:, None] if single else dy.swapaxes(0, 1) if batch_first and dy.ndim > 1 else dy
            if dy.shape != (*self._key, *facts.full):
                return None
            outputs[facts.output] = dy
        if dstate is None:
            return outputs, (None,) * len(facts.states), {}
        final = _plain_states(facts, dstate, self.rows, single)
        return None if final is None else (outputs, tuple([final.get(n) for n, _ in facts.states]), {})

    def backward(self, outputs: Named, final: tuple[Array | None, ...]) -> StackGradients:
        """The gradients, from those of the output [T, B, ...] and of the states after the run, None
        where they are left out."""
        facts, direct, work = self.facts, self.work.training.backward, self.work
        after = {name: array for (name, _), array in zip(facts.states, final) if array is not None}
        main, dy = facts.layer.main, outputs.get(facts.output)
        dx = np.empty((*self._key, *facts.width), facts.kind)
        with Pins([*outputs.values(), *after.values()]):
            direct.start(after)
            direct.point(direct.inputs[f"gradient of {facts.output}"], dy)
            direct.point(direct.outputs[main], dx)
            direct.run()
        params = {name: parts[0].copy() if len(parts) == 1 else np.concatenate(parts) for name, parts in work.gradients}
        return StackGradients(params, {main: dx}, tuple([direct.carries[name].copy() for name, _ in facts.states]))


def _facts(layers: Layers) -> Facts | None:
    """None unless there is one layer that runs forwards, reads one input, emits one output, and is
    a function of these, of its weights and of its states."""
    layer = layers.layers[0]
    spec, kernel = layer.spec, layer.kernel
    if len(layers.layers) != 1 or len(layers.directions) != 1 or layers.directions[0].reverse:
        return None
    if spec.noise or spec.counts or spec.defaults or spec.no_gradient or layers.fixed or layers.learn_initial:
        return None
    one = len(layers.inputs) == 1 and len(layer.outputs) == 1 and len(layers.emitted[0]) == 1
    if not one or layers.steps or layers.memory != "full" or layer.stacked is None:
        return None
    (output, full), width, end = *layer.outputs.items(), layers.inputs[layer.main], layers.suffix(0, 0)
    if len(width) > 1 or len(full) > 1 or any(len(shape) != 2 for shape in layers.states.values()):
        return None
    names = list(layer.shapes)
    slots = [s for s in layer.slots.values() if len(s) > 1]
    alike = all(len(s) == 2 and (s[0].first, s[0].last) == (s[1].first, s[1].last) for s in slots)
    twice = list(dict.fromkeys((s[0].array, s[1].array) for s in slots))
    if not alike or any(layer.shapes[a] != layer.shapes[b] for a, b in twice):
        return None
    return Facts(
        layer,
        kernel,
        [(f"{n}{end}", layer.shapes[n]) for n in names],
        [(names.index(a), names.index(b)) for a, b in twice],
        {f"{n}{end}": parts for n, parts in layer.stacked.items()},
        output,
        width,
        full,
        list(layers.states.items()),
        layers.dtype,
    )


def _plain_states(facts: Facts, state: Any, rows: int, single: bool) -> Named | None:
    """The states that are given, [1, B, H], by name; None where one is no plain array that fits."""
    given = state if type(state) in (tuple, list) else (state,)
    if len(given) != len(facts.states):
        return None
    found: Named = {}
    for (name, (_, width)), array in zip(facts.states, given):
        if array is None:
            continue
        if type(array) is not Array:
            return None
        array = array.view()
        if array.dtype is not facts.kind or not array.flags.aligned:
            return None
        if array.shape != ((1, width) if single else (1, rows, width)):
            return None
        found[name] = array[:, None] if single else array
    return found


def _plain_weights(facts: Facts, params: Mapping[str, Array]) -> list[Array] | None:
    """The weights in the order of Facts, under array objects of ours; None where one is no array
    without gaps that fits, or there are many."""
    if type(params) is not dict or len(params) != len(facts.weights):
        return None
    found, total = [], 0
    for name, shape in facts.weights:
        array = params.get(name)
        if type(array) is not Array:
            return None
        array = array.view()
        if array.dtype is not facts.kind or array.shape != shape or not array.flags.carray:
            return None
        total += array.nbytes
        found.append(array)
    return found if 0 < total <= MOST_WEIGHTS else None


def _work(facts: Facts, arrays: Sequence[Array], steps: int, rows: int) -> _Work | None:
    """Makes what runs of so many steps and rows work in; None where the kernel has no such
    thing."""
    layer, named = facts.layer, dict(zip(facts.layer.shapes, arrays))
    names, sums = list(layer.shapes), [np.empty_like(arrays[first]) for first, _ in facts.twice]
    added = {names[first]: sum_ for (first, _), sum_ in zip(facts.twice, sums)}
    params = {}
    for name, slots in layer.slots.items():
        lies = added if len(slots) > 1 else named
        zeros = None if slots else np.zeros(layer.full(layer.spec.parameters[name]), facts.kind)
        params[name] = slots[0].of(lies) if zeros is None else zeros
    bases = [(address(a), a.nbytes) for a in arrays]
    training = facts.kernel.bound_training(params, bases, layer.sizes, steps, rows)
    if training is None or training.gradients_in(facts.parts) is None:
        return None
    if not {name for name, _ in facts.states} <= training.backward.carries.keys():
        return None
    return _Work(facts, training, sums)
