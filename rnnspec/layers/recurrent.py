"""Recurrent: a cell as a layer, or several, with weights, and with the conventions and weight names
of torch.nn.LSTM."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine.arrays import as_resets, check_lengths
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.noise import Seed, seeds
from rnnspec.language.spec import Spec
from rnnspec.layers.arguments import (
    as_lengths,
    check_carried,
    check_inputs,
    check_resets,
    check_rows,
    check_window,
    flowing,
    inputs_time_first,
    time_first,
)
from rnnspec.layers.attributes import Attributes
from rnnspec.layers.backward import backward
from rnnspec.layers.bound import BoundRun, Ready
from rnnspec.layers.constrained import ConstrainedWeights
from rnnspec.layers.description import Cell
from rnnspec.layers.layer import shown_cells
from rnnspec.layers.runs import StackCall, StackRun, Window, pins_of
from rnnspec.layers.stack import Stack
from rnnspec.layers.stream import StackStream
from rnnspec.layers.waiting import Waiting
from rnnspec.layers.weights_file import read_weights
from rnnspec.storage import atomic


class Recurrent(ConstrainedWeights, Attributes):
    """Layers of a cell over a sequence, in NumPy.

    cell: a name, a path to a YAML file, or a Spec; or a list of these, one for each layer.
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size (cells
    with a projection, size P): as in torch.nn.LSTM. Dropout acts on what a layer above the first
    reads, scaled by 1 / (1 - dropout), in training only.

    merge: how two directions become one output: "concat" (features side by side), "sum", "mean",
    "product". share_directions: one set of weights for both (learned initial states stay apart).
    go_backwards: the one direction there is runs from the last step to the first; y[t] still
    belongs to x[t]. residual: layers above the first add what they read (before dropout) to what
    they give. learn_initial: the states before the first step are weights, `initial_h_l0` [H], used
    where no state is given, and after resets. return_all_states: True for every state at every
    step, or a list of names of states and intermediate values ("c", "f", ...): calls then return a
    dict of them too, `c_l0` [T, B, H], ...

    dtype ("float32", "float64"), backend, threads, memory ("full", "low"): as for `compile`. seed:
    of the initial weights, and of dropout and noise. Keywords beyond these are the cell's choices
    and constants, as for `load`; `sizes` gives sizes that input_size and hidden_size do not tell.

    `params` are the weights, by torch's names where the cell has a torch layout (weight_ih_l0,
    weight_hh_l0_reverse, ...), else by the cell's own with the same endings (W_i_l0); change them
    in place or assign new arrays, the next call uses them. `grads` has the same names after
    `backward`. `fixed` are the weights beside them that the cell holds for constants (a mask, a
    reservoir): set them before use; they are saved and loaded with the others. `calls` counts the
    calls in training, each of which draws anew. `dropout`, `seed`, `batch_first` and `training` can
    be assigned too; what nothing would read raises AttributeError.

    layer(x, state, lengths) -> y, state; x [T, B, D] ([B, T, D] with batch_first, or [T, D] for one
    row), y [T, B, H], 2 * H features where two directions are concatenated. A state is [num_layers
    * directions, B, H], for a cell with several a tuple in the order of the spec; for layers whose
    states differ a tuple of all, layer by layer, [directions, B, H] each. Of a cell that counts its
    steps (it reads `t`, or has an input with that default) the state is always a tuple, and ends
    with the count, integers [num_layers * directions, B]; a gradient has none. A cell that reads
    several inputs takes them as a dict or a tuple; all layers read the ones after the first. Raises
    ValueError or TypeError for arguments out of range, ShapeError and DtypeError for arrays that do
    not fit.
    """

    assigned = ("stack", "seed", "training", "calls", "params", "fixed", "grads")

    def __init__(
        self,
        cell: Cell | Sequence[Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        merge: str = "concat",
        share_directions: bool = False,
        residual: bool = False,
        go_backwards: bool = False,
        learn_initial: bool = False,
        return_all_states: bool | Sequence[str] = False,
        dtype: str = "float32",
        backend: str = "cpu",
        threads: int | None = None,
        memory: str = "full",
        sizes: Mapping[str, int] | None = None,
        seed: int = 0,
        **settings: object,
    ):
        more: dict[str, Any] = {"merge": merge, "share_directions": share_directions, "residual": residual}
        more |= {"go_backwards": go_backwards, "learn_initial": learn_initial, "return_all_states": return_all_states}
        more |= {"dtype": dtype, "backend": backend, "threads": threads, "memory": memory, "sizes": sizes, **settings}
        self.stack = Stack(cell, input_size, hidden_size, num_layers, bias, dropout, bidirectional, proj_size, **more)
        self.batch_first, self.seed, self.training, self.calls = batch_first, seed, True, 0
        self.params: dict[str, Array] = {}
        self.fixed: dict[str, Array] = {}
        self._take(self.stack.init(seed))
        self.grads: dict[str, Array] = {}
        self._run: tuple[StackRun | BoundRun, bool] | None = None
        self._waiting = Waiting()

    def __repr__(self) -> str:
        layers = self.stack.description
        names, chosen = shown_cells(layers.layers)
        cells = repr(names[0]) if len(set(names)) == 1 else repr(names)
        more = {
            "num_layers": (layers.num_layers, 1 if len(set(names)) == 1 else len(names)),
            "batch_first": (self.batch_first, False),
            "bidirectional": (len(layers.directions) == 2, False),
        }
        shown = "".join(f", {name}={value!r}" for name, (value, usual) in more.items() if value != usual)
        shown += "".join(f", {name}={option!r}" for name, option in chosen.items())
        return f"Recurrent({cells}, {layers.input_size}, {layers.hidden_size}{shown}, dtype={str(layers.dtype)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the weights, not the tape of the last call."""
        return self.__dict__ | {"_run": None, "_waiting": Waiting()}

    @property
    def spec(self) -> Spec:
        """The Spec of the first layer."""
        return self.stack.layers[0].spec

    @property
    def kernel(self) -> Kernel:
        """The kernel of the first layer."""
        return self.stack.layers[0].kernel

    @property
    def input_size(self) -> int:
        """The width of x."""
        return self.stack.description.input_size

    @property
    def hidden_size(self) -> int:
        """The width of the cells, as it was given."""
        return self.stack.description.hidden_size

    @property
    def batch_first(self) -> bool:
        """Whether arrays have the rows before the steps; it can be assigned."""
        return self._batch_first

    @batch_first.setter
    def batch_first(self, value: bool) -> None:
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"batch_first must be True or False, got {value!r}.")
        self._batch_first = bool(value)

    @property
    def dropout(self) -> float:
        """The chance that dropout between layers drops a number; it can be assigned."""
        return self.stack.dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        self.stack.dropout = rate

    @property
    def output_size(self) -> int:
        """Numbers of a step and row in y, all outputs together."""
        return sum(math.prod(shape) for shape in self.stack.outputs.values())

    def train(self, mode: bool = True) -> Recurrent:
        """Whether calls are training: dropout and noise act. They do from the start; `infer` never
        is."""
        self.training = bool(mode)
        return self

    def eval(self) -> Recurrent:
        """train(False)."""
        return self.train(False)

    def __call__(
        self, x: Any, state: Any = None, lengths: Any = None, *, resets: Any = None, seed: Seed | None = None
    ) -> Any:
        """Runs a sequence and keeps the tape for `backward`. Returns y and the state after the last
        step.

        resets: [T, B] as x has its axes, or [T]: true where a row starts over, from the initial
        state, before that step (an episode ends). seed: of dropout and noise; None for other
        numbers at every call.
        """
        if lengths is None and resets is None and seed is None and type(self.seed) is int and self.seed >= 0:
            ready = self.stack.bound.ready(x, state, self.batch_first)
            if ready is not None and (results := self._keep_bound(ready)) is not None:
                return results
        drawn = (self.seed, self.calls) if seed is None else seed
        return self._keep(*self._call(x, state, lengths, resets, drawn, self.training))

    def _keep_bound(self, ready: Ready) -> Any:
        bound, own = self.stack.bound, self.__dict__  # past the checks of what is assigned
        weights = bound.weights(self.weights)
        if weights is None:
            return None
        own["_run"] = None
        if (found := bound.forward(weights, ready)) is None:
            return None
        run, final = found
        own["calls"] += self.training
        own["_run"] = (run, ready.single)
        self._waiting.add(run.outputs)
        return self._as_given(run.outputs[run.facts.output], ready.single), self._state(final, ready.single)

    def _keep(self, call: StackCall, single: bool) -> Any:
        self._run = None  # its tape is memory that this call can use
        run = self.stack.run_forward(call)
        self.calls += self.training
        self._run = (run, single)
        self._waiting.add(run.outputs)
        return self._results(run, single)

    def infer(self, x: Any, state: Any = None, lengths: Any = None, *, resets: Any = None) -> Any:
        """Runs a sequence without a tape, and without dropout: evaluation. Arguments and results as
        of a call."""
        bound = self.stack.bound
        ready = bound.ready(x, state, self.batch_first) if lengths is None and resets is None else None
        if ready is not None and (found := bound.infer(self.weights, ready)) is not None:
            return self._as_given(found[0], ready.single), self._state(found[1], ready.single)
        call, single = self._call(x, state, lengths, resets, 0, False)
        return self._results(self.stack.run_infer(call), single)

    def backward(
        self, dy: Any = None, dstate: Any = None, dsteps: Mapping[str, Any] | None = None, *, of: Any = None
    ) -> tuple[Any, Any]:
        """Gradients of the last call, from those of y, of the final state and of recorded values
        (any may be left out).

        Returns dx and the gradient of the state before the first step, and fills `grads` (not
        adding to what was there). of: the y of the last call, to say that it is meant. Raises
        RuntimeError where `of` is another's, and, without it, where another call seems to be meant:
        its y is alive, of the same shape, and waits for a backward pass, but its tape is gone.
        """
        if self._run is None:
            raise RuntimeError(
                "backward needs a call first: layer(x, ...) keeps the tape, layer.infer(x, ...) does not."
            )
        (run, single), quick = self._run, None
        if isinstance(run, BoundRun) and not dsteps:
            quick = run.flowing(dy, dstate, self.batch_first, single)
        flows = quick or flowing(self.stack.description, run, dy, dstate, dsteps, single, self.batch_first)
        self._waiting.check(run.outputs, of)
        if isinstance(run, BoundRun):
            gradients = run.backward(*flows[:2])
        else:
            gradients = backward(self.stack.description, run, *flows)
        self._waiting.clear()
        self.__dict__["grads"] = gradients.params
        inputs = {n: self._as_given(a, single) for n, a in gradients.inputs.items()}
        return next(iter(inputs.values())) if len(inputs) == 1 else inputs, self._state(gradients.states, single)

    def windows(
        self, x: Any, steps: int, state: Any = None, lengths: Any = None, *, resets: Any = None
    ) -> Iterator[Window]:
        """Runs a long sequence window by window, carrying the state: truncated backpropagation
        through time.

        Each Window comes after a call on its `steps`, so `backward` and an update of the weights
        may follow; no gradient crosses from one window to the one before. For layers that run
        forwards only. steps: of a window, the last may be shorter; x, state, lengths, resets: of
        the whole sequence, as of a call. Noise that is drawn once a sequence is so here.
        """
        steps = check_window(self.stack.description, steps)
        inputs, single = inputs_time_first(self.stack.description, x, self.batch_first)
        total, rows = next(iter(inputs.values())).shape[:2]
        ends = check_lengths(as_lengths(lengths, single), total, rows)
        # all of them are checked here: a window would take its part of too many
        restarts = check_resets(self._resets(resets, single), total, rows, self.batch_first and not single)
        first = None  # the seed of the first window
        with Pins(inputs.values()):
            for start in range(0, total, steps):
                part = slice(start, min(start + steps, total))
                given = {n: self._as_given(a[part], single) for n, a in inputs.items()}
                left = None if ends is None else np.clip(ends - start, 0, part.stop - start)
                window = None if restarts is None else self._as_given(restarts[part], single)
                call, alone = self._call(given, state, left, window, (self.seed, self.calls), self.training)
                first = first or call.seed
                y, state, *recorded = self._keep(replace(call, sequence=first), alone)
                yield Window(part, y, state, *(recorded or [{}]))

    def stream(self, state: Any = None, *, rows: int = 1) -> StackStream:
        """A sequence that arrives step by step: `stream.step(x)` for each, x [B, D], through all
        layers. It is evaluation, as `infer` is, and for layers that run forwards only.

        The weights are packed here: later changes are not seen until `stream.refresh()`. state:
        before the first step, as of a call; rows: of the batch. Raises ValueError for layers with a
        direction that runs from the end.
        """
        return StackStream(self.stack.description, self.stack.pack, lambda: self.weights, state, rows)

    # --- weights

    @property
    def weights(self) -> dict[str, Array]:
        """All weights by name, trained and fixed."""
        return {**self.params, **self.fixed} if self.fixed else self.params

    def state_dict(self) -> dict[str, Array]:
        """Copies of the weights by name, fixed ones among them."""
        return {name: array.copy() for name, array in self.weights.items()}

    def load_state_dict(self, weights: Mapping[str, Any]) -> None:
        """Replaces all weights. Raises ShapeError naming every missing, unexpected and misshapen
        one, DtypeError for another dtype."""
        if not isinstance(weights, Mapping):
            raise TypeError(
                f"load_state_dict takes a dict of arrays by name, as state_dict() gives; got {type(weights).__name__}."
            )
        self._take({name: array.copy() for name, array in self.stack.check(weights, "state_dict").items()})

    def _take(self, weights: dict[str, Array]) -> None:
        self.params = {n: a for n, a in weights.items() if n not in self.stack.fixed}
        self.fixed = {n: a for n, a in weights.items() if n in self.stack.fixed}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights to an .npz file, one array for each name. What stands under the path
        is always whole: the file is renamed when done."""
        weights = self.stack.check(self.weights)
        atomic.write(path, lambda file: np.savez(file, **weights))  # type: ignore[arg-type]

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces all weights by those of a file that `save` wrote; errors as of
        `load_state_dict`, ValueError for a file that is none."""
        self.load_state_dict(read_weights(path))

    # --- arrays in and out

    def _call(
        self, x: Any, state: Any, lengths: Any, resets: Any, seed: Seed, training: bool
    ) -> tuple[StackCall, bool]:
        """The arguments of a call, checked and time first, and whether they came without a batch
        axis."""
        layers = self.stack.description
        inputs, single = inputs_time_first(layers, x, self.batch_first)
        rows = next(iter(inputs.values())).shape[1] if inputs else 0
        before, counts = check_carried(layers, state, None if single else rows)
        restarts, weights = self._resets(resets, single), self.stack.weights(self.weights)
        swapped = self.batch_first and not single
        steps, rows = check_inputs(layers, inputs, swapped)
        ends, pieces = check_rows(layers, as_lengths(lengths, single), restarts, steps, rows, swapped)
        numbers = seeds(seed)
        drawn, pins = numbers if training else None, pins_of(weights, inputs, before)
        return StackCall(weights, inputs, before, ends, pieces, steps, rows, drawn, counts, pins), single

    def _resets(self, resets: Any, single: bool) -> Array | None:
        return None if resets is None else time_first(np.atleast_1d(as_resets(resets)), single, self.batch_first)

    def _as_given(self, array: Array, single: bool) -> Array:
        return array[:, 0] if single else np.swapaxes(array, 0, 1) if self.batch_first else array

    def _results(self, run: StackRun, single: bool) -> Any:
        ready = tuple(self._as_given(a, single) for a in run.outputs.values())
        results = ready[0] if len(ready) == 1 else ready, self._state(run.final, single)
        if not self.stack.steps:
            return results
        return *results, {n: self._as_given(a, single) for n, a in run.steps.items()}

    def _state(self, states: tuple[Array, ...], single: bool) -> Any:
        ready = tuple(a[:, 0] if single else a for a in states)
        return ready[0] if len(ready) == 1 else ready
