"""Compiling a spec, and running what was compiled: `compile` and `Kernel`."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.emit.texts import texts
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine import arrays as checked
from rnnspec.engine.derived import Derived
from rnnspec.engine.initialise import initialise
from rnnspec.engine.noise import Seed, draw, mean
from rnnspec.engine.results import Gradients, Inference, Run, State, Taped
from rnnspec.engine.spans import Pieces
from rnnspec.engine.stream import Stream
from rnnspec.engine.weights import Weights
from rnnspec.errors import BackendUnavailable, ShapeError, UnsupportedError
from rnnspec.language.load import load
from rnnspec.language.sizes import check_size_value, full_shape, sizes_in, with_default_sizes
from rnnspec.language.spec import Shape, Spec
from rnnspec.lowering.pipeline import MODES

if TYPE_CHECKING:
    from rnnspec.backends.cpu.launch.code import Code
    from rnnspec.backends.cpu.launch.pack import Packed, PackPlan
    from rnnspec.backends.cpu.launch.plan import Plan
    from rnnspec.backends.cpu.launch.segments import Segments
    from rnnspec.backends.cpu.launch.tape import Tape


def compile(
    spec: Spec | str | os.PathLike[str],
    /,
    *,
    dtype: str = "float32",
    backend: str = "cpu",
    threads: int | None = None,
    memory: str = "full",
    tier: int | None = None,
    **settings: object,
) -> Kernel:
    """A Kernel for a cell.

    spec: a Spec, or a name or path for `load` (`settings` are its choices and constants). dtype:
    "float32" or "float64". backend: "cpu"; "cuda", an NVIDIA GPU (see rnnspec.engine.cuda); "auto",
    a GPU where there is one that will do and numba-cuda is installed, else the CPU, and the CPU too
    where `threads` or memory="low" ask for it. threads: how many threads of the CPU a call may use;
    None for all processors this process may use. memory: what `forward` keeps for `backward`.
    "full": what it computed; "low": the states of some sqrt(T) steps, from which `backward` runs
    forward once more (a third more time, and inputs must not be changed in between). tier: which
    kernels a GPU runs, as `rnnspec show NAME --stage cuda` lists them; None for what fits. Machine
    code is made at the first call of each kind (forward, backward, infer), once for all shapes, and
    kept on disk.

    Raises SpecError for a bad spec, UnsupportedError for one that the kernels can't run yet,
    ValueError for other dtypes, BackendUnavailable, with the reason, for a backend that can't run
    here.
    """
    if not isinstance(spec, Spec | str | os.PathLike):
        raise TypeError(f"compile takes a Spec, a cell's name or the path of a YAML file; got {type(spec).__name__}.")
    if isinstance(spec, Spec):
        if settings:
            raise TypeError(
                f"choices and constants ({', '.join(settings)}) are given to rnnspec.load, which made this Spec."
            )
    else:
        spec = load(spec, **settings)
    try:
        name = np.dtype(dtype).name if dtype is not None else "None"
    except TypeError:
        name = str(dtype)
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype {name!r} is not supported: choose 'float32' or 'float64'.")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1):
        raise ValueError(f"threads must be a whole number of at least 1, or None for all processors; got {threads!r}.")
    if memory not in ("full", "low"):
        raise ValueError(f"memory must be 'full' or 'low'; got {memory!r}.")
    if backend not in _BACKENDS:
        raise BackendUnavailable(f"there is no backend {backend!r}: choose {', '.join(map(repr, _BACKENDS))}.")
    return _BACKENDS[backend](spec, np.dtype(name), None if threads is None else int(threads), memory, tier)


def _cpu(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    if tier is not None:
        raise ValueError("tier chooses among the kernels of a GPU: leave it out on the CPU.")
    return Kernel(spec, dtype, threads, memory)


def _cuda(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    from rnnspec.engine.cuda import DeviceKernel

    if threads is not None:
        raise ValueError("threads are the CPU's: leave them out with backend='cuda'.")
    if memory != "full":
        raise UnsupportedError("memory='low' is not offered on a GPU: use memory='full', or backend='cpu'.")
    return DeviceKernel(spec, dtype, tier)


def _auto(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    if threads is not None or memory != "full":  # no GPU has these, so they ask for the CPU
        return _cpu(spec, dtype, threads, memory, tier)
    if find_spec("numba_cuda") is None:  # a driver alone compiles nothing
        return _cpu(spec, dtype, threads, memory, None)
    try:
        return _cuda(spec, dtype, threads, memory, tier)
    except BackendUnavailable:
        return _cpu(spec, dtype, threads, memory, None)


_BACKENDS = {"cpu": _cpu, "cuda": _cuda, "auto": _auto}


class Kernel:
    """The compiled kernels of one cell. Calls may come from several Python threads at once.

    Arrays are never written to and may have any strides; their dtype must be the kernel's. Past the
    end of a row (`lengths`) outputs are zero and states stay as they were.

    limits: from where on a call is split over threads, and into chunks of steps.
    """

    limits = Limits()

    def __init__(self, spec: Spec, dtype: np.dtype, threads: int | None, memory: str = "full"):
        self.spec, self.dtype, self.memory = spec, dtype, memory
        self._threads = threads
        self._codes: dict[str, Code] = {}
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], tuple[dict[str, int], int, int]] = {}
        self._planned: dict[tuple[Any, ...], list[Plan]] = {}
        self._packings: dict[tuple[Any, ...], PackPlan] = {}

    def __repr__(self) -> str:
        return f"Kernel({self.spec.name}, {self.dtype}, threads={self.threads})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Kernel, (self.spec, self.dtype, self._threads, self.memory))

    @property
    def threads(self) -> int:
        from rnnspec.backends.cpu.launch.pool import default_threads

        return self._threads or default_threads()

    @property
    def _place(self) -> tuple[Any, ...]:
        """Where packed parameters lie: Weights are shared by all kernels of a spec, those of other
        backends too."""
        return ()

    @cached_property
    def states(self) -> dict[str, Shape]:
        """Every value carried from step to step and its shape: the spec's states, and inputs and
        intermediates read at t-1."""
        return {name: self.spec.shapes[name] for name in self._code("infer").layout["states"]}

    def source(self, mode: str = "forward") -> str:
        """The emitted text of a kernel: "forward" (with tape), "backward" or "infer"."""
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}; got {mode!r}.")
        return texts(self.spec, self.dtype.name)[mode]

    def init(self, /, *, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Parameters as the spec's `init` says, without those that are noise. sizes: the value of
        every size, as in `init(D=64, H=128)`."""
        if unknown := [n for n in sizes if n not in _all_sizes(self.spec)]:
            raise ShapeError(
                f"'{self.spec.name}' has no size {', '.join(map(repr, unknown))}. Its sizes are:"
                f" {', '.join(sorted(_all_sizes(self.spec)))}."
            )
        for name, value in sizes.items():
            check_size_value(name, value)
        whole = with_default_sizes(self.spec.sizes, sizes)
        needed = sorted(sizes_in(self.spec.trained.values()))
        if missing := [n for n in needed if n not in whole]:
            raise ShapeError(
                f"init needs the sizes {', '.join(needed)} of '{self.spec.name}': give"
                f" {', '.join(f'{n}=...' for n in missing)}."
            )
        return initialise(self.spec, whole, seed, self.dtype)

    def pack(self, params: Mapping[str, Any] | Weights, noise: Seed | str = "mean") -> Weights:
        """The parameters packed for the kernels, to be given in place of `params` to calls that use
        the same ones again. noise: of parameters, as for `infer`; it is packed with them."""
        if isinstance(params, Weights):
            return self._weights(params)
        arrays = self._parameters(params)
        sizes = self._sizes_of(arrays, {}, {}, ("T", "B"))
        masks = [n for n in self.spec.noise if n in self.spec.parameters and n not in arrays]
        return Weights(self, arrays | self._noise(masks, noise, sizes, 0, 0))

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

        params: packed once, here; later changes are not seen. states: name -> [rows, ...] before
        the first step, zero where left out. rows: of the batch. sizes: those that the shapes of
        params do not tell.
        """
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
            raise ValueError(f"rows must be a whole number of at least 0, got {rows!r}.")
        return self._stream(self._weights(params), int(rows), sizes, states)

    def _stream(
        self, weights: Weights, rows: int, sizes: Mapping[str, int], states: Mapping[str, Any] | None
    ) -> Stream:
        return Stream(self, weights, rows, sizes, states)

    def forward(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Run:
        """Runs a sequence and keeps the tape for `backward`.

        params: name -> array of the parameter's shape, or what `pack` made of them; inputs: name ->
        [T, B, ...], those with a default may be left out; states: name -> [B, ...] before the first
        step, zero where left out; lengths: [B] integers, the steps that each row takes (None: all
        T). noise: where the cell declares some, a seed draws it (a whole number or a tuple of them,
        another for every call; see rnnspec.engine.noise), "mean" puts what is expected in its
        place, as at evaluation, and None asks for its arrays among inputs and params; arrays that
        are given are used in any case. pieces: in place of lengths, the parts of rows that run
        alone (`rnnspec.engine.spans.cut`); states and `Run.final` are then [R, ...], one for each
        piece, while inputs and outputs stay [T, B, ...]. out: arrays of the caller's to write
        outputs to, name -> [T, B, ...], of any strides (with pieces one row number after the other:
        step t + 1 must lie B times as far from step t as row b + 1 from row b). Raises ShapeError,
        DtypeError, or ValueError for lengths or noise.
        """
        call = self._check(params, inputs, states, lengths, noise, pieces=pieces)
        plans = self._plans(("forward", "backward"), call)
        return self._run(call, plans[1], *self._record(call, plans[0], out, watch=True))

    def record(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Taped:
        """`forward` for who keeps the tape himself: it comes as an array, and `resume` makes a Run
        of it. Arguments as for `forward`."""
        call = self._check(params, inputs, states, lengths, noise, pieces=pieces)
        outputs, final, tape = self._record(call, self._plans(("forward", "backward"), call)[0], out, watch=False)
        return Taped(outputs, final, tape.kept())

    def resume(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        tape: Array,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
    ) -> Run:
        """The Run for `backward` of an earlier `record`, by a kernel of the same spec, dtype,
        memory and number of threads, from the same arguments.

        It has no outputs and no final states. The tape is not copied, and must not be written to.
        Of inputs only the shapes are read, unless memory is "low": then they are read again, and
        that they are as they were at `record` is the caller's to see to. Raises ShapeError where
        the tape is not one of these arguments.
        """
        from rnnspec.backends.cpu.launch import segments
        from rnnspec.backends.cpu.launch.tape import restored

        call = self._check(params, inputs, None, lengths, noise, pieces=pieces)
        plan, backward = self._plans(("forward", "backward"), call)
        if self.memory == "low":
            return self._run(
                call,
                backward,
                {},
                {},
                segments.restored(plan, self._packed("forward", call.sizes, call.params), call.inputs, tape),
            )
        return self._run(call, backward, {}, {}, restored(plan, tape))

    def _record(
        self, call: _Call, plan: Plan, out: Mapping[str, Array] | None, *, watch: bool
    ) -> tuple[dict[str, Array], dict[str, Array], Tape | Segments]:
        """Outputs, final states and the tape of a call. watch: see Segments."""
        from rnnspec.backends.cpu.launch import segments
        from rnnspec.backends.cpu.launch.execute import execute
        from rnnspec.backends.cpu.launch.tape import new_tape

        outputs, packed = self._outputs(call, out), self._packed("forward", call.sizes, call.params)
        tape: Tape | Segments
        if self.memory == "low":
            tape = segments.Segments(plan, packed, call.inputs)
            final = tape.forward(outputs, call.states, watch)
        else:
            tape = new_tape(plan)
            final, _ = execute(plan, packed, call.inputs, outputs, call.states, tape)
        return outputs, self._shaped(final, call.sizes), tape

    def _run(
        self, call: _Call, backward: Plan, outputs: dict[str, Array], final: dict[str, Array], tape: Tape | Segments
    ) -> Run:
        shapes = {name: array.shape for name, array in call.inputs.items()}
        return Run(
            outputs,
            final,
            call.sizes,
            call.steps,
            call.rows,
            self,
            tape,
            backward,
            self._packed("backward", call.sizes, call.params),
            shapes,
            self._kept(call.params),
            call.pieces,
        )

    def _kept(self, params: Mapping[str, Array] | Weights) -> dict[str, Array]:
        if not self._derived.once:
            return {}
        return (
            dict(params.params)
            if isinstance(params, Weights)
            else {name: array.copy() for name, array in params.items()}
        )

    def backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None = None,
        *,
        final: Mapping[str, Any] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Gradients:
        """Gradients from those of the outputs [T, B, ...] and of the final states [B, ...]; what is
        left out counts as zero.

        The tape is read, not consumed: several calls for one run are fine. Gradients are sums over
        batch and time. Of a run of pieces those of states are [R, ...]. out: arrays for the
        gradients of inputs, as for `forward`.
        """
        from rnnspec.backends.cpu.launch.execute import execute
        from rnnspec.backends.cpu.launch.tape import Tape

        dy, dfinal = self._checked_gradients(run, outputs, final)
        own = run._backward
        full = {i: run._inputs[i] for i in own.code.layout["outputs"]}
        short = run._pieces is not None or any(
            block.lengths is not None for block in own.blocks
        )  # else every row is written at every step
        dx = checked.ready(full, out, self.dtype, zero=short, numbered=run._pieces is not None)
        given = {f"gradient of {o}": a if run._pieces is None else checked.numbered(a) for o, a in dy.items()}
        if isinstance(run._tape, Tape):
            before, params = execute(own, run._packed, given, dx, dfinal, run._tape)
        else:
            before, params = run._tape.backward(own, run._packed, given, dx, dfinal)
        return Gradients(self._derived.gradients(params, run._params, run.sizes), dx, self._shaped(before, run.sizes))

    def _checked_gradients(
        self, run: Run, outputs: Mapping[str, Any] | None, final: Mapping[str, Any] | None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        if not isinstance(run, Run):
            raise TypeError(
                "backward needs the Run that kernel.forward(...) returned (infer keeps no tape); got"
                f" {type(run).__name__}."
            )
        if run._kernel is not self:
            raise ValueError("this run was made by another kernel; call that kernel's backward.")
        out_shapes = {o: self.spec.shapes[o] for o in self.spec.outputs}
        dy = checked.named("output gradient", outputs, out_shapes, self.dtype, required=False)
        dfinal = checked.named("final state gradient", final, self.states, self.dtype, required=False)
        self._check_gradients(run, dy, dfinal)
        return dy, dfinal

    def infer(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = "mean",
        pieces: Pieces | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Inference:
        """Runs a sequence without a tape; arguments as for `forward`, noise at what is expected of
        it."""
        from rnnspec.backends.cpu.launch.execute import execute

        call = self._check(params, inputs, states, lengths, noise, pieces=pieces)
        own = self._plans(("infer",), call)[0]
        outputs = self._outputs(call, out)
        final, _ = execute(own, self._packed("infer", call.sizes, call.params), call.inputs, outputs, call.states)
        return Inference(outputs, self._shaped(final, call.sizes))

    def step(
        self, params: Mapping[str, Any] | Weights, inputs: Mapping[str, Any], states: Mapping[str, Any] | None = None
    ) -> State:
        """One step, as a function: states in, states out; where the states need not be kept,
        `stream` is several times faster.

        inputs: name -> [B, ...]; states: what the step before returned, zero where left out. For a
        cell that reads the step's number this is step 0: a stream counts. Noise that is not among
        the inputs is what is expected of it.
        """
        weights = self._weights(params)
        call = self._check(weights, inputs, states, None, "mean", lead=("B",))
        key = (call.rows, *call.sizes.items())
        stream = weights.borrow(key, lambda: Stream(self, weights, call.rows, call.sizes, None))
        stream._restart(call.states)
        stream.step(call.inputs)
        state = State(stream.states)
        state.outputs = {o: a.copy() for o, a in stream.outputs.items()}
        if weights is params:  # else nobody will ask for it again, and it would only wait for the garbage collector
            weights.give_back(key, stream)
        return state

    def _code(self, mode: str) -> Code:
        """The imported kernel of a mode, compiled or read from the cache."""
        from rnnspec.backends.cpu.launch.code import code
        from rnnspec.backends.cpu.native import load_kernel

        with self._lock:
            if mode not in self._codes:
                self._codes[mode] = code(
                    load_kernel(f"{self.spec.name}_{mode}_{self.dtype.name}", self.source(mode)), self.dtype
                )
            return self._codes[mode]

    def _parameters(self, params: Mapping[str, Any] | Weights) -> dict[str, Array]:
        if isinstance(params, Weights):
            return dict(self._weights(params).params)
        return checked.named(
            "parameter", params, self.spec.parameters, self.dtype, required=True, optional=self.spec.noise
        )

    def _weights(self, params: Mapping[str, Any] | Weights) -> Weights:
        if not isinstance(params, Weights):
            return self.pack(params)
        if params.kernel is not self and (params.kernel.spec != self.spec or params.kernel.dtype != self.dtype):
            raise ValueError(
                f"these weights were packed for {params.kernel!r}; give {self!r} the parameters, or what its own `pack`"
                " makes of them."
            )
        return params

    @cached_property
    def _derived(self) -> Derived:
        return Derived(self.spec, self.dtype, [self._code(mode).layout for mode in MODES])

    def _packed(self, mode: str, sizes: Mapping[str, int], params: Mapping[str, Array] | Weights) -> Packed:
        key = (*self._place, mode, *sizes.items())
        if isinstance(params, Weights):
            return params.packed(key, lambda arrays: self._pack(key, mode, sizes, arrays))
        return self._pack(key, mode, sizes, params)

    def _pack(self, key: tuple[Any, ...], mode: str, sizes: Mapping[str, int], params: Mapping[str, Array]) -> Packed:
        from rnnspec.backends.cpu.launch import pack

        read = self._derived.values(params, sizes)
        plan = self._packings.get(key)
        if plan is None:
            plan = pack.pack_plan(self._code(mode), sizes, {name: array.size for name, array in read.items()})
            if len(self._packings) > 64:
                self._packings.clear()
            self._packings[key] = plan
        return pack.pack(plan, read)

    def _check(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None,
        lengths: Any,
        noise: Seed | str | None,
        lead: tuple[str, ...] = ("T", "B"),
        pieces: Pieces | None = None,
    ) -> _Call:
        spec = self.spec
        p = self._parameters(params)
        x = checked.named(
            "input", inputs, spec.inputs, self.dtype, required=True, optional={*spec.defaults, *spec.noise}
        )
        s = checked.named("state", states, self.states, self.dtype, required=False)
        own = (str(len(pieces)),) if pieces is not None else lead[-1:]
        if spec.noise:
            if (
                isinstance(params, Weights)
                and noise is not None
                and noise != "mean"
                and any(n in spec.parameters for n in spec.noise)
            ):
                raise ValueError(
                    f"the noise of '{spec.name}' is in its parameters too, and packed weights hold it already: give the"
                    " parameters themselves."
                )
            self._add_noise(p, x, s, noise, lead, own)
        key = (
            lead,
            own,
            *(p[n].shape for n in spec.parameters),
            *(tuple((n, a.shape) for n, a in group.items()) for group in (x, s)),
        )
        known = self._known.get(key)  # other threads may clear it between two looks
        if known is None:
            sizes = self._sizes_of(p, x, s, lead, own)
            if not set(lead) <= set(sizes):
                raise ShapeError(f"'{self.spec.name}' has no input that tells the number of steps and rows.")
            known = ({n: v for n, v in sizes.items() if n not in ("T", "B")}, sizes.get("T", 1), sizes["B"])
            if len(self._known) > 256:
                self._known.clear()
            self._known[key] = known
        sizes, steps, rows = known
        if spec.defaults and lead != ("B",):  # a step's are filled in by its stream
            x = checked.with_defaults(spec, x, (steps, rows), sizes, self.dtype)
        if pieces is None:
            own_lengths = checked.check_lengths(lengths, steps, rows)
        elif lengths is not None:
            raise TypeError("give lengths or pieces, not both: pieces have their own lengths.")
        else:
            pieces.check(steps, rows)
            own_lengths, x = pieces.length, {n: checked.numbered(a) for n, a in x.items()}
        return _Call(params if isinstance(params, Weights) else p, x, s, own_lengths, sizes, steps, rows, pieces)

    def _add_noise(
        self,
        params: dict[str, Array],
        inputs: dict[str, Array],
        states: dict[str, Array],
        noise: Seed | str | None,
        lead: tuple[str, ...],
        own: tuple[str, ...],
    ) -> None:
        """Puts the noise that was not given among parameters and inputs."""
        missing = [n for n in self.spec.noise if n not in params and n not in inputs]
        if not missing:
            return
        if noise is None:
            raise ShapeError(
                f"missing noise {', '.join(map(repr, missing))} of '{self.spec.name}'. Give a seed to draw it in"
                " training (noise=0, another one "
                f'for every call), noise="mean" for what is expected of it, or its arrays among inputs and params.'
            )
        sizes = self._sizes_of(params, inputs, states, lead, own)
        if not set(lead) <= set(sizes):
            raise ShapeError(
                f"'{self.spec.name}' has no input beside its noise that tells the number of steps and rows: give the"
                " arrays of its noise."
            )
        for name, array in self._noise(missing, noise, sizes, sizes.get("T", 1), sizes["B"]).items():
            if name in self.spec.parameters:
                params[name] = array
            else:
                inputs[name] = array if "T" in lead else array[0]

    def _noise(
        self, names: list[str], noise: Seed | str, sizes: Mapping[str, int], steps: int, rows: int
    ) -> dict[str, Array]:
        if isinstance(noise, str) and noise != "mean":
            raise ValueError(f'noise must be a seed (a whole number, or a tuple of them) or "mean", got {noise!r}.')
        if isinstance(noise, str):
            return mean(self.spec, sizes, steps, rows, self.dtype, names)
        return draw(self.spec, sizes, steps, rows, noise, self.dtype, names=names)

    def _sizes_of(
        self,
        params: Mapping[str, Array],
        inputs: Mapping[str, Array],
        states: Mapping[str, Array],
        lead: tuple[str, ...],
        own: tuple[str, ...] = ("B",),
    ) -> dict[str, int]:
        """Sizes from the shapes of all arrays; lead, own: the axes of inputs and states before
        theirs. No size is called T or B (language/check.py)."""
        spec = self.spec
        dims = [(f"parameter '{n}'", spec.parameters[n], a.shape) for n, a in params.items()]
        dims += [(f"input '{n}'", lead + spec.inputs[n], a.shape) for n, a in inputs.items()]
        dims += [(f"state '{n}'", own + self.states[n], a.shape) for n, a in states.items()]
        return checked.infer_sizes(spec, dims)

    def _check_gradients(self, run: Run, dy: Mapping[str, Array], dfinal: Mapping[str, Array]) -> None:
        lead = (str(run.steps), str(run.rows))
        dims = [
            (f"the gradient of output '{n}'", (*lead, *self._sized(self.spec.shapes[n], run.sizes)), a.shape)
            for n, a in dy.items()
        ]
        own = lead[1] if run._pieces is None else str(len(run._pieces))
        dims += [
            (f"the gradient of final state '{n}'", (own, *self._sized(self.states[n], run.sizes)), a.shape)
            for n, a in dfinal.items()
        ]
        checked.infer_sizes(self.spec, dims)

    def _plans(self, modes: tuple[str, ...], call: _Call) -> list[Plan]:
        """Plans of kernels that share a tape, from the last calls of the same sizes where there
        were such."""
        key = (modes, call.steps, call.rows, tuple(call.sizes.items()))
        planned = self._planned.get(key) if call.lengths is None else None
        if planned is not None:
            return planned
        made = self._new_plans(modes, call.sizes, call.steps, call.rows, call.lengths, call.pieces)
        if call.lengths is None:
            if len(self._planned) > 64:
                self._planned.clear()
            self._planned[key] = made
        return made

    def _new_plans(
        self,
        modes: tuple[str, ...],
        sizes: Mapping[str, int],
        steps: int,
        count: int,
        lengths: Array | None,
        pieces: Pieces | None = None,
    ) -> list[Plan]:
        from rnnspec.backends.cpu.launch import rows
        from rnnspec.backends.cpu.launch.plan import plan
        from rnnspec.backends.cpu.launch.segments import segment_steps

        codes = [self._code(m) for m in modes]
        layouts = [c.layout for c in codes]
        flops, places = rows.flops(layouts[0], sizes, steps * count), None
        if pieces is not None:
            places, count, steps = pieces.places(count), len(pieces), int(pieces.length.max(initial=0))
        blocks = rows.block_count(count, flops, self.threads, self.limits)
        parts = rows.part_count(layouts[0], sizes, steps, self.threads // blocks, self.limits) if blocks == count else 1
        dealt = rows.split_rows(
            count,
            steps,
            lengths,
            blocks,
            rows.chunk_rows(layouts, sizes, self.dtype.itemsize, self.limits),
            segment_steps(steps) if self.memory == "low" and "backward" in modes else None,
            places,
        )
        return [plan(own, sizes, dealt, parts, 0 if pieces is None else -1 if pieces.reverse else 1) for own in codes]

    def _outputs(self, call: _Call, out: Mapping[str, Array] | None) -> dict[str, Array]:
        """The arrays that outputs are written to; zero where a row may end early, for nothing is
        written past its end."""
        full = {o: (call.steps, call.rows, *full_shape(self.spec.shapes[o], call.sizes)) for o in self.spec.outputs}
        short = call.lengths is not None and int(call.lengths.sum()) < call.steps * call.rows
        return checked.ready(full, out, self.dtype, zero=short, numbered=call.pieces is not None)

    def _sized(self, shape: Shape, sizes: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(str(n) for n in full_shape(shape, sizes))

    def _shaped(self, states: dict[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        return {s: a.reshape(a.shape[0], *full_shape(self.states[s], sizes)) for s, a in states.items()}


@dataclass(frozen=True)
class _Call:
    params: dict[str, Array] | Weights
    inputs: dict[str, Array]
    states: dict[str, Array]
    lengths: Array | None
    sizes: dict[str, int]
    steps: int
    rows: int
    pieces: Pieces | None


def _all_sizes(spec: Spec) -> set[str]:
    return sizes_in(spec.shapes.values()) | set(spec.sizes)
