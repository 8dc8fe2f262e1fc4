"""`Kernel`: the compiled kernels of one cell, whatever runs them. `rnnspec.compile` makes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.apart import apart
from rnnspec.engine.arrays import named
from rnnspec.engine.call import Call, Cell, parameters, parameters_with_noise, sequence
from rnnspec.engine.constrain import constrained
from rnnspec.engine.derivatives import Derivatives
from rnnspec.engine.derived import Derived
from rnnspec.engine.frozen import Frozen, Sizes
from rnnspec.engine.groups import check_rows_of, groups_of, refuse_groups
from rnnspec.engine.initialise import initialise
from rnnspec.engine.jacobian import Matrices, jacobian
from rnnspec.engine.noise import Seed
from rnnspec.engine.online import Learner, Online, online
from rnnspec.engine.results import Inference, Run, State, Taped, taped_counts
from rnnspec.engine.spans import Pieces
from rnnspec.engine.stream import Stepper, Stream, all_sizes, whole_rows
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.language.lift import lifted
from rnnspec.language.sizes import check_size_value, sizes_in, with_default_sizes
from rnnspec.language.spec import STEP, Shape, Spec
from rnnspec.language.views import views
from rnnspec.lowering.pipeline import MODES
from rnnspec.storage.locks import once_only


class Kernel(Derivatives, ABC):
    """The compiled kernels of one cell. Calls may come from several Python threads at once.

    Arrays are never written to and may have any strides; their dtype must be the kernel's. Past the
    end of a row (`lengths`) outputs are zero and states stay as they were.

    spec: the cell; dtype: of all arrays. Each backend subclasses this and implements the abstract
    methods.
    """

    takes_groups = False  # weights by row

    def __init__(self, spec: Spec, dtype: np.dtype):
        self.spec, self.dtype = spec, dtype
        self.lifted = lifted(spec)  # what is compiled: constants are values of a call

    # --- what it is

    def _repr_html_(self) -> str:
        return views().html(self.spec, repr(self))

    @property
    @abstractmethod
    def threads(self) -> int:
        """How many threads of the CPU a call may use."""

    @property
    def memory(self) -> str:
        """What `forward` keeps for `backward`, "full" or "low"; `like` gives a kernel with the
        other."""
        return "full"

    @abstractmethod
    def like(self, *, threads: int | None = None, memory: str | None = None) -> Kernel:
        """This kernel with another number of threads or another `memory`; what is left out stays as
        it is. Compiled code is shared, not made again. Raises as `compile` does."""

    @abstractmethod
    def source(self, mode: str = "forward") -> str:
        """The emitted text of a kernel: "forward" (with tape), "backward" or "infer". On a GPU
        these are those of its texts that do not depend on sizes, one after the other."""

    @abstractmethod
    def layout(self, mode: str) -> Mapping[str, Any]:
        """What the kernel of a mode reads, carries, emits and sums (rnnspec.lowering.signature)."""

    @once_only
    def states(self) -> Mapping[str, Shape]:
        """Every value carried from step to step and its shape: the spec's states, and inputs and
        intermediates read at t-1. A cell that counts its steps (`spec.counts`) carries the count
        beside them, "t"."""
        return Frozen({name: self.spec.shapes[name] for name in self.layout("infer")["states"]})

    @once_only
    def repeats(self) -> bool:
        """Whether parameters may be the same in call after call: there is no noise among them."""
        return not any(n in self.spec.parameters for n in self.spec.noise)

    @once_only
    def cell(self) -> Cell:
        """What calls are checked against."""
        return Cell(self.spec, self.states, self.dtype, self.takes_groups)

    @once_only
    def derived(self) -> Derived:
        """Pieces of parameters, and values computed from parameters once per sequence, that kernels
        read as if they were parameters."""
        return Derived(self.lifted, self.dtype, [self.layout(mode) for mode in MODES])

    # --- before calls

    def init(self, /, *, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Parameters by the spec's `init`, without noise. sizes: of all, as in `init(D=64,
        H=128)`."""
        if unknown := [n for n in sizes if n not in _all_sizes(self.spec)]:
            raise ShapeError(
                f"'{self.spec.name}' has no size {', '.join(map(repr, unknown))}. Its sizes are:"
                f" {', '.join(sorted(_all_sizes(self.spec)))}."
            )
        for name, value in sizes.items():
            check_size_value(name, value)
        whole = with_default_sizes(self.spec.sizes, sizes)
        needed = sorted(sizes_in(self.spec.weights.values()))
        if missing := [n for n in needed if n not in whole]:
            raise ShapeError(
                f"init needs the sizes {', '.join(needed)} of '{self.spec.name}': give"
                f" {', '.join(f'{n}=...' for n in missing)}."
            )
        return initialise(self.spec, whole, seed, self.dtype)

    def constrain(self, params: Mapping[str, Array], *, initial: bool = False) -> dict[str, Array]:
        """The weights with those that did not obey the cell's constraints exchanged for ones that
        do: projected, as after an update, or made into initial values (`engine/constrain.py`). An
        array that obeys is the same object. params: name -> array, of all weights; nothing is
        written to. Raises ShapeError, DtypeError, and UnsupportedError for weights by row."""
        given = named("parameter", params, self.spec.parameters, self.dtype, required=True, optional=self.spec.noise)
        again = "constrain those of each group"
        refuse_groups(groups_of(given, self.spec.parameters), "constrain", again)
        return {**params, **constrained(self.spec, given, initial)}

    def pack(self, params: Mapping[str, Any] | Weights, noise: Seed | str = "mean") -> Weights:
        """The parameters packed for the kernels, to be given in place of `params` to calls that use
        the same ones again. noise: of parameters, as for `infer`; it is packed with them."""
        if isinstance(params, Weights):
            parameters(self.cell, params)
            return params
        return Weights(self.spec, self.dtype, parameters_with_noise(self.cell, params, noise))

    def call(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Call:
        """The arguments of `forward`, `record`, `infer` or `resume`, checked and completed, for
        `run_forward` and its like: whoever makes several runs of the same arguments checks them
        once.

        Arguments, and errors, are those of `forward`.
        """
        return sequence(self.cell, params, inputs, states, lengths, noise, pieces, (steps, rows))

    # --- calls

    def forward(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Run:
        """Runs a sequence and keeps the tape for `backward`.

        params: name -> array of the parameter's shape, or what `pack` made of them. Those with an
            axis of G before their own are weights by row: of B rows, a multiple of G, the first
            B / G have the first of them, and so on. Their gradients are [G, ...] too.
        inputs: name -> [T, B, ...]; those with a default may be left out.
        states: name -> [B, ...] before the first step, zero where left out. Of a cell that counts
            its steps "t" is one too: [B] integers, the steps that each row has taken before, or one
            number for all. `Run.final` has it, so that a sequence can go on in another call.
        lengths: [B] integers, the steps that each row takes; None: all T.
        noise: where the cell declares some, a seed draws it (a whole number or a tuple of them,
            another for every call; see rnnspec.engine.noise), "mean" puts what is expected in its
            place, as at evaluation, and None asks for its arrays among inputs and params; arrays
            that are given are used in any case.
        pieces: in place of lengths, the parts of rows that run alone (`rnnspec.engine.spans.cut`);
            states and `Run.final` are then [R, ...], one for each piece, while inputs and outputs
            stay [T, B, ...].
        steps, rows: T and B, which the inputs tell where there are any: for a cell without inputs,
            and for calls that give none. rows may be left out where states or lengths tell it.
        out: arrays of the caller's to write outputs to, name -> [T, B, ...], of any strides, which
            share memory neither with one another nor with what is read; with pieces strides[0] must
            be B * strides[1], so that row b of step t is number t * B + b.

        Raises ShapeError, DtypeError, or ValueError for lengths or noise.
        """
        call = self.call(params, inputs, states, lengths, noise=noise, pieces=pieces, steps=steps, rows=rows)
        return self.run_forward(call, apart(out, call))

    def record(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Taped:
        """Runs a sequence and gives the tape to the caller, as an array of which `resume` makes a
        Run. Arguments are those of `forward`."""
        call = self.call(params, inputs, states, lengths, noise=noise, pieces=pieces, steps=steps, rows=rows)
        return self.run_record(call, apart(out, call))

    def resume(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        tape: Array,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Run:
        """The Run for `backward` of an earlier `record`, by a kernel of the same spec, dtype,
        memory and number of threads, from the same arguments. The count of steps is on the tape.

        params, inputs, lengths, noise, pieces, steps, rows: as `record` had them; tape: the array
        it gave. The Run has no outputs and no final states. The tape is not copied, and must not be
        written to. Of inputs only the shapes are read, unless memory is "low": then they are read
        again, and that they are as they were at `record` is the caller's to see to. Raises
        ShapeError where the tape is not one of these arguments.
        """
        told: dict[str, Any] = {"noise": noise, "pieces": pieces, "steps": steps, "rows": rows}
        call = self.call(params, inputs, None, lengths, **told)
        if call.counts is not None and (counts := taped_counts(tape, len(call.counts))) is not None:
            call = self.call(params, inputs, {STEP: counts}, lengths, **told)
        return self.run_resume(call, tape)

    def infer(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = "mean",
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Inference:
        """Runs a sequence without a tape. Arguments are those of `forward`; noise is what is
        expected of it, unless it is given or a seed draws it."""
        call = self.call(params, inputs, states, lengths, noise=noise, pieces=pieces, steps=steps, rows=rows)
        return self.run_infer(call, apart(out, call))

    @abstractmethod
    def run_forward(self, call: Call, out: Mapping[str, Array] | None = None) -> Run:
        """`forward` without checks: `call` must be valid already (`Kernel.call` makes one).

        out: see `forward`.
        """

    @abstractmethod
    def run_record(self, call: Call, out: Mapping[str, Array] | None = None) -> Taped:
        """`record` of arguments that are ready; see `run_forward`."""

    @abstractmethod
    def run_resume(self, call: Call, tape: Array) -> Run:
        """`resume` of arguments that are ready; see `run_forward`. Of the states nothing is
        read."""

    @abstractmethod
    def run_infer(self, call: Call, out: Mapping[str, Array] | None = None) -> Inference:
        """`infer` of arguments that are ready; see `run_forward`."""

    def jacobian(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        *,
        noise: Seed | str | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Matrices:
        """The Jacobian of every step: `found[after][before]` is the derivative of a state after
        the step by one before it, [T, B, ...after, ...before]. Arguments and errors are `jvp`'s.
        """
        given = params if isinstance(params, Weights) else self._hosted(params)
        call = self.call(given, self._hosted(inputs), self._hosted(states), noise=noise, steps=steps, rows=rows)
        return jacobian(self, call)

    # --- step by step

    @abstractmethod
    def step(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        *,
        rows: int | None = None,
    ) -> State:
        """One step, as a function: states in, states out; where the states need not be kept,
        `stream` is several times faster.

        inputs: name -> [B, ...]; states: what the step before returned, zero where left out; the
        count of steps is among them. rows: B, where neither inputs nor states tell it. Noise that
        is not among the inputs is what is expected of it. Raises ShapeError, as `forward` does.
        """

    def stream(
        self,
        params: Mapping[str, Any] | Weights,
        states: Mapping[str, Any] | None = None,
        *,
        rows: int = 1,
        **sizes: int,
    ) -> Stream:
        """A sequence that arrives step by step: `stream.step(inputs)` for each, without planning,
        packing or allocating.

        params: packed once, here; later changes are not seen until `stream.refresh(params)`.
        states: name -> [rows, ...] before the first step, zero where left out, as for `forward`.
        rows: of the batch. sizes: those that the shapes of params do not tell.
        """
        count, weights = whole_rows(rows), self.pack(params)
        check_rows_of(weights.groups, count)
        whole = Sizes(all_sizes(self.cell, weights.held, sizes))
        return Stream(self, self.cell, count, whole, self.stepper(weights, count, whole), states)

    def bound_inference(self, weights: Weights, sizes: Sizes, steps: int, rows: int) -> Any:
        """What calls of `infer` of these weights and sizes work in, where they are so small that
        the call counts (backends/cpu/launch/direct.py); None for others, and where a subclass runs
        in another way."""
        return None

    def bound_training(
        self, params: Mapping[str, Array], bases: list[tuple[int, int]], sizes: Sizes, steps: int, rows: int
    ) -> Any:
        """What calls of `forward` and `backward` of these sizes work in, as `bound_inference`.
        params: views of the arrays at `bases`, addresses and sizes in bytes, and arrays that are
        the same in every call."""
        return None

    def online(
        self,
        params: Mapping[str, Any] | Weights,
        states: Mapping[str, Any] | None = None,
        *,
        rule: str = "exact",
        rows: int = 1,
        limit: int | None = None,
        seed: int = 0,
        **sizes: int,
    ) -> Online:
        """A stream that learns: `step(inputs)` as of a stream, and after it `learn(d_outputs)`, the
        gradient of a loss at this step through all steps before it, without a tape.

        rule: "exact" (real-time recurrent learning), "snap1", "snap2", "rflo", "eprop" or "uoro";
            docs/online.md says what each of them is, and of which paper.
        limit: how many numbers the influence of parameters on states may be, where it has to be
            kept as a whole matrix; None: 2**24. seed: of what "uoro" draws.

        params, states, rows, sizes: as for `stream`; `refresh(params)` after an update. Raises
        UnsupportedError for a rule that is not defined for this cell, above the limit, and on a
        GPU.
        """
        return online(self._learner(), params, states, rule, rows, limit, seed, sizes)

    def _learner(self) -> Learner:
        raise UnsupportedError(f"{self!r} does not learn online: compile the cell with backend='cpu'.")

    @abstractmethod
    def stepper(self, weights: Weights, rows: int, sizes: Sizes) -> Stepper:
        """Makes the Stepper that `stream` drives: `rows` rows, with these packed weights, which
        are not looked at again."""

    @abstractmethod
    def refresh(self, stepper: Any, weights: Weights) -> None:
        """Has a Stepper of this kernel go on with other weights of the same sizes."""


def _all_sizes(spec: Spec) -> set[str]:
    return sizes_in(spec.shapes.values()) | set(spec.sizes)
