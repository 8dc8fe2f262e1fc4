"""The kernels of one cell on an NVIDIA GPU: `rnnspec.compile(cell, backend="cuda")` gives a
CudaKernel, which is called like any Kernel.

NumPy arrays are copied to the device and results back. Arrays that lie on the device already (torch
and CuPy tensors, whatever has `__cuda_array_interface__` or DLPack) are read where they are; if any
input is one, the results stay on the device too, as DeviceArrays, which torch.as_tensor(array,
device="cuda") and cupy.asarray(array) take without a copy. Everything runs on one CUDA stream: `on`
chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.choice import TIERS, TierChoice
from rnnspec.backends.cuda.launch.code import CudaCode
from rnnspec.backends.cuda.launch.driver import Device, first_device
from rnnspec.backends.cuda.launch.execution import Execution
from rnnspec.backends.cuda.launch.interface import on_device, shadows
from rnnspec.backends.cuda.launch.launcher import Launcher
from rnnspec.backends.cuda.launch.memory import DeviceArray, StreamHandle, foreign
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call, gradients, single_step
from rnnspec.engine.cuda_along import CudaAlong, CudaLinear, extent_of
from rnnspec.engine.cuda_stepper import CudaStepper
from rnnspec.engine.cuda_tape import CudaTape
from rnnspec.engine.directions import Directions
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.noise import Seed
from rnnspec.engine.results import Gradients, Inference, Jvp, Run, State
from rnnspec.engine.settings import known_memory
from rnnspec.engine.spans import Pieces, gathered, scattered
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import digest
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import STEP, Spec
from rnnspec.lowering.pipeline import ALL_MODES, BY_ROW, ONLINE, VJP, made_together, programs

Given = Mapping[str, Any]
OWN = tuple(mode for mode in ALL_MODES if mode not in (BY_ROW, *ONLINE))  # the programs that are run on a GPU


class CudaKernel(Kernel):
    """The kernels of one cell on a GPU: the first one, if no device is given. Raises
    BackendUnavailable, with the reason, where there is none that will do.

    tier: which kernels run the time loop (`rnnspec show NAME --stage cuda` lists them), None for
    what fits the sizes and the device. Machine code is made at the first call of each kind, that of
    tiers 1 and 2 once for each set of sizes, and kept on disk. A call in tier 2 waits for the
    device.
    """

    def __init__(
        self, spec: Spec, dtype: np.dtype, tier: int | None = None, stream: int = 0, device: Device | None = None
    ):
        if tier not in (None, *TIERS):
            raise ValueError(f"tier must be {', '.join(map(str, TIERS))} or None, got {tier!r}.")
        super().__init__(spec, dtype)
        self.tier = tier
        self.launcher = Launcher(device or first_device(), dtype, stream)
        self._codes: dict[str, CudaCode] = {}

    def __repr__(self) -> str:
        return f"Kernel({self.spec.label}, {self.dtype}, backend='cuda')"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.launcher.stream:
            raise UnsupportedError(
                "a kernel on a CUDA stream can't be pickled or copied, for the stream can't: take the kernel that `on`"
                " was called of."
            )
        return (CudaKernel, (self.spec, self.dtype, self.tier))

    @property
    def device(self) -> Device:
        return self.launcher.device

    @property
    def threads(self) -> int:
        """A call uses one thread of the CPU: 1."""
        return 1

    def like(self, *, threads: int | None = None, memory: str | None = None) -> CudaKernel:
        check_settings(threads, self.memory if memory is None else known_memory(memory))
        return self._with_stream(self.launcher.stream)

    def on(self, stream: Any) -> CudaKernel:
        """Gives this kernel on another CUDA stream: its handle as a number, or a stream of torch's
        or CuPy's. Calls on it return before the device is done, unless results are copied to the
        host: until then the arrays on the device that they read have to live and stay as they are,
        and who reads their results on another stream has to wait (torch does not do so by
        itself)."""
        handle = next(
            (getattr(stream, name) for name in ("cuda_stream", "ptr", "handle") if hasattr(stream, name)), stream
        )
        owned = StreamHandle(handle)
        owned.owner = stream
        return self._with_stream(owned)

    def _with_stream(self, stream: int) -> CudaKernel:
        other = CudaKernel(self.spec, self.dtype, self.tier, stream, self.device)
        other._codes = self._codes
        return other

    def choice(self, mode: str, rows: int, **sizes: int) -> TierChoice:
        """Which tier runs a kernel ("forward", "backward" or "infer") for so many rows and these
        sizes, and why."""
        return self.code(mode).choice(self.device, rows, sizes, self.tier)

    def source(self, mode: str = "forward") -> str:
        if mode not in OWN:
            raise ValueError(f"mode must be one of {', '.join(map(repr, OWN))}; got {mode!r}.")
        return self.code(mode).texts()

    def layout(self, mode: str) -> Mapping[str, Any]:
        return self.code(mode).layout

    def code(self, mode: str) -> CudaCode:
        """A program and its kernels, made with those that share a tape with it."""
        if mode not in self._codes:
            spec = self.lifted.spec
            for name, program in programs(spec, made_together(mode)).items():
                self._codes.setdefault(name, CudaCode(program, self.dtype, digest(spec)))
        return self._codes[mode]

    # --- calls

    def pack(self, params: Given | Weights, noise: Seed | str = "mean") -> Weights:
        if not isinstance(params, Weights):
            params = {n: self._host(f"parameter '{n}'", a) for n, a in params.items()}
        return super().pack(params, noise)

    def call(
        self,
        params: Given | Weights,
        inputs: Given,
        states: Given | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Call:
        """Does what `Kernel.call` does; of arrays on the device shapes and dtypes are checked, and
        they stay where they are. Arguments are those of `forward`."""
        if pieces is not None and any(map(on_device, inputs.values())):
            raise UnsupportedError(
                "rows that run in pieces (resets, the reverse direction with lengths) are cut on the host: give them"
                " NumPy arrays."
            )
        given = shadows(params), shadows(inputs), shadows(states, STEP), lengths
        call = super().call(*given, noise=noise, pieces=pieces, steps=steps, rows=rows)
        return self._with_arrays(call, params, inputs, states)

    def _with_arrays(self, call: Call, params: Given | Weights, inputs: Given, states: Given | None) -> Call:
        """A Call of shadows with what they stood for in their place."""
        return call._replace(
            params=call.params if isinstance(params, Weights) else self._restored(call.params, params),
            inputs=self._restored(call.inputs, inputs),
            states=self._restored(call.states, states),
        )

    def _restored(self, arrays: Any, given: Given | None) -> dict[str, Any]:
        """The checked arrays, in place of shadows what they stood for."""
        on_gpu = {} if given is None else {n: a for n, a in given.items() if on_device(a)}
        return {
            n: foreign(f"'{n}'", on_gpu[n], self.dtype, self.device, self.launcher.stream) if n in on_gpu else a
            for n, a in arrays.items()
        }

    def run_forward(self, call: Call, out: Mapping[str, Array] | None = None) -> Run:
        execution, stay = self.execution("forward", call), _stay(call)
        saved = CudaTape(
            execution=execution,
            packed=self.packed("backward", call),
            params=self._parameters(call.params) if self.derived.once else {},
            inputs={name: array.shape for name, array in call.inputs.items()},
            pieces=call.pieces,
        )
        return Run(
            outputs=self._outputs(execution, call, stay, out),
            final=self._states(execution, call.sizes, stay) | call.counted(),
            sizes=call.sizes,
            steps=call.steps,
            rows=call.rows,
            owner=self,
            saved=saved,
            shapes=self.states,
        )

    def run_infer(self, call: Call, out: Mapping[str, Array] | None = None) -> Inference:
        execution, stay = self.execution("infer", call), _stay(call)
        final = self._states(execution, call.sizes, stay) | call.counted()
        return Inference(self._outputs(execution, call, stay, out), final)

    def run_jvp(self, call: Call, along: Directions) -> Jvp:
        return CudaAlong(self, self._hosted_call(call), along, along.mode).ahead()[0]

    def run_linear(self, call: Call, along: Directions) -> CudaLinear:
        call, (ahead, back) = self._hosted_call(call), along.taped_modes
        return CudaLinear(*CudaAlong(self, call, along, ahead).ahead(), CudaAlong(self, call, along, back))

    def run_vjp(self, call: Call, along: Directions) -> Gradients:
        call, execution = self._hosted_call(call), self.execution("forward", call)
        return CudaAlong(self, call, along, VJP).back([execution.tape], {}, {})[1]

    def _hosted(self, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {n: self._host(f"'{n}'", a) for n, a in given.items()}

    def _hosted_call(self, call: Call) -> Call:
        params = call.params if isinstance(call.params, Weights) else self._hosted(call.params)
        return call._replace(params=params, inputs=self._hosted(call.inputs), states=self._hosted(call.states))

    def record(self, *args: Any, **options: Any) -> NoReturn:
        raise UnsupportedError("on a GPU the tape stays on the device: use forward(...) and keep the Run.")

    resume = run_record = run_resume = record

    def step(
        self, params: Given | Weights, inputs: Given, states: Given | None = None, *, rows: int | None = None
    ) -> State:
        call = single_step(self.cell, shadows(params), shadows(inputs), shadows(states, STEP), rows)
        call = self._with_arrays(call, params, inputs, states)
        x = {
            n: self.rows(f"input '{n}'", a).reshape(1, *a.shape) if on_device(a) else a for n, a in call.inputs.items()
        }
        found = self.run_infer(call._replace(inputs=x))
        return State.of(found.final, {n: a.reshape(*a.shape[1:]) for n, a in found.outputs.items()})

    def stepper(self, weights: Weights, rows: int, sizes: Sizes) -> CudaStepper:
        return CudaStepper(self, weights, rows, sizes)

    def refresh(self, stepper: CudaStepper, weights: Weights) -> None:
        stepper.call = stepper.call._replace(params=weights)

    def _backward(
        self, run: Run, outputs: Given | None, final: Given | None, out: Mapping[str, Array] | None
    ) -> Gradients:
        saved = run.saved
        assert isinstance(saved, CudaTape), "a run of this kernel"
        before, pieces, sizes = saved.execution, saved.pieces, run.sizes
        dy, dfinal = gradients(self.cell, sizes, shadows(outputs), shadows(final), (run.steps, run.rows), before.n)
        dy, dfinal = self._restored(dy, outputs), self._restored(dfinal, final)
        stay = any(map(on_device, (*dy.values(), *dfinal.values())))
        inputs = {f"gradient of {o}": self.rows(f"the gradient of output '{o}'", a, pieces) for o, a in dy.items()}
        starts = {s: self.rows(f"the gradient of final state '{s}'", a) for s, a in dfinal.items()}
        extent = before.steps, before.n
        rest = before.lengths, inputs, starts, before.tape, before.counts
        done = self.execute("backward", saved.packed, sizes, extent, *rest)
        full = {i: saved.inputs[i] for i in done.outputs}
        shaped = {i: a.reshape(*extent, *full[i][2:]) for i, a in done.outputs.items()}
        dx = self._results(shaped, stay, full, out, pieces)
        return Gradients(self._parameter_gradients(done, saved, sizes, stay), dx, self._states(done, sizes, stay))

    def _parameter_gradients(
        self, done: Execution, saved: CudaTape, sizes: Mapping[str, int], stay: bool
    ) -> dict[str, Any]:
        shapes = self.layout("backward")["gradients"]
        sums = {n: a.numpy().reshape(full_shape(shapes[n], sizes)) for n, a in done.gradients.items()}
        found = self.derived.gradients(sums, saved.params, sizes)
        return {n: self.launcher.upload(a) for n, a in found.items()} if stay else found

    # --- executions

    def execution(self, mode: str, call: Call) -> Execution:
        """A run of a kernel that reads no tape."""
        program = self.code(mode).program
        saved = {source for source, buffer in program.inputs.items() if program.buffers[buffer].saved}
        inputs = {n: self.rows(f"input '{n}'", a, call.pieces, copy=n in saved) for n, a in call.inputs.items()}
        states = {s: self.rows(f"state '{s}'", a) for s, a in call.states.items()}
        given = self.packed(mode, call), call.sizes, extent_of(call), call.lengths
        return self.execute(mode, *given, inputs, states, {}, call.counts)

    def execute(
        self,
        mode: str,
        packed: Mapping[str, DeviceArray],
        sizes: Mapping[str, int],
        extent: tuple[int, int],
        lengths: Array | None,
        inputs: Mapping[str, DeviceArray],
        states: Mapping[str, DeviceArray],
        tape: dict[str, DeviceArray],
        counts: Array | None,
    ) -> Execution:
        """A run of a kernel. extent: its steps and rows; the others are those of Execution."""
        self.device.use()
        choice, code = self.choice(mode, extent[1], **sizes), self.code(mode)
        execution = Execution(
            code, self.launcher, choice, sizes, *extent, lengths, packed, inputs, states, tape, counts
        )
        execution.run()
        return execution

    # --- arrays

    def _host(self, what: str, array: Any) -> Any:
        """An array where the host can read it; others than those on the device as they are."""
        self.device.use()
        if not on_device(array):
            return array
        return self.launcher.packed(foreign(what, array, self.dtype, self.device, self.launcher.stream)).numpy()

    def packed(self, mode: str, call: Call) -> Mapping[str, DeviceArray]:
        if not isinstance(call.params, Weights):
            return self._pack(mode, call.sizes, call.params)
        # of the device and of the stream too, for streams do not wait for each other
        key = (self.device, self.launcher.stream, mode, *call.sizes.items_key)
        return call.params.packed(key, lambda params: self._pack(mode, call.sizes, params))

    def _pack(self, mode: str, sizes: Mapping[str, int], params: Given) -> Mapping[str, DeviceArray]:
        """The parameters that a kernel reads, on the device. Those that are cut or computed once
        per sequence go through the host; those that a later `backward` reads are copied, for the
        caller may change his own before it."""
        self.device.use()
        if self.derived.pieces or self.derived.once or self.derived.constants:
            params = {n: self._host(f"parameter '{n}'", a) for n, a in params.items()}
        return {
            n: self._placed(f"parameter '{n}'", a, copy=mode == "backward")
            for n, a in self.derived.values(params, sizes).items()
        }

    def _parameters(self, params: Given | Weights) -> dict[str, Array]:
        """Copies of the parameters on the host."""
        arrays = params.held if isinstance(params, Weights) else params
        return {n: np.array(self._host(f"parameter '{n}'", a)) for n, a in arrays.items()}

    def _placed(self, what: str, array: Any, copy: bool = False) -> DeviceArray:
        """An array on the device, its numbers one after another. copy: into memory of ours,
        whatever it is."""
        if on_device(array):
            return self.launcher.packed(foreign(what, array, self.dtype, self.device, self.launcher.stream), copy=copy)
        return self.launcher.upload(array)

    def rows(self, what: str, array: Any, pieces: Pieces | None = None, copy: bool = False) -> DeviceArray:
        """An array of rows on the device; with pieces a row for each of them."""
        self.device.use()
        if pieces is not None:
            array = gathered(np.asarray(self._host(what, array)), pieces)
        return self._placed(what, array, copy)

    def _outputs(self, done: Execution, call: Call, stay: bool, out: Mapping[str, Array] | None) -> dict[str, Any]:
        full = {o: (call.steps, call.rows, *call.sizes.full(self.spec.shapes[o])) for o in self.spec.outputs}
        shaped = {o: done.outputs[o].reshape(done.steps, done.n, *full[o][2:]) for o in full}
        return self._results(shaped, stay, full, out, call.pieces)

    def _results(
        self,
        found: Mapping[str, DeviceArray],
        stay: bool,
        shapes: Mapping[str, tuple[int, ...]],
        out: Mapping[str, Array] | None,
        pieces: Pieces | None,
    ) -> dict[str, Any]:
        """Arrays [T, B, ...] for the caller: on the device, or on the host in `out` or arrays of
        their own."""
        if stay and out:
            raise UnsupportedError("out takes NumPy arrays: leave it out where inputs lie on the GPU.")
        if stay and pieces is None:
            return dict(found)
        host = {n: a.numpy() if pieces is None else scattered(a.numpy(), pieces, shapes[n]) for n, a in found.items()}
        if not out:
            return host
        ready = checked.ready(shapes, out, self.dtype, zero=False)
        for name, array in ready.items():
            array[...] = host[name]
        return checked.as_given(ready, out)

    def _states(self, done: Execution, sizes: Mapping[str, int], stay: bool) -> dict[str, Any]:
        shaped = {s: a.reshape(done.n, *full_shape(self.states[s], sizes)) for s, a in done.final.items()}
        return dict(shaped) if stay else {s: a.numpy() for s, a in shaped.items()}


def check_settings(threads: int | None, memory: str) -> None:
    """Raises ValueError or UnsupportedError for settings of `compile` that are the CPU's alone."""
    if threads is not None:
        raise ValueError("threads are the CPU's: leave them out with backend='cuda'.")
    if memory != "full":
        raise UnsupportedError("memory='low' is not offered on a GPU: use memory='full', or backend='cpu'.")


def _stay(call: Call) -> bool:
    """Whether results stay on the device: where an argument lies there."""
    return any(map(on_device, (*call.inputs.values(), *call.states.values())))
