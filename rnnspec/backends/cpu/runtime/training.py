"""What a training step does beside the recurrence, in the runtime: Adam, sums of squares, rows
added to a table.

As in moves.py these are texts that are compiled for each dtype, and operations that they call.
NumPy takes ten passes over an optimiser's arrays and sorts rows to add them up, which was more than
half of a step of a small network with an embedding.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from llvmlite import ir

from rnnspec.backends.cpu.frontend import operation
from rnnspec.backends.cpu.machine import host, target
from rnnspec.backends.cpu.processor import ITEMSIZE
from rnnspec.backends.cpu.runtime import simd
from rnnspec.backends.cpu.runtime.loops import loop
from rnnspec.backends.cpu.runtime.simd import (
    at,
    copy,
    erase,
    get,
    load,
    load_one,
    load_splat,
    min,
    pointer_int,
    select,
    store,
    store_one,
)
from rnnspec.backends.cpu.runtime.simd import number32 as number
from rnnspec.backends.cpu.runtime.simd import pointer32 as pointer
from rnnspec.backends.cpu.runtime.vectors import I64, load_vector, vector_at

# what the texts below see, with `pointer` and `number` above: as they stand they are for float32
LANES, sqrt = host().lanes["float32"], vars(simd)["sqrt"]
DOUBLE = ir.DoubleType()


@operation
def put_squares(builder: ir.IRBuilder, result: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """result[0] = the sum of source[i]**2 for i < count, as float64 and in float64, always in the
    same order."""
    vector = vector_at(source)
    wide = ir.VectorType(DOUBLE, vector.count)

    def widened(value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if value.type == kind else builder.fpext(value, kind)

    def add_vector(index: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
        place = builder.gep(source, [builder.mul(index, I64(vector.count))])
        value = widened(load_vector(builder, place, vector), wide)
        return [builder.fadd(totals[0], builder.fmul(value, value))]

    def add_one(index: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
        value = widened(builder.load(builder.gep(source, [builder.add(done, index)])), DOUBLE)
        return [builder.fadd(totals[0], builder.fmul(value, value))]

    whole = builder.sdiv(count, I64(vector.count))
    (lanes,) = loop(builder, whole, [ir.Constant(wide, [0.0] * vector.count)], add_vector)
    done, total = builder.mul(whole, I64(vector.count)), DOUBLE(0.0)
    for lane in range(vector.count):
        total = builder.fadd(total, builder.extract_element(lanes, ir.IntType(32)(lane)))
    (total,) = loop(builder, builder.sub(count, done), [total], add_one)
    builder.store(total, builder.bitcast(result, DOUBLE.as_pointer()))


def adam(table):
    """One step of Adam, as rnnspec.train.optimise says it, on pieces of parameters.

    table: how many pieces, the address of the numbers 1 - b1, b2, 1 - b2, eps, rate and keep, that
    of 4 * LANES spare elements (for the last few of a piece), and for each piece the addresses of
    p, g, m and v and how many elements.
    """
    fields = pointer_int(table)
    numbers, spare = pointer(get(fields, 1)), pointer(get(fields, 2))
    one_b1, b2, one_b2 = load_splat(numbers, 0), load_splat(numbers, 1), load_splat(numbers, 2)
    eps, rate, keep = load_splat(numbers, 3), load_splat(numbers, 4), load_splat(numbers, 5)
    for piece in range(get(fields, 0)):
        row = at(fields, 3 + 5 * piece)
        count = get(row, 4)
        for i in range(0, count, LANES):
            n = min(LANES, count - i)
            p, g, m, v = (
                at(pointer(get(row, 0)), i),
                at(pointer(get(row, 1)), i),
                at(pointer(get(row, 2)), i),
                at(pointer(get(row, 3)), i),
            )
            if n < LANES:
                copy(spare, p, n)
                copy(at(spare, LANES), g, n)
                copy(at(spare, 2 * LANES), m, n)
                copy(at(spare, 3 * LANES), v, n)
                p, g, m, v = spare, at(spare, LANES), at(spare, 2 * LANES), at(spare, 3 * LANES)
            gradient, first, second = load(g, 0), load(m, 0), load(v, 0)
            first = first + (gradient - first) * one_b1
            second = second * b2 + gradient * gradient * one_b2
            store(m, 0, first)
            store(v, 0, second)
            store(p, 0, load(p, 0) * keep - rate * (first / (sqrt(second) + eps)))
            if n < LANES:
                copy(at(pointer(get(row, 0)), i), p, n)
                copy(at(pointer(get(row, 2)), i), m, n)
                copy(at(pointer(get(row, 3)), i), v, n)


def squares(result, source, count):
    """result[0] = the sum of squares of `count` elements, in float64."""
    put_squares(pointer_int(result), pointer(source), count)


def scatter_add(dest, ids, source, rows, width, lost):
    """dest[ids[r]] += source[r] for r < rows, in this order; rows of `width` elements.

    lost: 0, or the address of zeros of the size of dest, in which is kept what each addition is
    short of (Kahan 1965): an error of two units in the last place however many rows there are. What
    is lost of an infinite sum counts as 0.
    """
    for r in range(rows):
        to, origin = at(pointer(dest), get(pointer_int(ids), r) * width), at(pointer(source), r * width)
        short = at(pointer(lost), get(pointer_int(ids), r) * width)
        k = 0
        if lost == 0:
            while k + LANES <= width:
                store(to, k, load(to, k) + load(origin, k))
                k += LANES
            while k < width:
                store_one(to, k, load_one(to, k) + load_one(origin, k))
                k += 1
        while k + LANES <= width:
            before, term = load(to, k), load(origin, k) - load(short, k)
            total = before + term
            rest = (total - before) - term
            store(to, k, total)
            store(short, k, select(rest - rest == number(0.0), rest, number(0.0)))
            k += LANES
        while k < width:
            one, more = load_one(to, k), load_one(origin, k) - load_one(short, k)
            store_one(to, k, one + more)
            left = ((one + more) - one) - more
            store_one(short, k, left)
            if left - left != left - left:
                erase(at(short, k), 1)
            k += 1


def source(dtype: str, functions: Sequence[str]) -> str:
    """The text of a module with `functions` for "float32" or "float64" (compiled by
    addresses.py)."""
    bits = 8 * ITEMSIZE[dtype]
    header = f'''"""Training beside the recurrence, for {dtype}: functions of rnnspec.backends.cpu.runtime.training."""
from rnnspec.backends.cpu.runtime.simd import at, copy, erase, get, load, load_one, load_splat, min, pointer_int
from rnnspec.backends.cpu.runtime.simd import number{bits} as number, pointer{bits} as pointer
from rnnspec.backends.cpu.runtime.simd import select, sqrt, store, store_one
from rnnspec.backends.cpu.runtime.training import put_squares
LANES = {target().lanes[dtype]}
'''
    return header + "".join(f"\n\n{inspect.getsource(globals()[name])}" for name in functions)
