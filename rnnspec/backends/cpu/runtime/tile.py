"""The register tiles of matrix products, as LLVM functions and as intrinsics that call them;
products.py puts them together.

In a product each element of the result is one accumulator that takes its terms in the order of k,
in every tile, for any number of rows and groups. So a row of a product is bitwise the same alone or
among others, and NaN or infinity stay in their row. Buffers that start at a cache line are worth
it: panels that do not cost a quarter of the speed.

Which tiles there are follows from the processor's registers (processor.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rnnspec.backends.cpu.machine import ALL, BLOCK_K, BLOCK_M, BLOCK_N, WHERE_A, WHERE_B, target
from rnnspec.backends.cpu.processor import GROUPS, MOST_ROWS, VECTORS
from rnnspec.backends.cpu.runtime.loops import Terms, accumulate, loop, prefetch, unrolled
from rnnspec.backends.cpu.runtime.vectors import I64, element_bytes, load_vector, store_vector, vector_of

I8, LINE = ir.IntType(8), 64  # bytes of a cache line
PARTS = 4  # of the sum of a tile of an outer product
Size = tuple[int, ...]

# --- tiles, as LLVM functions


def _product_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL
) -> None:
    """`product` for a fixed number of rows, vectors and groups, and for one block of K: the
    `segments` from `first` on, or if `count` is not 0 the terms k0 to k0 + count of one. `more`:
    the sum goes on from what stands in C. The fields of desc are described in `product`.

    ahead: the part of the next block's panel that this tile asks for, `ahead_step` elements for
    each k: with large weights it comes from behind the second cache, which cost a sixth of the time
    at 1024 units.
    """
    rows, vectors, groups = size
    desc, panel, shift, row, first, segments, k0, count, more, ahead, ahead_step = args
    pointer_type, width = panel.type, vectors * groups

    def field(index: int, base: ir.Value = desc) -> ir.Value:
        return builder.load(builder.gep(base, [I64(index)]))

    def address(value: ir.Value, offset: ir.Value) -> ir.Value:
        return builder.gep(builder.inttoptr(value, pointer_type), [offset])

    def apart(start: ir.Value, stride: ir.Value, many: int) -> list[ir.Value]:
        return [builder.gep(start, [builder.mul(stride, I64(i))]) for i in range(many)]

    c_row, group_stride, group_step = field(7), field(2), field(8)
    c = address(field(6), builder.add(shift, builder.mul(row, c_row)))
    goes_on = builder.icmp_signed("!=", more, I64(0))
    targets: list[list[ir.Value]] = [[] for _ in range(width)]
    origins = list(targets)
    for j in range(vectors):
        stride = builder.select(goes_on, c_row, field(18 + 4 * j))
        start = address(field(17 + 4 * j), builder.add(shift, builder.mul(row, stride)))
        to = apart(builder.gep(c, [field(16 + 4 * j)]), group_step, groups)
        for g, (origin, place) in enumerate(zip(apart(start, group_step, groups), to, strict=True)):
            targets[g * vectors + j] = apart(place, c_row, rows)
            origins[g * vectors + j] = apart(builder.select(goes_on, place, origin), stride, rows)
    sums = [load_vector(builder, origins[j][r], vector) for r in range(rows) for j in range(width)]
    turns = unrolled(rows, width, target().registers)
    # a single row waits for memory anyway
    asked = (ahead, ahead_step) if rows > 1 else None

    def segment(s: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        panel, *sums = values
        fields = builder.gep(desc, [builder.add(I64(48), builder.mul(builder.add(s, first), I64(4)))])
        stride = field(1, fields)
        K = builder.select(builder.icmp_signed("==", count, I64(0)), field(2, fields), count)
        a_rows = apart(address(field(0, fields), builder.add(builder.mul(row, stride), k0)), stride, rows)
        terms = Terms(a_rows, I64(1), apart(panel, group_stride, groups), vectors, kept, asked)
        sums = accumulate(builder, terms, K, sums, turns)
        return [builder.gep(panel, [builder.mul(K, I64(vectors * vector.count))]), *sums]

    _, *sums = loop(builder, segments, [panel, *sums], segment)
    for j in range(width):
        for r, place in enumerate(targets[j]):
            store_vector(builder, sums[r * width + j], place)


def _outer_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL
) -> None:
    """c[live rows, vectors] += the sum over k of a[k, row] * panel[k, vectors].

    C comes last and from far away, and so does the A of the tiles to come, of which this one asks
    for `ahead_rows` rows at `ahead`: a little at the beginning of each part of the sum, for all at
    once would hold up the panel. C is asked for in the first half.
    """
    rows, vectors = size
    a, a_row, panel, K, c, c_row, live, ahead, ahead_row, ahead_rows = args
    lanes = vector.count
    share = builder.sdiv(builder.add(K, I64(PARTS - 1)), I64(PARTS))
    turns = unrolled(rows, vectors, target().registers)

    def ask_for_c(p: ir.Value) -> None:
        many = -(-2 * rows // PARTS)
        for i, j in itertools.product(range(many), range(vectors)):
            row = builder.mul(c_row, builder.add(builder.mul(p, I64(many)), I64(i)))
            prefetch(builder, builder.gep(c, [builder.add(row, I64(j * lanes))]), write=True)

    def ask_for_a(p: ir.Value) -> None:
        line = LINE // element_bytes(vector)
        lines = -(-2 * BLOCK_M // (PARTS * line))
        start = builder.mul(builder.sub(p, I64(PARTS // 2)), I64(lines * line))

        def row(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            place = builder.gep(ahead, [builder.add(builder.mul(ahead_row, i), start)])
            for j in range(lines):
                prefetch(builder, builder.gep(place, [I64(j * line)]))
            return []

        loop(builder, ahead_rows, [], row)

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
        a_k, panel_k = (
            builder.gep(a, [builder.mul(k, a_row)]),
            builder.gep(panel, [builder.mul(k, I64(vectors * lanes))]),
        )
        terms = Terms([builder.gep(a_k, [I64(i)]) for i in range(rows)], a_row, [panel_k], vectors, kept)
        return accumulate(builder, terms, count, sums, turns)

    sums = loop(builder, I64(PARTS), [ir.Constant(vector, [0.0] * lanes)] * (rows * vectors), part)
    for r in range(rows):
        with builder.if_then(builder.icmp_signed("<", I64(r), live)):
            for j in range(vectors):
                place = builder.gep(c, [builder.add(builder.mul(c_row, I64(r)), I64(j * lanes))])
                store_vector(builder, builder.fadd(sums[r * vectors + j], load_vector(builder, place, vector)), place)


def rows_ahead(lanes: int) -> int:
    """The rows of the next piece of A that each tile of `outer` asks for, so that all of them
    together ask for the whole piece."""
    rows, vectors = target().outer
    tiles = (BLOCK_M // rows) * (BLOCK_N // (vectors * lanes))
    return -(-BLOCK_K // tiles)


def _columns(builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL) -> None:
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


def _outer_sizes() -> list[Size]:
    rows, vectors = target().outer
    return [(rows, v) for v in range(1, vectors + 1)]


def tiles(dtype: str, functions: Sequence[str]) -> ir.Module:
    """The tiles that `product`, `kept_product` and `outer` call, each as an LLVM function of its
    own.

    They are loops over registers already, and LLVM need not go over them again.
    """
    module, vector = ir.Module("tiles"), vector_of(getattr(types, dtype))
    data = vector.element.as_pointer()
    product_arguments = [I64.as_pointer(), data, *[I64] * 7, data, I64]
    outer_arguments = [data, I64, data, I64, data, I64, I64, data, I64, I64]
    product_sizes = target().product_sizes()
    written = [
        ("product", _product_tile, product_sizes, product_arguments, (ALL,)),
        ("kept_product", _product_tile, product_sizes, product_arguments, (WHERE_A,)),
        ("outer", _outer_tile, _outer_sizes(), outer_arguments, (ALL, WHERE_A, WHERE_B)),
        ("outer", _columns, [target().outer[:1]], [data, I64, data, I64, I64, I64], (ALL,)),
    ]
    for name, emit, sizes, arguments, kinds in written:
        for kept, size in itertools.product(kinds, sizes) if name in functions else ():
            function = _declared(module, emit, size, kept, arguments)
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            emit(builder, vector, size, list(function.args), kept)
            builder.ret_void()
    return module


def _declared(module: ir.Module, emit: Callable, size: Size, kept: int, arguments: list[ir.Type]) -> ir.Function:
    name = f"{emit.__name__}_{'x'.join(map(str, size))}{('', '_where_a', '_where_b')[kept]}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.attributes.add("noinline")  # registers are allotted to each alone
    function.attributes.add("nounwind")
    return function


# --- calls of them


def _call_tile(
    builder: ir.IRBuilder, emit: Callable, sizes: dict[int, tuple[Size, int]], which: ir.Value, args: list[ir.Value]
) -> None:
    """Call the tile of `emit` for (size, which terms count); `sizes` are those that occur, by the
    value of `which`."""
    done = builder.append_basic_block("done")
    switch = builder.switch(which, done)
    for value, tile in sizes.items():
        function = _declared(builder.module, emit, *tile, [arg.type for arg in args])
        case = builder.append_basic_block(function.name)
        switch.add_case(I64(value), case)
        with builder.goto_block(case):
            builder.call(function, args)
            builder.branch(done)
    builder.position_at_end(done)


def _number(builder: ir.IRBuilder, digits: Sequence[ir.Value]) -> ir.Value:
    """One number of small ones, each below 16."""
    number = digits[0]
    for digit in digits[1:]:
        number = builder.add(builder.mul(number, I64(16)), digit)
    return number


def _of_product(kept: int) -> Any:
    def tile(tc, rows, vectors, groups, desc, panel, shift, row, first, segments, k0, count, more, ahead, ahead_step):
        """One tile of `product`, for a number of rows (from `row` on), vectors and groups known at
        run time. panel: of the first group and segment, at its block of K; shift: in C, to that
        group; desc, first, segments, k0, count, more, ahead, ahead_step: as in `_product_tile`."""

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
            sizes = {(r * 16 + v) * 16 + g: ((r, v, g), kept) for r, v, g in target().product_sizes()}
            _call_tile(builder, _product_tile, sizes, _number(builder, args[:3]), list(args[3:]))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3, desc, panel, *[types.int64] * 7, panel, types.int64), codegen

    return intrinsic(tile)


product_tile, kept_tile = _of_product(ALL), _of_product(WHERE_A)


@intrinsic
def outer_tile(tc, kept, vectors, a, a_row, panel, K, c, c_row, live, ahead, ahead_row, ahead_rows):
    """One tile of `outer`, as `_outer_tile` says of a, panel, K and c: OUTER_ROWS rows, of which
    the first `live` are stored. kept: which terms count; a_row, c_row: strides; ahead,
    ahead_row, ahead_rows: rows of the A that is needed next."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        kinds = (ALL, WHERE_A, WHERE_B)
        sizes = {16 * kept + size[-1]: (size, kept) for kept in kinds for size in _outer_sizes()}
        _call_tile(builder, _outer_tile, sizes, _number(builder, args[:2]), list(args[2:]))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, a, i64, panel, i64, c, i64, i64, ahead, i64, i64), codegen


