"""How a call on the CPU is dealt out to threads: its Plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch import rows
from rnnspec.backends.cpu.launch.code import CpuCode
from rnnspec.backends.cpu.launch.costs import costs
from rnnspec.backends.cpu.launch.plan import Plan, plan
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.backends.cpu.launch.segments import segment_steps
from rnnspec.engine.spans import Pieces

LEAST_WORK = 500_000  # floating point operations of a call below which no second thread can pay


@dataclass(frozen=True)
class Work:
    """What is to be dealt out: sizes of the cell, steps and rows of the call, lengths of its rows
    or its pieces, how many columns there are, and how many groups of rows with weights of their own
    (0: all have the same)."""

    sizes: Mapping[str, int]
    steps: int
    rows: int
    lengths: Array | None
    pieces: Pieces | None
    columns: int = 1
    groups: int = 0


def new_plans(
    codes: Sequence[CpuCode], work: Work, threads: int, limits: Limits | None, *, summed: bool, low: bool
) -> list[Plan]:
    """Plans of kernels that share a tape.

    threads: how many there are; limits: from where on they pay, None: as measured. summed: whether
    one of the kernels sums gradients; low: whether they keep the tape of a segment alone.
    """
    sizes, count, steps, columns, pieces = work.sizes, work.rows, work.steps, work.columns, work.pieces
    layouts = [c.layout for c in codes]
    flops, places = rows.flops(layouts[0], sizes, steps * count, columns), None
    limits = _limits(limits, threads, flops)
    if pieces is not None:
        places, count, steps = pieces.places(count), len(pieces), int(pieces.length.max(initial=0))
    chunk = rows.chunk_rows(layouts, sizes, codes[0].dtype.itemsize, limits, columns)
    segment, direction = segment_steps(steps) if low else None, 0 if pieces is None else -1 if pieces.reverse else 1
    blocks = rows.block_count(count, flops, threads, limits)
    if work.groups:
        cuts = _group_cuts(work.groups, work.rows, pieces)
        row_blocks, groups = rows.split_groups(cuts, steps, work.lengths, chunk, segment, places)
        parts = max(1, blocks // len(row_blocks))
        at_once = max(1, blocks // parts)
        return [plan(c, sizes, row_blocks, parts, direction, True, at_once, columns, groups) for c in codes]
    free = threads if summed else threads // blocks
    parts = rows.part_count(layouts[0], sizes, steps, free, limits, columns) if blocks == count else 1
    by_rows = summed and blocks >= parts
    if summed:  # what gradients are sums of does not depend on the threads
        parts, blocks = max(blocks, parts), max(1, -(-count // rows.MOST_ROWS))
    row_blocks = rows.split_rows(count, steps, work.lengths, blocks, chunk, segment, places)
    return [plan(c, sizes, row_blocks, parts, direction, by_rows, int(summed), columns) for c in codes]


def _group_cuts(groups: int, count: int, pieces: Pieces | None) -> list[int]:
    """The first row, or piece, of each group of rows that have the same weights, and their
    number."""
    cuts = [count // groups * g for g in range(groups + 1)]
    return cuts if pieces is None else np.searchsorted(pieces.row, cuts).tolist()


def _limits(limits: Limits | None, threads: int, flops: float) -> Limits:
    """From where on threads pay; flops: of the call. Little work asks for no measurement."""
    if limits is not None or threads == 1 or flops < LEAST_WORK:
        return limits or Limits(most_threads=1)
    return costs().limits(threads)
