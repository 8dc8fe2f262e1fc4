"""Speed of the CPU runtime on one thread: products, weight gradients, packing, against the measured
peak and NumPy.

taskset -c 1 python -m bench.tile [float32|float64]
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import partial

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)  # before NumPy is imported

import numpy as np
from numba import njit

from bench.peak import best, peak
from rnnspec.backends.cpu.machine import host
from rnnspec.backends.cpu.processor import FEW_ROWS, GROUPS, VECTORS
from rnnspec.backends.cpu.runtime.addresses import runtime
from rnnspec.backends.cpu.runtime.simd import invoke

REPEATS = 8  # of small products in one measurement, as in a loop over time


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a cache line, as the buffers of generated kernels do."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def normal(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return aligned(np.random.default_rng(0).standard_normal(shape).astype(dtype))


def prepared(address: int, *args: int) -> Callable[[], None]:
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(args))(address)
    values = [ctypes.c_int64(int(a)) for a in args]
    return lambda: function(*values)


@njit
def all_groups(product, desc, groups, many, rows, repeats):
    for _ in range(repeats):
        for group in range(0, groups, many):
            invoke(product, desc, group, min(many, groups - group), 0, rows)


class Product:
    """All groups of one product of N columns, called as a generated kernel would."""

    def __init__(self, dtype: str, rows: int, K: int, N: int, V: int):
        L, size = host().lanes[dtype], np.dtype(dtype).itemsize
        self.A, self.C, self.W = [normal(shape, dtype) for shape in [(rows, K), (rows, N), (K, N)]]
        self.groups, self.fields = N // (V * L), np.zeros(64, np.int64)
        self.panels = aligned(self.W.reshape(K, self.groups, V * L).transpose(1, 0, 2))
        self.fields[:9] = 1, self.panels.ctypes.data, K * V * L, V, V, self.groups - 1, self.C.ctypes.data, N, V * L
        for j in range(V):
            self.fields[16 + 4 * j : 19 + 4 * j] = j * L, self.C.ctypes.data + j * L * size, N
        self.fields[48:51] = self.A.ctypes.data, K, K
        many = GROUPS if rows <= FEW_ROWS else 1
        self.arguments = runtime(dtype).product, self.fields.ctypes.data, self.groups, many, rows, REPEATS

    def run(self) -> None:
        all_groups(*self.arguments)

    def numpy(self) -> None:
        for _ in range(REPEATS):
            np.matmul(self.A, self.W, out=self.C)


def report(
    name: str, flops: float, run: Callable[[], object], numpys: Callable[[], object], peak: Callable[[], float]
) -> None:
    """One line; the peak is measured before and after, since the clock of a shared machine
    drifts."""
    ours, top = [], [peak()]
    for _ in range(4):
        ours.append(best(run, 0.1))
        top.append(peak())
    ours, top, numpys = min(ours), max(top), best(numpys, 0.2)
    rate, ratio = flops / ours / 1e9, numpys / ours
    print(
        f"{name:40}{rate:8.1f} GFLOP/s {100 * rate / top:4.0f} % of {top:4.0f}  numpy {rate / ratio:6.1f}  ratio"
        f" {ratio:.2f}",
        flush=True,
    )


def products(dtype: str, top: Callable[[], float]) -> None:
    L, most = host().lanes[dtype], VECTORS
    shapes = [(32, 256, V) for V in range(most, 0, -1)]
    shapes += [(rows, K, most) for rows, K in [(32, 1024), (16, 32), (32, 128), (16, 256), (5, 256)]]
    for rows, K, V in shapes:
        N = 4 * V * L
        case = Product(dtype, rows, K, N, V)
        report(f"product rows {rows} K {K} N {N} V {V}", 2 * rows * K * N * REPEATS, case.run, case.numpy, top)
    for K, V in [(256, most), (1024, most), (256, 2), (256, 1)]:
        case = Product(dtype, 1, K, 16 * V * L, V)
        report(f"product rows 1 K {K} N {16 * V * L} V {V}", 2 * case.W.size * REPEATS, case.run, case.numpy, top)


def outers(dtype: str, top: Callable[[], float]) -> None:
    scratch = aligned(np.empty(runtime(dtype).outer_scratch, np.uint8))
    sizes = [
        (256, 1024, 256),
        (4096, 1024, 256),
        (512, 4096, 1024),
        (2048, 4096, 1024),
        (2048, 128, 32),
        (2048, 512, 128),
        (32, 1024, 256),
    ]
    for rows, M, N in sizes:
        A, B, C = [normal(shape, dtype) for shape in [(rows, M), (rows, N), (M, N)]]
        call = prepared(
            runtime(dtype).outer,
            A.ctypes.data,
            M,
            B.ctypes.data,
            N,
            rows,
            M,
            N,
            C.ctypes.data,
            N,
            scratch.ctypes.data,
            0,
        )
        report(f"outer rows {rows} M {M} N {N}", 2 * rows * M * N, call, partial(np.matmul, A.T, B), top)


def moves(dtype: str) -> None:
    L, size = host().lanes[dtype], np.dtype(dtype).itemsize
    for units, K in [(256, 256), (1024, 1024)]:
        W, dest = aligned(np.ones((units, K), dtype)), aligned(np.zeros(4 * units * K, dtype))
        for name, s_unit, s_k in [("k contiguous", K, 1), ("unit contiguous", 1, units)]:
            last = units // L - 1
            job = np.array(
                [W.ctypes.data, s_unit, s_k, units, K, dest.ctypes.data, K * 4 * L, 0, 4, 4, last, 1, 4, 1], np.int64
            )
            call = prepared(runtime(dtype).pack, job.ctypes.data, 1)
            print(f"pack {units} x {K}, {name}: {W.nbytes / best(call) / 1e9:.1f} GB/s of weights")
    for D in (8, 64, 256):
        x, dest = aligned(np.ones((64, 32, D), dtype)), aligned(np.zeros((64 * 32, D + L), dtype))
        call = prepared(
            runtime(dtype).gather, dest.ctypes.data, D + L, x.ctypes.data, 32 * D, D, 1, 0, 0, 1, 64, 32, 0, D, D + L
        )
        print(f"gather 64 x 32 x {D}: {x.size * size / best(call) / 1e9:.1f} GB/s")


def main() -> None:
    dtype = sys.argv[1] if len(sys.argv) > 1 else "float32"
    top = peak(dtype)
    print(f"{dtype}, {host()}, measured peak {top():.1f} GFLOP/s")
    products(dtype, top)
    outers(dtype, top)
    moves(dtype)


if __name__ == "__main__":
    main()
