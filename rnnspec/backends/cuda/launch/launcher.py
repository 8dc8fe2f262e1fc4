"""Starts kernels on one stream of a device, compiling what is missing, and makes the arrays that
they work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.compile.build import architecture, build
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.moves import THREADS, runtime_source
from rnnspec.backends.cuda.launch.driver import Device
from rnnspec.backends.cuda.launch.memory import DeviceArray, new_array


def up(count: int, size: int) -> int:
    """How many pieces of a size it takes."""
    return -(-count // size)


@dataclass(frozen=True)
class Launcher:
    """A device and a stream, for one kind of number: starts kernels, and makes arrays."""

    device: Device
    dtype: np.dtype
    stream: int

    def __call__(self, source: Source, blocks: int, values: Mapping[str, int], *, together: bool = False) -> None:
        """Starts a kernel; none, if it has no blocks. values: by the keys of its arguments;
        together: all blocks have to run at once."""
        if blocks:
            shared = source.shared * self.dtype.itemsize
            function = self.device.function(source, lambda: build(source, architecture(self.device.capability)), shared)
            launch = self.device.launch_together if together else self.device.launch
            launch(function, blocks, source.threads, shared, self.stream, [values[k] for k in source.arguments])

    def move(self, name: str, numbers: int, /, **values: int) -> None:
        """Starts a kernel of moves.py with a thread for each of so many numbers."""
        self(runtime_source(name, self.dtype.name), up(numbers, THREADS), values)

    def new(self, *shape: int) -> DeviceArray:
        return new_array(self.device, shape, self.dtype, self.stream)

    def zeros(self, *shape: int) -> DeviceArray:
        array = self.new(*shape)
        self.device.zero(array.address, prod(shape) * self.dtype.itemsize, self.stream)
        return array

    def counters(self, count: int) -> DeviceArray:
        """So many zeros to count with."""
        array = new_array(self.device, (count,), np.dtype(np.uint64), self.stream)
        self.device.zero(array.address, 8 * count, self.stream)
        return array

    def upload(self, array: Array) -> DeviceArray:
        """A copy of an array of the host's."""
        self.device.use()
        host = np.ascontiguousarray(array)
        copy = new_array(self.device, array.shape, host.dtype, self.stream)
        self.device.to_device(copy.address, host, self.stream)
        return copy

    def indices(self, values: Any) -> DeviceArray:
        """Whole numbers, as kernels take them."""
        return self.upload(np.asarray(values, np.uint64))

    def packed(self, array: DeviceArray, *, copy: bool = False) -> DeviceArray:
        """The array with its numbers one after another. copy: even if they are."""
        if array.contiguous and not copy:
            return array
        item, packed = self.dtype.itemsize, self.new(*array.shape)
        shape, strides = (1, 1, 1, *array.shape), (0, 0, 0, *array.strides)
        height, middle, width = shape[-3:]
        for number, index in enumerate(np.ndindex(shape[3:-3])):  # arrays of up to three axes go at once
            start = sum(i * s for i, s in zip(index, strides[3:-3]))
            self.move(
                "copy",
                height * middle * width,
                target=packed.address + number * height * middle * width * item,
                source=array.address + start,
                height=height,
                middle=middle,
                width=width,
                by_first=strides[-3] // item,
                by_second=strides[-2] // item,
                by_third=strides[-1] // item,
            )
        return packed
