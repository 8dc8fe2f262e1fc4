"""A stand-in for libcuda that runs PTX in the interpreter: the backend's own launch code drives it,
call by call, as it would a GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ptx.machine import Machine, Report
from ptx.module import Module, parse
from ptx.space import Global

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_CONTEXT, TOO_LARGE = 0, 1, 2, 200, 201, 720
ATTRIBUTES = {75: 0, 76: 0, 16: 2, 95: 1, 97: 0, 115: 1}  # see rnnspec/backends/cuda/driver.py


def in_context(call: Callable[..., int]) -> Callable[..., int]:
    """A call that a thread may only make after cuCtxSetCurrent."""

    def checked(library: FakeLibrary, *args: Any, **options: Any) -> int:
        return call(library, *args, **options) if getattr(library.current, "context", 0) else INVALID_CONTEXT

    return checked


class FakeLibrary:
    """`reports`: of all launches. change: what to do to a PTX text before it is run (a planted
    fault)."""

    def __init__(
        self,
        capability: tuple[int, int] = (9, 0),
        shared: int = 232448,
        seed: int = 0,
        processors: int = 2,
        version: int = 13000,
        devices: int = 1,
        change: Callable[[str], str] = lambda text: text,
    ):
        self.memory, self.seed, self.version, self.devices, self.change = Global(), seed, version, devices, change
        self.attributes = ATTRIBUTES | {75: capability[0], 76: capability[1], 97: shared, 16: processors}
        self.modules: list[tuple[Module, dict[str, int]]] = []
        self.shared_limits: dict[int, int] = {}
        self.reports: list[Report] = []
        self.current, self.waits = threading.local(), 0
        self.known: dict[tuple[int, int], int] = {}  # (address, attribute) -> its value

    # --- what there is ---

    def cuInit(self, flags: Any) -> int:
        return SUCCESS

    def cuGetErrorString(self, code: Any, text: Any) -> int:
        text._obj.value = f"error {code.value}".encode()
        return SUCCESS

    def cuDriverGetVersion(self, value: Any) -> int:
        value._obj.value = self.version
        return SUCCESS

    def cuDeviceGetCount(self, value: Any) -> int:
        value._obj.value = self.devices
        return SUCCESS

    def cuDeviceGet(self, handle: Any, number: Any) -> int:
        handle._obj.value = 0
        return SUCCESS

    def cuDeviceGetAttribute(self, value: Any, number: Any, handle: Any) -> int:
        value._obj.value = self.attributes[number.value]
        return SUCCESS

    def cuDevicePrimaryCtxRetain(self, context: Any, handle: Any) -> int:
        context._obj.value = 1
        return SUCCESS

    def cuDeviceGetDefaultMemPool(self, pool: Any, handle: Any) -> int:
        pool._obj.value = 1
        return SUCCESS

    def cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> int:
        return SUCCESS

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current.context = context.value
        return SUCCESS

    @in_context
    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.current.pushed = [*getattr(self.current, "pushed", ()), getattr(self.current, "context", None)]
        return self.cuCtxSetCurrent(context)

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        self.current.context = self.current.pushed.pop()
        return SUCCESS

    def cuPointerGetAttribute(self, value: Any, attribute: Any, address: Any) -> int:
        """Of the pointers in `known`."""
        found = self.known.get((address.value, attribute.value))
        if found is None:
            return INVALID_VALUE
        value._obj.value = found
        return SUCCESS

    def cuStreamSynchronize(self, stream: Any) -> int:
        self.waits += 1
        return SUCCESS

    # --- kernels ---

    @in_context
    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        parsed = parse(self.change(image.value.decode()))
        constants = {}
        for name, content in parsed.constants.items():
            constants[name] = self.memory.allocate(len(content))
            self.memory.write(constants[name], np.frombuffer(content, np.uint8))
        self.modules.append((parsed, constants))
        module._obj.value = len(self.modules)
        return SUCCESS

    def cuModuleGetFunction(self, function: Any, module: Any, entry: Any) -> int:
        if self.modules[module.value - 1][0].entry != entry.value.decode():
            return INVALID_VALUE
        function._obj.value = module.value
        return SUCCESS

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: Any) -> int:
        if value.value > self.attributes[97]:
            return INVALID_VALUE
        self.shared_limits[function.value] = value.value
        return SUCCESS

    def cuLaunchKernel(self, function: Any, *args: Any) -> int:
        return self._launch(function, *args[:-1])

    def cuLaunchCooperativeKernel(self, function: Any, *args: Any) -> int:
        """One block to a processor, as it is with the shared memory or registers that such kernels
        take."""
        return TOO_LARGE if args[0].value > self.attributes[16] else self._launch(function, *args, together=True)

    @in_context
    def _launch(self, function: Any, *args: Any, together: bool = False) -> int:
        blocks, by, bz, threads, ty, tz, shared, _stream, pointers = (
            a.value if hasattr(a, "value") else a for a in args
        )
        fits = (
            shared <= self.shared_limits.get(function.value, 48 * 1024) and 0 < threads <= 1024 and 0 < blocks < 2**31
        )
        if not fits or (by, bz, ty, tz) != (1, 1, 1, 1):
            return INVALID_VALUE
        module, constants = self.modules[function.value - 1]
        values = [ctypes.c_uint64.from_address(p).value for p in pointers]
        self.seed += 1
        self.reports.append(
            Machine(module, self.memory, blocks, threads, shared, values, self.seed, constants, together).run()
        )
        return SUCCESS

    # --- memory ---

    @in_context
    def cuMemAllocAsync(self, address: Any, count: Any, stream: Any) -> int:
        try:
            address._obj.value = self.memory.allocate(count.value)
        except MemoryError:
            return OUT_OF_MEMORY
        return SUCCESS

    @in_context
    def cuMemFreeAsync(self, address: Any, stream: Any) -> int:
        self.memory.free(address.value)
        return SUCCESS

    @in_context
    def cuMemcpyHtoDAsync_v2(self, address: Any, source: Any, count: Any, stream: Any) -> int:
        self.memory.write(
            address.value, np.frombuffer((ctypes.c_ubyte * count.value).from_address(source.value), np.uint8)
        )
        return SUCCESS

    @in_context
    def cuMemcpyDtoHAsync_v2(self, target: Any, address: Any, count: Any, stream: Any) -> int:
        content = self.memory.span(address.value, count.value)
        np.frombuffer((ctypes.c_ubyte * count.value).from_address(target.value), np.uint8)[:] = content
        return SUCCESS

    @in_context
    def cuMemsetD8Async(self, address: Any, value: Any, count: Any, stream: Any) -> int:
        self.memory.write(address.value, np.full(count.value, value.value, np.uint8))
        return SUCCESS
