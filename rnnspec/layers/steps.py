"""Single steps of layers that run forwards, at evaluation: planned, packed and allocated
beforehand.

In: Layers, packed weights, a number of rows; then inputs [B, ...], step by step. Out: outputs [B,
...], and states as `Layers.states` has them. Streams of layers are made of this, and calls of one
step without a tape.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import noise
from rnnspec.engine.weights import Weights
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import Layer
from rnnspec.layers.runs import Named, StackCall, StackRun, StackWeights

MOST_NUMBERS = 1 << 17  # rows times width: beyond it the work of a step hides what a call costs
States = tuple[Array, ...]  # one array for each of `Layers.states`, [L, B, ...]


class Steps:
    """One step after another of so many rows, without checks. outputs: name -> [B, ...], what the
    last layer gives; recorded: likewise; both are written again by every step."""

    def __init__(self, layers: Layers, weights: StackWeights, rows: int):
        self.layers, self.rows = layers, rows
        self._steppers = [
            layer.kernel.stepper(_packed(cell), rows, layer.sizes) for layer, cell in zip(layers.layers, weights.cells)
        ]
        for layer, stepper in zip(layers.layers, self._steppers):
            names = [n for n in layer.spec.noise if n in layer.spec.inputs]
            for name, mean in noise.mean(layer.spec, layer.sizes, 1, rows, layers.dtype, names).items():
                stepper.inputs[name][...] = mean[0]
        self._first, self._fed = layers.layers[0].main, [_fed(layer) for layer in layers.layers]
        self._counting = [depth for depth, layer in enumerate(layers.layers) if layer.spec.counts]
        self._ahead = np.zeros((layers.num_layers, rows), np.int64)
        above, emitted = self._steppers[-1], layers.emitted[-1]
        self.outputs: Named = {name: above.outputs[name] for name in emitted}
        self.recorded: Named = {}

    def refresh(self, weights: StackWeights) -> None:
        """Goes on with other weights, packed, of the same layers."""
        for layer, stepper, cell in zip(self.layers.layers, self._steppers, weights.cells):
            layer.kernel.refresh(stepper, _packed(cell))

    def load(self, states: States, ahead: Array | None) -> None:
        """Sets the states, and what is added to the number of a step, int64 [L, B], where layers
        count."""
        for stepper, places in zip(self._steppers, self.layers.state_places):
            stepper.load({name: states[index][at] for name, (index, at) in places.items()})
        if ahead is not None:
            self._ahead = ahead
            for depth in self._counting:
                self._steppers[depth].start_at(ahead[depth])

    def states(self) -> States:
        """Copies of the states."""
        layers = self.layers
        if layers.num_layers == 1:  # what comes is a copy already
            held = self._steppers[0].states()
            return tuple([held[n].reshape(1, self.rows, *s[1:]) for n, s in layers.states.items()])
        found = tuple(np.empty((s[0], self.rows, *s[1:]), layers.dtype) for s in layers.states.values())
        for stepper, places in zip(self._steppers, layers.state_places):
            for name, array in stepper.states().items():
                index, at = places[name]
                found[index][at] = array.reshape(found[index].shape[1:])
        return found

    def run(self, inputs: Named, t: int) -> None:
        """Runs the step of number t. inputs: name -> [B, ...], those that are given."""
        layers, main = self.layers, inputs.get(self._first)
        for depth, (stepper, fed) in enumerate(zip(self._steppers, self._fed)):
            for name, default in fed:
                array = stepper.inputs[name]
                value = main if name == layers.layers[depth].main else inputs.get(name)
                if value is not None:
                    array[...] = value
                else:
                    array.T[...] = t + self._ahead[depth] if default is None else default
            stepper.run(t if layers.layers[depth].spec.counts else 0)
            if layers.recorded[depth]:
                end = layers.suffix(depth, 0)
                self.recorded |= {f"{n}{end}": stepper.outputs[n].copy() for n in layers.recorded[depth]}
            below, main = main, stepper.outputs[layers.emitted[depth][0]]
            if layers.residual and depth:
                main += below


def complete(layers: Layers, weights: StackWeights, given: tuple[Array | None, ...], rows: int) -> States:
    """All states of so many rows: those that are given, the others as they are initially."""
    if all(array is not None for array in given):
        return given  # type: ignore[return-value]
    found = tuple(
        np.zeros((shape[0], rows, *shape[1:]), layers.dtype) if array is None else array
        for array, shape in zip(given, layers.states.values())
    )
    for initial, places in zip(weights.initial, layers.state_places):
        for name, start in initial.items():
            index, at = places[name]
            if given[index] is None:
                found[index][at] = start
    return found


def one_step(layers: Layers, call: StackCall) -> StackRun | None:
    """Runs a sequence of one step without a tape, by Steps that an earlier call left; None where
    that is not what the call is, or would not pay."""
    if call.steps != 1 or call.seed is not None or call.lengths is not None:
        return None
    if any(p is not None for p in call.pieces.values()):
        return None
    if call.rows > most_rows(layers) or not all(isinstance(c, Weights) for c in call.weights.cells):
        return None
    inputs = {name: array[0] for name, array in call.inputs.items()}
    outputs, final, recorded = stepped(layers, call.weights, inputs, call.state, call.counts, call.rows)
    given = tuple(array is not None for array in call.state)
    return StackRun(
        {name: array[None] for name, array in outputs.items()},
        final,
        {name: array[None] for name, array in recorded.items()},
        1,
        call.rows,
        tuple(call.inputs),
        given,
        (),
        call.pieces,
    )


def most_rows(layers: Layers) -> int:
    """Up to how many rows `stepped` pays; -1 for layers that it can't run."""
    if len(layers.directions) != 1:
        return -1
    return MOST_NUMBERS // ((layers.input_size + layers.hidden_size) * layers.num_layers)


def stepped(
    layers: Layers,
    weights: StackWeights,
    inputs: Named,
    state: tuple[Array | None, ...],
    counts: Array | None,
    rows: int,
) -> tuple[Named, States, Named]:
    """One step by Steps that an earlier call left, of arguments that are ready: outputs [B, ...],
    the state after it with the counts, and recorded values.

    weights: packed; inputs: name -> [B, ...], those given; state: as `Layers.states`, None where
    left out; counts: the steps taken before, int64 [L, B], None where no layer counts.
    """
    key = (layers, rows)
    steps = weights.idle.borrow(key, lambda: Steps(layers, weights, rows))
    steps.load(complete(layers, weights, state, rows), counts)
    steps.run(inputs, 0)
    outputs = {name: array.copy() for name, array in steps.outputs.items()}
    final, recorded = steps.states(), steps.recorded
    steps.recorded = {}
    weights.idle.give_back(key, steps)
    return outputs, final if counts is None else (*final, counts + 1), recorded


def _fed(layer: Layer) -> list[tuple[str, object]]:
    """The inputs of a layer that are no noise, and their defaults: None for the number of the step,
    and where there is none."""
    return [(name, layer.spec.defaults.get(name)) for name in layer.spec.streams]


def _packed(cell: object) -> Weights:
    assert isinstance(cell, Weights), "single steps take packed weights"
    return cell
