"""The register tiles of outer products, as LLVM functions and as operations that call them;
products.py puts them together.

They are as those of `product` (tile.py), but begin with nothing, are added to C, and read columns
of A, which are copied for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from rnnspec.backends.cpu.frontend import operation
from rnnspec.backends.cpu.machine import ALL, BLOCK_K, BLOCK_M, BLOCK_N, WHERE_A, WHERE_B, target
from rnnspec.backends.cpu.runtime.loops import Terms, accumulate, loop, prefetch, unrolled
from rnnspec.backends.cpu.runtime.variants import Size, call_tile, joined
from rnnspec.backends.cpu.runtime.vectors import I64, element_bytes, load_vector, store_vector, vector_at

LINE = 64  # bytes of a cache line
PARTS = 4  # of the sum of a tile


def outer_tile(builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL) -> None:
    """c[live rows, vectors] += the sum over k of a[k, row] * panel[k, vectors], tile by tile.

    a_row, a_tile: from k to k and from tile to tile in A. ahead: the A that is needed next, K rows
    `ahead_row` from each other. turn: tiles that have asked for some of it before.
    """
    rows, vectors = size
    a, a_row, a_tile, panel, K, c, c_row, live, ahead, ahead_row, turn = args
    many = rows_ahead(vector.count)

    def tile(t: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        done, asked = builder.mul(t, I64(rows)), builder.mul(builder.add(turn, t), I64(many))
        c_t = builder.gep(c, [builder.mul(done, c_row)])
        next_rows = builder.gep(ahead, [builder.mul(asked, ahead_row)]), ahead_row, builder.sub(K, asked)
        sums = _outer_sums(
            builder,
            vector,
            size,
            [builder.gep(a, [builder.mul(t, a_tile)]), a_row, panel, K, c_t, c_row],
            next_rows,
            kept,
        )
        for r in range(rows):
            with builder.if_then(builder.icmp_signed("<", I64(r), builder.sub(live, done))):
                for j in range(vectors):
                    place = builder.gep(c_t, [builder.add(builder.mul(c_row, I64(r)), I64(j * vector.count))])
                    total = builder.fadd(sums[r * vectors + j], load_vector(builder, place, vector))
                    store_vector(builder, total, place)
        return []

    loop(builder, builder.sdiv(builder.add(live, I64(rows - 1)), I64(rows)), [], tile)


def _outer_sums(
    builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], ahead: Sequence[ir.Value], kept: int
) -> list[ir.Value]:
    """The sums of a tile of an outer product.

    C comes last and from far away, and so does the A of the tiles to come: a little of them is
    asked for at the beginning of each part of the sum, for all at once would hold up the panel.
    C comes in the first half. ahead: rows of that A, the distance between them, and how many there
    are.
    """
    rows, vectors = size
    a, a_row, panel, K, c, c_row = args
    turns = unrolled(rows, vectors, 1, target()) if kept == ALL else 1  # the others are rare
    lanes, line = vector.count, LINE // element_bytes(vector)
    share = builder.sdiv(builder.add(K, I64(PARTS - 1)), I64(PARTS))

    def ask_for_c(p: ir.Value) -> None:
        many = -(-2 * rows // PARTS)
        for i, j in itertools.product(range(many), range(0, vectors * lanes, line)):
            row = builder.mul(c_row, builder.add(builder.mul(p, I64(many)), I64(i)))
            prefetch(builder, builder.gep(c, [builder.add(row, I64(j))]), write=True)

    def ask_for_a(p: ir.Value) -> None:
        lines = -(-2 * BLOCK_M // (PARTS * line))
        start = builder.mul(builder.sub(p, I64(PARTS // 2)), I64(lines * line))
        for i in range(rows_ahead(lanes)):
            with builder.if_then(builder.icmp_signed("<", I64(i), ahead[2])):
                row = builder.gep(ahead[0], [builder.add(builder.mul(ahead[1], I64(i)), start)])
                for j in range(lines):
                    prefetch(builder, builder.gep(row, [I64(j * line)]))

    def part(p: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        with builder.if_else(builder.icmp_signed("<", p, I64(PARTS // 2))) as (first, second):
            with first:
                ask_for_c(p)
            with second:
                ask_for_a(p)
        k = builder.mul(p, share)
        rest = builder.sub(K, k)
        count = builder.select(builder.icmp_signed("<", rest, share), rest, share)
        count = builder.select(builder.icmp_signed("<", count, I64(0)), I64(0), count)
        a_k = builder.gep(a, [builder.mul(k, a_row)])
        panel_k = builder.gep(panel, [builder.mul(k, I64(vectors * lanes))])
        terms = Terms([builder.gep(a_k, [I64(i)]) for i in range(rows)], a_row, [panel_k], vectors, kept)
        return accumulate(builder, terms, count, sums, turns)

    zero = ir.Constant(vector, [0.0] * lanes)
    return loop(builder, I64(PARTS), [zero] * (rows * vectors), part)


def rows_ahead(lanes: int) -> int:
    """The rows of the next piece of A that each tile of `outer` asks for, so that all of them
    together ask for the whole piece."""
    vectors = target().outer_vectors
    tiles = (BLOCK_M // target().rows(vectors)) * (BLOCK_N // (vectors * lanes))
    return -(-BLOCK_K // tiles)


def columns(builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL) -> None:
    """dest[m * step + k * rows + i] = a[k, rows * m + i] for rows * m + i < live: columns of A as
    the tiles of an outer product read them, one element after another."""
    (rows,) = size
    dest, step, a, a_row, K, live = args
    whole = builder.sdiv(live, I64(rows))
    done = builder.mul(whole, I64(rows))
    column = ir.VectorType(vector.element, rows)

    def row(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        source, to = builder.gep(a, [builder.mul(k, a_row)]), builder.gep(dest, [builder.mul(k, I64(rows))])

        def copy(m: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            value = load_vector(builder, builder.gep(source, [builder.mul(m, I64(rows))]), column)
            store_vector(builder, value, builder.gep(to, [builder.mul(m, step)]))
            return []

        def copy_one(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            place = builder.gep(to, [builder.add(builder.mul(whole, step), i)])
            builder.store(builder.load(builder.gep(source, [builder.add(done, i)])), place)
            return []

        loop(builder, whole, [], copy)
        loop(builder, builder.sub(live, done), [], copy_one)
        return []

    loop(builder, K, [], row)


def column_sizes() -> list[Size]:
    return sorted({size[:1] for size in target().outer_sizes()})


def _of_outer(kinds: tuple[int, ...]) -> Any:
    def tiles(builder: ir.IRBuilder, *args: ir.Value) -> None:
        """Tiles of `outer` below each other, for numbers of rows and vectors known at run time,
        until `live` rows are stored. args: which terms count, rows, vectors; the others as in
        `outer_tile`."""
        sizes = {(16 * kept + r) * 16 + v: ((r, v), kept) for kept in kinds for r, v in target().outer_sizes()}
        call_tile(builder, outer_tile, sizes, joined(builder, args[:3]), list(args[3:]))

    return operation(tiles)


outer_tiles, kept_outer_tiles = _of_outer((ALL,)), _of_outer((ALL, WHERE_A, WHERE_B))


@operation
def outer_columns(builder: ir.IRBuilder, rows: ir.Value, *args: ir.Value) -> None:
    """The first `live` columns of A, as the tiles of `outer` of so many rows read them: see
    `columns`, which has the other arguments."""
    sizes = {size[0]: (size, ALL) for size in column_sizes()}
    call_tile(builder, columns, sizes, rows, list(args))


@operation
def copy_vectors(
    builder: ir.IRBuilder, dest: ir.Value, source: ir.Value, row: ir.Value, rows: ir.Value, vectors: ir.Value
) -> None:
    """dest[k, j] = source[k * row + j] for k < rows, j < vectors: without what lies between rows
    of `source`."""
    vector = vector_at(dest)
    width = builder.mul(vectors, I64(vector.count))

    def copy_row(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        to, origin = builder.gep(dest, [builder.mul(k, width)]), builder.gep(source, [builder.mul(k, row)])

        def copy_vector(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            at = builder.mul(j, I64(vector.count))
            store_vector(builder, load_vector(builder, builder.gep(origin, [at]), vector), builder.gep(to, [at]))
            return []

        return loop(builder, vectors, [], copy_vector)

    loop(builder, rows, [], copy_row)


@operation
def not_finite(builder: ir.IRBuilder, values: ir.Value, row: ir.Value, rows: ir.Value, width: ir.Value) -> ir.Value:
    """1 if one of values[k * row + i], k < rows, i < width, is NaN or infinite, else 0."""
    vector = vector_at(values)
    whole = builder.sdiv(width, I64(vector.count))
    done = builder.mul(whole, I64(vector.count))
    zeros, zero = ir.Constant(vector, [0.0] * vector.count), ir.Constant(vector.element, 0.0)

    def add_row(k: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
        start = builder.gep(values, [builder.mul(k, row)])

        def add_vector(i: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            value = load_vector(builder, builder.gep(start, [builder.mul(i, I64(vector.count))]), vector)
            return [builder.fadd(total[0], builder.fmul(value, zeros))]

        def add_one(i: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            value = builder.load(builder.gep(start, [builder.add(done, i)]))
            return [builder.fadd(total[0], builder.fmul(value, zero))]

        return [
            *loop(builder, whole, totals[:1], add_vector),
            *loop(builder, builder.sub(width, done), totals[1:], add_one),
        ]

    many, one = loop(builder, rows, [zeros, zero], add_row)  # a sum of 0 * value: 0, or NaN
    lanes = builder.bitcast(builder.fcmp_unordered("uno", many, many), ir.IntType(vector.count))
    found = builder.or_(builder.icmp_unsigned("!=", lanes, lanes.type(0)), builder.fcmp_unordered("uno", one, one))
    return builder.zext(found, I64)
