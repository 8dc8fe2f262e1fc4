"""Runs a cell's CUDA kernels, as the launch code starts them, in Numba's simulator: their Python
text itself, a thread of Python for each of a GPU's.

`NUMBA_ENABLE_CUDASIM=1 python tests/helpers/simulated.py CELL TIER` prints the largest difference
from the CPU's kernels. The simulator knows neither types nor a GPU's memory, so it says less than
the interpreter of PTX (tests/helpers/ptx) does; but it is somebody else's.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cells import case
from numba import cuda

import rnnspec
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.launch.driver import Device
from rnnspec.engine.cuda import CudaKernel
from rnnspec.storage.sources import import_source


class Memory:
    """What a device's address leads to: numbers from there to the end of an allocation."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray] = {}

    def bytes(self, address: int) -> np.ndarray:
        start = max(a for a in self.arrays if a <= address)
        return self.arrays[start][address - start :]

    def view(self, address: int, dtype: Any) -> np.ndarray:
        found = self.bytes(address)
        return found[: found.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)


class Table:
    """An array of addresses of arrays."""

    def __init__(self, memory: Memory, address: int, dtype: str):
        self.memory, self.addresses, self.dtype = memory, memory.view(address, np.uint64), dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.memory.view(int(self.addresses[index]), self.dtype)


class SimulatedDevice(Device):
    """Memory is the host's, kernels are the simulator's."""

    def __init__(self, processors: int = 2, shared: int = 232448):
        self.capability, self.processors, self.shared = (9, 0), processors, shared
        self.memory, self.launches, self.number = Memory(), 0, 0

    def use(self) -> None:
        pass

    def function(self, key: Any, make: Callable[[], Any], shared: int) -> Any:
        return key

    def launch(
        self, function: Source, blocks: int, threads: int, shared: int, stream: int, values: Sequence[int]
    ) -> None:
        text = function.text.replace(", alignment=16", "")  # which the simulator refuses
        kernel = cuda.jit(import_source(f"{function.name}_simulated", text).kernel)
        kernel[blocks, threads, 0, shared](
            *(self.argument(v, kind, function.dtype) for v, kind in zip(values, function.kinds, strict=True))
        )
        self.launches += 1

    def argument(self, value: int, kind: str, dtype: str) -> Any:
        match kind:
            case "index":
                return np.uint64(value)
            case "real**":
                return Table(self.memory, value, dtype)
        return self.memory.view(value, np.uint64 if kind == "index*" else dtype)

    def allocate(self, count: int, stream: int) -> int:
        array = np.full(max(16, -(-count // 16) * 16), 0xFF, np.uint8)  # NaN, where nobody writes
        self.memory.arrays[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, address: int, stream: int) -> None:
        del self.memory.arrays[address]

    def number_of(self, address: int) -> int:
        return self.number

    def to_device(self, address: int, array: np.ndarray, stream: int) -> None:
        self.memory.bytes(address)[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def to_host(self, array: np.ndarray, address: int, stream: int) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def zero(self, address: int, count: int, stream: int) -> None:
        self.memory.bytes(address)[:count] = 0

    def synchronise(self, stream: int) -> None:
        pass


def difference(cell: str, tier: int) -> tuple[float, int]:
    """The largest, of values and gradients of a small ragged batch; and how many kernels were
    launched."""
    device = SimulatedDevice()
    kernel = CudaKernel(rnnspec.load(cell), np.dtype(np.float32), tier, device=device)
    cpu = rnnspec.compile(cell)
    c = case(kernel, 2, 2, lengths=[2, 1], D=2, H=2)
    runs = [k.forward(c.params, c.inputs, c.states, c.lengths) for k in (kernel, cpu)]
    grads = [k.backward(run, c.dy, final=c.dfinal) for k, run in zip((kernel, cpu), runs)]
    pairs = [
        (runs[0].outputs, runs[1].outputs),
        (runs[0].final, runs[1].final),
        (grads[0].params, grads[1].params),
        (grads[0].inputs, grads[1].inputs),
        (grads[0].states, grads[1].states),
    ]
    return (
        max(float(np.abs(np.asarray(found[n]) - right[n]).max()) for found, right in pairs for n in right),
        device.launches,
    )


if __name__ == "__main__":
    print(*difference(sys.argv[1], int(sys.argv[2])))
