"""The CUDA driver, through ctypes: nothing but libcuda is needed to run a kernel that has been
compiled.

`first_device()` is the first GPU; it raises BackendUnavailable with the reason where there is none
that will do. Who has a Device of another kind hands that to the kernel. Memory comes from the
driver's pool in the order of a stream, so that what one call frees the next one has at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

import numpy as np

from rnnspec.errors import BackendUnavailable, RnnspecError
from rnnspec.storage.locks import Lock

LEAST = (8, 0)  # compute capability
LEAST_DRIVER = 12000
# CUdevice_attribute, CUfunction_attribute and CUmemPool_attribute, from cuda.h
MAJOR, MINOR, PROCESSORS, SHARED_MOST, POOLS, COOPERATIVE = 75, 76, 16, 97, 115, 95
FUNCTION_SHARED = 8
MEMORY_TYPE, DEVICE_ORDINAL, HOST_MEMORY = 2, 9, 1  # CUpointer_attribute, CUmemorytype
POOL_THRESHOLD = 4
OUT_OF_MEMORY, NOT_INITIALISED, BAD_IMAGE, NO_IMAGE, BAD_PTX, UNSUPPORTED_PTX = 2, 3, 200, 209, 218, 222


class CudaError(RnnspecError, RuntimeError):
    """A call of the driver failed; `code` is its CUresult."""

    def __init__(self, message: str, code: int):
        self.code = code
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (CudaError, (str(self), self.code))


class BlockedError(RnnspecError, RuntimeError):
    """Blocks that wait for each other did not all come."""


def load_library() -> Any:
    """The system's CUDA driver. Raises BackendUnavailable where it has none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise BackendUnavailable(
            f"backend 'cuda' needs an NVIDIA GPU with its driver, and {name} can't be loaded: {error}. "
            "Use backend='cpu', or 'auto' for whatever there is."
        ) from error


class Driver:
    """A driver library whose calls raise CudaError where they fail."""

    def __init__(self, library: Any):
        self.library = library

    def __call__(self, name: str, *args: Any) -> None:
        if code := getattr(self.library, name)(*args):
            raise CudaError(f"{name} failed: {self.message(code)}", code)

    def message(self, code: int) -> str:
        text = c_char_p()
        self.library.cuGetErrorString(c_int(code), byref(text))
        return (text.value or b"unknown error").decode()


class Device:
    """One GPU and its primary context, which other libraries use too. processors: how many blocks
    run at once, at least; shared: bytes of shared memory that one block may have; cooperative:
    whether blocks may wait for each other."""

    cooperative = False

    def __init__(self, driver: Driver, number: int = 0):
        self.call, self.number, self.process = driver, number, os.getpid()
        handle = c_int()
        driver("cuDeviceGet", byref(handle), c_int(number))
        self.handle = handle
        self.capability = self._attribute(MAJOR), self._attribute(MINOR)
        self.processors, self.shared = self._attribute(PROCESSORS), self._attribute(SHARED_MOST)
        self.cooperative = bool(self._attribute(COOPERATIVE))
        self.context = c_void_p()
        self.functions: dict[Hashable, c_void_p] = {}
        self.lock = Lock()

    def _attribute(self, number: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), c_int(number), self.handle)
        return value.value

    def open(self) -> None:
        """Makes the context; memory that was freed stays in the pool."""
        if not self._attribute(POOLS):
            raise BackendUnavailable(
                "backend 'cuda' needs a GPU with memory pools, and this one has none: use backend='cpu'."
            )
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self.handle)
        pool, most = c_void_p(), c_uint64(2**64 - 1)
        self.call("cuDeviceGetDefaultMemPool", byref(pool), self.handle)
        self.call("cuMemPoolSetAttribute", pool, c_int(POOL_THRESHOLD), byref(most))

    def use(self) -> None:
        """Makes the context current for this thread."""
        if os.getpid() != self.process:
            raise CudaError(
                "this process was forked from one that uses the GPU, and CUDA does not go along: start processes by"
                " 'spawn' or 'forkserver', or make kernels for 'cuda' in the child alone.",
                NOT_INITIALISED,
            )
        self.call("cuCtxSetCurrent", self.context)

    def function(self, key: Hashable, make: Callable[[], tuple[bytes, str]], shared: int) -> c_void_p:
        """A kernel, ready for so many bytes of shared memory. make: gives its PTX text or cubin and
        the name of its entry; called once for a key."""
        with self.lock:
            if key not in self.functions:
                self.functions[key] = self._load(*make(), shared)
            return self.functions[key]

    def _load(self, image: bytes, entry: str, shared: int) -> c_void_p:
        module, function = c_void_p(), c_void_p()
        try:
            self.call("cuModuleLoadData", byref(module), c_char_p(image + b"\0"))
        except CudaError as error:
            if error.code in (BAD_IMAGE, NO_IMAGE, BAD_PTX, UNSUPPORTED_PTX):
                raise BackendUnavailable(
                    f"the GPU's driver does not take what the compiler made ({error}): update the driver, or install a"
                    " CUDA toolkit that is no newer than it. Kernels that were built elsewhere have to be built for"
                    " this GPU's architecture."
                ) from error
            raise
        self.call("cuModuleGetFunction", byref(function), module, c_char_p(entry.encode()))
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", function, c_int(FUNCTION_SHARED), c_int(shared))
        return function

    def launch(
        self, function: c_void_p, blocks: int, threads: int, shared: int, stream: int, values: Sequence[int]
    ) -> None:
        """Starts a kernel all of whose arguments are eight bytes wide. function: what was loaded;
        blocks, threads: how many, threads of a block; shared: bytes of a block; stream: a handle;
        values: the arguments, in order."""
        self.call(
            "cuLaunchKernel", function, *_extent(blocks, threads, shared, stream), _pointers(values), c_void_p(None)
        )

    def launch_together(
        self, function: c_void_p, blocks: int, threads: int, shared: int, stream: int, values: Sequence[int]
    ) -> None:
        """Starts a kernel with all blocks at once, or not at all: they may wait for each other (a
        cooperative launch). function, blocks, threads, shared, stream, values: as in `launch`."""
        self.call("cuLaunchCooperativeKernel", function, *_extent(blocks, threads, shared, stream), _pointers(values))

    def allocate(self, count: int, stream: int) -> int:
        address = c_uint64()
        try:
            self.call("cuMemAllocAsync", byref(address), c_size_t(max(1, count)), c_void_p(stream))
        except CudaError as error:
            if error.code == OUT_OF_MEMORY:
                raise MemoryError(f"the GPU has no {count:,} bytes left for this call.") from error
            raise
        return address.value

    def free(self, address: int, stream: int) -> None:
        """Gives memory back, whatever context this thread has, which is left to it: the garbage
        collector may come at any time, in any thread."""
        if os.getpid() == self.process:
            self.call("cuCtxPushCurrent_v2", self.context)
            try:
                self.call("cuMemFreeAsync", c_uint64(address), c_void_p(stream))
            finally:
                self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def number_of(self, address: int) -> int | None:
        """The GPU on which memory lies; None where the driver does not know."""
        return self._about(address, DEVICE_ORDINAL)

    def _about(self, address: int, attribute: int) -> int | None:
        value = c_int()
        code = self.call.library.cuPointerGetAttribute(byref(value), c_int(attribute), c_uint64(address))
        return None if code else value.value

    def to_device(self, address: int, array: np.ndarray, stream: int) -> None:
        """Copies a contiguous array, which may be changed as soon as this returns."""
        if array.nbytes:
            host = array.ctypes.data
            self.call(
                "cuMemcpyHtoDAsync_v2", c_uint64(address), c_void_p(host), c_size_t(array.nbytes), c_void_p(stream)
            )
            if self._about(host, MEMORY_TYPE) == HOST_MEMORY:  # page-locked: the GPU reads it when it comes to it
                self.synchronise(stream)

    def to_host(self, array: np.ndarray, address: int, stream: int) -> None:
        """Copies to an array, and waits for all that the stream has to do before."""
        if array.nbytes:
            self.call(
                "cuMemcpyDtoHAsync_v2",
                c_void_p(array.ctypes.data),
                c_uint64(address),
                c_size_t(array.nbytes),
                c_void_p(stream),
            )
        self.synchronise(stream)

    def zero(self, address: int, count: int, stream: int) -> None:
        if count:
            self.call("cuMemsetD8Async", c_uint64(address), c_ubyte(0), c_size_t(count), c_void_p(stream))

    def synchronise(self, stream: int) -> None:
        self.call("cuStreamSynchronize", c_void_p(stream))


