"""The CPU runtime against NumPy in float64: awkward sizes, guard bands around every buffer, NaN,
and bitwise equal rows."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from itertools import product as combinations

import numpy as np
import pytest
from lowered import compiled

from rnnspec.backends.cpu.machine import host
from rnnspec.backends.cpu.processor import GROUPS, VECTORS
from rnnspec.backends.cpu.runtime import simd
from rnnspec.backends.cpu.runtime.addresses import runtime

DTYPES = ["float32", "float64"]
GUARD = 64
ROWS = (0, 1, 2, 5, 6, 7, 13)


def call(address: int, *args: int) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(args))(address)(*[int(a) for a in args])


class Buffer:
    """An array between two bands of NaN, which `intact` finds unchanged unless somebody wrote past
    the ends."""

    def __init__(self, shape: tuple[int, ...], dtype: str, fill: float | np.ndarray = np.nan):
        size = int(np.prod(shape))
        self.memory = np.full(size + 2 * GUARD, np.nan, dtype)
        self.array = self.memory[GUARD : GUARD + size].reshape(shape)
        self.array[...] = fill
        self.address = self.array.ctypes.data

    def intact(self) -> bool:
        return bool(np.isnan(self.memory[:GUARD]).all() and np.isnan(self.memory[len(self.memory) - GUARD :]).all())


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got: np.ndarray, want: np.ndarray, terms: int, dtype: str) -> bool:
    """Sums of `terms` products of unit normals: each rounding loses half a unit in the last place
    of a partial sum of a few sqrt(terms)."""
    return bool(np.all(np.abs(got - want) <= 8 * (terms + 1) * np.finfo(dtype).eps))


class Panels:
    """A description for `product` of groups of V vectors (V_last in the last), its buffers, and the
    result in float64."""

    def __init__(self, dtype: str, Ks: tuple[int, ...], V: int, V_last: int, groups: int, rows: int, init: str):
        L = host().lanes[dtype]
        self.dtype, self.rows, self.groups, self.V, self.V_last, self.L = dtype, rows, groups, V, V_last, L
        span, self.c_row, stride = groups * L, V * groups * L + 3, sum(Ks) * V * L + 5
        self.operands = [Buffer((rows, K + 2), dtype, random((rows, K + 2), dtype, K)) for K in Ks]
        self.panels = Buffer((groups, stride), dtype, random((groups, stride), dtype, 1))
        self.C = Buffer((rows, self.c_row), dtype)
        start = random((rows, self.c_row), dtype, 2)
        bias = random((self.c_row,), dtype, 3)
        match init:
            case "itself":
                self.init, self.start = self.C, start
            case "rows":
                self.init, self.start = Buffer(start.shape, dtype, start), start
            case "bias":
                self.init, self.start = Buffer(bias.shape, dtype, bias), np.broadcast_to(bias, start.shape)
        init_row = 0 if init == "bias" else self.c_row
        self.fields = np.zeros(48 + 4 * len(Ks), np.int64)
        self.fields[:10] = len(Ks), self.panels.address, stride, V, V_last, groups - 1, self.C.address, self.c_row, L, 0
        for j in range(V):
            offset = (V - 1 - j) * span
            self.fields[16 + 4 * j : 19 + 4 * j] = offset, self.init.address + offset * self.C.array.itemsize, init_row
        for s, (K, operand) in enumerate(zip(Ks, self.operands, strict=True)):
            self.fields[48 + 4 * s : 51 + 4 * s] = operand.address, K + 2, K
        self.Ks = Ks
        self.reset()

    def reset(self) -> None:
        self.C.array[...] = self.start if self.init is self.C else np.nan

    def run(self, row: int, rows: int, most: int = 1) -> None:
        """`most` groups a call."""
        for group in range(0, self.groups, most):
            many = min(most, self.groups - group)
            call(runtime(self.dtype).product, self.fields.ctypes.data, group, many, row, rows)

    def want(self) -> np.ndarray:
        result = np.array(self.start if self.init is self.C else np.full(self.start.shape, np.nan), np.float64)
        L = self.L
        for g in range(self.groups):
            V, before = self.V_last if g == self.groups - 1 else self.V, 0
            for j in range(V):
                at = (self.V - 1 - j) * self.groups * L + g * L
                result[:, at : at + L] = self.start[:, at : at + L]
            for K, operand in zip(self.Ks, self.operands, strict=True):
                panel = self.panels.array[g, before * V * L : (before + K) * V * L].reshape(K, V, L).astype(np.float64)
                before += K
                for j in range(V):
                    at = (self.V - 1 - j) * self.groups * L + g * L
                    result[:, at : at + L] += operand.array[:, :K].astype(np.float64) @ panel[:, j]
        return result


def same(got: np.ndarray, want: np.ndarray, terms: int, dtype: str) -> bool:
    """Close, and NaN (never written) in the same places."""
    return bool((np.isnan(got) == np.isnan(want)).all()) and close(
        np.nan_to_num(got), np.nan_to_num(want), terms, dtype
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("init", ["itself", "bias", "rows"])
@pytest.mark.parametrize("Ks", [(), (0,), (1,), (3, 17), (17, 0, 1, 3), (3, 1300, 0, 513, 5)])
def test_product(dtype: str, init: str, Ks: tuple[int, ...]) -> None:
    for V, rows, groups in combinations(range(1, VECTORS + 1), ROWS, (1, 3, 7)):
        case = Panels(dtype, Ks, V, max(1, V - 1), groups, rows, init)
        case.run(0, rows)
        assert same(case.C.array, case.want(), sum(Ks), dtype), (V, rows, groups)
        assert case.C.intact()
        one_by_one = case.C.array.copy()
        for most in (2, GROUPS, 7):
            case.reset()
            case.run(0, rows, most)
            assert case.C.array.tobytes() == one_by_one.tobytes(), (V, rows, groups, most)
            assert case.C.intact()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("K", [17, 1700])  # 1700: longer than any block of k
def test_rows_are_independent_and_bitwise_reproducible(dtype: str, K: int) -> None:
    for V in range(1, VECTORS + 1):
        case = Panels(dtype, (3, K), V, V, 5, 27, "itself")
        case.run(0, 27)
        together = case.C.array.copy()
        assert same(together, case.want(), K + 3, dtype)
        for pieces, most in combinations(([1] * 27, [2, 3, 5, 7, 10], [4, 9, 6, 8]), (1, GROUPS)):
            case.reset()
            for row, rows in zip(np.cumsum([0, *pieces[:-1]]), pieces, strict=True):
                case.run(row, rows, most)
            assert together.tobytes() == case.C.array.tobytes(), (V, pieces, most)
        case.operands[1].array[4, 2], case.operands[0].array[9, 1] = np.nan, np.inf
        case.reset()
        case.run(0, 27)
        others = [r for r in range(27) if r not in (4, 9)]
        assert np.array_equal(together[others], case.C.array[others], equal_nan=True)
        written = slice(0, V * 5 * case.L)
        assert np.isnan(case.C.array[4, written]).all() and not np.isfinite(case.C.array[9, written]).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_outer(dtype: str) -> None:
    L = host().lanes[dtype]
    sizes = [*combinations((0, 1, 3, 17), (1, 5, 6, 7, 8, 13, 100), (L, 3 * L, 5 * L))]
    sizes += [(600, 7, L), (3, 197, 4 * L), (3, 5, 256 + 3 * L), (9, 240, 2 * L), (300, 1, 0), (256, 191, 256)]
    scratch = Buffer((runtime(dtype).outer_scratch // np.dtype(dtype).itemsize,), dtype)
    for rows, M, N in sizes:
        A, B, C = [
            Buffer(shape, dtype, random(shape, dtype, i))
            for i, shape in enumerate([(rows, M + 3), (rows, N + 1), (M, N + 5)])
        ]
        want = C.array.astype(np.float64)
        want[:, :N] += A.array[:, :M].astype(np.float64).T @ B.array[:, :N]
        call(runtime(dtype).outer, A.address, M + 3, B.address, N + 1, rows, M, N, C.address, N + 5, scratch.address)
        assert close(C.array, want, rows, dtype), (rows, M, N)
        assert C.intact() and scratch.intact()


@pytest.mark.parametrize("dtype", DTYPES)
def test_outer_keeps_nan_in_its_row(dtype: str) -> None:
    L = host().lanes[dtype]
    A, B, C = [
        Buffer(shape, dtype, random(shape, dtype, i)) for i, shape in enumerate([(9, 20), (9, 2 * L), (20, 2 * L)])
    ]
    A.array[3, 7], B.array[4, 1] = np.nan, np.inf
    scratch = Buffer((runtime(dtype).outer_scratch // np.dtype(dtype).itemsize,), dtype)
    call(runtime(dtype).outer, A.address, 20, B.address, 2 * L, 9, 20, 2 * L, C.address, 2 * L, scratch.address)
    expected = np.zeros((20, 2 * L), bool)
    expected[7], expected[:, 1] = True, True
    assert (~np.isfinite(C.array) == expected).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["k contiguous", "unit contiguous", "neither"])
def test_pack(dtype: str, layout: str) -> None:
    L = host().lanes[dtype]
    for units, K, U, G in combinations((1, L - 1, L, L + 1, 3 * L + 5), (0, 1, 3, 17, 2 * L), (1, 2, 3), (1, 2)):
        P = -(-units // L)
        last, V = (P - 1) // U, U * G
        V_last, before, stride = (P - last * U) * G, 2, (K + 3) * V * L
        shape = {"k contiguous": (units, K + 1), "unit contiguous": (K, units + 1), "neither": (K, units + 1, 2)}[
            layout
        ]
        W = random(shape, dtype)
        matrix = (
            W[:, :K]
            if layout == "k contiguous"
            else W.T[:units]
            if layout == "unit contiguous"
            else W[..., 0].T[:units]
        )
        source, dest = Buffer(shape, dtype, W), Buffer((last + 1, stride), dtype)
        s_unit, s_k = {"k contiguous": (K + 1, 1), "unit contiguous": (1, units + 1), "neither": (2, 2 * (units + 1))}[
            layout
        ]
        want = np.full((last + 1, stride), np.nan, dtype)
        padded = np.zeros((P * L, K), dtype)
        padded[:units] = matrix
        for gate in range(G):
            job = np.array(
                [source.address, s_unit, s_k, units, K, dest.address, stride, before, V, V_last, last, U, G, gate],
                np.int64,
            )
            call(runtime(dtype).pack, job.ctypes.data, 1)
            for b in range(P):
                g, width = b // U, (V_last if b // U == last else V) * L
                panel = want[g, before * width : (before + K) * width].reshape(K, width // L, L)
                panel[:, b % U * G + gate] = padded[b * L : b * L + L].T
        assert np.array_equal(dest.array, want, equal_nan=True), (units, K, U, G)
        assert dest.intact()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strides", ["TBD", "BTD", "DTB"])
def test_gather_and_scatter(dtype: str, strides: str) -> None:
    T, B = 5, 4
    for D, n, ordered, ragged, backwards in combinations(
        (1, 7, 16, 37), (1, 3, 4), (False, True), (False, True), (False, True)
    ):
        axes = ["TBD".index(axis) for axis in strides]
        store = random(tuple((T, B, D)[axis] for axis in axes), dtype)
        view = store.transpose([axes.index(i) for i in range(3)])
        s_t, s_b, s_d = [s // store.itemsize for s in view.strides]
        order, active = np.array([2, 0, 3, 1], np.int64), np.array([3, 3, 2, 1, 0], np.int64)
        t0, dt, steps, padded = (3, -1, 3, D + 3) if backwards else (1, 1, 4, D + 3)
        rows = order[:n] if ordered else np.arange(n)
        chunk = Buffer((steps * n, padded + 2), dtype)
        tail = (
            s_t,
            s_b,
            s_d,
            order.ctypes.data if ordered else 0,
            t0,
            dt,
            steps,
            n,
            active.ctypes.data if ragged else 0,
            D,
        )
        call(runtime(dtype).gather, chunk.address, padded + 2, store.ctypes.data, *tail, padded)
        want, back = np.full((steps, n, padded + 2), np.nan, dtype), np.full(store.shape, np.nan, dtype)
        target = back.transpose([axes.index(i) for i in range(3)])
        for s in range(steps):
            t = t0 + s * dt
            live = min(n, active[t]) if ragged else n
            want[s, :, :padded] = 0
            want[s, :live, :D] = view[t, rows[:live]]
            target[t, rows[:live]] = view[t, rows[:live]]
        assert np.array_equal(chunk.array, want.reshape(chunk.array.shape), equal_nan=True) and chunk.intact()
        result = Buffer(store.shape, dtype)
        call(runtime(dtype).scatter, chunk.address, padded + 2, result.address, *tail)
        assert np.array_equal(result.array, back, equal_nan=True) and result.intact()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_of_nothing_and_clear(dtype: str) -> None:
    chunk = Buffer((6, 9), dtype)
    call(runtime(dtype).gather, chunk.address, 9, 0, 1, 1, 1, 0, 0, 1, 2, 3, 0, 5, 9)
    assert (chunk.array == 0).all() and chunk.intact()
    chunk = Buffer((37,), dtype)
    call(runtime(dtype).clear, chunk.address, 37)
    assert (chunk.array == 0).all() and chunk.intact()


# a kernel that uses what simd.py gives for one dtype; `table` holds n, the address of a C function,
# and its two arguments
OPERATIONS = """
def run(a, b, c, table):
    p, q, r, t = pointer(a), pointer(b), pointer(c), pointer_int(table)
    x, y = load(p, 0), load(q, 0)
    first = first_lanes(get(t, 0), x)
    store(r, 0, -(x + y * number(0.1)) / number(3.0) - from_int(-7))
    store(r, lanes, select(x < y, number(1), number(0)))
    store(r, 2 * lanes, select(x <= y, number(1), number(0)))
    store(r, 3 * lanes, select(x > y, number(1), number(0)))
    store(r, 4 * lanes, select(x >= y, number(1), number(0)))
    store(r, 5 * lanes, select(x == y, number(1), number(0)))
    store(r, 6 * lanes, select(x != y, number(1), number(0)))
    store(r, 7 * lanes, select((x < y) & first | ~(x == x), number(1), number(0)))
    store(at(r, 8 * lanes), 0, select(first, x, number(0)) + load_splat(q, 1))
    store_one(r, 9 * lanes, horizontal_sum(y))
    invoke(get(t, 1), get(t, 2), get(t, 3))
    put(t, 0, 99)
