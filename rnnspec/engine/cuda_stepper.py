"""Single steps on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.launch.execution import Execution
from rnnspec.backends.cuda.launch.memory import DeviceArray
from rnnspec.engine.call import Call, Cell
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.stream import step_arrays
from rnnspec.engine.weights import Weights
from rnnspec.language.sizes import full_shape


class Runs(Protocol):
    """What a kernel on a GPU has that runs calls."""

    @property
    def cell(self) -> Cell: ...
    def rows(self, what: str, array: Any) -> DeviceArray: ...
    def execution(self, mode: str, call: Call) -> Execution: ...


class CudaStepper:
    """Single steps on a GPU: the states stay on it, inputs and outputs are NumPy arrays, and every
    step is a call of its own."""

    def __init__(self, kernel: Runs, weights: Weights, rows: int, sizes: Sizes):
        self.kernel = kernel
        self.inputs, self.outputs = step_arrays(kernel.cell, sizes, rows)
        self.call = Call(weights, {n: a[None] for n, a in self.inputs.items()}, {}, None, sizes, 1, rows)
        self._counts = np.zeros(rows, np.int64)

    def run(self, t: int) -> None:
        counts = self._counts + t if self.kernel.cell.spec.counts else None
        done = self.kernel.execution("infer", self.call._replace(counts=counts))
        for name, array in self.outputs.items():
            array[...] = done.outputs[name].numpy().reshape(array.shape)
        self.call = self.call._replace(states=done.final)

    def load(self, states: Mapping[str, Array]) -> None:
        on_gpu = {s: self.kernel.rows(f"state '{s}'", a) for s, a in states.items()}
        self.call = self.call._replace(states=on_gpu)

    def start_at(self, counts: Array | None) -> None:
        self._counts = np.zeros(self.call.rows, np.int64) if counts is None else counts

    def states(self) -> dict[str, Array]:
        call, cell = self.call, self.kernel.cell
        return {
            s: call.states[s].numpy()
            if s in call.states
            else np.zeros((call.rows, *full_shape(shape, call.sizes)), cell.dtype)
            for s, shape in cell.states.items()
        }
