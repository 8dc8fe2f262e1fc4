"""Small kernels that are the same for all cells: sums of parts, and moves of rows. Those that
multiply are in products.py.

Rows lie one after another, n (one for each row of the batch) to a step; `lengths` [n] are the steps
of each. A thread has one number.
"""

from __future__ import annotations

from functools import cache

from rnnspec.backends.cuda.compile.source import Source

THREADS = 256
_HEAD = '''"""Moves and sums, {dtype}. Part of rnnspec."""
# ruff: noqa
import numpy as np

from rnnspec.backends.cuda.compile.shim import cuda, {dtype} as real, uint64

ONE = np.uint64(1)


def kernel({arguments}):
    i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
'''
_BODIES = {
    # target[i] += the sum of parts[:, i], first to last
    "add_parts": (
        ("target", "parts", "count", "size"),
        """
    if i < size:
        total = target[i]
        k = i
        while k < count * size:
            total += parts[k]
            k += size
        target[i] = total
""",
    ),
    # target[k, i] = the sum of parts[k * piece : (k + 1) * piece, i], first to last
    "fold_parts": (
        ("target", "parts", "count", "size", "piece"),
        """
    if i // size * piece < count:
        total = real(0.0)
        k = i // size * piece
        end = k + piece if k + piece < count else count
        while k < end:
            total += parts[k * size + i % size]
            k += ONE
        target[i] = total
""",
    ),
    # one row for each of the batch, to or from (at = 1, else 0) a history's row after its last
    # step, else its first
    "move": (
        ("target", "at_target", "source", "at_source", "n", "width", "lengths"),
        """
    if i < n * width:
        b = i // width
        target[i + at_target * lengths[b] * n * width] = source[i + at_source * lengths[b] * n * width]
""",
    ),
    # rows of all steps; those of rows that have ended are zero
    "take": (
        ("target", "source", "count", "n", "width", "lengths"),
        """
    if i < count * width:
        row = i // width
        value = real(0.0)
        if row // n < lengths[row % n]:
            value = source[i]
        target[i] = value
""",
    ),
    # target [height, middle, width] from an array of any strides, counted in numbers
    "copy": (
        ("target", "source", "height", "middle", "width", "by_first", "by_second", "by_third"),
        """
    if i < height * middle * width:
        target[i] = source[i // width // middle * by_first + i // width % middle * by_second + i % width * by_third]
""",
    ),
}
_KINDS = {"target": "real*", "source": "real*", "parts": "real*", "lengths": "index*"}


@cache
def runtime_source(name: str, dtype: str) -> Source:
    """ "add_parts", "fold_parts", "move", "take" or "copy"."""
    arguments, body = _BODIES[name]
    text = _HEAD.format(dtype=dtype, arguments=", ".join(arguments)) + body.lstrip("\n")
    return Source(name, dtype, text, arguments, tuple(_KINDS.get(a, "index") for a in arguments), THREADS, 0)
