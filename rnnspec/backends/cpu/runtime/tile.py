"""The register tiles of matrix products, as LLVM functions and as intrinsics that call them;
products.py puts them together.

In a product each element of the result is one accumulator that takes its terms in the order of k,
in every tile and for any number of rows. So a row of a product is bitwise the same alone or among
others, and NaN or infinity stay in their row. Buffers that start at a cache line are worth it:
panels that do not cost a quarter of the speed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rnnspec.backends.cpu.machine import ALL, WHERE_A, WHERE_B, Host, host, max_vectors
from rnnspec.backends.cpu.runtime.vectors import (
    I32,
    I64,
    load_vector,
    multiply_add,
    spread,
    store_vector,
    vector_of,
)

Body = Callable[[ir.Value, list[ir.Value]], list[ir.Value]]


def row_tile(machine: Host, vectors: int) -> int:
    """Rows of a full tile: accumulators, one row of the panel and one element of A must fit the
    registers."""
    return (8, 8, 8, 6)[vectors - 1] if machine.registers == 32 else (8, 6, 4)[vectors - 1]


# --- tiles, as LLVM functions


def loop(builder: ir.IRBuilder, count: ir.Value, values: list[ir.Value], body: Body) -> list[ir.Value]:
    """values = body(index, values) for index in range(count); the values are phi nodes, so they
    live in registers."""
    before, head, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", count, I64(0)), head, after)
    builder.position_at_end(head)
    index, *current = [builder.phi(value.type) for value in (count, *values)]
    updated = body(index, current)
    last, following = builder.block, builder.add(index, I64(1))
    _join([index, *current], before, [I64(0), *values], last, [following, *updated])
    builder.cbranch(builder.icmp_signed("<", following, count), head, after)
    builder.position_at_end(after)
    results = [builder.phi(value.type) for value in values]
    _join(results, before, values, last, updated)
    return results


def _join(
    phis: list[ir.Value], before: ir.Block, first: list[ir.Value], last: ir.Block, updated: list[ir.Value]
) -> None:
    for phi, value, next_value in zip(phis, first, updated, strict=True):
        phi.add_incoming(value, before)
        phi.add_incoming(next_value, last)


def _prefetch(builder: ir.IRBuilder, place: ir.Value, write: bool = False) -> None:
    """Ask for a cache line, into the first cache; into the second alone was 5 % slower at 1024
    units."""
    byte = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32]), "llvm.prefetch.p0"
    )
    builder.call(function, [builder.bitcast(place, byte), I32(int(write)), I32(3), I32(1)])


def _accumulate(
    builder: ir.IRBuilder,
    a_rows: list[ir.Value],
    a_step: ir.Value,
    b: ir.Value,
    K: ir.Value,
    sums: list[ir.Value],
    ahead: tuple[ir.Value, ir.Value] | None = None,
    kept: int = ALL,
) -> list[ir.Value]:
    """sums[r, j] += sum over k of a_rows[r][k * a_step] * panel[k, j]; a panel row is as wide as
    the sums.

    ahead: where the next panel lies and how far from there to ask for memory at each k. kept: which
    terms count.
    """
    vector, vectors = sums[0].type, len(sums) // len(a_rows)
    lanes = vector.count
    unroll = 4 if len(a_rows) == 1 else 1  # for one row counting costs as much as multiplying

    def terms(k: ir.Value, sums: list[ir.Value], count: int) -> list[ir.Value]:
        panel_row, offset = builder.gep(b, [builder.mul(k, I64(vectors * lanes))]), builder.mul(k, a_step)
        starts = [builder.gep(row, [offset]) for row in a_rows]
        if ahead is not None and len(a_rows) > 1:  # a single row waits for memory anyway
            _prefetch(builder, builder.gep(ahead[0], [builder.mul(k, ahead[1])]))
        for step in range(count):
            panel = [
                load_vector(builder, builder.gep(panel_row, [I64((step * vectors + j) * lanes)]), vector)
                for j in range(vectors)
            ]
            elements = [
                spread(builder, builder.load(builder.gep(start, [builder.mul(a_step, I64(step))])), lanes)
                for start in starts
            ]
            pairs = [(elements[i // vectors], panel[i % vectors]) for i in range(len(sums))]
            sums = [multiply_add(builder, *_term(builder, *pair, kept), total) for pair, total in zip(pairs, sums)]
        return sums

    whole = builder.ashr(K, I64(unroll.bit_length() - 1))
    sums = loop(builder, whole, sums, lambda k, sums: terms(builder.mul(k, I64(unroll)), sums, unroll))
    if unroll == 1:
        return sums
    done = builder.mul(whole, I64(unroll))
    return loop(builder, builder.sub(K, done), sums, lambda k, sums: terms(builder.add(k, done), sums, 1))


def _term(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, kept: int) -> tuple[ir.Value, ir.Value]:
    """The factors of a term, both 0 where it does not count."""
    if kept == ALL:
        return a, b
    zero = ir.Constant(a.type, [0.0] * a.type.count)
    counts = builder.fcmp_unordered("!=", a if kept == WHERE_A else b, zero)
    return (a, builder.select(counts, b, zero)) if kept == WHERE_A else (builder.select(counts, a, zero), b)


def _product_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, rows: int, vectors: int, args: list[ir.Value], kept: int = ALL
) -> None:
    """`product` for a fixed number of rows and vectors, and for one block of K: the `segments` from
    `first` on, or if `count` is not 0 the terms k0 to k0 + count of one. `more`: the sum goes on
    from what stands in C. The fields of desc are described in `product`.

    ahead: the part of the next block's panel that this tile asks for, `ahead_step` elements for
    each k: with large weights it comes from behind the second cache, which cost a sixth of the time
    at 1024 units.
    """
    desc, panel, shift, row, first, segments, k0, count, more, ahead, ahead_step = args
    pointer_type = panel.type

    def field(index: int, base: ir.Value = desc) -> ir.Value:
        return builder.load(builder.gep(base, [I64(index)]))

    def address(value: ir.Value, offset: ir.Value) -> ir.Value:
        return builder.gep(builder.inttoptr(value, pointer_type), [offset])

    def row_pointers(start: ir.Value, stride: ir.Value) -> list[ir.Value]:
        return [builder.gep(start, [builder.mul(stride, I64(r))]) for r in range(rows)]

    c_row = field(7)
    c = address(field(6), builder.add(shift, builder.mul(row, c_row)))
    targets = [row_pointers(builder.gep(c, [field(16 + 4 * j)]), c_row) for j in range(vectors)]
    goes_on = builder.icmp_signed("!=", more, I64(0))
    columns = []
    for j in range(vectors):
        stride = builder.select(goes_on, c_row, field(18 + 4 * j))
        start = address(field(17 + 4 * j), builder.add(shift, builder.mul(row, stride)))
        columns.append(row_pointers(builder.select(goes_on, targets[j][0], start), stride))
    sums = [load_vector(builder, columns[j][r], vector) for r in range(rows) for j in range(vectors)]

    def segment(s: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        panel, *sums = values
        fields = builder.gep(desc, [builder.add(I64(48), builder.mul(builder.add(s, first), I64(4)))])
        stride = field(1, fields)
        K = builder.select(builder.icmp_signed("==", count, I64(0)), field(2, fields), count)
        a_rows = row_pointers(address(field(0, fields), builder.add(builder.mul(row, stride), k0)), stride)
        sums = _accumulate(builder, a_rows, I64(1), panel, K, sums, (ahead, ahead_step), kept)
        return [builder.gep(panel, [builder.mul(K, I64(vectors * vector.count))]), *sums]

    _, *sums = loop(builder, segments, [panel, *sums], segment)
    for j in range(vectors):
        for r, target in enumerate(targets[j]):
            store_vector(builder, sums[r * vectors + j], target)


def _outer_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, rows: int, vectors: int, args: list[ir.Value], kept: int = ALL
) -> None:
    """c[live rows, vectors] += the sum over k of a[k, row] * panel[k, vectors].

    C comes last and from far away, so each part of the sum begins by asking for one row of it: all
    at once they would hold up the panel.
    """
    a, a_row, panel, K, c, c_row, live = args
    lanes = vector.count
    share = builder.sdiv(builder.add(K, I64(rows - 1)), I64(rows))

    def part(r: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        for j in range(vectors):
            _prefetch(builder, builder.gep(c, [builder.add(builder.mul(c_row, r), I64(j * lanes))]), write=True)
        k = builder.mul(r, share)
        rest = builder.sub(K, k)
        count = builder.select(builder.icmp_signed("<", rest, share), rest, share)
        a_k, panel_k = (
            builder.gep(a, [builder.mul(k, a_row)]),
            builder.gep(panel, [builder.mul(k, I64(vectors * lanes))]),
        )
        columns = [builder.gep(a_k, [I64(i)]) for i in range(rows)]
        return _accumulate(builder, columns, a_row, panel_k, count, sums, kept=kept)

    sums = loop(builder, I64(rows), [ir.Constant(vector, [0.0] * lanes)] * (rows * vectors), part)
    for r in range(rows):
        with builder.if_then(builder.icmp_signed("<", I64(r), live)):
            for j in range(vectors):
                place = builder.gep(c, [builder.add(builder.mul(c_row, I64(r)), I64(j * lanes))])
                store_vector(builder, builder.fadd(sums[r * vectors + j], load_vector(builder, place, vector)), place)


def _product_sizes() -> list[tuple[int, int]]:
    return [(r, v) for v in range(1, max_vectors(host()) + 1) for r in range(1, row_tile(host(), v) + 1)]


def _outer_sizes() -> list[tuple[int, int]]:
    return [(row_tile(host(), v), v) for v in range(1, max_vectors(host()) + 1)]


def tiles(dtype: str, functions: Sequence[str]) -> ir.Module:
    """The tiles that `product`, `kept_product` and `outer` call, each as an LLVM function of its
    own.

    They are loops over registers already, and LLVM need not go over them again.
    """
    module, vector = ir.Module("tiles"), vector_of(getattr(types, dtype))
    data = vector.element.as_pointer()
    product_arguments = [I64.as_pointer(), data, *[I64] * 7, data, I64]
    outer_arguments = [data, I64, data, I64, data, I64, I64]
    called = {
        "product": (_product_tile, _product_sizes(), product_arguments, (ALL,)),
        "kept_product": (_product_tile, _product_sizes(), product_arguments, (WHERE_A,)),
        "outer": (_outer_tile, _outer_sizes(), outer_arguments, (ALL, WHERE_A, WHERE_B)),
    }
    for emit, sizes, arguments, kinds in (called[name] for name in functions if name in called):
        for kept, (rows, vectors) in itertools.product(kinds, sizes):
            function = _declared(module, emit, rows, vectors, kept, arguments)
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            emit(builder, vector, rows, vectors, list(function.args), kept)
            builder.ret_void()
    return module


def _declared(
    module: ir.Module, emit: Callable, rows: int, vectors: int, kept: int, arguments: list[ir.Type]
) -> ir.Function:
    name = f"{emit.__name__}_{rows}x{vectors}{('', '_where_a', '_where_b')[kept]}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.attributes.add("noinline")  # registers are allotted to each alone
    function.attributes.add("nounwind")
    return function


def _call_tile(
    builder: ir.IRBuilder, emit: Callable, sizes: dict[int, tuple[int, int, int]], size: ir.Value, args: list[ir.Value]
) -> None:
    """Call the tile of `emit` for (rows, vectors, which terms count); `sizes` are those that occur,
    by the value of `size`."""
    done = builder.append_basic_block("done")
    switch = builder.switch(size, done)
    for value, tile in sizes.items():
        function = _declared(builder.module, emit, *tile, [arg.type for arg in args])
        case = builder.append_basic_block(function.name)
        switch.add_case(I64(value), case)
        with builder.goto_block(case):
            builder.call(function, args)
            builder.branch(done)
    builder.position_at_end(done)


def _of_product(kept: int) -> Any:
    def tile(tc, rows, vectors, desc, panel, shift, row, first, segments, k0, count, more, ahead, ahead_step):
        """One tile of `product`, for a number of rows (from `row` on) and vectors known at run
        time. panel: of the first segment, at its block of K; shift: in C, to the group; desc,
        first, segments, k0, count, more, ahead, ahead_step: as in `_product_tile`."""

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
            rows, vectors, *rest = args
            sizes = {16 * v + r: (r, v, kept) for r, v in _product_sizes()}
            _call_tile(builder, _product_tile, sizes, builder.add(builder.mul(vectors, I64(16)), rows), rest)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, desc, panel, *[types.int64] * 7, panel, types.int64), codegen

    return intrinsic(tile)


product_tile, kept_tile = _of_product(ALL), _of_product(WHERE_A)


@intrinsic
def outer_tile(tc, kept, vectors, a, a_row, panel, K, c, c_row, live):
    """One tile of `outer`, as `_outer_tile` says of a, panel, K and c: as many rows as a full tile
    has for so many vectors, of which the first `live` are stored. kept: which terms count; a_row,
    c_row: strides."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        kinds = (ALL, WHERE_A, WHERE_B)
        sizes = {16 * kept + v: (r, v, kept) for kept in kinds for r, v in _outer_sizes()}
        which = builder.add(builder.mul(args[0], I64(16)), args[1])
        _call_tile(builder, _outer_tile, sizes, which, list(args[2:]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2, a, types.int64, panel, types.int64, c, types.int64, types.int64), codegen


@intrinsic
def most_rows(tc, vectors):
    """row_tile of this machine for a number of vectors known at run time."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        rows = I64(row_tile(host(), 1))
        for v in range(2, max_vectors(host()) + 1):
            rows = builder.select(builder.icmp_signed("==", args[0], I64(v)), I64(row_tile(host(), v)), rows)
        return rows

    return types.int64(types.int64), codegen


@intrinsic
def not_finite(tc, values, row, rows, width):
    """1 if one of values[k * row + i], k < rows, i < width, is NaN or infinite, else 0."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        values, row, rows, width = args
        vector = vector_of(sig.args[0].dtype)
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

    return types.int64(values, types.int64, types.int64, types.int64), codegen
