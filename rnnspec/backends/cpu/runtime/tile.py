"""The CPU runtime: matrix products on register tiles; moves.py has the rest. Generated kernels call
it by address.

In: nothing but int64 arguments (addresses, counts, strides in elements). Out: memory. addresses.py
has the functions compiled once for a dtype and machine and gives their addresses. It knows nothing
of cells, steps in time or threads.

In `product` each element of the result is one accumulator that takes its terms in the order of k,
in every tile and for any number of rows. So a row of a product is bitwise the same alone or among
others, and NaN or infinity stay in their row. Buffers that start at a cache line are worth it:
panels that do not cost a quarter of the speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rnnspec.backends.cpu.machine import BLOCK_K, BLOCK_M, BLOCK_N, Host, host, max_vectors
from rnnspec.backends.cpu.runtime.simd import at, copy, get, load, pointer_int, store
from rnnspec.backends.cpu.runtime.simd import pointer32 as pointer
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
# of `product`: terms of a panel that all rows pass before the next ones; at K = 4096 blocks of 128
# or none at all cost a third
PRODUCT_K = 512


def row_tile(machine: Host, vectors: int) -> int:
    """Rows of a full tile: accumulators, one row of the panel and one element of A must fit the
    registers."""
    return (8, 8, 8, 6)[vectors - 1] if machine.registers == 32 else (8, 6, 4)[vectors - 1]


# what the runtime's text below sees, with `pointer` above: as it stands that text is for float32
LANES, MAX_VECTORS = host().lanes["float32"], max_vectors(host())


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
) -> list[ir.Value]:
    """sums[r, j] += sum over k of a_rows[r][k * a_step] * panel[k, j]; a panel row is as wide as
    the sums.

    ahead: where the next panel lies and how far from there to ask for memory at each k.
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
            sums = [
                multiply_add(builder, elements[i // vectors], panel[i % vectors], total) for i, total in enumerate(sums)
            ]
        return sums

    whole = builder.ashr(K, I64(unroll.bit_length() - 1))
    sums = loop(builder, whole, sums, lambda k, sums: terms(builder.mul(k, I64(unroll)), sums, unroll))
    if unroll == 1:
        return sums
    done = builder.mul(whole, I64(unroll))
    return loop(builder, builder.sub(K, done), sums, lambda k, sums: terms(builder.add(k, done), sums, 1))


def _product_tile(builder: ir.IRBuilder, vector: ir.VectorType, rows: int, vectors: int, args: list[ir.Value]) -> None:
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
        sums = _accumulate(builder, a_rows, I64(1), panel, K, sums, (ahead, ahead_step))
        return [builder.gep(panel, [builder.mul(K, I64(vectors * vector.count))]), *sums]

    _, *sums = loop(builder, segments, [panel, *sums], segment)
    for j in range(vectors):
        for r, target in enumerate(targets[j]):
            store_vector(builder, sums[r * vectors + j], target)


def _outer_tile(builder: ir.IRBuilder, vector: ir.VectorType, rows: int, vectors: int, args: list[ir.Value]) -> None:
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
        return _accumulate(builder, [builder.gep(a_k, [I64(i)]) for i in range(rows)], a_row, panel_k, count, sums)

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
    """The tiles that `product` and `outer` call, each as an LLVM function of its own.

    They are loops over registers already, and LLVM need not go over them again.
    """
    module, vector = ir.Module("tiles"), vector_of(getattr(types, dtype))
    data = vector.element.as_pointer()
    called = {
        "product": (_product_tile, _product_sizes(), [I64.as_pointer(), data, *[I64] * 7, data, I64]),
        "outer": (_outer_tile, _outer_sizes(), [data, I64, data, I64, data, I64, I64]),
    }
    for emit, sizes, arguments in (called[name] for name in functions if name in called):
        for rows, vectors in sizes:
            function = _declared(module, emit, rows, vectors, arguments)
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            emit(builder, vector, rows, vectors, list(function.args))
            builder.ret_void()
    return module


def _declared(module: ir.Module, emit: Callable, rows: int, vectors: int, arguments: list[ir.Type]) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), f"{emit.__name__}_{rows}x{vectors}")
    function.attributes.add("noinline")  # registers are allotted to each alone
    function.attributes.add("nounwind")
    return function


def _call_tile(
    builder: ir.IRBuilder, emit: Callable, sizes: dict[int, tuple[int, int]], size: ir.Value, args: list[ir.Value]
) -> None:
    """Call the tile of `emit` for (rows, vectors); `sizes` are those that occur, by the value of
    `size`."""
    done = builder.append_basic_block("done")
    switch = builder.switch(size, done)
    for value, (rows, vectors) in sizes.items():
        function = _declared(builder.module, emit, rows, vectors, [arg.type for arg in args])
        case = builder.append_basic_block(function.name)
        switch.add_case(I64(value), case)
        with builder.goto_block(case):
            builder.call(function, args)
            builder.branch(done)
    builder.position_at_end(done)


@intrinsic
def product_tile(tc, rows, vectors, desc, panel, shift, row, first, segments, k0, count, more, ahead, ahead_step):
    """One tile of `product`, for a number of rows (from `row` on) and vectors known at run time.
    panel: of the first segment, at its block of K; shift: in C, to the group; desc, first,
    segments, k0, count, more, ahead, ahead_step: as in `_product_tile`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        rows, vectors, *rest = args
        sizes = {16 * v + r: (r, v) for r, v in _product_sizes()}
        _call_tile(builder, _product_tile, sizes, builder.add(builder.mul(vectors, I64(16)), rows), rest)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, desc, panel, *[types.int64] * 7, panel, types.int64), codegen


@intrinsic
def outer_tile(tc, vectors, a, a_row, panel, K, c, c_row, live):
    """One tile of `outer`, as `_outer_tile` says of a, panel, K and c: as many rows as a full tile
    has for so many vectors, of which the first `live` are stored. a_row, c_row: strides."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        _call_tile(builder, _outer_tile, {v: (r, v) for r, v in _outer_sizes()}, args[0], list(args[1:]))
        return context.get_dummy_value()

    return types.void(types.int64, a, types.int64, panel, types.int64, c, types.int64, types.int64), codegen


