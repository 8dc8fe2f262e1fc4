"""Runs emitted kernels: a Plan says where everything lies for one set of sizes, `execute` fills in
the arrays of a call.

In: a kernel's LAYOUT (see emit/kernel.py), sizes, and the caller's arrays. Out: arrays. Nothing
here knows a cell, and nothing does arithmetic on values but the sum of the threads' weight
gradients.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import Memory, address, padded
from rnnspec.backends.cpu.launch.pack import NOTHING, Packed
from rnnspec.backends.cpu.launch.plan import BARRIER_BYTES, Plan, Region, region, sum_shapes
from rnnspec.backends.cpu.launch.pool import run_blocks
from rnnspec.backends.cpu.launch.rows import columned
from rnnspec.backends.cpu.launch.tape import Tape
from rnnspec.language.sizes import full_shape

# The last calls leave their tables and memory to the next one of the same sizes: for a small
# problem that is most of a call's cost.
IDLE_CALLS, IDLE_BYTES = 8, 1 << 22
ARRAY = struct.Struct("=4q")  # an array in a table: its address, and its strides of t, b, d


# --- a call


class Bound:
    """A plan with memory, everything but the caller's arrays: per block a table, and the memory
    that it points into."""

    def __init__(self, own: Plan):
        self.plan, self.packed = own, NOTHING
        self.tape: Tape | None = None
        self.memories = [Memory(r.size) for r in own.scratch]
        self.own = [Memory(own.own.size) for _ in range(len(own.blocks) * own.parts)]
        self.tables = [[template.copy() for template in templates] for templates in own.tables]
        for tables, memory, part in zip(self.tables, self.memories, own.scratch):
            for table in tables:
                part.fill(table, memory)
        self.all = [table for tables in self.tables for table in tables]
        for table, memory in zip(self.all, self.own):
            own.own.fill(table, memory)
        self.addresses = [address(t) for t in self.all]
        self.zeroed = [memory.view(0, (own.zeroed,), np.dtype(np.uint8)) for memory in self.memories]
        self.carries = {name: [self._carry(name, i) for i in range(len(self.memories))] for name in own.widths}
        self.counts = self._counts()
        self.sums = self._sums()
        self.flat = list[Array]()  # what `point` had to copy lives until the next call
        self.barriers = [
            memory.view(r.named["barrier"], (BARRIER_BYTES,), np.dtype(np.uint8))
            for r, memory in zip(own.scratch, self.memories)
        ]
        self.alone = len(own.blocks) == 1 and own.blocks[0].lengths is None  # rows lie in the caller's order
        self.bytes = sum(r.size for r in own.scratch) + own.own.size * len(self.own)
        self.taped: tuple[Plan | None, list[Region]] = None, []  # the plan of the last tape, and where its parts lie

    def _carry(self, state: str, block: int) -> Array:
        """A state of a block's rows where the kernel keeps it from chunk to chunk, [rows, width],
        or [rows, columns, width] where each column has its own; what fills up its vectors is
        zero."""
        own = self.plan
        width = padded(own.widths[state], own.code.layout["lanes"])
        columns = (own.columns,) if state in columned(own.code.layout, "states") else ()
        view = self.memories[block].view(
            own.scratch[block].named[f"carry {state}"],
            (len(own.blocks[block].order), *columns, width),
            own.code.dtype,
        )
        view[..., own.widths[state] :] = 0
        return view[..., : own.widths[state]]

    def _counts(self) -> list[Array]:
        """Of a kernel that reads the step's number: what is added to it, [rows] of each block."""
        fields = self.plan.code.layout["fields"]
        if "counts" not in fields:
            return []
        counts = [np.zeros(max(1, len(block.order)), np.int64) for block in self.plan.blocks]
        for tables, array in zip(self.tables, counts):
            for table in tables:
                table[fields.index("counts")] = address(array)
        return counts

    def start_at(self, counts: Array | None) -> None:
        """Sets the number of each row's first step, int64 [B]; None: all 0."""
        for block, array in zip(self.plan.blocks, self.counts):
            array[: len(block.order)] = 0 if counts is None else counts[block.order]

    def use(self, packed: Packed, tape: Tape | None) -> None:
        """Sets the weights and the tape; gradients start again at zero."""
        regions = [] if tape is None or tape is self.tape else self._tape_regions(tape.plan)
        for i, tables in enumerate(self.tables):
            group = self.plan.groups[i] if self.plan.groups else 0
            for table in tables:
                if packed is not self.packed:
                    packed.fill(table, group)
                if regions and tape is not None:
                    regions[i].fill(table, tape.memory)
            self.zeroed[i].fill(0)
        self.packed, self.tape = packed, tape

    def _tape_regions(self, forward: Plan) -> list[Region]:
        """Where the parts of a tape lie, block by block, and the fields that tell it: as the plan
        of the kernel that wrote it has them."""
        if self.taped[0] is not forward:
            layout = self.plan.code.layout
            if forward.code.layout is layout:
                regions = list(forward.tape)
            else:
                names = [f"buffer {n}" for n, (_, _, life) in layout["buffers"].items() if life == "taped"]
                regions = [region(layout, {n: part.named[n] for n in names}, part.size) for part in forward.tape]
            self.taped = forward, regions
        return self.taped[1]

    def point(self, inputs: Mapping[str, Array | None], outputs: Mapping[str, Array]) -> None:
        """Sets the arrays of the caller's, [T, B, ...], with an axis of columns before where there
        is one for each: read and written in place. An input that is not given counts as zero, and
        an output that is not given is not written."""
        item = self.plan.code.dtype.itemsize
        self.flat.clear()
        for given, places in ((inputs, self.plan.code.inputs), (outputs, self.plan.code.outputs)):
            for name, first in places.items():
                array = given.get(name)
                if first in self.plan.code.columns:
                    array = self._point_columns(first, array)
                if array is None:
                    fields: tuple[int, ...] = (0, 0, 0, 0)
                else:
                    if array.ndim > 3:  # matrices, row after row; of an output, which is ours, a view
                        # -1 is undefined of no steps or rows
                        array = array.reshape(*array.shape[:2], math.prod(array.shape[2:]))
                        self.flat.append(array)
                    t, b, *d = array.strides
                    if self.plan.pieces:  # numbered through: step t of row b is number t * B + b
                        b = t // max(1, array.shape[1]) if array.shape[0] > 1 else b
                        t *= self.plan.pieces
                    fields = (address(array), t // item, b // item, d[0] // item if d else 0)
                for table in self.all:
                    ARRAY.pack_into(table, 8 * first, *fields)

    def _point_columns(self, first: int, array: Array | None) -> Array | None:
        """Sets how far apart the columns of an array lie; returns the first of them. first: of its
        places in a table."""
        stride = 0
        if array is not None:
            if array.ndim > 4:
                array = array.reshape(*array.shape[:3], math.prod(array.shape[3:]))
                self.flat.append(array)
            stride = array.strides[0] // self.plan.code.dtype.itemsize
        for table in self.all:
            table[self.plan.code.columns[first]] = stride
        return None if array is None or not len(array) else array[0]

    def load(self, states: Mapping[str, Array]) -> None:
        """Sets the states before the first step, [B, ...], or [B, columns, ...]; zero where left
        out."""
        for name, parts in self.carries.items():
            given = states.get(name)
            if given is not None and self.alone and given.shape == parts[0].shape:
                parts[0][...] = given
                continue
            for block, part in zip(self.plan.blocks, parts):
                if given is None:
                    part.fill(0)
                else:
                    rows = given.reshape(given.shape[0], *part.shape[1:])
                    part[...] = rows if self.alone else rows[block.order]

    def states(self) -> dict[str, Array]:
        """The states after the last step, [B, width], or [B, columns, width]."""
        if self.alone:
            return {name: parts[0].copy() for name, parts in self.carries.items()}
        found = {}
        for name, parts in self.carries.items():
            values = found[name] = np.empty((self.plan.rows, *parts[0].shape[1:]), self.plan.code.dtype)
            for block, part in zip(self.plan.blocks, parts):
                values[block.order] = part
        return found

    def gradients(self) -> dict[str, Array]:
        """The sums over all rows and steps since `use`, parameter by parameter; where rows have
        weights of their own, [groups, ...] of the rows of each."""
        found = {}
        for name, (parts, full) in self.sums.items():
            if self.plan.groups:
                levels = self.plan.levels
                each = [_total(parts[i * levels : (i + 1) * levels]) for i in range(len(self.plan.groups))]
                found[name] = _by_group(each, self.plan.groups).reshape(-1, *full)
            else:
                found[name] = (parts[0].copy() if len(parts) == 1 else _total(parts)).reshape(full)
        return found

    def _sums(self) -> dict[str, tuple[list[Array], tuple[int, ...]]]:
        """Where the gradient of a parameter is summed, in each block level by level, and its
        shape."""
        own, found = self.plan, {}
        shapes = sum_shapes(own.code, own.sizes, own.columns)
        for name, shape in own.code.layout["gradients"].items():
            stored, full = shapes[name], full_shape(shape, own.sizes)
            each = stored[:1] if name in columned(own.code.layout, "gradients") else ()
            cut = (*[slice(None)] * len(each), *(slice(0, n) for n in full or (1,)))
            full = (*each, *full)
            parts = [
                memory.view(r.named[f"gradient {name}"] + level * own.level_bytes, stored, own.code.dtype)[cut]
                for r, memory in zip(own.scratch, self.memories)
                for level in range(own.levels)
            ]
            found[name] = parts, full
        return found

    def select(self, segment: int) -> None:
        """The next `run` takes the steps of one segment, from the states that the last one left."""
        chunks, chunk_table = self.plan.code.chunks
        for block, tables in zip(self.plan.blocks, self.tables):
            first, count = block.segments[segment]
            for table in tables:
                table[chunks], table[chunk_table] = count, address(block.chunks) + first * block.chunks.strides[0]

    def run(self, keep: object = None) -> None:
        if self.plan.parts > 1:
            for barrier in self.barriers:  # an interrupted run leaves it open
                barrier[:] = 0
        kernel, at_once = self.plan.code.text.kernel, self.plan.parts * (self.plan.at_once or len(self.plan.blocks))
        if len(self.addresses) <= at_once:
            run_blocks(kernel, self.addresses, (self, keep), self.release)
            return
        for first in range(0, len(self.addresses), at_once):
            run_blocks(kernel, self.addresses[first : first + at_once], (self, keep), self.release)

    def release(self) -> None:
        """Lets parts go on that wait for one that may never come; what they compute then is of no
        use."""
        for barrier in self.barriers:
            barrier[BARRIER_BYTES - 64 :] = 1


def _total(parts: Sequence[Array]) -> Array:
    """The sum of arrays, of halves of them: always in the same order."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return _total(parts[:middle]) + _total(parts[middle:])


def _by_group(parts: Sequence[Array], groups: Sequence[int]) -> Array:
    """The sum of the arrays of each group, [groups, ...]."""
    return np.stack([_total([a for a, g in zip(parts, groups) if g == n]) for n in range(groups[-1] + 1)])


def forget_idle() -> None:
    """Lets go of what is kept of earlier calls for later ones."""
    _IDLE.clear()


_IDLE: dict[int, Bound] = {}  # by the number of the plan; without a lock, for single operations on a dict are atomic


def execute(
    own: Plan,
    packed: Packed,
    inputs: Mapping[str, Array | None],
    outputs: Mapping[str, Array],
    states: Mapping[str, Array],
    tape: Tape | None = None,
    counts: Array | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Runs a kernel over all blocks.

    own: the kernel's plan; packed: its weights; inputs, outputs: [T, B, ...] arrays of the
    caller's, read and written in place, [columns, T, B, ...] where each column has its own; states:
    [B, width] or [B, columns, width] before the first step; tape: what a
    forward kernel writes and a backward kernel reads, if anything; counts: the number of each row's
    first step, int64 [B], None where all is 0. Returns the states after the last step [B, width],
    and the gradients of parameters that the kernel sums, [columns, ...] of each column.
    """
    bound = _IDLE.pop(own.number, None) or Bound(own)
    bound.use(packed, tape)
    bound.point(inputs, outputs)
    bound.load(states)
    bound.start_at(counts)
    bound.run(keep=(inputs, outputs))
    results = bound.states(), bound.gradients()
    if bound.bytes <= IDLE_BYTES:
        bound.flat.clear()
        bound.packed, bound.tape = NOTHING, None  # not kept alive by what may never be called again
        _IDLE[own.number] = bound
        while len(_IDLE) > IDLE_CALLS:
            with contextlib.suppress(StopIteration, RuntimeError):  # another thread was faster
                _IDLE.pop(next(iter(_IDLE)), None)
    return results