def _extent(blocks: int, threads: int, shared: int, stream: int) -> tuple[Any, ...]:
    return c_uint(blocks), c_uint(1), c_uint(1), c_uint(threads), c_uint(1), c_uint(1), c_uint(shared), c_void_p(stream)


def _pointers(values: Sequence[int]) -> Any:
    """Where the values of arguments lie. ctypes keeps what an array of pointers was made of only if
    it is told to."""
    cells = (c_uint64 * len(values))(*values)
    pointers = (c_void_p * len(values))(*(ctypes.addressof(cells) + 8 * i for i in range(len(values))))
    pointers._keep = cells  # type: ignore[attr-defined]
    return pointers


def open_device(library: Any) -> Device:
    """The first device of a driver library, checked."""
    driver = Driver(library)
    try:
        driver("cuInit", c_uint(0))
        version, count = c_int(), c_int()
        driver("cuDriverGetVersion", byref(version))
        driver("cuDeviceGetCount", byref(count))
    except CudaError as error:
        raise BackendUnavailable(
            f"backend 'cuda' needs an NVIDIA GPU, and its driver says: {error}. Use backend='cpu', or 'auto' for"
            " whatever there is."
        ) from error
    if count.value < 1:
        raise BackendUnavailable(
            "backend 'cuda' needs an NVIDIA GPU, and the driver sees none (CUDA_VISIBLE_DEVICES may hide it). Use"
            " backend='cpu', or 'auto' for whatever there is."
        )
    if version.value < LEAST_DRIVER:
        raise BackendUnavailable(
            f"backend 'cuda' needs a driver for CUDA {LEAST_DRIVER // 1000} or later; this one is for CUDA "
            f"{version.value // 1000}.{version.value % 1000 // 10}. Update it, or use backend='cpu'."
        )
    gpu = Device(driver)
    if gpu.capability < LEAST:
        raise BackendUnavailable(
            "backend 'cuda' needs a GPU of compute capability {}.{} or more; this one has {}.{}."
            " Use backend='cpu'.".format(*LEAST, *gpu.capability)
        )
    gpu.open()
    return gpu


def first_device() -> Device:
    """The first GPU that the system's driver has, opened once. Raises BackendUnavailable, again at
    every call until there is one."""
    return _opened(load_library())


@lru_cache(maxsize=1)
def _opened(library: Any) -> Device:
    return open_device(library)
