"""The runtime as generated kernels and the launcher see it: addresses of the C functions that tile.py writes."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rnnspec.backends.cpu.machine import ITEMSIZE
from rnnspec.backends.cpu.native import addresses, compiled

FUNCTIONS = ("product", "outer", "pack", "gather", "scatter", "clear")
# of `outer`: rows summed in one go, columns of A and of B packed for them; 192 to 384 rows and 96 to 384 columns of A differ by 5 %
BLOCK_K, BLOCK_M, BLOCK_N = 256, 96, 256


@dataclass(frozen=True)
class Runtime:
    """Addresses of the C functions `void f(int64, ...)` of tile.py, and the bytes of scratch that `outer` wants."""

    product: int
    outer: int
    pack: int
    gather: int
    scatter: int
    clear: int
    outer_scratch: int


@cache
def runtime(dtype: str) -> Runtime:
    """The runtime for "float32" or "float64": compiled in some seconds at the first use on a machine, read from disk after that."""
    def make() -> bytes:
        from rnnspec.backends.cpu import tile

        return compiled(name, tile.source(dtype), FUNCTIONS, [str(tile.tiles(dtype))])

    name = f"runtime_{dtype}"
    scratch = BLOCK_K * (BLOCK_M + BLOCK_N) * ITEMSIZE[dtype]
    return Runtime(*[*addresses(name, name, FUNCTIONS, make), scratch])
