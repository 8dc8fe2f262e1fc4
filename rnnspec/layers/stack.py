"""Layers of cells over a sequence, as pure functions of arrays: no weights are held here, and
nothing is remembered.

`forward(params, x, ...)` gives a StackRun that keeps the tapes, `backward(run, ...)` the gradients,
`infer` runs without tapes. Time comes first: [T, B, ...]. What the layers are stands in Layers
(description.py). `Recurrent` is this with weights, and with the conventions of torch.nn.LSTM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine.groups import groups_of
from rnnspec.engine.noise import Seed, seeds
from rnnspec.engine.recent import Recent, Seen, few
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError
from rnnspec.layers.along import StackHvp, StackUpstream, hvp, jvp
from rnnspec.layers.arguments import (
    check_call,
    check_carried,
    check_inputs,
    check_packed,
    check_rows,
    check_states,
    check_steps,
    check_weights,
)
from rnnspec.layers.attributes import Attributes
from rnnspec.layers.backward import backward, run_backward, run_backward_rows
from rnnspec.layers.bound import BoundCalls
from rnnspec.layers.constrained import ConstrainedStack
from rnnspec.layers.description import Cell, check_dropout_of, describe_layers
from rnnspec.layers.forward import forward, run_forward, run_infer, run_record
from rnnspec.layers.layer import Full, Layer
from rnnspec.layers.runs import Direction, StackCall, StackGradients, StackRun, StackWeights, checked_weights, pins_of
from rnnspec.layers.steps import one_step
from rnnspec.layers.stream import StackStream
from rnnspec.layers.tapes import from_bytes, to_bytes
from rnnspec.layers.views import views, views_by_row
from rnnspec.storage.locks import numpy_part


class Stack(ConstrainedStack, Attributes):
    """Layers of cells, to be called with weights. Arguments as for `Recurrent`. description: what
    the layers are. Of it: layers, directions; shapes: every weight, name ->
    shape, in torch's order; fixed: those of them that are not trained; states: what is carried,
    name -> shape for one row; carried: these and the count of steps, where a cell counts; outputs,
    steps (the recorded values), inputs: name -> shape of a step; required: the inputs that have no
    default. `dropout` can be assigned, nothing else that was given.
    """

    assigned = ("description",)

    def __init__(
        self,
        cell: Cell | Sequence[Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int | None = None,
        bias: bool = True,
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
        **settings: object,
    ):
        more: dict[str, Any] = {"merge": merge, "share_directions": share_directions, "residual": residual}
        more |= {"go_backwards": go_backwards, "learn_initial": learn_initial, "return_all_states": return_all_states}
        more |= {"dtype": dtype, "backend": backend, "threads": threads, "memory": memory, "sizes": sizes, **settings}
        self.description = describe_layers(
            cell, input_size, hidden_size, num_layers, bias, dropout, bidirectional, proj_size, **more
        )
        self._recent: Recent[StackWeights] = Recent()
        self._bound = BoundCalls(self.description, self._recent)
        self._repeats = all(layer.kernel.repeats for layer in self.layers)

    # --- what there is, by name

    @property
    def bound(self) -> BoundCalls:
        """The way of small calls of one layer."""
        return self._bound

    @property
    def layers(self) -> tuple[Layer, ...]:
        """A Layer for each."""
        return self.description.layers

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of each layer."""
        return self.description.directions

    @property
    def dtype(self) -> np.dtype:
        """The dtype of all arrays."""
        return self.description.dtype

    @property
    def shapes(self) -> Mapping[str, Full]:
        """Every weight, name -> shape, in torch's order."""
        return self.description.shapes

    @property
    def fixed(self) -> frozenset[str]:
        """The weights that are constants of their cells, which no optimiser may change."""
        return self.description.fixed

    @property
    def states(self) -> Mapping[str, Full]:
        """What is carried, name -> shape for one row: see `Layers.states`."""
        return self.description.states

    @property
    def carried(self) -> Mapping[str, Full]:
        """What a state is made of: `states`, and the count of steps where layers count."""
        return self.description.carried

    @property
    def outputs(self) -> Mapping[str, Full]:
        """What the last layer emits, name -> shape of a step."""
        return self.description.outputs

    @property
    def steps(self) -> Mapping[str, Full]:
        """The recorded values, name -> shape of a step."""
        return self.description.steps

    @property
    def inputs(self) -> Mapping[str, Full]:
        """What the caller feeds, name -> shape of a step."""
        return self.description.inputs

    @property
    def required(self) -> frozenset[str]:
        """The inputs that have no default."""
        return self.description.required

    @property
    def dropout(self) -> float:
        """The chance that dropout between layers drops a number, from the next call on."""
        return self.description.dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        check_dropout_of(self.description.num_layers, rate)
        self.description = replace(self.description, dropout=float(rate))

    def init(self, seed: int = 0) -> dict[str, Array]:
        """Initial weights by name. Layers and directions differ; learnable initial states start at
        zero."""
        layers = self.description
        weights = {name: np.zeros(shape, layers.dtype) for name, shape in layers.shapes.items()}
        for depth, d in layers.places:
            sequence = numpy_part("random").SeedSequence
            number = int(sequence([int(seed), depth, d]).generate_state(1, np.uint64)[0]) if depth or d else seed
            drawn = {f"{n}{layers.suffix(depth, d)}": a for n, a in layers.layers[depth].init(number).items()}
            weights |= {n: a for n, a in drawn.items() if n in weights}
        return weights

    def check(self, params: Mapping[str, Any], what: str = "params") -> dict[str, Array]:
        """The weights as arrays; ShapeError names every missing, unexpected and misshapen one,
        DtypeError one of another dtype."""
        return check_weights(self.description, params, what)

    def weights(self, params: Mapping[str, Any] | StackWeights) -> StackWeights:
        """The parameters of each cell and the initial states, by place: views where that can be."""
        layers = self.description
        if isinstance(params, StackWeights):
            if params.layers is not layers or not params.checked:
                check_packed(layers, params)
            return params
        if type(params) is dict and (packed := self._recent.again(params)) is not None:
            return packed
        arrays = check_weights(layers, params, "params", several=True)
        if (groups := groups_of(arrays, layers.shapes)) is not None:
            return views_by_row(layers, arrays, groups)
        with Pins(arrays.values()):
            packed = self._recent.find(arrays, self._packed, params) if self._repeats else None
        return views(layers, arrays, self._repeats and few(arrays)) if packed is None else packed

    def met(self, arrays: Mapping[str, Array]) -> Seen[StackWeights] | None:
        """What the last calls had that equals these arrays, which are checked."""
        return self._recent.met(arrays, self._packed) if self._repeats else None

    def pack(self, params: Mapping[str, Any]) -> StackWeights:
        """Copies of the weights, packed for the kernels once: go in place of params to calls that
        use the same ones again."""
        if isinstance(params, StackWeights):
            return self._packed_views(self.weights(params))
        return self._packed(check_weights(self.description, params, "params"))

    def _packed(self, arrays: Mapping[str, Array]) -> StackWeights:
        return self._packed_views(views(self.description, arrays))

    def _packed_views(self, weights: StackWeights) -> StackWeights:
        layers = self.description
        cells: list[Mapping[str, Array] | Weights] = []
        for (depth, d), arrays in zip(layers.places, weights.cells):
            shared = layers.share_directions and d
            cells.append(cells[-1] if shared else layers.layers[depth].kernel.pack(arrays))
        initial = tuple({n: a.copy() for n, a in arrays.items()} for arrays in weights.initial)
        return checked_weights(tuple(cells), initial, layers)

    # --- calls

    def call(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = True,
        seed: Seed = 0,
    ) -> StackCall:
        """The arguments of `forward`, checked, for `run_forward` and its like. Arguments are those
        of `forward`. Raises ShapeError, DtypeError, and ValueError for lengths or a seed."""
        layers, weights, numbers = self.description, self.weights(params), seeds(seed)
        inputs = check_steps(layers, "input", x, layers.inputs, (None, None))
        steps, rows = check_inputs(layers, inputs)
        ends, pieces = check_rows(layers, lengths, resets, steps, rows)
        before, counts = check_carried(layers, state, rows)
        drawn, pins = numbers if training else None, pins_of(weights, inputs, before)
        return StackCall(weights, inputs, before, ends, pieces, steps, rows, drawn, counts, pins)

    def run_forward(self, call: StackCall) -> StackRun:
        """Runs a sequence and keeps the tapes."""
        return forward(self.description, call, run_forward)

    def run_infer(self, call: StackCall) -> StackRun:
        """Runs a sequence without tapes: the StackRun that comes back is not for `backward`."""
        alike = call.weights.groups == 0
        return (one_step(self.description, call) if alike else None) or forward(self.description, call, run_infer)

    def run_record(self, call: StackCall) -> tuple[StackRun, list[Array]]:
        """Runs a sequence for a caller that keeps what backward needs: rows of bytes, uint8 [n],
        that `run_resume` takes."""
        run = forward(self.description, call, run_record)
        return run, to_bytes(self.description, run)

    def run_resume(self, call: StackCall, tapes: list[Array]) -> StackRun:
        """The run for `backward` of an earlier `run_record`, by a Stack made of the same arguments,
        from the same call and the rows of bytes that it gave.

        It has no outputs. The rows are not copied, and must not be written to. Of the call's inputs
        only the shape is read, unless memory is "low". Raises ShapeError where the rows are not
        those of these layers.
        """
        return from_bytes(self.description, call, tapes)

    def forward(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = True,
        seed: Seed = 0,
    ) -> StackRun:
        """Runs a sequence and keeps the tapes.

        params: name -> array, or what `pack` made of them; with an axis of G before their own they
        are weights by row, as of a Kernel. x: [T, B, ...], or name -> array where
        the cells read more than one. state: the arrays of `carried`, each with the rows as axis 1
        ([L * D, B, ...]), None where zero (or the learned one). lengths: [B] integers, the steps of
        each row. resets: [T, B] booleans, whether a row restarts at the initial state before that
        step. training: whether dropout and noise act, drawn from `seed` (a whole number, or
        several). The same arguments give the same numbers, for any number of threads.
        """
        return self.run_forward(self.call(params, x, state, lengths, resets=resets, training=training, seed=seed))

    def infer(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = False,
        seed: Seed = 0,
    ) -> StackRun:
        """Runs a sequence without tapes: the StackRun that comes back is not for `backward`.
        Arguments are those of `forward`, but it is evaluation unless `training` says otherwise."""
        return self.run_infer(self.call(params, x, state, lengths, resets=resets, training=training, seed=seed))

    def stream(self, params: Mapping[str, Any] | StackWeights, state: Any = None, *, rows: int = 1) -> StackStream:
        """A sequence that arrives step by step, as `Recurrent.stream` is; the weights are packed
        here, and `stream.refresh()` packs the same arrays again."""
        return StackStream(self.description, self.pack, lambda: params, state, rows)

    def backward(
        self,
        run: StackRun,
        dy: Any = None,
        dstate: Any = None,
        dsteps: Mapping[str, Any] | None = None,
        *,
        per_row: bool = False,
    ) -> StackGradients:
        """Gradients from those of the outputs, of the final state and of recorded steps; what is
        left out counts as zero.

        dy: [T, B, ...], or name -> array where there is more than one output. per_row: have those
        of weights for every row of the batch, [B, ...]. Where rows have weights of their own those
        of all weights are [G, ...]. The tapes are read, not consumed.
        """
        if not isinstance(run, StackRun) or not run.layers:
            raise TypeError("backward needs the run that forward(...) returned; infer keeps no tape.")
        flowing = self._flowing(dy, dstate, dsteps, run.steps_taken, run.rows)
        return backward(self.description, run, *flowing, run_backward_rows if per_row else run_backward)

    def jvp(
        self,
        call: StackCall,
        tangent_params: Mapping[str, Any] | None = None,
        tangent_x: Any = None,
        tangent_state: Any = None,
    ) -> StackRun:
        """The directions of the outputs, final states and recorded values of a run.

        call: of `call`. tangent_params, tangent_x, tangent_state: the direction, as the arguments
        of `call` are, any of them; what is left out counts as zero. Raises ShapeError, DtypeError,
        and UnsupportedError for merge="product".
        """
        return jvp(self.description, call, self._along(call, tangent_params, tangent_x, tangent_state))

    def hvp(
        self,
        call: StackCall,
        dy: Any = None,
        dstate: Any = None,
        dsteps: Mapping[str, Any] | None = None,
        *,
        tangent_params: Mapping[str, Any] | None = None,
        tangent_x: Any = None,
        tangent_state: Any = None,
        tangent_dy: Any = None,
        tangent_dstate: Any = None,
        tangent_dsteps: Mapping[str, Any] | None = None,
    ) -> StackHvp:
        """Gradients of a run, and their directions: Hessians times vectors (`Kernel.hvp`).

        dy, dstate, dsteps: as for `backward`; tangent_dy, tangent_dstate, tangent_dsteps: their
        directions; all else as for `jvp`.
        """
        along = self._along(call, tangent_params, tangent_x, tangent_state)
        upstream, moved = (
            StackUpstream(*self._flowing(*given, call.steps, call.rows)).copied()
            for given in ((dy, dstate, dsteps), (tangent_dy, tangent_dstate, tangent_dsteps))
        )
        return hvp(self.description, call, along, upstream, moved)

    def _flowing(
        self, dy: Any, dstate: Any, dsteps: Mapping[str, Any] | None, taken: int, rows: int
    ) -> tuple[dict[str, Array], tuple[Array | None, ...], dict[str, Array]]:
        """Gradients from outside, checked."""
        layers, lead = self.description, (taken, rows)
        outputs = check_steps(layers, "gradient of output", dy, layers.outputs, lead)
        steps = check_steps(layers, "gradient of step value", dict(dsteps or {}), layers.steps, lead)
        return outputs, check_states(layers, dstate, rows, "gradient of final state"), steps

    def _along(self, call: StackCall, params: Mapping[str, Any] | None, x: Any, state: Any) -> StackCall:
        """The directions of a call's arrays, in their places."""
        check_call(layers := self.description, call)
        lead = call.steps, call.rows
        nothing: tuple[Mapping[str, Array], ...] = ({},) * len(layers.places)
        weights = checked_weights(nothing, nothing, layers)
        if params is not None:
            zeros = {n: np.zeros(shape, layers.dtype) for n, shape in layers.shapes.items()}
            weights = views(self.description, check_weights(layers, {**zeros, **params}, "directions of params"))
        inputs = check_steps(layers, "direction of input", x, layers.inputs, lead)
        given = check_states(layers, state, call.rows, "direction of state")
        if missing := [n for n, s, g in zip(layers.states, call.state, given) if s is None and g is not None]:
            raise ShapeError(f"state {', '.join(map(repr, missing))} has a direction, and the call was not given it.")
        before = tuple(None if s is None else np.zeros_like(s) if g is None else g for s, g in zip(call.state, given))
        pins = pins_of(weights, inputs, before)
        return replace(call, weights=weights, inputs=inputs, state=before, counts=None, pins=pins)
