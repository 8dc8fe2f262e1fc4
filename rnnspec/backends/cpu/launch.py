"""Runs emitted kernels: a Plan says where everything lies for one set of sizes, `execute` fills in the arrays of a call.

In: a kernel's LAYOUT (see emit.py), sizes, and the caller's arrays. Out: arrays. Nothing here knows a cell, and nothing
does arithmetic on values but the sum of the threads' weight gradients.
"""
from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnspec.backends.cpu.memory import Arena, Memory, address, padded
from rnnspec.backends.cpu.native import Kernel
from rnnspec.backends.cpu.pack import NOTHING, Packed
from rnnspec.backends.cpu.pool import run_blocks, yield_address
from rnnspec.backends.cpu.rows import Block
from rnnspec.backends.cpu.runtime import Runtime, runtime
from rnnspec.errors import ShapeError
from rnnspec.language.sizes import evaluate_size, full_shape

Array = np.ndarray
# The last calls leave their tables and memory to the next one of the same sizes: for a small problem that is most of a call's cost.
IDLE_CALLS, IDLE_BYTES = 8, 1 << 22
BARRIER_BYTES = 192  # three cache lines, see `wait` in simd.py


@dataclass(frozen=True)
class Code:
    """An imported kernel."""

    module: Kernel
    dtype: np.dtype
    runtime: Runtime
    layout: Mapping[str, Any]
    inputs: Mapping[str, int]  # where in the table an array's address and its strides of t, b, d stand
    outputs: Mapping[str, int]
    chunks: tuple[int, int]  # and where the number of chunks and the address of their table stand


def code(module: Kernel, dtype: np.dtype) -> Code:
    index = {f: i for i, f in enumerate(module.LAYOUT["fields"])}
    inputs, outputs = ({name: index[f"{kind} {name}"] for name in module.LAYOUT[f"{kind}s"]} for kind in ("input", "output"))
    return Code(module, dtype, runtime(dtype.name), module.LAYOUT, inputs, outputs, (index["chunks"], index["chunk_table"]))


@dataclass(frozen=True)
class Region:
    """Buffers in one piece of memory, and the table fields that get their addresses."""

    size: int
    fields: Array  # [n] int64, places in the table
    offsets: Array  # [n] int64, bytes from the start
    named: Mapping[str, int]

    def fill(self, table: Array, memory: Memory) -> None:
        table[self.fields] = self.offsets + memory.start


def region(layout: Mapping[str, Any], named: Mapping[str, int], size: int) -> Region:
    index = {f: i for i, f in enumerate(layout["fields"])}
    present = [(index[f], o) for f, o in named.items() if f in index]
    fields, offsets = np.array(present, dtype=np.int64).reshape(-1, 2).T
    return Region(size, np.ascontiguousarray(fields), np.ascontiguousarray(offsets), named)


@dataclass(frozen=True)
class Plan:
    """What a call of a kernel needs that depends on sizes alone. Every block of rows is worked on by `parts` threads, each at a part of
    the units. tables: per block and part, complete but for addresses; scratch: per block; own: what each part has for itself.
    pieces: 0 where rows are those of a batch; else they are parts of them that may start anywhere (see rnnspec/pieces.py), and steps
    lead on (1) or back (-1)."""

    code: Code
    sizes: Mapping[str, int]
    blocks: tuple[Block, ...]
    parts: int
    tables: tuple[tuple[Array, ...], ...]
    scratch: tuple[Region, ...]
    own: Region
    tape: tuple[Region, ...]
    tape_size: int
    widths: Mapping[str, int]  # of states
    zeroed: int  # bytes at the head of the scratch that start as zero: gradients, and a vector of zeros
    pieces: int = 0
    number: int = field(default_factory=itertools.count().__next__)  # no other plan has it

    @property
    def rows(self) -> int:
        return sum(len(b.order) for b in self.blocks)


def plan(own: Code, sizes: Mapping[str, int], blocks: tuple[Block, ...], parts: int = 1, pieces: int = 0) -> Plan:
    """The plan of a kernel for sizes and blocks of rows, each of them shared by `parts` threads."""
    layout = own.layout
    static = _static_fields(own, sizes) | {"parts": parts, "yielding": yield_address()}
    tables = []
    for block in blocks:
        fields = static | _block_fields(block)
        tables.append(tuple(np.array([(fields | {"part": part}).get(f, 0) for f in layout["fields"]], dtype=np.int64) for part in range(parts)))
    scratch, zeroed = zip(*(_scratch(own, sizes, block) for block in blocks))
    tape, size = _tape(own, sizes, blocks)
    widths = {s: evaluate_size(w, sizes) for s, w in layout["states"].items()}
    return Plan(own, sizes, blocks, parts, tuple(tables), scratch, _own(own), tape, size, widths, zeroed[0], pieces)


