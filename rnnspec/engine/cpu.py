"""The kernels of one cell on the CPU: plans, packs and runs what the emitted texts say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.emit.texts import text_of
from rnnspec.backends.cpu.launch import pack, segments
from rnnspec.backends.cpu.launch.code import CpuCode, code
from rnnspec.backends.cpu.launch.direct import Direct, Training, is_repeatable, is_simple
from rnnspec.backends.cpu.launch.execute import IDLE_BYTES, execute
from rnnspec.backends.cpu.launch.pack import Packed, PackPlan
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.cpu.launch.pool import default_threads
from rnnspec.backends.cpu.launch.row_sums import packed_like, plan_like, row_sums
from rnnspec.backends.cpu.launch.rows import Limits, columned
from rnnspec.backends.cpu.launch.segments import Segments
from rnnspec.backends.cpu.launch.tape import Tape, new_tape, restored
from rnnspec.backends.cpu.native import load_text
from rnnspec.backends.memo import Memo
from rnnspec.backends.pins import Pins
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call, Named, gradients, parameters, single_step
from rnnspec.engine.cpu_along import Along, CpuLinear, Ran
from rnnspec.engine.cpu_plans import Work, new_plans
from rnnspec.engine.cpu_runs import CpuRows, CpuSaved, CpuStepper, final_states, new_outputs, read_out, shaped
from rnnspec.engine.directions import Directions, parameter_directions
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.recent import Recent
from rnnspec.engine.results import Gradients, Inference, Jvp, Run, State, Taped
from rnnspec.engine.settings import known_memory, whole_threads
from rnnspec.engine.stream import step_arrays
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError
from rnnspec.language.spec import Spec
from rnnspec.lowering.pipeline import ALL_MODES, BY_ROW, READOUT, VJP
from rnnspec.storage.locks import Lock, making

TAPED = ("forward", "backward")  # kernels that share a tape, and so a plan


class CpuKernel(Kernel):
    """The kernels of one cell on the CPU.

    threads: how many a call may use, None for all processors this process may use. limits:
    the amounts of work and memory above which a call is split over threads, and into chunks of
    steps.
    """

    takes_groups = True
    limits: Limits | None = None  # None: as measured

    def __init__(self, spec: Spec, dtype: np.dtype, threads: int | None = None, memory: str = "full"):
        super().__init__(spec, dtype)
        self._memory = memory
        self._threads = threads
        self._codes: dict[str, CpuCode] = {}
        self._lock = Lock()
        self._planned: Memo[tuple[Any, ...], list[Plan]] = Memo(64)
        self._packings: Memo[tuple[Any, ...], PackPlan] = Memo(64)
        self._recent: Recent[Weights] = Recent()

    def __repr__(self) -> str:
        return f"Kernel({self.spec.label}, {self.dtype}, threads={self.threads})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (CpuKernel, (self.spec, self.dtype, self._threads, self.memory))

    @property
    def threads(self) -> int:
        return self._threads or default_threads()

    @property
    def memory(self) -> str:
        return self._memory

    def like(self, *, threads: int | None = None, memory: str | None = None) -> CpuKernel:
        threads = self._threads if threads is None else whole_threads(threads)
        other = type(self)(self.spec, self.dtype, threads, self.memory if memory is None else known_memory(memory))
        other._codes, other._lock = self._codes, self._lock
        return other

    def source(self, mode: str = "forward") -> str:
        if mode not in ALL_MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, ALL_MODES))}; got {mode!r}.")
        return text_of(self.lifted.spec, self.dtype.name, mode)

    def layout(self, mode: str) -> Mapping[str, Any]:
        return deepcopy(self._code(mode).layout)

    def _code(self, mode: str) -> CpuCode:
        """The kernel of a mode, its text made or read from the cache."""
        if mode not in self._codes:
            with making, self._lock:
                if mode not in self._codes:
                    text = load_text(f"{self.spec.name}_{mode}_{self.dtype.name}", self.source(mode))
                    self._codes[mode] = code(text, self.dtype)
        return self._codes[mode]

    # --- calls

    def _settled(self, call: Call) -> Call:
        """The call with Weights in place of parameters that came in the last calls too."""
        if isinstance(call.params, Weights) or call.compared or not self.repeats:
            return call
        weights = self._recent.find(call.params, self._weights)
        return call if weights is None else call._replace(params=weights)

    def _weights(self, params: Mapping[str, Array]) -> Weights:
        return Weights(self.spec, self.dtype, params)

    def run_forward(self, call: Call, out: Mapping[str, Array] | None = None) -> Run:
        call = self._settled(call)
        forward, backward = self._plans(TAPED, call)
        outputs, final, tape = self._taped(call, forward, out, watch=True)
        return self._run(call, backward, outputs, final, tape)

    def run_record(self, call: Call, out: Mapping[str, Array] | None = None) -> Taped:
        call = self._settled(call)
        outputs, final, tape = self._taped(call, self._plans(TAPED, call)[0], out, watch=False)
        return Taped(outputs, final, tape.kept())

    def run_resume(self, call: Call, tape: Array) -> Run:
        call = self._settled(call)
        forward, backward = self._plans(TAPED, call)
        if self.memory == "low":
            packed = self._packed("forward", call)
            kept = segments.restored(forward, packed, call.inputs, tape, call.counts)
            return self._run(call, backward, {}, {}, kept)
        return self._run(
            call, backward, {}, {}, restored(forward, tape, 0 if call.counts is None else call.counts.nbytes)
        )

    def run_infer(self, call: Call, out: Mapping[str, Array] | None = None) -> Inference:
        call = self._settled(call)
        (infer,) = self._plans(("infer",), call)
        outputs = new_outputs(self.cell, call, out)
        packed = self._packed("infer", call)
        final, _ = execute(infer, packed, call.inputs, outputs, call.states, counts=call.counts)
        return Inference(checked.as_given(outputs, out), final_states(self.cell, final, call))

    def run_jvp(self, call: Call, along: Directions) -> Jvp:
        return self._along(call, along, (along.mode,))[0].ahead()[0]

    def run_linear(self, call: Call, along: Directions) -> CpuLinear:
        ahead, back = self._along(call, along, along.taped_modes)
        return CpuLinear(*ahead.ahead(self.memory == "low"), back, self.derived)

    def run_vjp(self, call: Call, along: Directions) -> Gradients:
        ahead, back = self._along(call, along, ("forward", VJP))
        return CpuLinear(*ahead.ahead(self.memory == "low"), back, self.derived).along({}, {}, along)[1]

    def _along(self, call: Call, along: Directions, modes: tuple[str, ...]) -> list[Along]:
        """A call along directions by the kernels of some modes, which share a tape."""
        call = self._settled(call)
        plans = self._plans(modes, call, along.columns)
        return [Along(self.cell, call, along, p, self._packed_along(m, call, along)) for m, p in zip(modes, plans)]

    def _taped(
        self, call: Call, forward: Plan, out: Mapping[str, Array] | None, *, watch: bool
    ) -> tuple[Named, Named, Tape | Segments]:
        """Outputs, final states and the tape of a call. watch: see Segments."""
        outputs, packed = new_outputs(self.cell, call, out), self._packed("forward", call)
        if self.memory == "low":
            low = Segments(forward, packed, call.inputs, call.counts)
            carried = final_states(self.cell, low.forward(outputs, call.states, watch), call)
            return checked.as_given(outputs, out), carried, low
        tape = new_tape(forward, call.counts)
        final, _ = execute(forward, packed, call.inputs, outputs, call.states, tape, call.counts)
        return checked.as_given(outputs, out), final_states(self.cell, final, call), tape

    def _run(self, call: Call, backward: Plan, outputs: Named, final: Named, tape: Tape | Segments) -> Run:
        saved = CpuSaved(
            tape=tape,
            plan=backward,
            packed=self._packed("backward", call),
            params=self._parameters(call.params) if self.derived.once else {},
            inputs={name: array.shape for name, array in call.inputs.items()},
            pieces=call.pieces,
            counts=call.counts,
            groups=call.groups,
        )
        return Run(
            outputs=outputs,
            final=final,
            sizes=call.sizes,
            steps=call.steps,
            rows=call.rows,
            owner=self,
            saved=saved,
            shapes=self.states,
        )

    def _parameters(self, params: Mapping[str, Array] | Weights) -> Mapping[str, Array]:
        """Parameters that stay as they are."""
        return params.held if isinstance(params, Weights) else {name: array.copy() for name, array in params.items()}

    def _backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> Gradients:
        saved = run.saved
        assert isinstance(saved, CpuSaved), "a run of this kernel"
        before, sums, dx = self._reversed(run, saved, outputs, final, out, {})
        params = self.derived.gradients(sums, saved.params, run.sizes, saved.groups)
        return Gradients(params, dx, shaped(self.cell, before, run.sizes))

    def _backward_rows(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> tuple[CpuRows, Gradients]:
        saved, own, backward = run.saved, self._code(BY_ROW), self._code("backward")
        assert isinstance(saved, CpuSaved), "a run of this kernel"
        planned = self._planned_like(own, saved.plan)
        sums = row_sums(planned, backward.layout["gradients"], run.steps, run.rows)
        other = replace(saved, plan=planned, packed=packed_like(own, saved.packed, backward))
        before, _, dx = self._reversed(run, other, outputs, final, out, sums.outputs())
        made = CpuRows(sums=sums, derived=self.derived, saved=other, sizes=run.sizes)
        return made, Gradients({}, dx, shaped(self.cell, before, run.sizes))

    def _planned_like(self, own: CpuCode, backward: Plan) -> Plan:
        """The plan of a kernel that does as a backward kernel does, from the last calls where that
        one's is."""
        key = (BY_ROW, backward.number)
        planned = (self._planned.get(key) or [plan_like(own, backward)])[0]
        if any(block.lengths is not None for block in backward.blocks):  # no other call has this plan
            return planned
        return self._planned.keep(key, [planned])[0]

    def _reversed(
        self,
        run: Run,
        saved: CpuSaved,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
        beside: Mapping[str, Array],
    ) -> tuple[Named, Named, Named]:
        """A run of the reversed kernel of `saved`: the gradients of states as they lie, what the
        kernel sums, and the gradients of inputs. beside: arrays for its other outputs."""
        pieces, backward = saved.pieces, saved.plan
        starts = run.rows if pieces is None else len(pieces)
        dy, dfinal = gradients(self.cell, run.sizes, outputs, final, (run.steps, run.rows), starts)
        read = {f"gradient of {o}": a if pieces is None else checked.numbered(a) for o, a in dy.items()}
        # nothing is written behind a row's end: where rows may end before T, arrays start as zeros
        may_end_early = pieces is not None or any(block.lengths is not None for block in backward.blocks)
        shapes = {name: saved.inputs[name] for name in backward.code.layout["outputs"] if name not in beside}
        dx = checked.ready(shapes, out, self.dtype, zero=may_end_early, numbered=pieces is not None)
        with Pins([*read.values(), *dfinal.values(), *dx.values()]):
            if isinstance(saved.tape, Segments):
                before, sums = saved.tape.backward(backward, saved.packed, read, {**dx, **beside}, dfinal)
            else:
                before, sums = execute(backward, saved.packed, read, {**dx, **beside}, dfinal, saved.tape, saved.counts)
        return before, sums, checked.as_given(dx, out)

    def step(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        *,
        rows: int | None = None,
    ) -> State:
        weights = self._recent_weights(params)
        call = single_step(self.cell, weights, inputs, states, rows)
        key = (self._threads, call.rows, call.sizes.items_key)
        stepper = weights.idle.borrow(key, lambda: self.stepper(weights, call.rows, call.sizes))
        stepper.load(call.states)
        stepper.start_at(call.counts)
        for name, array in stepper.inputs.items():
            array[...] = call.inputs[name][0]
        stepper.run(0)
        state = State.of(
            final_states(self.cell, stepper.states(), call), {o: a.copy() for o, a in stepper.outputs.items()}
        )
        weights.idle.give_back(key, stepper)
        return state

    def _recent_weights(self, params: Mapping[str, Any] | Weights) -> Weights:
        """The parameters packed, unless they were in the last calls."""
        if isinstance(params, Weights):
            return params
        if not self.repeats:
            return self.pack(params)
        if type(params) is dict and (weights := self._recent.again(params)) is not None:
            return weights
        arrays = parameters(self.cell, params)
        return self._recent.find(arrays, self._weights, params) or self.pack(arrays)

    def stepper(
        self, weights: Weights, rows: int, sizes: Sizes, mode: str = "infer", beside: Mapping[str, Array] = {}
    ) -> CpuStepper:
        groups = 0 if weights.groups is None else weights.groups.count
        (planned,) = self._new_plans((mode,), Work(sizes, 1, rows, None, None, groups=groups))
        inputs, outputs = step_arrays(self.cell, sizes, rows)
        self.refresh(stepper := CpuStepper(planned, sizes, inputs, {**outputs, **beside}, mode), weights)
        return stepper

    def _learner(self) -> CpuKernel:
        return self

    def run_readout(self, weights: Weights, rows: int, sizes: Sizes, given: Named, counts: Array | None) -> Ran:
        (planned,) = self._plans((READOUT,), call := Call(weights, {}, {}, None, sizes, 1, rows, counts=counts))
        return read_out(planned, self._packed(READOUT, call), sizes, given, counts)

    def refresh(self, stepper: CpuStepper, weights: Weights) -> None:
        groups, planned = weights.groups, len(set(stepper.bound.plan.groups))
        if planned != (given := 0 if groups is None else groups.count):
            raise ShapeError(
                f"a stream with weights of {planned or 'no'} groups of rows can't go on with those of {given or 'no'}:"
                " start another."
            )
        call = Call(weights, {}, {}, None, stepper.sizes, 1, stepper.rows, groups=groups)
        stepper.bound.use(self._packed(stepper.mode, call), None)

    def bound_inference(self, weights: Weights, sizes: Sizes, steps: int, rows: int) -> Direct | None:
        call = Call(weights, {}, {}, None, sizes, steps, rows)
        (infer,) = self._plans(("infer",), call)
        if weights.groups is not None or not is_simple(infer):
            return None
        made = Direct(infer, self._packed("infer", call))
        return made if made.bound.bytes <= IDLE_BYTES else None

    def bound_training(
        self, params: Mapping[str, Array], bases: list[tuple[int, int]], sizes: Sizes, steps: int, rows: int
    ) -> Training | None:
        plans = self._plans(TAPED, Call(params, {}, {}, None, sizes, steps, rows))
        if self.memory != "full" or self.derived.once or self.derived.pieces or not all(map(is_simple, plans)):
            return None
        read = self.derived.values(params, sizes)
        widths = {n: a.size for n, a in read.items()}
        packings = [pack.pack_plan(self._code(m), sizes, widths) for m in TAPED]
        if not all(map(is_repeatable, packings)):
            return None
        made = Training(plans, packings, read, bases)
        return made if made.bytes <= IDLE_BYTES else None

    # --- plans, weights and arrays

    def _plans(self, modes: tuple[str, ...], call: Call, columns: int = 1) -> list[Plan]:
        """Plans of kernels that share a tape, from the last calls of the same sizes where there
        were such."""
        groups = 0 if call.groups is None else call.groups.count
        key = (modes, columns, call.steps, call.rows, groups, call.sizes.items_key)
        planned = self._planned.get(key) if call.lengths is None else None
        if planned is not None:
            return planned
        work = Work(call.sizes, call.steps, call.rows, call.lengths, call.pieces, columns, groups)
        plans = self._new_plans(modes, work)
        return plans if call.lengths is not None else self._planned.keep(key, plans)

    def _new_plans(self, modes: tuple[str, ...], work: Work) -> list[Plan]:
        codes, summed = [self._code(m) for m in modes], len(modes) > 1
        return new_plans(codes, work, self.threads, self.limits, summed=summed, low=summed and self.memory == "low")

    def _packed(self, mode: str, call: Call) -> Packed:
        key = (mode, call.sizes.items_key)
        if isinstance(call.params, Weights):
            return call.params.packed(key, lambda params: self._pack(key, mode, call, params))
        return self._pack(key, mode, call, call.params)

    def _pack(self, key: tuple[Any, ...], mode: str, call: Call, params: Mapping[str, Array]) -> Packed:
        read, count, by_row = self.derived.values(params, call.sizes, call.groups), 0, set[str]()
        if call.groups is not None:  # what is made of parameters is [G, ...] too
            count, by_row = call.groups.count, {n for n in read if n in call.groups.names or n not in params}
        packing = self._packings.get(key)
        if packing is None:
            widths = {n: a.size // count if n in by_row else a.size for n, a in read.items()}
            packing = self._packings.keep(key, pack.pack_plan(self._code(mode), call.sizes, widths))
        return pack.pack(packing, read, count, by_row)

    def _packed_along(self, mode: str, call: Call, along: Directions) -> Packed:
        """The weights of a kernel with directions, and those of the parameters, packed."""
        packed, sizes, layout = self._packed(mode, call), call.sizes, self._code(mode).layout
        if not along.params or not columned(layout, "parameters"):
            return packed
        params = call.params.held if isinstance(call.params, Weights) else call.params
        count = 0 if call.groups is None else call.groups.count
        moving = parameter_directions(self.derived, layout, params, along, sizes, call.groups)
        key = (mode, sizes.items_key, along.columns)
        packing = self._packings.get(key)
        if packing is None:
            widths = {n: math.prod(a.shape[1 + bool(count) :]) for n, a in moving.items()}
            made = pack.pack_plan(self._code(mode), sizes, widths, along.columns, directions=True)
            packing = self._packings.keep(key, made)
        return pack.together(self._code(mode), packed, pack.pack(packing, moving, count, set(moving) if count else ()))
