"""What `bench tiles` measures: calls of the CPU runtime as generated kernels make them, and NumPy's
for the same."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from bench.tiles import REPEATS, Work
from rnnspec.backends.cpu.machine import host
from rnnspec.backends.cpu.native import addresses, compiled
from rnnspec.backends.cpu.processor import side_by_side
from rnnspec.backends.cpu.runtime.addresses import runtime


def work(kind: str, sizes: tuple[Any, ...], dtype: str) -> Work:
    """The line for `sizes`, as bench.tiles.shapes has them."""
    return {"outer": _outer, "pack": _pack, "gather": _gather}.get(kind, _product)(dtype, *sizes)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a cache line, as the buffers of generated kernels do."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def normal(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return aligned(np.random.default_rng(0).standard_normal(shape).astype(dtype))


def prepared(address: int, *args: int | np.ndarray) -> Callable[[], None]:
    """A call of a C function. Arrays are given by their addresses, and kept."""
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(args))(address)
    values = [ctypes.c_int64(a.ctypes.data if isinstance(a, np.ndarray) else a) for a in args]
    return lambda: function(*values) if args else None


ALL_GROUPS = """from rnnspec.backends.cpu.runtime.simd import invoke, min


def all_groups(product, desc, groups, many, rows, repeats):
    for _ in range(repeats):
        for group in range(0, groups, many):
            invoke(product, desc, group, min(many, groups - group), 0, rows)
"""


@cache
def all_groups() -> Callable[..., None]:
    """What calls a product for all its groups, again and again, as a generated kernel does."""
    names = ("all_groups",)
    (address,) = addresses("all_groups", ALL_GROUPS, names, lambda: compiled("all_groups", ALL_GROUPS, names))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)(address)


class Product:
    """All groups of one product of N columns, called as a generated kernel would."""

    def __init__(self, dtype: str, rows: int, K: int, V: int, groups: int):
        L, size = host().lanes[dtype], np.dtype(dtype).itemsize
        N = groups * V * L
        self.A, self.C, self.W = [normal(shape, dtype) for shape in [(rows, K), (rows, N), (K, N)]]
        self.fields = np.zeros(64, np.int64)
        self.panels = aligned(self.W.reshape(K, groups, V * L).transpose(1, 0, 2))
        self.fields[:9] = 1, self.panels.ctypes.data, K * V * L, V, V, groups - 1, self.C.ctypes.data, N, V * L
        for j in range(V):
            self.fields[16 + 4 * j : 19 + 4 * j] = j * L, self.C.ctypes.data + j * L * size, N
        self.fields[48:51] = self.A.ctypes.data, K, K
        desc, many = self.fields.ctypes.data, side_by_side(V, rows)
        self.arguments = runtime(dtype).product, desc, groups, many, rows

    def run(self, repeats: int = REPEATS) -> None:
        all_groups()(*self.arguments, repeats)

    def numpy(self) -> None:
        for _ in range(REPEATS):
            np.matmul(self.A, self.W, out=self.C)

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        self.C[...] = 0
        self.run(1)
        return self.C.copy(), self.A @ self.W


def _product(dtype: str, rows: int, K: int, V: int, groups: int) -> Work:
    case = Product(dtype, rows, K, V, groups)
    N = case.W.shape[1]
    what = f"{rows} x {K} x {N}, {groups} panels of {V}"
    return Work(what, 2 * rows * K * N * REPEATS, 0, case.run, case.numpy, case.results, K)


def _outer(dtype: str, rows: int, M: int, N: int) -> Work:
    A, B, C = [normal(shape, dtype) for shape in [(rows, M), (rows, N), (M, N)]]
    scratch = aligned(np.empty(runtime(dtype).outer_scratch, np.uint8))
    ours = prepared(runtime(dtype).outer, A, M, B, N, rows, M, N, C, N, scratch)

    def results() -> tuple[np.ndarray, np.ndarray]:
        C[...] = 0
        ours()
        return C.copy(), A.T @ B

    numpys = partial(np.matmul, A.T, B, out=np.empty_like(C))
    return Work(f"{M} x {rows} x {N}", 2 * rows * M * N, 0, ours, numpys, results, rows)


def _pack(dtype: str, units: int, K: int, layout: str) -> Work:
    L = host().lanes[dtype]
    W, dest = normal((units, K), dtype), aligned(np.zeros(4 * units * K, dtype))
    s_unit, s_k = (K, 1) if layout == "k" else (1, units)
    last = units // L - 1
    places = W.ctypes.data, s_unit, s_k, units, K, dest.ctypes.data
    job = np.array([*places, K * 4 * L, 0, 4, 4, last, 1, 4, 1], np.int64)
    ours = prepared(runtime(dtype).pack, job, 1)

    def results() -> tuple[np.ndarray, np.ndarray]:
        ours()
        matrix = W if layout == "k" else W.reshape(K, units).T
        return dest.reshape(last + 1, K, 4, L)[:, :, 1], matrix.reshape(last + 1, L, K).transpose(0, 2, 1)

    return Work(f"{units} x {K}, {layout} side by side", 0, W.nbytes, ours, None, results)


def _gather(dtype: str, D: int) -> Work:
    L = host().lanes[dtype]
    x, dest = normal((64, 32, D), dtype), aligned(np.zeros((64 * 32, D + L), dtype))
    ours = prepared(runtime(dtype).gather, dest, D + L, x, 32 * D, D, 1, 0, 0, 1, 64, 32, 0, D, D + L)

    def results() -> tuple[np.ndarray, np.ndarray]:
        ours()
        return dest[:, :D].copy(), x.reshape(-1, D)

    return Work(f"64 x 32 x {D}", 0, x.nbytes, ours, None, results)
