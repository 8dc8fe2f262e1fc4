"""The register tiles of matrix products, as LLVM functions and as operations that call them;
products.py puts them together.

In a product each element of the result is one accumulator that takes its terms in the order of k,
in every tile, for any number of rows and groups. So a row of a product is bitwise the same alone or
among others, and NaN or infinity stay in their row. Buffers that start at a cache line are worth
it: panels that do not cost a quarter of the speed.

Which tiles there are follows from the processor's registers (processor.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from rnnspec.backends.cpu.frontend import operation
from rnnspec.backends.cpu.machine import ALL, WHERE_A, WHERE_B, target
from rnnspec.backends.cpu.processor import GROUPS, MOST_ROWS, VECTORS
from rnnspec.backends.cpu.runtime.loops import Terms, accumulate, loop, unrolled
from rnnspec.backends.cpu.runtime.outer_tile import column_sizes, columns, outer_tile
from rnnspec.backends.cpu.runtime.variants import Size, call_tile, declared, joined
from rnnspec.backends.cpu.runtime.vectors import I64, load_vector, store_vector, table_of_bytes, vector_at, vector_of

# --- tiles, as LLVM functions


def _product_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, size: Size, args: list[ir.Value], kept: int = ALL
) -> None:
    """`product` for a fixed number of rows, vectors and groups, `tiles` times one below the other,
    and for one block of K: the `segments` from `first` on, or if `count` is not 0 the terms k0 to
    k0 + count of one. `more`: the sum goes on from what stands in C. The fields of desc are
    described in `product`.

    ahead: the part of the next block's panel that these tiles ask for, `ahead_step` elements for
    each k and `ahead_tile` for each tile: with large weights it comes from behind the second cache,
    which cost a sixth of the time at 1024 units.
    """
    rows, vectors, groups = size
    desc, panel, group, first_row, tiles, first, segments, k0, count, more, ahead, ahead_step, ahead_tile = args
    turns = unrolled(rows, vectors, groups, target()) if kept == ALL else 1  # the others are rare

    def tile(t: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        row = builder.add(first_row, builder.mul(t, I64(size[0])))
        places = _Places(builder, desc, size, panel.type)
        targets, sums = places.start(group, row, more, vector)
        # a single row waits for memory anyway; behind several panels side by side may be nothing
        asks = size[0] > 1 and groups == 1
        asked = (builder.gep(ahead, [builder.mul(t, ahead_tile)]), ahead_step) if asks else None

        def segment(s: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            panel, *sums = values
            a_rows, K = places.segment(builder.add(s, first), row, k0)
            K = builder.select(builder.icmp_signed("==", count, I64(0)), K, count)
            panels = places.apart(panel, places.field(2), groups)
            sums = accumulate(builder, Terms(a_rows, I64(1), panels, vectors, kept, asked), K, sums, turns)
            return [builder.gep(panel, [builder.mul(K, I64(vectors * vector.count))]), *sums]

        _, *sums = loop(builder, segments, [panel, *sums], segment)
        for place, total in zip(targets, sums, strict=True):
            store_vector(builder, total, place)
        return []

    loop(builder, tiles, [], tile)


@dataclass(frozen=True)
class _Places:
    """Where the numbers of a product's tile lie, by the fields of `desc` that `product` describes.
    size: rows, vectors, groups."""

    builder: ir.IRBuilder
    desc: ir.Value
    size: Size
    pointer: ir.Type

    def field(self, index: int, base: ir.Value | None = None) -> ir.Value:
        return self.builder.load(self.builder.gep(self.desc if base is None else base, [I64(index)]))

    def address(self, value: ir.Value, offset: ir.Value) -> ir.Value:
        return self.builder.gep(self.builder.inttoptr(value, self.pointer), [offset])

    def apart(self, start: ir.Value, stride: ir.Value, many: int) -> list[ir.Value]:
        return [self.builder.gep(start, [self.builder.mul(stride, I64(i))]) for i in range(many)]

    def start(
        self, group: ir.Value, row: ir.Value, more: ir.Value, vector: ir.VectorType
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """The places of the tile's sums in C, and what they start from."""
        rows, vectors, groups = self.size
        builder, c_row, step = self.builder, self.field(7), self.field(8)
        shift = builder.mul(group, step)
        c = self.address(self.field(6), builder.add(shift, builder.mul(row, c_row)))
        goes_on = builder.icmp_signed("!=", more, I64(0))
        targets, sums = dict[tuple[int, int], ir.Value](), dict[tuple[int, int], ir.Value]()
        for j in range(vectors):
            stride = builder.select(goes_on, c_row, self.field(18 + 4 * j))
            start = self.address(self.field(17 + 4 * j), builder.add(shift, builder.mul(row, stride)))
            to = self.apart(builder.gep(c, [self.field(16 + 4 * j)]), step, groups)
            for g, (origin, place) in enumerate(zip(self.apart(start, step, groups), to, strict=True)):
                origins = self.apart(builder.select(goes_on, place, origin), stride, rows)
                for r, (source, dest) in enumerate(zip(origins, self.apart(place, c_row, rows), strict=True)):
                    sums[r, g * vectors + j], targets[r, g * vectors + j] = load_vector(builder, source, vector), dest
        order = sorted(sums)
        return [targets[at] for at in order], [sums[at] for at in order]

    def segment(self, s: ir.Value, row: ir.Value, k0: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        """The tile's rows of A in a segment, from k0 on, and the segment's K."""
        fields = self.builder.gep(self.desc, [self.builder.add(I64(48), self.builder.mul(s, I64(4)))])
        stride = self.field(1, fields)
        start = self.address(self.field(0, fields), self.builder.add(self.builder.mul(row, stride), k0))
        return self.apart(start, stride, self.size[0]), self.field(2, fields)


def tiles(dtype: str, functions: Sequence[str]) -> ir.Module:
    """The tiles that `product`, `outer` and their kept forms call, each as an LLVM function of its
    own.

    They are loops over registers already, and LLVM need not go over them again.
    """
    module, vector = ir.Module("tiles"), vector_of(dtype)
    data = vector.element.as_pointer()
    product_arguments = [I64.as_pointer(), data, *[I64] * 8, data, I64, I64]
    outer_arguments = [data, I64, I64, data, I64, data, I64, I64, data, I64, I64]
    column_arguments = [data, I64, data, I64, I64, I64]
    product_sizes = target().product_sizes()
    written = [
        ("product", _product_tile, product_sizes, product_arguments, (ALL,)),
        ("kept_product", _product_tile, product_sizes, product_arguments, (WHERE_A,)),
        ("outer", outer_tile, target().outer_sizes(), outer_arguments, (ALL,)),
        ("outer", columns, column_sizes(), column_arguments, (ALL,)),
        ("kept_outer", outer_tile, target().outer_sizes(), outer_arguments, (ALL, WHERE_A, WHERE_B)),
        ("kept_outer", columns, column_sizes(), column_arguments, (ALL,)),
    ]
    for name, emit, sizes, arguments, kinds in written:
        for kept, size in itertools.product(kinds, sizes) if name in functions else ():
            function = declared(module, emit, size, kept, arguments)
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            emit(builder, vector, size, list(function.args), kept)
            builder.ret_void()
    return module


# --- calls of them


def _of_product(kept: int) -> Any:
    def tiles(builder: ir.IRBuilder, *args: ir.Value) -> None:
        """Tiles of `product`, for numbers of rows (from `row` on), vectors and groups (from `group`
        on) known at run time. panel: of the first group, at its block of K terms; the others as in
        `_product_tile`.

        Rows in pieces of about equal size: tiles of n rows, then of one less.
        """
        rows, vectors, groups, desc, panel, group, row, *block, K = args
        most = _most_rows(builder, builder.mul(vectors, groups))
        tiles = _pieces(builder, rows, most)
        n = _pieces(builder, rows, tiles)
        larger = builder.sub(tiles, builder.sub(builder.mul(n, tiles), rows))
        smaller = builder.sub(tiles, larger)
        width = builder.mul(vectors, I64(vector_at(panel).count))
        step = _pieces(builder, width, tiles)
        ahead = builder.gep(panel, [builder.mul(K, width)])
        ahead_tile = builder.mul(K, step)
        sizes = {(r * 16 + v) * 16 + g: ((r, v, g), kept) for r, v, g in target().product_sizes()}
        none = builder.icmp_signed("==", smaller, I64(0))
        for done, size, many in (
            (I64(0), n, larger),
            (larger, builder.select(none, I64(0), builder.sub(n, I64(1))), smaller),
        ):
            at = builder.add(row, builder.mul(done, n)), builder.gep(ahead, [builder.mul(done, ahead_tile)])
            given = [desc, panel, group, at[0], many, *block, at[1], step, ahead_tile]
            call_tile(builder, _product_tile, sizes, joined(builder, [size, vectors, groups]), given)

    return operation(tiles)


def _pieces(builder: ir.IRBuilder, length: ir.Value, most: ir.Value) -> ir.Value:
    """How many pieces of at most `most` a length has."""
    return builder.sdiv(builder.sub(builder.add(length, most), I64(1)), most)


product_tiles, kept_tiles = _of_product(ALL), _of_product(WHERE_A)


def _looked_up(builder: ir.IRBuilder, name: str, numbers: Sequence[int], index: ir.Value) -> ir.Value:
    table = table_of_bytes(builder.module, name, numbers)
    return builder.zext(builder.load(builder.gep(table, [I64(0), index])), I64)


def _most_rows(builder: ir.IRBuilder, width: ir.Value) -> ir.Value:
    numbers = [0, *(target().rows(w) for w in range(1, VECTORS * GROUPS + 1))]
    return _looked_up(builder, "most_rows", numbers, width)


@operation
def most_rows(builder: ir.IRBuilder, width: ir.Value) -> ir.Value:
    """The most rows of a tile for a width in vectors known at run time."""
    return _most_rows(builder, width)


@operation
def most_groups(builder: ir.IRBuilder, rows: ir.Value, vectors: ir.Value, groups: ir.Value) -> ir.Value:
    """How many of `groups` groups a tile takes at once, for numbers known at run time, none of them
    0."""
    sizes = itertools.product(range(1, GROUPS + 1), range(1, VECTORS + 1), range(1, MOST_ROWS + 1))
    numbers = [target().groups(r, v, g) for g, v, r in sizes]

    def at_most(value: ir.Value, most: int) -> ir.Value:
        return builder.select(builder.icmp_signed("<", value, I64(most)), value, I64(most))

    index = builder.mul(builder.sub(at_most(groups, GROUPS), I64(1)), I64(VECTORS))
    index = builder.mul(builder.add(index, builder.sub(vectors, I64(1))), I64(MOST_ROWS))
    index = builder.add(index, builder.sub(at_most(rows, MOST_ROWS), I64(1)))
    return _looked_up(builder, "most_groups", numbers, index)
