"""The measured multiply-add peak of one core, which shares of peak refer to."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from rnnspec.backends.cpu import machine
from rnnspec.backends.cpu.frontend import lower, operation
from rnnspec.backends.cpu.runtime import loops, vectors


def best(function: Callable[[], object], budget: float = 0.4) -> float:
    """Seconds of the fastest of as many calls as fit the budget: other people work on the machine
    too. By the clock on the wall: a thread's own loses some of its time where they come between,
    and the least of many is then too little."""
    function()
    times, end = [], time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 2:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@lru_cache(maxsize=2)
def peak(dtype: str) -> Callable[[], float]:
    """A function that measures GFLOP/s of multiply-adds on registers alone, in twelve chains, on
    one thread."""
    spin, numbers = spinning(dtype, 12, 100_000, lambda builder, x, value: vectors.multiply_add(builder, x, x, value))
    return lambda: 2 * numbers / best(spin, 0.02) / 1e9


def spinning(
    dtype: str, chains: int, spins: int, step: Callable[[Any, Any, Any], Any]
) -> tuple[Callable[[], object], int]:
    """A function that takes a step again and again in so many independent chains of vectors, and
    how many numbers that makes. step: (builder, a vector of 0.5, a chain's vector) -> its next."""
    vector = vectors.vector_of(dtype)

    @operation
    def steps(builder: ir.IRBuilder, count: ir.Value, address: ir.Value) -> None:
        place = builder.inttoptr(address, vector.element.as_pointer())
        x = vectors.spread(builder, builder.load(place), vector.count)
        sums = loops.loop(builder, count, [x] * chains, lambda k, values: [step(builder, x, v) for v in values])
        total = sums[0]
        for value in sums[1:]:
            total = builder.fadd(total, value)
        builder.store(builder.extract_element(total, ir.IntType(32)(0)), place)

    text = lower("def spin(count, address):\n    steps(count, address)\n", {"steps": steps}, ["spin"])
    code = machine.load("spin", machine.object_file([text], ["spin"]), ["spin"])
    function, number = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(code.addresses[0]), np.empty(1, dtype)

    def spin() -> machine.MachineCode:
        number[0] = 0.5
        function(spins, number.ctypes.data)
        return code  # which stays in memory with this

    return spin, chains * vector.count * spins
