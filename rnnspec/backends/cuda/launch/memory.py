"""Arrays on the device: ours, and those of other libraries that say where they lie
(interface.py)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rnnspec.backends.cuda.launch.driver import CudaError, Device
from rnnspec.backends.cuda.launch.interface import interface, packed_strides
from rnnspec.errors import DtypeError, UnsupportedError


class StreamHandle(int):
    """A CUDA stream, as a number, with the object that it belongs to: memory is given back on the
    stream that it was taken on."""

    owner: Any = None


class DeviceMemory:
    """A piece of the device's memory, given back when nobody refers to it any more."""

    def __init__(self, device: Device, count: int, stream: int):
        self.device, self.count, self.stream = device, count, stream
        self.address = device.allocate(count, stream)

    def __del__(self) -> None:
        # at the end of the process the driver may be gone
        with contextlib.suppress(CudaError, AttributeError, TypeError):
            self.device.free(self.address, self.stream)


@dataclass(frozen=True)
class DeviceArray:
    """An array on the device. strides in bytes. torch.as_tensor(array, device="cuda"),
    cupy.asarray(array) and others take it without a copy; `numpy()` and np.asarray(array) copy it
    to the host."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    owner: Any
    device: Device
    stream: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": self.strides,
            "stream": self.stream or 1,
            "version": 3,
        }

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        return self.size == 0 or self.strides == packed_strides(self.shape, self.dtype.itemsize)

    def reshape(self, *shape: int) -> DeviceArray:
        """An array of the same numbers under another shape."""
        assert self.contiguous and prod(shape) == self.size
        return DeviceArray(
            self.address,
            shape,
            self.dtype,
            packed_strides(shape, self.dtype.itemsize),
            self.owner,
            self.device,
            self.stream,
        )

    def numpy(self) -> np.ndarray:
        """A copy on the host; waits for what was launched before."""
        assert self.contiguous, "an array of ours is contiguous"
        self.device.use()
        host = np.empty(self.shape, self.dtype)
        self.device.to_host(host, self.address, self.stream)
        return host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on the GPU can't be read without a copy.")
        return self.numpy().astype(dtype or self.dtype, copy=False)


def new_array(device: Device, shape: tuple[int, ...], dtype: np.dtype, stream: int) -> DeviceArray:
    memory = DeviceMemory(device, prod(shape) * dtype.itemsize, stream)
    return DeviceArray(memory.address, shape, dtype, packed_strides(shape, dtype.itemsize), memory, device, stream)


def foreign(what: str, value: Any, dtype: np.dtype, device: Device, stream: int) -> DeviceArray:
    """An array of another library's where it lies. what: its name in messages; value: that array;
    device, stream: where kernels will read it. Raises DtypeError if it is not of this dtype, or its
    numbers do not lie at multiples of their size; UnsupportedError if it lies on another GPU."""
    told = interface(value)
    found = np.dtype(told["typestr"])
    if found != dtype:
        raise DtypeError(
            f"{what} has dtype {found}, the kernel {dtype}. Convert it, or compile the cell for its dtype."
        )
    if told.get("mask") is not None:
        raise DtypeError(f"{what} is a masked array, and a kernel would read through its mask.")
    address = told["data"][0] or 0
    if prod(told["shape"]):
        if any(place % dtype.itemsize for place in (address, *told["strides"])):
            raise DtypeError(
                f"{what} has numbers that do not lie at multiples of {dtype.itemsize} bytes, where a GPU can't read"
                " them: give a copy."
            )
        device.use()
        if (number := device.number_of(address)) not in (None, device.number):
            raise UnsupportedError(
                f"{what} lies on GPU {number}, and kernels run on GPU {device.number}: move it there, or choose the GPU"
                " of this process by CUDA_VISIBLE_DEVICES."
            )
    given = told.get("stream")
    if given is not None and given != (stream or 1):  # made on another stream: wait for it
        device.use()
        device.synchronise(0 if given == 1 else given)
    return DeviceArray(address, told["shape"], dtype, told["strides"], told["keep"], device, stream)