@intrinsic
def outer_columns(tc, dest, step, a, a_row, K, live):
    """The first `live` columns of A, as the tiles of `outer` read them: see `_columns`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        function = _declared(builder.module, _columns, target().outer[:1], ALL, [arg.type for arg in args])
        builder.call(function, args)
        return context.get_dummy_value()

    return types.void(dest, types.int64, a, types.int64, types.int64, types.int64), codegen


def _looked_up(builder: ir.IRBuilder, name: str, numbers: Sequence[int], index: ir.Value) -> ir.Value:
    table = cgutils.global_constant(builder.module, name, ir.Constant(ir.ArrayType(I8, len(numbers)), list(numbers)))
    return builder.zext(builder.load(builder.gep(table, [I64(0), index])), I64)


@intrinsic
def most_rows(tc, width):
    """The most rows of a tile for a width in vectors known at run time."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        numbers = [0, *(target().rows(w) for w in range(1, VECTORS * GROUPS + 1))]
        return _looked_up(builder, "most_rows", numbers, args[0])

    return types.int64(types.int64), codegen


@intrinsic
def most_groups(tc, rows, vectors, groups):
    """How many of `groups` groups a tile takes at once, for numbers known at run time, none of them
    0."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        rows, vectors, groups = args
        sizes = itertools.product(range(1, GROUPS + 1), range(1, VECTORS + 1), range(1, MOST_ROWS + 1))
        numbers = [target().groups(r, v, g) for g, v, r in sizes]

        def at_most(value: ir.Value, most: int) -> ir.Value:
            return builder.select(builder.icmp_signed("<", value, I64(most)), value, I64(most))

        index = builder.mul(builder.sub(at_most(groups, GROUPS), I64(1)), I64(VECTORS))
        index = builder.mul(builder.add(index, builder.sub(vectors, I64(1))), I64(MOST_ROWS))
        index = builder.add(index, builder.sub(at_most(rows, MOST_ROWS), I64(1)))
        return _looked_up(builder, "most_groups", numbers, index)

    return types.int64(types.int64, types.int64, types.int64), codegen


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
