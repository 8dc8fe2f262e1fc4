"""How the rows of a batch are dealt out to threads, and the steps of each thread's rows to
chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import padded
from rnnspec.backends.cpu.machine import BLOCK_K
from rnnspec.language.sizes import evaluate_size

# Gradients are sums of many terms. Those of LEAF rows are summed alone (`outer` of products.py and
# emit/stage.py do so); FOLD such sums are added up, then as many sums of those, and so on: the
# rounding errors of a sum grow with the logarithm of the number of its terms. What a sum consists
# of depends on the sizes of a call and its lengths alone, so its bits are the same for every number
# of threads.
LEAF, FOLD = BLOCK_K, 32
MOST_ROWS = 2 * LEAF * FOLD  # of a block whose gradients are summed; more rows are several blocks
MOST_STEPS = 256  # of a chunk: where rows end within it, each of its steps is a term of a sum


@dataclass(frozen=True)
class Limits:
    """From where on splitting work up is worth its cost; what is about threads is measured (see
    costs.py).

    flops_per_thread: of a call; below this a second thread costs more than it brings.
    flops_per_barrier: of each thread in a step, where threads share a row.
    most_threads: more bring nothing; None for any number.
    cache_bytes: scratch of one chunk: what stays in a core's cache between the phases.
    least_rows: of a chunk, where there are so many: shorter sums make the weight gradients wait for
        memory.
    """

    flops_per_thread: int = 2_000_000
    flops_per_barrier: int = 100_000
    most_threads: int | None = None
    cache_bytes: int = 1 << 20
    least_rows: int = 128

    def of(self, threads: int) -> int:
        """How many of so many threads there may be."""
        return threads if self.most_threads is None else min(threads, self.most_threads)


@dataclass(frozen=True)
class Block:
    """The rows of one thread.

    order: which of the call's rows they are, longest first. places: where the first step of each
    lies in the caller's arrays, as the kernel reads them. active: how many are live at each step.
    chunks: first step, steps, rows at its first step, rows before it, history rows before it (a
    history has a step more), where "before" means within its segment; and how often, after it, sums
    of gradients are added to those of the next level (`_folds`). segments: the first chunk of each
    and how many it has.
    """

    order: Array  # [n] int64
    places: Array  # [n] int64
    lengths: Array | None  # [n] int64, falling
    active: Array | None  # [T] int64
    chunks: Array  # [chunks, 6] int64
    segments: tuple[tuple[int, int], ...]
    rows: int  # of the longest segment
    history_rows: int
    most_rows: int
    most_history_rows: int


def block_count(rows: int, flops: float, threads: int, limits: Limits = Limits()) -> int:
    """How many threads are worth their cost."""
    return max(1, min(limits.of(threads), rows, int(flops // limits.flops_per_thread)))


def part_count(
    layout: Mapping[str, Any],
    sizes: Mapping[str, int],
    steps: int,
    threads: int,
    limits: Limits = Limits(),
    columns: int = 1,
) -> int:
    """How many threads share the units of one row, where there are fewer rows than threads.

    layout: of the kernel; sizes: the value of every size; steps: T of the call; threads: how many
    there are; limits: what a thread and a meeting have to be worth; columns: how many there are.

    They have to meet at every stage of every step, which costs some 0.3 microseconds: the products
    of a step must be worth it.
    """
    enough = flops(layout, sizes, steps, columns) // limits.flops_per_thread
    if layout["barriers"]:
        step = 2.0 * (_work(layout["step"], sizes) + columns * _work(columned(layout, "step"), sizes))
        enough = min(enough, step // (limits.flops_per_barrier * layout["barriers"]))
    return max(1, min(limits.of(threads), int(enough)))


def split_rows(
    rows: int,
    steps: int,
    lengths: Array | None,
    blocks: int,
    chunk_rows: int,
    segment: int | None = None,
    places: Array | None = None,
) -> tuple[Block, ...]:
    """Deals rows out so that all blocks have about the same work.

    rows, steps: of the call.
    lengths: of the rows, None where all run through.
    blocks: how many there are to be.
    chunk_rows: of a chunk, see `chunk_rows`.
    segment: the steps of a segment; None for one of all steps.
    places: of the rows in the caller's arrays, where they are not the rows of a batch (with
        lengths).
    """
    segment = max(1, steps if segment is None else segment)
    if lengths is None:
        cuts = [rows * i // blocks for i in range(blocks + 1)]
        return tuple(
            _block(np.arange(a, b, dtype=np.int64), None, steps, chunk_rows, segment) for a, b in pairwise(cuts)
        )
    order = np.argsort(-lengths, kind="stable")
    return tuple(
        _block(np.ascontiguousarray(order[i::blocks], dtype=np.int64), lengths, steps, chunk_rows, segment, places)
        for i in range(blocks)
    )


def split_groups(
    cuts: Sequence[int],
    steps: int,
    lengths: Array | None,
    chunk_rows: int,
    segment: int | None = None,
    places: Array | None = None,
) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """A block, or some, for the rows of each group, and the group of each block.

    cuts: the first row of each group, and how many rows there are. The others are as for
    `split_rows`.
    """
    blocks, groups, segment = list[Block](), list[int](), max(1, steps if segment is None else segment)
    for group, (first, end) in enumerate(pairwise(cuts)):
        rows = np.arange(first, end, dtype=np.int64)
        if lengths is not None:
            rows = rows[np.argsort(-lengths[first:end], kind="stable")]
        for own in np.array_split(rows, max(1, -(-len(rows) // MOST_ROWS))):
            blocks.append(_block(np.ascontiguousarray(own), lengths, steps, chunk_rows, segment, places))
            groups.append(group)
    return tuple(blocks), tuple(groups)


def _block(
    order: Array, lengths: Array | None, steps: int, chunk_rows: int, segment: int, places: Array | None = None
) -> Block:
    own = None if lengths is None else np.ascontiguousarray(lengths[order], dtype=np.int64)
    active = None if own is None else np.searchsorted(-own, -np.arange(steps), side="left").astype(np.int64)
    last = steps if own is None else int(own[0]) if len(own) else 0
    chunks: list[tuple[int, int, int, int, int]] = []
    segments, most_rows, most_history = [], 0, 0
    for start in range(0, max(1, steps), segment):
        t, rows, history, first = start, 0, 0, len(chunks)
        while t < min(last, start + segment) and len(order):
            n = len(order) if active is None else int(active[t])
            size = min(last - t, start + segment - t, max(1, chunk_rows // n), MOST_STEPS)
            chunks.append((t, size, n, rows, history))
            t, rows, history = t + size, rows + size * n, history + (size + 1) * n
        segments.append((first, len(chunks) - first))
        most_rows, most_history = max(most_rows, rows), max(most_history, history)
    most = max((s * n for _, s, n, _, _ in chunks), default=0)
    most_of_history = max(((s + 1) * n for _, s, n, _, _ in chunks), default=0)
    where = order if places is None else np.ascontiguousarray(places[order], dtype=np.int64)
    return Block(
        order,
        where,
        own,
        active,
        np.array([(*c, f) for c, f in zip(chunks, _folds(chunks, active is not None))], dtype=np.int64).reshape(-1, 6),
        tuple(segments),
        most_rows,
        most_history,
        most,
        most_of_history,
    )


def _folds(chunks: Sequence[tuple[int, ...]], ragged: bool) -> list[int]:
    """After each chunk, how many levels have got as many sums as one takes: from the last chunk to
    the first, as gradients are summed. ragged: whether rows may end within a chunk."""
    found, leaves = [], 0
    for _, steps, n, *_ in reversed(chunks):
        before, level = leaves, 0
        leaves += max(-(-steps * n // LEAF), -(-steps // 4) if ragged else 0)
        while before // FOLD ** (level + 1) != leaves // FOLD ** (level + 1):
            level += 1
        found.append(level)
    return found[::-1]


def chunk_rows(
    layouts: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, int],
    item: int,
    limits: Limits = Limits(),
    columns: int = 1,
) -> int:
    """Rows of a chunk: as many as fit the cache in the hungriest of the kernels that share the
    tape, but no fewer than the least; columns count as rows."""
    widest, least = 1, limits.least_rows
    for layout in layouts:
        lanes, row = layout["lanes"], 0
        for name, (size, _, life) in layout["buffers"].items():
            if life == "scratch":
                many = columns if name in columned(layout, "buffers") else 1
                row += padded(evaluate_size(size, sizes), lanes) * many
        widest = max(widest, row * item)
        least = max(1, least // max(1, columns)) if "columns" in layout else least
    return max(least, limits.cache_bytes // widest)


def columned(layout: Mapping[str, Any], kind: str) -> tuple[Any, ...]:
    """The names of the "buffers", "inputs", "outputs", "states" or "parameters" of a kernel that
    there are of for each column; or the products that there are, "flops", those in the loop
    "step"."""
    return tuple(layout.get("columns", {}).get(kind, ()))


def flops(layout: Mapping[str, Any], sizes: Mapping[str, int], rows: int, columns: int = 1) -> float:
    """Floating point operations of a kernel's products over so many rows, with so many columns."""
    each = columned(layout, "flops")
    return 2.0 * rows * (_work(layout["flops"], sizes) + columns * _work(each, sizes))


def _work(products: Sequence[Any], sizes: Mapping[str, int]) -> int:
    return sum(evaluate_size(a, sizes) * evaluate_size(b, sizes) for a, b in products)
