"""Kernels on an NVIDIA GPU: `rnnspec.compile(cell, backend="cuda")` gives a DeviceKernel, which is
called like any Kernel.

NumPy arrays are copied to the device and results back. Arrays that lie on the device already (torch
and CuPy tensors, whatever has `__cuda_array_interface__` or DLPack) are read where they are; if any
input is one, the results stay on the device too, as DeviceArrays, which torch.as_tensor(array,
device="cuda") and cupy.asarray(array) take without a copy. Everything runs on one CUDA stream: `on`
chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.choice import TIERS, Choice
from rnnspec.backends.cuda.launch.driver import Device, first_device
from rnnspec.backends.cuda.launch.code import CudaCode
from rnnspec.backends.cuda.launch.execution import Execution
from rnnspec.backends.cuda.launch.interface import interface, on_device
from rnnspec.backends.cuda.launch.launcher import Launcher
from rnnspec.backends.cuda.launch.memory import DeviceArray, StreamHandle, foreign
from rnnspec.engine import arrays as checked
from rnnspec.engine.kernel import Kernel, _Call
from rnnspec.engine.results import Gradients, Inference, Run, State
from rnnspec.engine.spans import Pieces
from rnnspec.engine.stream import Stream
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import digest
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Spec
from rnnspec.lowering.pipeline import stages

if TYPE_CHECKING:
    from rnnspec.engine.noise import Seed


Given = Mapping[str, Any]


class DeviceKernel(Kernel):
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
        super().__init__(spec, dtype, None)
        self.tier = tier
        self.launcher = Launcher(device or first_device(), dtype, stream)
        made, own = stages(spec), digest(spec)
        self._device_codes = {
            mode: CudaCode(getattr(made, mode), dtype, own) for mode in ("forward", "backward", "infer")
        }

    def __repr__(self) -> str:
        return f"DeviceKernel({self.spec.name}, {self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.launcher.stream:
            raise UnsupportedError(
                "a kernel on a CUDA stream can't be pickled or copied, for the stream can't: take the kernel that `on`"
                " was called of."
            )
        return (DeviceKernel, (self.spec, self.dtype, self.tier))

    @property
    def device(self) -> Device:
        return self.launcher.device

    @property
    def _place(self) -> tuple[Any, ...]:
        return self.device, self.launcher.stream  # streams do not wait for each other

    @property
    def threads(self) -> int:
        """Of the host: 1."""
        return 1

    def on(self, stream: Any) -> DeviceKernel:
        """The same kernel on another CUDA stream: its handle as a number, or a stream of torch's or
        CuPy's. Calls on it return before the device is done, unless results are copied to the host:
        until then the arrays on the device that they read have to live and stay as they are, and
        who reads their results on another stream has to wait (torch does not do so by itself)."""
        handle = next(
            (getattr(stream, name) for name in ("cuda_stream", "ptr", "handle") if hasattr(stream, name)), stream
        )
        own = StreamHandle(handle)
        own.owner = stream
        return DeviceKernel(self.spec, self.dtype, self.tier, own, self.device)

    def choice(self, mode: str, rows: int, **sizes: int) -> Choice:
        """Which tier runs a kernel ("forward", "backward" or "infer") for so many rows and these
        sizes, and why."""
        return self._device_codes[mode].choice(self.device, rows, sizes, self.tier)

    def source(self, mode: str = "forward") -> str:
        """The texts of a mode's kernels that do not depend on sizes, one after the other."""
        if mode not in self._device_codes:
            raise ValueError(f"mode must be one of {', '.join(map(repr, self._device_codes))}; got {mode!r}.")
        return self._device_codes[mode].texts()

    def _code(self, mode: str) -> Any:
        return self._device_codes[mode]

    # --- calls
    # -------------------------------------------------------------------------------------------------------

    def forward(
        self,
        params: Given | Weights,
        inputs: Given,
        states: Given | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Run:
        call = self._check(params, inputs, states, lengths, noise, pieces=pieces)
        done, outputs, final = self._forward("forward", call, out)
        shapes = {name: array.shape for name, array in call.inputs.items()}
        tape: Any = DeviceTape(done, call.pieces)
        return Run(
            outputs,
            final,
            call.sizes,
            call.steps,
            call.rows,
            self,
            tape,
            done.choice,
            self._packed("backward", call.sizes, call.params),  # type: ignore[arg-type]
            shapes,
            self._kept(call.params),
            call.pieces,
        )

    def infer(
        self,
        params: Given | Weights,
        inputs: Given,
        states: Given | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = "mean",
        pieces: Pieces | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Inference:
        call = self._check(params, inputs, states, lengths, noise, pieces=pieces)
        return Inference(*self._forward("infer", call, out)[1:])

    def step(self, params: Given | Weights, inputs: Given, states: Given | None = None) -> State:
        call = self._check(params, inputs, states, None, "mean", lead=("B",))
        given: dict[str, Any] = {
            n: self._rows(f"input '{n}'", a).reshape(1, *a.shape) if on_device(a) else a[None]
            for n, a in call.inputs.items()
        }
        grown = checked.with_defaults(self.spec, given, (1, call.rows), call.sizes, self.dtype)
        _, outputs, final = self._forward("infer", replace(call, inputs=grown), None)
        state = State(final)
        state.outputs = {n: a.reshape(*a.shape[1:]) for n, a in outputs.items()}
        return state

    def _stream(self, weights: Weights, rows: int, sizes: Mapping[str, int], states: Given | None) -> Stream:
        return DeviceStream(self, weights, rows, sizes, states)

    def record(self, *args: Any, **options: Any) -> Any:
        raise UnsupportedError("on a GPU the tape stays on the device: use forward(...) and keep the Run.")

    def resume(self, *args: Any, **options: Any) -> Any:
        raise UnsupportedError("on a GPU the tape stays on the device: use forward(...) and keep the Run.")

    def backward(
        self,
        run: Run,
        outputs: Given | None = None,
        *,
        final: Given | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Gradients:
        dy, dfinal = self._checked_gradients(run, _shadows(outputs), _shadows(final))
        dy, dfinal = self._restored(dy, outputs), self._restored(dfinal, final)
        before: Execution = run._tape.execution  # type: ignore[union-attr]
        stay = any(map(on_device, (*dy.values(), *dfinal.values())))
        given = {f"gradient of {o}": self._rows(f"the gradient of output '{o}'", a, run._pieces) for o, a in dy.items()}
        starts = {s: self._rows(f"the gradient of final state '{s}'", a) for s, a in dfinal.items()}
        params: Any = run._packed
        done = self._execute(
            "backward", params, run.sizes, (before.steps, before.n), before.lengths, given, starts, before.tape
        )
        full = {i: run._inputs[i] for i in done.outputs}
        dx = self._results(
            {i: a.reshape(before.steps, before.n, *full[i][2:]) for i, a in done.outputs.items()},
            stay,
            full,
            out,
            run._pieces,
        )
        sums = {n: a.numpy() for n, a in done.gradients.items()}
        gradients = self._derived.gradients(
            {n: a.reshape(self._stored(n, run.sizes)) for n, a in sums.items()}, run._params, run.sizes
        )
        if stay:
            gradients = {n: self.launcher.upload(a) for n, a in gradients.items()}  # type: ignore[misc]
        return Gradients(gradients, dx, self._states(done, run.sizes, stay))

    def _stored(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return full_shape(self._device_codes["backward"].layout["gradients"][name], sizes)

    def _forward(
        self, mode: str, call: _Call, out: Mapping[str, Array] | None, first_step: int = 0
    ) -> tuple[Execution, dict[str, Any], dict[str, Any]]:
        arrays = (*call.inputs.values(), *call.states.values())
        stay = any(map(on_device, arrays))
        program = self._device_codes[mode].program
        saved = {source for source, buffer in program.inputs.items() if program.buffers[buffer].saved}
        inputs = {n: self._rows(f"input '{n}'", a, call.pieces, copy=n in saved) for n, a in call.inputs.items()}
        states = {s: self._rows(f"state '{s}'", a) for s, a in call.states.items()}
        steps, rows = call.steps, call.rows
        if call.pieces is not None:
            steps, rows = int(call.pieces.length.max(initial=0)), len(call.pieces)
        params: Any = self._packed(mode, call.sizes, call.params)
        done = self._execute(mode, params, call.sizes, (steps, rows), call.lengths, inputs, states, {}, first_step)
        full = {o: (call.steps, call.rows, *full_shape(self.spec.shapes[o], call.sizes)) for o in self.spec.outputs}
        shaped = {o: done.outputs[o].reshape(steps, rows, *full[o][2:]) for o in full}
        return done, self._results(shaped, stay, full, out, call.pieces), self._states(done, call.sizes, stay)

    def _execute(
        self,
        mode: str,
        params: Mapping[str, DeviceArray],
        sizes: Mapping[str, int],
        extent: tuple[int, int],
        lengths: Array | None,
        inputs: Mapping[str, DeviceArray],
        states: Mapping[str, DeviceArray],
        tape: dict[str, DeviceArray],
        first_step: int = 0,
    ) -> Execution:
        self.device.use()
        choice = self.choice(mode, extent[1], **sizes)
        done = Execution(
            self._device_codes[mode],
            self.launcher,
            choice,
            sizes,
            *extent,
            lengths,
            params,
            inputs,
            states,
            tape,
            first_step,
        )
        done.run()
        return done

    # --- arrays
    # ------------------------------------------------------------------------------------------------------

    def _check(
        self,
        params: Given | Weights,
        inputs: Given,
        states: Given | None,
        lengths: Any,
        noise: Any,
        lead: tuple[str, ...] = ("T", "B"),
        pieces: Pieces | None = None,
    ) -> _Call:
        """As for the CPU; of arrays on the device shapes and dtypes are checked, and they come back
        as they are."""
        if pieces is not None and any(map(on_device, inputs.values())):
            raise UnsupportedError(
                "rows that run in pieces (resets, the reverse direction with lengths) are cut on the host: give them"
                " NumPy arrays."
            )
        own = params if isinstance(params, Weights) else _shadows(params)
        call = super()._check(own, _shadows(inputs), _shadows(states), lengths, noise, lead, pieces)
        kept = (
            call.params
            if isinstance(call.params, Weights) or isinstance(params, Weights)
            else self._restored(call.params, params)
        )
        return replace(
            call, params=kept, inputs=self._restored(call.inputs, inputs), states=self._restored(call.states, states)
        )

    def _restored(self, arrays: Any, given: Given | None) -> dict[str, Any]:
        """The checked arrays, in place of shadows what they stood for."""
        found = {} if given is None else {n: a for n, a in given.items() if on_device(a)}
        return {
            n: foreign(f"'{n}'", found[n], self.dtype, self.device, self.launcher.stream) if n in found else a
            for n, a in arrays.items()
        }

    def pack(self, params: Given | Weights, noise: Seed | str = "mean") -> Weights:
        return super().pack(
            (
                params
                if isinstance(params, Weights)
                else {n: self._host(f"parameter '{n}'", a) for n, a in params.items()}
            ),
            noise,
        )

    def _host(self, what: str, array: Any) -> Any:
        self.device.use()
        return (
            self.launcher.packed(foreign(what, array, self.dtype, self.device, self.launcher.stream)).numpy()
            if on_device(array)
            else array
        )

    def _pack(self, key: tuple[Any, ...], mode: str, sizes: Mapping[str, int], params: Given) -> Any:
        """The parameters that a kernel reads, on the device. Those that are cut or computed once
        per sequence go through the host; those that a later `backward` reads are copied, for the
        caller may change his own before it."""
        self.device.use()
        if self._derived.pieces or self._derived.once:
            params = {n: self._host(f"parameter '{n}'", a) for n, a in params.items()}
        return {
            n: self._placed(f"parameter '{n}'", a, copy=mode == "backward")
            for n, a in self._derived.values(params, sizes).items()
        }

    def _kept(self, params: Any) -> dict[str, Array]:
        arrays = params.params if isinstance(params, Weights) else params
        return {n: np.array(self._host(f"parameter '{n}'", a)) for n, a in arrays.items()} if self._derived.once else {}

    def _placed(self, what: str, array: Any, copy: bool = False) -> DeviceArray:
        """An array on the device, its numbers one after another. copy: into memory of ours,
        whatever it is."""
        if on_device(array):
            return self.launcher.packed(foreign(what, array, self.dtype, self.device, self.launcher.stream), copy=copy)
        return self.launcher.upload(array)

    def _rows(self, what: str, array: Any, pieces: Pieces | None = None, copy: bool = False) -> DeviceArray:
        self.device.use()
        return self._placed(
            what, array if pieces is None else gathered(np.asarray(self._host(what, array)), pieces), copy
        )

    def _results(
        self,
        found: dict[str, DeviceArray],
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
        return ready

    def _states(self, done: Execution, sizes: Mapping[str, int], stay: bool) -> dict[str, Any]:
        shaped = {s: a.reshape(done.n, *full_shape(self.states[s], sizes)) for s, a in done.final.items()}
        return dict(shaped) if stay else {s: a.numpy() for s, a in shaped.items()}


@dataclass
class DeviceTape:
    """What a forward run leaves for its backward run."""

    execution: Execution
    pieces: Pieces | None

    @property
    def tape_bytes(self) -> int:
        return sum(a.size * a.dtype.itemsize for a in self.execution.tape.values())

    def histories(self, steps: int, rows: int) -> dict[str, Array]:
        """Every state after every step, [T, B, width], zero past a row's end."""
        done = self.execution
        done.launcher.device.use()
        found = {name: array.numpy() for name, array in done.histories().items()}
        return {
            n: a if self.pieces is None else scattered(a, self.pieces, (steps, rows, a.shape[2]))
            for n, a in found.items()
        }


class DeviceStream(Stream):
    """As Stream; the states stay on the device, inputs and outputs are NumPy arrays, and every step
    is a call of its own."""

    def __init__(
        self,
        kernel: DeviceKernel,
        weights: Weights,
        rows: int,
        sizes: Mapping[str, int],
        states: Mapping[str, Any] | None,
    ):
        self._own, self._device_states = kernel, dict[str, DeviceArray]()
        super().__init__(kernel, weights, rows, sizes, states)

    def _bind(self) -> None:
        pass

    def _run(self, t: int) -> None:
        call = _Call(
            self.weights,
            {n: a[None] for n, a in self._inputs.items()},
            self._device_states,
            None,
            self.sizes,
            1,
            self.rows,
            None,
        )  # type: ignore[arg-type]
        done, _, _ = self._own._forward("infer", call, None, t)
        for name, array in self.outputs.items():
            array[...] = done.outputs[name].numpy().reshape(array.shape)
        self._device_states = done.final

    def _restart(self, states: Mapping[str, Array]) -> None:
        self._device_states = {s: self._own._rows(f"state '{s}'", a) for s, a in states.items()}
        self._t = 0

    def _current(self) -> dict[str, Array]:
        own = self._own
        return {
            s: (
                self._device_states[s].numpy()
                if s in self._device_states
                else np.zeros((self.rows, *full_shape(shape, self.sizes)), own.dtype)
            )
            for s, shape in own.states.items()
        }


def _shadows(arrays: Given | None) -> Any:
    """The same arrays, those on the device as empty ones of their shape and dtype."""
    if not isinstance(arrays, Mapping):
        return arrays
    return {n: _shadow(interface(a)) if on_device(a) else a for n, a in arrays.items()}


def _shadow(told: Mapping[str, Any]) -> Array:
    return np.broadcast_to(np.zeros((), np.dtype(told["typestr"])), told["shape"])


def _steps_of(pieces: Pieces) -> tuple[Array, Array]:
    """Of each step [L, R] of each piece: which step of the batch it is, and whether the piece has
    it."""
    s = np.arange(int(pieces.length.max(initial=0)))[:, None]
    has = s < pieces.length
    return np.where(has, pieces.start - s if pieces.reverse else pieces.start + s, 0), has


def gathered(array: Array, pieces: Pieces) -> Array:
    """[T, B, ...] as [L, R, ...], a row for each piece."""
    t, _ = _steps_of(pieces)
    return array[t, np.broadcast_to(pieces.row, t.shape)]


def scattered(array: Array, pieces: Pieces, shape: tuple[int, ...]) -> Array:
    """[L, R, ...] back to [T, B, ...]; zero where no piece is."""
    t, has = _steps_of(pieces)
    found = np.zeros(shape, array.dtype)
    found[t[has], np.broadcast_to(pieces.row, t.shape)[has]] = array[has]
    return found