@intrinsic
def most_rows(tc, vectors):
    """row_tile of this machine for a number of vectors known at run time."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        rows = I64(row_tile(host(), 1))
        for v in range(2, max_vectors(host()) + 1):
            rows = builder.select(builder.icmp_signed("==", args[0], I64(v)), I64(row_tile(host(), v)), rows)
        return rows

    return types.int64(types.int64), codegen


# The runtime, in Numba's Python. These texts are copied into a module for each dtype, where
# `pointer` makes its pointers.


def product(desc, group, row, rows):
    """C[rows, V vectors] = init + the sum over segments of A_s[rows, K_s] @ panel_s[K_s, V *
    LANES], for one group of vectors.

    desc: int64 fields, strides in elements.
      0 segments, 1 panels, 2 their group stride, 3 V of every group but the last,
      4 V of the last, 5 the last group,
      6 C, 7 its row stride, 8 its step from group to group (also that of init)
      16 + 4 j: offset of vector j in C; 17: its init (may be C itself), 18: its row stride (0: one
      bias for all rows)
      48 + 4 s: A of segment s, 49: its row stride, 50: K_s
    Panels of a group: one segment after the other, each K_s rows of V * LANES elements.
    """
    fields = pointer_int(desc)
    vectors = get(fields, 4) if group == get(fields, 5) else get(fields, 3)
    panel = at(pointer(get(fields, 1)), group * get(fields, 2))
    shift = group * get(fields, 8)
    most = most_rows(vectors)
    tiles = (rows + most - 1) // most
    segments, s, k0, more, width = get(fields, 0), 0, 0, 0, vectors * LANES
    # one block of K after another: of a long segment, or as many segments as are short
    while s < segments or more == 0:
        K = get(fields, 50 + 4 * s) - k0 if s < segments else 0
        whole, count = min(1, segments), 0
        if tiles > 2 and K > PRODUCT_K + PRODUCT_K // 2:
            K = count = 1 * PRODUCT_K  # a constant alone would be its type
        elif k0 > 0:
            count = K
        else:
            while s + whole < segments and (
                tiles <= 2 or K + get(fields, 50 + 4 * (s + whole)) <= PRODUCT_K + PRODUCT_K // 2
            ):
                K += get(fields, 50 + 4 * (s + whole))
                whole += 1
        ahead, ahead_step, done = at(panel, K * width), (width + tiles - 1) // tiles, 0
        while done < rows:
            left = (rows - done + most - 1) // most
            n = (rows - done + left - 1) // left
            product_tile(n, vectors, fields, panel, shift, row + done, s, whole, k0, count, more, ahead, ahead_step)
            ahead = at(ahead, K * ahead_step)
            done += n
        panel, more = at(panel, K * width), 1
        if count > 0 and k0 + count < get(fields, 50 + 4 * s):
            k0 += count
        else:
            s, k0 = s + whole, 0


def outer(a, a_row, b, b_row, rows, M, N, c, c_row, scratch):
    """C[M, N] += the sum over rows k of A[k, m] * B[k, n]; N a multiple of LANES, M any; scratch:
    Runtime.outer_scratch bytes.

    Rows in blocks, each summed from zero and added to C. B becomes panels. A piece of A is copied
    so that its rows lie close together, unless it is used but once; the copy also spares reading
    past the end of A in a tile that isn't full.
    """
    blocks = (rows + BLOCK_K - 1) // BLOCK_K
    for i in range(blocks):
        k0 = rows * i // blocks
        K = rows * (i + 1) // blocks - k0
        for n0 in range(0, N, BLOCK_N):
            n_end = min(N, n0 + BLOCK_N)
            for m0 in range(0, M, BLOCK_M):
                live = min(BLOCK_M, M - m0)
                piece, piece_row = at(pointer(a), k0 * a_row + m0), a_row
                if N > MAX_VECTORS * LANES or live % most_rows(N // LANES) != 0:
                    copied = at(pointer(scratch), BLOCK_K * BLOCK_N)
                    piece_row = 1 * BLOCK_M  # a constant alone would be its type
                    for k in range(K):
                        copy(at(copied, k * BLOCK_M), at(piece, k * a_row), live)
                    piece = copied
                n = n0
                while n < n_end:
                    left = (n_end - n) // LANES
                    pieces = (left + MAX_VECTORS - 1) // MAX_VECTORS
                    vectors = (left + pieces - 1) // pieces
                    panel = at(pointer(scratch), (n - n0) * K)
                    if b_row == vectors * LANES:
                        panel = at(pointer(b), k0 * b_row)  # it lies as a panel does
                    elif m0 == 0:
                        for k in range(K):
                            for j in range(0, vectors * LANES, LANES):
                                store(panel, k * vectors * LANES + j, load(pointer(b), (k0 + k) * b_row + n + j))
                    most = most_rows(vectors)
                    for m in range(0, live, most):
                        target = at(pointer(c), (m0 + m) * c_row + n)
                        outer_tile(vectors, at(piece, m), piece_row, panel, K, target, c_row, live - m)
                    n += vectors * LANES