"""


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_operations(dtype: str) -> None:
    L, bits = host().lanes[dtype], dtype[-2:]
    names = {name: getattr(simd, name + bits) for name in ("pointer", "number", "from_int")}
    run = compiled(OPERATIONS, {**vars(simd), **names, "lanes": L}, "run")
    a, b, c, cleared = (
        Buffer((L,), dtype, np.arange(L)),
        Buffer((L,), dtype, 1.5),
        Buffer((9 * L + 1,), dtype),
        Buffer((3,), dtype),
    )
    x, y = a.array, b.array
    x[1], y[L - 1] = np.nan, L - 1
    table = np.array([1, runtime(dtype).clear, cleared.address, 3])
    run(a.address, b.address, c.address, table.ctypes.data)
    first = np.arange(L) < 1
    masks = [x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) & first | np.isnan(x)]
    assert np.allclose(
        c.array[:L], -(x + y * np.dtype(dtype).type(0.1)) / 3 + 7, rtol=4 * np.finfo(dtype).eps, equal_nan=True
    )
    assert np.array_equal(c.array[L : 8 * L].reshape(7, L), masks)
    assert np.array_equal(c.array[8 * L : 9 * L], np.where(first, x, 0) + y[1])
    assert c.array[9 * L] == y.sum() and c.intact()
    assert (cleared.array == 0).all() and cleared.intact() and table[0] == 99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "features", "lanes", "registers"), [("haswell", "+avx2,+fma", 8, 16), ("generic", "", 4, 16)]
)
def test_other_machines(name: str, features: str, lanes: int, registers: int) -> None:
    """All of this file on what this machine would be with narrower vectors; Numba adds the real
    machine's features unless told."""
    if sys.platform == "darwin" or "x86" not in os.uname().machine:
        pytest.skip("not an x86 machine")
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    probe = "from rnnspec.backends.cpu.machine import host; print(host().lanes['float32'], host().registers)"
    found = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == [str(lanes), str(registers)]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", __file__]
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout[-3000:]