def _static_fields(own: Code, sizes: Mapping[str, int]) -> dict[str, int]:
    r = own.runtime
    outer = r.outer if any(len(shape) == 2 for shape in own.layout["gradients"].values()) else 0
    fields = {"product": r.product, "outer": outer, "gather": r.gather, "scatter": r.scatter}
    for f in own.layout["fields"]:
        if f.startswith("size "):
            width = evaluate_size(f.removeprefix("size "), sizes)
            fields |= {f: width, f"padded {f.removeprefix('size ')}": padded(width, own.layout["lanes"])}
    return fields


def _block_fields(block: Block) -> dict[str, int]:
    return {"chunks": len(block.chunks), "chunk_table": address(block.chunks), "order": address(block.places),
            "active": 0 if block.active is None else address(block.active), "lengths": 0 if block.lengths is None else address(block.lengths)}


def _width(own: Code, size: str, sizes: Mapping[str, int]) -> int:
    return padded(evaluate_size(size, sizes), own.layout["lanes"])


def _scratch(own: Code, sizes: Mapping[str, int], block: Block) -> tuple[Region, int]:
    """A block's memory: gradients, zeros and the barrier first, then buffers of a chunk and carries."""
    layout, item = own.layout, own.dtype.itemsize
    arena, places = Arena(), dict[str, int]()
    for name, shape in layout["gradients"].items():
        stored = _stored(shape, sizes, layout["lanes"])
        places[f"gradient {name}"] = arena.add(int(np.prod(stored)), item)
    widest = max((_width(own, f.removeprefix("size "), sizes) for f in layout["fields"] if f.startswith("size ")), default=layout["lanes"])
    places["zeros"] = arena.add(widest, item)
    places["barrier"] = arena.add(BARRIER_BYTES, 1)
    zeroed = arena.size
    for name, (size, kind, life) in layout["buffers"].items():
        if life == "scratch":
            rows = block.most_history_rows if kind == "history" else block.most_rows
            places[f"buffer {name}"] = arena.add(rows * _width(own, size, sizes), item)
    for name, size in layout["states"].items():
        places[f"carry {name}"] = arena.add(len(block.order) * _width(own, size, sizes), item)
    return region(layout, places, arena.size), zeroed


def _own(own: Code) -> Region:
    """Memory of one part: descriptors, and scratch of the outer products."""
    arena = Arena()
    places = {f"fields {number}": arena.add(48 + 4 * len(panel["operands"]), 8) for number, panel in enumerate(own.layout["panels"])}
    if own.layout["gradients"]:
        places["scratch"] = arena.add(own.runtime.outer_scratch, 1)
    return region(own.layout, places, arena.size)


def _stored(shape: tuple[str, ...], sizes: Mapping[str, int], lanes: int) -> tuple[int, ...]:
    """The shape in which a gradient is summed: rows in whole vectors."""
    full = full_shape(shape, sizes)
    return (*full[:-1], padded(full[-1], lanes)) if full else (lanes,)


def _tape(own: Code, sizes: Mapping[str, int], blocks: tuple[Block, ...]) -> tuple[tuple[Region, ...], int]:
    """Where each block's part of the tape lies: of the kernel that writes it."""
    arena, found = Arena(), []
    for block in blocks:
        places = {}
        for name, (size, kind, life) in own.layout["buffers"].items():
            if life == "saved":
                rows = block.history_rows if kind == "history" else block.rows
                places[f"buffer {name}"] = arena.add(rows * _width(own, size, sizes), own.dtype.itemsize)
        found.append(places)
    return tuple(region(own.layout, places, arena.size) for places in found), arena.size


@dataclass(frozen=True)
class Tape:
    """What a forward run leaves for its backward run."""

    plan: Plan
    memory: Memory

    @property
    def tape_bytes(self) -> int:
        return self.plan.tape_size

    def kept(self) -> Array:
        """All of it as bytes, not copied, for `restored` with an equal plan; the array holds the memory."""
        return np.asarray(self.memory)


def new_tape(forward: Plan) -> Tape:
    return Tape(forward, Memory(forward.tape_size))


