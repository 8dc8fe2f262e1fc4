"""Moving numbers, in the runtime: weights into panels, rows of the caller's arrays into buffers and
back.

As in products.py these are texts that are compiled for each dtype, and operations that they call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from llvmlite import ir

from rnnspec.backends.cpu.frontend import operation
from rnnspec.backends.cpu.machine import JOB, host, target
from rnnspec.backends.cpu.processor import ITEMSIZE
from rnnspec.backends.cpu.runtime import products
from rnnspec.backends.cpu.runtime.loops import loop
from rnnspec.backends.cpu.runtime.outer_tile import rows_ahead
from rnnspec.backends.cpu.runtime.simd import at, copy, erase, get, load, pointer_int, store
from rnnspec.backends.cpu.runtime.simd import pointer32 as pointer
from rnnspec.backends.cpu.runtime.vectors import I32, I64, declared_once, load_vector, store_vector, vector_at

# what the texts below see, with `pointer` above: as they stand they are for float32
LANES = host().lanes["float32"]


@operation
def transpose(
    builder: ir.IRBuilder, dest: ir.Value, dest_row: ir.Value, source: ir.Value, source_row: ir.Value
) -> None:
    """dest[k, l] = source[l, k] for k, l < lanes: log2(lanes) rounds in which vector i meets vector
    i + lanes/2. dest_row, source_row: strides of rows, in elements."""
    vector = vector_at(dest)
    n = vector.count
    values = [load_vector(builder, builder.gep(source, [builder.mul(source_row, I64(i))]), vector) for i in range(n)]
    low = [i // 2 + n * (i % 2) for i in range(n)]
    halves = [ir.Constant(ir.VectorType(I32, n), [i + h for i in low]) for h in (0, n // 2)]
    for _ in range(n.bit_length() - 1):
        values = [builder.shuffle_vector(values[i // 2], values[i // 2 + n // 2], halves[i % 2]) for i in range(n)]
    for i, value in enumerate(values):
        store_vector(builder, value, builder.gep(dest, [builder.mul(dest_row, I64(i))]))


@operation
def copy_steps(builder: ir.IRBuilder, *args: ir.Value) -> None:
    """dest[i * dest_step] = source[i * source_step] for i < live, and zero for live <= i < count.
    args: dest, dest_step, source, source_step, live, count."""
    function = declared_once(builder.module, "copy_steps", ir.VoidType(), [arg.type for arg in args])
    if not function.blocks:
        function.linkage = "internal"
        # LLVM would spend a tenth of a second on versions of these loops
        for attribute in ("noinline", "optsize", "nounwind"):
            function.attributes.add(attribute)
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        dest, dest_step, source, source_step, live, count = function.args

        def put(i: ir.Value, value: ir.Value) -> list[ir.Value]:
            inner.store(value, inner.gep(dest, [inner.mul(i, dest_step)]))
            return []

        loop(inner, live, [], lambda i, _: put(i, inner.load(inner.gep(source, [inner.mul(i, source_step)]))))
        loop(
            inner,
            inner.sub(count, live),
            [],
            lambda i, _: put(inner.add(i, live), ir.Constant(dest.type.pointee, 0.0)),
        )
        inner.ret_void()
    builder.call(function, args)


def pack(jobs, count):
    """Fill panels from W[unit * s_unit + k * s_k]: unit block b is block b % U of group b // U, and
    its slot there (b % U) * G + gate.

    jobs: `count` times JOB int64: w, s_unit, s_k, units, K, dest, group_stride, before, V, V_last,
    last_group, U, G, gate. `before`: rows of the segments before this one in a panel. Units past
    the last are zero. A vector is a panel with K = 1.
    """
    for job in range(count):
        fields = at(pointer_int(jobs), job * JOB)
        source, panels = pointer(get(fields, 0)), pointer(get(fields, 5))
        s_unit, s_k, units, K = get(fields, 1), get(fields, 2), get(fields, 3), get(fields, 4)
        step = K if s_k == 1 else 32  # else some rows at a time, or every element read is on another page
        for k0 in range(0, K, max(1, step)):
            k_end = min(K, k0 + step)
            for unit in range(0, units, LANES):
                group = unit // (LANES * get(fields, 11))
                slot = (unit // LANES - group * get(fields, 11)) * get(fields, 12) + get(fields, 13)
                width = get(fields, 9 if group == get(fields, 10) else 8) * LANES
                target = at(panels, group * get(fields, 6) + get(fields, 7) * width + slot * LANES)
                origin = at(source, unit * s_unit)
                n = min(LANES, units - unit)
                k = k0
                if n == LANES and s_unit == 1:
                    while k < k_end:
                        store(target, k * width, load(origin, k * s_k))
                        k += 1
                if n == LANES and s_k == 1:
                    while k + LANES <= k_end:
                        transpose(at(target, k * width), width, at(origin, k), s_unit)
                        k += LANES
                while k < k_end:
                    copy_steps(at(target, k * width), 1, at(origin, k * s_k), s_unit, n, LANES)
                    k += 1


def gather(dest, dest_row, src, s_t, s_b, s_d, order, t0, dt, steps, n, active, width, padded):
    """dest row s * n + k = src[t0 + s * dt, order[k]], zero from width to padded.

    order 0: the identity; active: address of how many rows are live by step, 0: all. The other rows
    become zero and their source is not read; src 0: all rows do.
    """
    for s in range(steps):
        t = t0 + s * dt
        live = 0 if src == 0 else n if active == 0 else min(n, get(pointer_int(active), t))
        for k in range(n):
            row = k if order == 0 else get(pointer_int(order), k)
            to, origin = at(pointer(dest), (s * n + k) * dest_row), at(pointer(src), t * s_t + row * s_b)
            full = width if k < live else 0
            if s_d == 1:
                copy(to, origin, full)
                erase(at(to, full), padded - full)
            else:
                copy_steps(to, 1, origin, s_d, full, padded)


def scatter(src, src_row, dest, s_t, s_b, s_d, order, t0, dt, steps, n, active, width):
    """dest[t0 + s * dt, order[k]] = src row s * n + k, for rows that are live: what lies past a
    row's end may be another's. dest 0: nowhere. Arguments as in `gather`."""
    for s in range(0 if dest == 0 else steps):
        t = t0 + s * dt
        live = n if active == 0 else min(n, get(pointer_int(active), t))
        for k in range(live):
            row = k if order == 0 else get(pointer_int(order), k)
            to, origin = at(pointer(dest), t * s_t + row * s_b), at(pointer(src), (s * n + k) * src_row)
            if s_d == 1:
                copy(to, origin, width)
            else:
                copy_steps(to, s_d, origin, 1, width, width)


def fold(sums, count, folds, part, parts):
    """Adds the sums of a level, `count` numbers, to those of the next one, which lie behind them,
    and makes them zero: the first `folds` levels one after another. part, parts: of the numbers."""
    first, end = count // LANES * part // parts * LANES, count // LANES * (part + 1) // parts * LANES
    for level in range(folds):
        low, high = at(pointer(sums), level * count), at(pointer(sums), (level + 1) * count)
        for i in range(first, end, LANES):
            store(high, i, load(high, i) + load(low, i))
        erase(at(low, first), end - first)


def clear(address, count):
    """Set `count` elements to zero."""
    erase(pointer(address), count)


def source(dtype: str, functions: Sequence[str]) -> str:
    """The text of a module with some of the runtime's functions for "float32" or "float64"
    (compiled by addresses.py)."""
    written = {**vars(products), **globals()}
    bits, lanes = 8 * ITEMSIZE[dtype], target().lanes[dtype]
    header = f'''"""The CPU runtime for {dtype}: functions of rnnspec.backends.cpu.runtime.products and moves."""
from rnnspec.backends.cpu.runtime.moves import JOB, copy_steps, transpose
from rnnspec.backends.cpu.runtime.simd import at, copy, erase, get, invoke, load, max, min, pointer_int, store
from rnnspec.backends.cpu.runtime.simd import pointer{bits} as pointer
from rnnspec.backends.cpu.machine import ALL, APART, BLOCK_K, BLOCK_M, BLOCK_N, ROW_JOB, WHERE_A, WHERE_B
from rnnspec.backends.cpu.processor import VECTORS
from rnnspec.backends.cpu.runtime.outer_tile import copy_vectors, kept_outer_tiles, not_finite
from rnnspec.backends.cpu.runtime.outer_tile import outer_columns, outer_tiles
from rnnspec.backends.cpu.runtime.tile import kept_tiles, most_groups, most_rows, product_tiles
LANES, PRODUCT_K, OUTER_VECTORS = {lanes}, {target().product_terms}, {target().outer_vectors}
AHEAD = {rows_ahead(lanes)}
'''
    texts = {name: inspect.getsource(function) for name, function in written.items() if name in functions}
    if "kept_product" in functions:
        plain = inspect.getsource(products.product)
        texts["kept_product"] = plain.replace("def product(", "def kept_product(").replace(
            "product_tiles(", "kept_tiles("
        )
    if "kept_outer" in functions:
        plain = inspect.getsource(products.outer).replace("def outer(", "def kept_outer(")
        kept = plain.replace("scratch):", "scratch, kept):").replace("outer_tiles(", "kept_outer_tiles(")
        texts["kept_outer"] = re.sub(r" *found = .*\n", products.FOUND, kept)
    return header + "".join(f"\n\n{texts[name]}" for name in functions)
