"""The gradients of each row of a batch, from what a program without sums emitted
(lowering/by_row.py).

The gradient of a row is the sum over its steps of left value^T: a product of two matrices, [M, T]
and [T, N], both of which are at hand when the time loop is over. So B gradients cost one backward
run, and as many products as there would have been for all rows together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.code import CpuCode
from rnnspec.backends.cpu.launch.memory import LINE, Memory, address, padded
from rnnspec.backends.cpu.launch.pack import Packed, c_function
from rnnspec.backends.cpu.launch.plan import Plan, plan, stored_shape
from rnnspec.backends.cpu.launch.pool import run_blocks
from rnnspec.backends.cpu.machine import ALL, WHERE_A, WHERE_B
from rnnspec.language.sizes import evaluate_size, full_shape

KEPT = {"": ALL, "left": WHERE_A, "right": WHERE_B}


def plan_like(code: CpuCode, backward: Plan) -> Plan:
    """The plan of a kernel that goes through the blocks and chunks of a backward kernel, and reads
    the same tape."""
    told = (backward.parts, backward.pieces, backward.by_rows, backward.at_once)
    return plan(code, backward.sizes, backward.blocks, *told, groups=backward.groups)


def packed_like(code: CpuCode, packed: Packed, backward: CpuCode) -> Packed:
    """The weights that were packed for a backward kernel, for one of the same panels."""
    assert code.layout["panels"] == backward.layout["panels"], "by_row.py leaves the panels as they are"
    index = {field: i for i, field in enumerate(code.layout["fields"])}
    moved = [(i, index.get(backward.layout["fields"][f])) for i, f in enumerate(packed.fields.tolist())]
    kept = [(i, f) for i, f in moved if f is not None]
    fields = np.array([f for _, f in kept], np.int64)
    return Packed(fields, packed.values[..., [i for i, _ in kept]], packed.memory)


@dataclass(frozen=True)
class RowSums:
    """What the gradients of rows are sums of.

    code: of the kernel that emits it; values: name -> [T, B, width], rows in whole vectors whose
    rest is zero; ends: int64 [B], the steps of each row; shapes: name -> shape of each gradient.
    """

    code: CpuCode
    sizes: Mapping[str, int]
    values: Mapping[str, Array]
    ends: Array
    shapes: Mapping[str, tuple[str, ...]]
    memory: Memory

    def outputs(self) -> dict[str, Array]:
        """The arrays that the kernel writes to, by the names of its outputs."""
        widths = {n: evaluate_size(size, self.sizes) for n, size in self.code.layout["outputs"].items()}
        return {f"row {n}": a[..., : widths[f"row {n}"]] for n, a in self.values.items()}

    def gradients(self, first: int, end: int, threads: int) -> dict[str, Array]:
        """The gradients of the rows from `first` to before `end`, name -> [end - first, ...]."""
        lanes, rows = self.code.layout["lanes"], end - first
        sums = {n: _zeros((rows, *stored_shape(s, self.sizes, lanes)), self.code.dtype) for n, s in self.shapes.items()}
        one, told = np.ones(1, self.code.dtype), self.code.layout.get("row_sums", ())
        outer = {kept: self._outer(kept) for kept in {what[3] for what in told}}
        jobs = np.array([self._job(what, sums, first, one, outer[what[3]]) for what in told], np.int64)
        threads = max(1, min(threads, rows))
        scratch = [Memory(self.code.runtime.outer_scratch) for _ in range(threads)]
        tables = [
            np.array(
                [
                    len(jobs),
                    address(jobs) if jobs.size else 0,
                    first + rows * i // threads,
                    first + rows * (i + 1) // threads,
                    scratch[i].start,
                    address(self.ends),
                ],
                np.int64,
            )
            for i in range(threads)
        ]
        if rows and jobs.size:
            function = c_function(self.code.runtime.row_sums, 1)
            run_blocks(function, [address(t) for t in tables], (self, sums, one, jobs, scratch, tables))
        return {n: self._whole(a, self.shapes[n]) for n, a in sums.items()}

    def _outer(self, kept: str) -> tuple[int, int]:
        """What multiplies, and which factor's zeros leave the other out."""
        runtime = self.code.runtime
        return runtime.outer if KEPT[kept] == ALL else runtime.kept_outer, KEPT[kept]

    def _job(
        self, what: tuple[str, ...], sums: Mapping[str, Array], first: int, one: Array, outer: tuple[int, int]
    ) -> tuple[int, ...]:
        """One outer product, as `row_sums` in runtime/products.py reads it; without a left factor
        that is a 1. what: a row of the layout's `row_sums`; outer: what `_outer` told of it."""
        gradient, left, value, _ = what
        item = self.code.dtype.itemsize
        a, b, c = self.values.get(left), self.values[value], sums[gradient]
        row = c.strides[0]
        return (
            *((address(one), 0, 0) if a is None else (address(a), a.strides[1], a.strides[0] // item)),
            *(address(b), b.strides[1], b.strides[0] // item),
            1 if a is None else c.shape[1],
            b.shape[2],
            *(address(c) - first * row, row, b.shape[2]),
            *outer,
        )

    def _whole(self, stored: Array, shape: tuple[str, ...]) -> Array:
        full = full_shape(shape, self.sizes)
        cut = stored[tuple(slice(0, n) for n in (len(stored), *(full or (1,))))]
        return np.ascontiguousarray(cut).reshape(len(stored), *full)


def row_sums(by_rows: Plan, shapes: Mapping[str, tuple[str, ...]], steps: int, rows: int) -> RowSums:
    """Memory for what a kernel emits of T steps and B rows.

    by_rows: its plan; shapes: of the gradients that its backward kernel sums. Rows of a batch lie
    one after another, each with its steps; those of pieces step after step, as they are counted.
    """
    own, lanes, item = by_rows.code, by_rows.code.layout["lanes"], by_rows.code.dtype.itemsize
    ends, ragged = np.full(rows, steps, np.int64), by_rows.pieces != 0
    for block in by_rows.blocks if not by_rows.pieces else ():
        if block.lengths is not None:
            ends[block.order], ragged = block.lengths, True
    names = dict.fromkeys(n for _, left, value, _ in own.layout.get("row_sums", ()) for n in (left, value) if n)
    widths = {n: evaluate_size(own.layout["outputs"][f"row {n}"], by_rows.sizes) for n in names}
    sizes = {n: -(-steps * rows * padded(w, lanes) * item // LINE) * LINE for n, w in widths.items()}
    memory, offset, values = Memory(sum(sizes.values())), 0, dict[str, Array]()
    for name, width in widths.items():
        whole = padded(width, lanes)
        lead = (steps, rows) if by_rows.pieces else (rows, steps)
        array = memory.view(offset, (*lead, whole), own.dtype)
        values[name] = array if by_rows.pieces else array.transpose(1, 0, 2)
        array[..., 0 if ragged else width :] = 0  # nothing is written past a row's end
        offset += sizes[name]
    return RowSums(own, by_rows.sizes, values, ends, shapes, memory)


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Zeros that start at a cache line."""
    count = math.prod(shape) * dtype.itemsize
    held = np.zeros(count + LINE, np.uint8)
    start = -address(held) % LINE
    return held[start : start + count].view(dtype).reshape(shape)
