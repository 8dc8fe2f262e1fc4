"""How fast one core could do a program's work at most: the roof of `bench cells`.

Computing takes at least (multiply-adds + elementwise instructions) / (what the core does of them in
registers) + functions / (how fast each is computed in registers); moving takes at least bytes /
(how fast a core reads and writes so many). The roof is the larger of both. Each rate is measured
on the machine, beside what is held against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bench.peak import best, spinning
from bench.work import Work
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES

CHAINS = 8  # independent vectors at a time, so that the pipes are full
SPINS = 5_000
BUDGET = 0.01  # seconds of a measurement of one function
SMALLEST = 1 << 16  # bytes: less is not measured apart, a caller's arrays are no smaller


@dataclass(frozen=True)
class Roof:
    """computing, moving: the least seconds of each; seconds: of both, the larger."""

    computing: float
    moving: float

    @property
    def seconds(self) -> float:
        return max(self.computing, self.moving)

    @property
    def bound(self) -> str:
        return "memory" if self.moving > self.computing else "arithmetic"


def roof(work: Work, rows: int, dtype: str, gflops: float) -> Roof:
    """Of a work at `rows` steps of rows. gflops: the peak of the core, two a multiply-add."""
    slots = work.multiply_adds + work.operations  # a sum takes the place of a multiply-add
    computing = slots * 2 / (gflops * 1e9) + sum(n / rate(f, dtype) for f, n in work.functions.items())
    size = work.moved * rows * np.dtype(dtype).itemsize
    return Roof(rows * computing, size / bandwidth(size))


@lru_cache(maxsize=64)
def rate(function: str, dtype: str) -> float:
    """Numbers a second of one primitive function, its arguments and results in registers."""
    spin, numbers = spinning(dtype, CHAINS, SPINS, lambda builder, _, value: PRIMITIVES[function](builder, value))
    return numbers / best(spin, BUDGET)


def bandwidth(size: int) -> float:
    """Bytes a second that a core reads and writes, half of each, of `size` bytes that it goes
    through again and again. Measured at powers of two, from 64 KiB on."""
    return _bandwidth(1 << max(math.ceil(math.log2(max(size, 1))), SMALLEST.bit_length() - 1))


@lru_cache(maxsize=32)
def _bandwidth(size: int) -> float:
    source = np.ones(size // 8, np.float32)
    target = np.empty_like(source)

    def call() -> None:
        np.add(source, 1.0, out=target)

    return size / best(call, 5 * BUDGET)
