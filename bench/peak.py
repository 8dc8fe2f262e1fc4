"""The measured multiply-add peak of one core, which shares of peak refer to."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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
    vector = vectors.vector_of(getattr(types, dtype))

    @intrinsic
    def steps(tc, n, start):
        def codegen(context, builder, sig, args):
            x = vectors.spread(builder, args[1], vector.count)
            sums = loops.loop(
                builder, args[0], [x] * chains, lambda k, values: [step(builder, x, value) for value in values]
            )
            total = sums[0]
            for value in sums[1:]:
                total = builder.fadd(total, value)
            return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

        return getattr(types, dtype)(types.int64, getattr(types, dtype)), codegen

    @njit
    def spin(n, start):
        return steps(n, start)

    scalar = np.dtype(dtype).type(0.5)
    return lambda: spin(spins, scalar), chains * vector.count * spins
