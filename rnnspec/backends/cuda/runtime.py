"""Small kernels that are the same for all cells: sums of parts, and moves of rows. Those that multiply are in products.py.

Rows lie one after another, n (one for each row of the batch) to a step; `lengths` [n] are the steps of each. Each is made for a kind of number.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnnspec.backends.cuda.shim import REALS, cuda, uint64

ZERO = np.uint64(0)
THREADS = 256
KINDS: dict[str, tuple[str, ...]] = {
    "add_parts": ("real*", "real*", "index", "index"), "move": ("real*", "index", "real*", "index", "index", "index", "index*"),
    "take": ("real*", "real*", "index", "index", "index", "index*"), "copy": ("real*", "real*", "index", "index", "index", "index", "index", "index")}


def function(name: str, dtype: str) -> Callable[..., None]:
    """The function of this name for a dtype, ready for the compiler."""
    real = REALS[dtype]

    def add_parts(target: Any, parts: Any, count: Any, size: Any) -> None:
        """target[i] += the sum of parts[:, i], first to last."""
        i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        if i < size:
            total = target[i]
            k = i
            while k < count * size:
                total += parts[k]
                k += size
            target[i] = total

    def move(target: Any, at_target: Any, source: Any, at_source: Any, n: Any, width: Any, lengths: Any) -> None:
        """One row for each of the batch, from or to (at = 1, else 0) the history's row after its last step; else to or from the first rows."""
        i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        if i < n * width:
            b = i // width
            target[i + at_target * lengths[b] * n * width] = source[i + at_source * lengths[b] * n * width]

    def take(target: Any, source: Any, count: Any, n: Any, width: Any, lengths: Any) -> None:
        """Rows of all steps; those of rows that have ended are zero."""
        i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        if i < count * width:
            row = i // width
            value = real(0.0)
            if row // n < lengths[row % n]:
                value = source[i]
            target[i] = value

    def copy(target: Any, source: Any, height: Any, middle: Any, width: Any, by_first: Any, by_second: Any, by_third: Any) -> None:
        """target [height, middle, width] from an array of any strides, counted in numbers."""
        i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        if i < height * middle * width:
            target[i] = source[i // width // middle * by_first + i // width % middle * by_second + i % width * by_third]

    return {"add_parts": add_parts, "move": move, "take": take, "copy": copy}[name]