def restored(forward: Plan, kept: Array) -> Tape:
    if kept.shape != (forward.tape_size,):
        raise ShapeError(f"a tape of {kept.size} bytes is not of these arguments, whose tape has {forward.tape_size}. "
                         "Give the arguments of `record`, to a kernel with the same number of threads.")
    return Tape(forward, Memory(kept.size, np.ascontiguousarray(kept)))


# --- a call ----------------------------------------------------------------------------------------------------------


class Bound:
    """A plan with memory: everything but the caller's arrays. Per block a table, and the memory it points into."""

    def __init__(self, own: Plan):
        self.plan, self.packed = own, NOTHING
        self.tape: Tape | None = None
        self.memories = [Memory(r.size) for r in own.scratch]
        self.own = [Memory(own.own.size) for _ in range(len(own.blocks) * own.parts)]
        self.tables = [[template.copy() for template in templates] for templates in own.tables]
        for tables, memory, region in zip(self.tables, self.memories, own.scratch):
            for table in tables:
                region.fill(table, memory)
        self.all = [table for tables in self.tables for table in tables]
        for table, memory in zip(self.all, self.own):
            own.own.fill(table, memory)
        self.addresses = [address(t) for t in self.all]
        self.zeroed = [memory.view(0, (own.zeroed,), np.dtype(np.uint8)) for memory in self.memories]
        self.carries = {name: [self._carry(name, i) for i in range(len(self.memories))] for name in own.widths}
        self.sums = self._sums()
        self.flat = list[Array]()  # what `point` had to copy lives until the next call
        self.barriers = [memory.view(r.named["barrier"], (BARRIER_BYTES,), np.dtype(np.uint8)) for r, memory in zip(own.scratch, self.memories)]
        self.alone = len(own.blocks) == 1 and own.blocks[0].lengths is None  # rows lie in the caller's order

    def _carry(self, state: str, block: int) -> Array:
        """A state of a block's rows where the kernel keeps it from chunk to chunk, [rows, width]; what fills up its vectors is zero."""
        own = self.plan
        width = padded(own.widths[state], own.code.layout["lanes"])
        view = self.memories[block].view(own.scratch[block].named[f"carry {state}"], (len(own.blocks[block].order), width), own.code.dtype)
        view[:, own.widths[state] :] = 0
        return view[:, : own.widths[state]]

    def use(self, packed: Packed, tape: Tape | None) -> None:
        """Sets the weights and the tape; gradients start again at zero."""
        for i, tables in enumerate(self.tables):
            for table in tables:
                if packed is not self.packed:
                    packed.fill(table)
                if tape is not None and tape is not self.tape:
                    _fill_tape(table, self.plan.code.layout, tape, i)
            self.zeroed[i][:] = 0
        self.packed, self.tape = packed, tape

    def point(self, inputs: Mapping[str, Array | None], outputs: Mapping[str, Array]) -> None:
        """Sets the arrays of the caller's, [T, B, ...]: read and written in place. An input that is not given counts as zero,
        and an output that is not given is not written."""
        item = self.plan.code.dtype.itemsize
        self.flat.clear()
        for given, places in ((inputs, self.plan.code.inputs), (outputs, self.plan.code.outputs)):
            for name, first in places.items():
                array = given.get(name)
                if array is None:
                    fields: tuple[int, ...] = (0, 0, 0, 0)
                else:
                    if array.ndim > 3:  # matrices, row after row; of an output, which is ours, a view
                        array = array.reshape(*array.shape[:2], math.prod(array.shape[2:]))  # -1 is undefined of no steps or rows
                        self.flat.append(array)
                    t, b, *d = array.strides
                    if self.plan.pieces:  # numbered through: step t of row b is number t * B + b
                        b = t // max(1, array.shape[1]) if array.shape[0] > 1 else b
                        t *= self.plan.pieces
                    fields = (address(array), t // item, b // item, d[0] // item if d else 0)
                for table in self.all:
                    table[first : first + 4] = fields

    def load(self, states: Mapping[str, Array]) -> None:
        """Sets the states before the first step, [B, ...]; zero where left out."""
        for name, parts in self.carries.items():
            given = states.get(name)
            for block, part in zip(self.plan.blocks, parts):
                if given is None:
                    part[...] = 0
                else:
                    rows = given.reshape(given.shape[0], part.shape[1])
                    part[...] = rows if self.alone else rows[block.order]

    def states(self) -> dict[str, Array]:
        """The states after the last step, [B, width]."""
        if self.alone:
            return {name: parts[0].copy() for name, parts in self.carries.items()}
        found = {}
        for name, parts in self.carries.items():
            values = found[name] = np.empty((self.plan.rows, self.plan.widths[name]), self.plan.code.dtype)
            for block, part in zip(self.plan.blocks, parts):
                values[block.order] = part
        return found

    def gradients(self) -> dict[str, Array]:
        """The sums over all rows and steps since `use`, parameter by parameter."""
        found = {}
        for name, (parts, full) in self.sums.items():
            total = parts[0].copy()
            for part in parts[1:]:
                total += part
            found[name] = total.reshape(full)
        return found

    def _sums(self) -> dict[str, tuple[list[Array], tuple[int, ...]]]:
        """Where the gradient of a parameter is summed in each block, and its shape."""
        own, found = self.plan, {}
        for name, shape in own.code.layout["gradients"].items():
            full = full_shape(shape, own.sizes)
            stored, cut = _stored(shape, own.sizes, own.code.layout["lanes"]), tuple(slice(0, n) for n in (full or (1,)))
            parts = [memory.view(r.named[f"gradient {name}"], stored, own.code.dtype)[cut] for r, memory in zip(own.scratch, self.memories)]
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
        run_blocks(self.plan.code.module.kernel, self.addresses, (self, keep), self.release)

    def release(self) -> None:
        """Lets parts go on that wait for one that may never come; what they compute then is of no use."""
        for barrier in self.barriers:
            barrier[BARRIER_BYTES - 64 :] = 1


_IDLE: dict[int, Bound] = {}  # by the number of the plan; without a lock, for single operations on a dict are atomic


def execute(own: Plan, packed: Packed, inputs: Mapping[str, Array | None], outputs: Mapping[str, Array], states: Mapping[str, Array],
            tape: Tape | None = None) -> tuple[dict[str, Array], dict[str, Array]]:
    """Runs a kernel over all blocks.

    inputs, outputs: [T, B, ...] arrays of the caller's, read and written in place; states: [B, width] before the first step.
    Returns the states after the last step [B, width], and the gradients of parameters that the kernel sums.
    """
    bound = _IDLE.pop(own.number, None) or Bound(own)
    bound.use(packed, tape)
    bound.point(inputs, outputs)
    bound.load(states)
    bound.run(keep=(inputs, outputs))
    results = bound.states(), bound.gradients()
    if sum(r.size for r in own.scratch) + own.own.size * len(bound.own) <= IDLE_BYTES:
        bound.flat.clear()
        bound.packed, bound.tape = NOTHING, None  # not kept alive by what may never be called again
        _IDLE[own.number] = bound
        while len(_IDLE) > IDLE_CALLS:
            with contextlib.suppress(StopIteration, RuntimeError):  # another thread was faster
                _IDLE.pop(next(iter(_IDLE)), None)
    return results


def _fill_tape(table: Array, layout: Mapping[str, Any], tape: Tape, block: int) -> None:
    own = tape.plan.tape[block]
    if tape.plan.code.layout is layout:
        own.fill(table, tape.memory)
        return
    fields = layout["fields"]
    for name, (_, _, life) in layout["buffers"].items():
        if life == "taped":
            table[fields.index(f"buffer {name}")] = own.named[f"buffer {name}"] + tape.memory.start


def new_histories(tape: Tape, steps: int, rows: int) -> dict[str, Array]:
    """Zeros for every state after every step, [T, B, width]."""
    own = tape.plan
    return {name: np.zeros((steps, rows, width), own.code.dtype) for name, width in own.widths.items()}


def read_history(tape: Tape, into: Mapping[str, Array], segment: int = 0) -> None:
    """The states of the steps of a segment, from the tape into arrays [T, B, width]; nothing is written past a row's end."""
    own, layout = tape.plan, tape.plan.code.layout
    histories = [b for b, (_, kind, _) in layout["buffers"].items() if kind == "history"]
    for (name, width), buffer in zip(own.widths.items(), histories):
        steps, rows, _ = into[name].shape
        through, step = into[name].reshape(steps * rows, width), rows * (own.pieces or 1)
        for block, part in zip(own.blocks, own.tape):
            view = tape.memory.view(part.named[f"buffer {buffer}"], (block.history_rows, padded(width, layout["lanes"])), own.code.dtype)
            begin, many = block.segments[segment]
            for t0, count, n, _, before in block.chunks[begin : begin + many].tolist():
                for s in range(count):
                    live = n if block.active is None else int(block.active[t0 + s])
                    through[block.places[:live] + (t0 + s) * step] = view[before + (s + 1) * n : before + (s + 1) * n + live, :width]
