"""Loops over registers, as LLVM's code: what the tiles of products (tile.py) and the moves of
numbers are put together from.

In: a builder and values. Out: values. Nothing here knows where numbers lie, but for the terms of a
sum of products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from rnnspec.backends.cpu.machine import ALL, WHERE_A
from rnnspec.backends.cpu.processor import CHAINS, Processor
from rnnspec.backends.cpu.runtime.vectors import I32, I64, declared_once, load_vector, multiply_add, spread

Body = Callable[[ir.Value, list[ir.Value]], list[ir.Value]]


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


def prefetch(builder: ir.IRBuilder, place: ir.Value, write: bool = False) -> None:
    """Ask for a cache line, into the first cache; into the second alone was 5 % slower at 1024
    units."""
    byte = ir.IntType(8).as_pointer()
    function = declared_once(builder.module, "llvm.prefetch.p0", ir.VoidType(), [byte, I32, I32, I32])
    builder.call(function, [builder.bitcast(place, byte), I32(int(write)), I32(3), I32(1)])


@dataclass(frozen=True)
class Terms:
    """The terms of a tile's sums: sums[r, j] += the sum over k of a_rows[r][k * a_step] times
    vector j of row k of the panels side by side, each `vectors` wide.

    kept: which terms count. ahead: where memory lies that will be needed next, and how far from
    there to ask for it at each k.
    """

    a_rows: list[ir.Value]
    a_step: ir.Value
    panels: list[ir.Value]
    vectors: int
    kept: int = ALL
    ahead: tuple[ir.Value, ir.Value] | None = None


def accumulate(
    builder: ir.IRBuilder, terms: Terms, K: ir.Value, sums: list[ir.Value], unroll: int = 1
) -> list[ir.Value]:
    """The sums with K >= 0 terms added to each, one after another; `unroll` of them a turn."""

    def turn(k: ir.Value, sums: list[ir.Value], count: int) -> list[ir.Value]:
        if terms.ahead is not None:
            prefetch(builder, builder.gep(terms.ahead[0], [builder.mul(k, terms.ahead[1])]))
        row = builder.mul(k, I64(terms.vectors * sums[0].type.count))
        panels = [builder.gep(panel, [row]) for panel in terms.panels]
        starts = [builder.gep(a, [builder.mul(k, terms.a_step)]) for a in terms.a_rows]
        for step in range(count):
            sums = _one_term(builder, terms, panels, starts, step, sums)
        return sums

    if unroll == 1:
        return loop(builder, K, sums, lambda k, sums: turn(k, sums, 1))
    whole = builder.ashr(K, I64(unroll.bit_length() - 1))
    sums = loop(builder, whole, sums, lambda k, sums: turn(builder.mul(k, I64(unroll)), sums, unroll))
    done = builder.mul(whole, I64(unroll))
    return loop(builder, builder.sub(K, done), sums, lambda k, sums: turn(builder.add(k, done), sums, 1))


def unrolled(rows: int, vectors: int, groups: int, processor: Processor) -> int:
    """Terms in a turn of a tile's loop: with few sums or a single row counting costs as much as
    adding. With the widest vectors it costs 5 % of a full tile of one panel too; with others, or
    several panels, two terms ask for more registers than there are."""
    sums, wide = rows * vectors * groups, processor.register_bytes == 64
    if 2 * sums <= CHAINS:
        return 4
    return 2 if (rows == 1 and processor.fma) or (sums >= 2 * CHAINS and wide and groups == 1) else 1


def _one_term(
    builder: ir.IRBuilder, terms: Terms, panels: list[ir.Value], starts: list[ir.Value], step: int, sums: list[ir.Value]
) -> list[ir.Value]:
    """The sums with one more term. The shorter side of the tile is held in registers, and the
    longer one read factor by factor: the other way round there are not enough."""
    vector, rows, width = sums[0].type, len(starts), len(panels) * terms.vectors

    def element(r: int) -> ir.Value:
        place = builder.gep(starts[r], [builder.mul(terms.a_step, I64(step))])
        return spread(builder, builder.load(place), vector.count)

    def panel(j: int) -> ir.Value:
        place = step * terms.vectors + j % terms.vectors
        return load_vector(builder, builder.gep(panels[j // terms.vectors], [I64(place * vector.count)]), vector)

    updated = list(sums)
    by_rows = width <= rows
    held = [panel(j) for j in range(width)] if by_rows else [element(r) for r in range(rows)]
    for i in range(rows if by_rows else width):
        turning = element(i) if by_rows else panel(i)
        for other, factor in enumerate(held):
            place, pair = (i * width + other, (turning, factor)) if by_rows else (other * width + i, (factor, turning))
            updated[place] = multiply_add(builder, *_counting(builder, *pair, terms.kept), sums[place])
    return updated


def _counting(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, kept: int) -> tuple[ir.Value, ir.Value]:
    """The factors of a term, both 0 where it does not count."""
    if kept == ALL:
        return a, b
    zero = ir.Constant(a.type, [0.0] * a.type.count)
    counts = builder.fcmp_unordered("!=", a if kept == WHERE_A else b, zero)
    return (a, builder.select(counts, b, zero)) if kept == WHERE_A else (builder.select(counts, a, zero), b)
