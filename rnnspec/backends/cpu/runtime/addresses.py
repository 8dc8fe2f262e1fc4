"""The runtime as generated kernels and the launcher see it: addresses of the C functions of
products.py, moves.py and training.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

from rnnspec.backends.cpu.machine import APART, BLOCK_K, BLOCK_M, BLOCK_N
from rnnspec.backends.cpu.native import addresses, compiled
from rnnspec.backends.cpu.processor import ITEMSIZE

FUNCTIONS = ("product", "pack", "gather", "scatter", "clear")


@dataclass(frozen=True)
class Runtime:
    """Addresses of the C functions `void f(int64, ...)` of products.py and moves.py, and the bytes
    of scratch that `outer` wants."""

    dtype: str
    product: int
    pack: int
    gather: int
    scatter: int
    clear: int

    @property
    def outer(self) -> int:
        """Compiled apart, for inference does without it."""
        return _addresses(self.dtype, ("outer", "fold"))[0]

    @property
    def fold(self) -> int:
        return _addresses(self.dtype, ("outer", "fold"))[1]

    @property
    def kept_outer(self) -> int:
        """`outer` that can be told which terms count: compiled apart, for few cells need it."""
        return _addresses(self.dtype, ("kept_outer",))[0]

    @property
    def row_sums(self) -> int:
        """`outer` over the rows of a batch, each with a sum of its own."""
        return _addresses(self.dtype, ("row_sums",))[0]

    @property
    def kept_product(self) -> int:
        """`product` without the terms whose factor from A is 0: compiled apart, for only weights
        that are not finite need it."""
        return _addresses(self.dtype, ("kept_product",))[0]

    @property
    def outer_scratch(self) -> int:
        return (BLOCK_K * (BLOCK_M + BLOCK_N) + APART * BLOCK_M) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Steps:
    """Addresses of the C functions of training.py."""

    adam: int
    squares: int
    scatter_add: int


@cache
def steps(dtype: str) -> Steps:
    """What training does beside the recurrence, for "float32" or "float64": compiled at the first
    use on a machine, read from disk after that."""

    def make() -> bytes:
        from rnnspec.backends.cpu.runtime.training import source

        return compiled(name, source(dtype, functions), functions)

    name, functions = f"steps_{dtype}", tuple(field.name for field in fields(Steps))
    return Steps(*addresses(name, f"runtime {name}", functions, make))


@cache
def runtime(dtype: str) -> Runtime:
    """The runtime for "float32" or "float64": compiled in a second or two at the first use on a
    machine, read from disk after that."""
    return Runtime(dtype, *_addresses(dtype, FUNCTIONS))


def _addresses(dtype: str, functions: tuple[str, ...]) -> Sequence[int]:
    def make() -> bytes:
        from rnnspec.backends.cpu.runtime import moves, tile

        return compiled(name, moves.source(dtype, functions), functions, [str(tile.tiles(dtype, functions))])

    name = f"{functions[0]}_{dtype}"
    return addresses(name, f"runtime {name}", functions, make)
