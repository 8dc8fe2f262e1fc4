"""Runs emitted kernels: a Plan says where everything lies for one set of sizes, `execute` fills in the arrays of a call.

In: a kernel's LAYOUT (see emit.py), sizes, and the caller's arrays. Out: arrays. Nothing here knows a cell, and nothing
does arithmetic on values but the sum of the threads' weight gradients.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnspec.backends.cpu.memory import Arena, Memory, address
from rnnspec.backends.cpu.native import Kernel
from rnnspec.backends.cpu.pack import Packed
from rnnspec.backends.cpu.pool import run_blocks
from rnnspec.backends.cpu.rows import Block
from rnnspec.backends.cpu.runtime import Runtime, runtime
from rnnspec.language.sizes import evaluate_size

Array = np.ndarray


@dataclass(frozen=True)
class Code:
    """An imported kernel."""

    module: Kernel
    dtype: np.dtype
    runtime: Runtime
    layout: Mapping[str, Any]


def code(module: Kernel, dtype: np.dtype) -> Code:
    return Code(module, dtype, runtime(dtype.name), module.LAYOUT)


def padded(width: int, lanes: int) -> int:
    """Width in whole vectors, one at least."""
    return max(1, -(-width // lanes)) * lanes


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
    """What a call of a kernel needs that depends on sizes alone. tables: per block, complete but for addresses."""

    code: Code
    sizes: Mapping[str, int]
    blocks: tuple[Block, ...]
    tables: tuple[Array, ...]
    scratch: tuple[Region, ...]
    tape: tuple[Region, ...]
    tape_size: int
    widths: Mapping[str, int]  # of states
    zeroed: int  # bytes at the head of the scratch that start as zero: gradients, and a vector of zeros

    @property
    def rows(self) -> int:
        return sum(len(b.order) for b in self.blocks)


def plan(own: Code, sizes: Mapping[str, int], blocks: tuple[Block, ...]) -> Plan:
    """The plan of a kernel for sizes and blocks of rows."""
    layout = own.layout
    static = _static_fields(own, sizes)
    tables = []
    for block in blocks:
        fields = static | _block_fields(block)
        tables.append(np.array([fields.get(f, 0) for f in layout["fields"]], dtype=np.int64))
    scratch, zeroed = zip(*(_scratch(own, sizes, block) for block in blocks))
    tape, size = _tape(own, sizes, blocks)
    widths = {s: evaluate_size(w, sizes) for s, w in layout["states"].items()}
    return Plan(own, sizes, blocks, tuple(tables), scratch, tape, size, widths, zeroed[0])


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
    return {"chunks": len(block.chunks), "chunk_table": address(block.chunks), "order": address(block.order),
            "active": 0 if block.active is None else address(block.active), "lengths": 0 if block.lengths is None else address(block.lengths)}


def _width(own: Code, size: str, sizes: Mapping[str, int]) -> int:
    return padded(evaluate_size(size, sizes), own.layout["lanes"])


def _scratch(own: Code, sizes: Mapping[str, int], block: Block) -> tuple[Region, int]:
    """A thread's memory: gradients and zeros first, then buffers of a chunk, carries, descriptors."""
    layout, item = own.layout, own.dtype.itemsize
    arena, places = Arena(), dict[str, int]()
    for name, shape in layout["gradients"].items():
        stored = _stored(shape, sizes, layout["lanes"])
        places[f"gradient {name}"] = arena.add(int(np.prod(stored)), item)
    widest = max((_width(own, f.removeprefix("size "), sizes) for f in layout["fields"] if f.startswith("size ")), default=layout["lanes"])
    places["zeros"] = arena.add(widest, item)
    zeroed = arena.size
    for name, (size, kind, life) in layout["buffers"].items():
        if life == "scratch":
            rows = block.most_history_rows if kind == "history" else block.most_rows
            places[f"buffer {name}"] = arena.add(rows * _width(own, size, sizes), item)
    for name, size in layout["states"].items():
        places[f"carry {name}"] = arena.add(len(block.order) * _width(own, size, sizes), item)
    for number, panel in enumerate(layout["panels"]):
        places[f"fields {number}"] = arena.add(48 + 4 * len(panel["operands"]), 8)
    places["scratch"] = arena.add(own.runtime.outer_scratch, 1)
    return region(layout, places, arena.size), zeroed


def _stored(shape: tuple[str, ...], sizes: Mapping[str, int], lanes: int) -> tuple[int, ...]:
    """The shape in which a gradient is summed: rows in whole vectors."""
    full = [evaluate_size(s, sizes) for s in shape]
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


def new_tape(forward: Plan) -> Tape:
    return Tape(forward, Memory(forward.tape_size))


# --- a call ----------------------------------------------------------------------------------------------------------


def execute(own: Plan, packed: Packed, inputs: Mapping[str, Array | None], outputs: Mapping[str, Array], states: Mapping[str, Array],
            tape: Tape | None = None) -> tuple[dict[str, Array], dict[str, Array]]:
    """Runs a kernel over all blocks.

    inputs, outputs: [T, B, ...] arrays of the caller's, read and written in place; states: [B, width] before the first step.
    Returns the states after the last step [B, width], and the gradients of parameters that the kernel sums.
    """
    layout, blocks = own.code.layout, own.blocks
    arrays = _array_fields(layout, inputs, outputs, own.code.dtype.itemsize)
    memories = [Memory(r.size) for r in own.scratch]
    tables = []
    for i, (template, memory) in enumerate(zip(own.tables, memories)):
        table = template.copy()
        own.scratch[i].fill(table, memory)
        packed.region.fill(table, packed.memory)
        if tape is not None:
            _fill_tape(table, layout, tape, i)
        for place, value in arrays:
            table[place] = value
        memory.view(0, (own.zeroed,), np.dtype(np.uint8))[:] = 0
        _load_carry(own, states, i, memory)
        tables.append(table)
    run_blocks(own.code.module.kernel, [address(t) for t in tables], keep=(own, packed, inputs, outputs, tape, memories, tables))
    final = {s: np.empty((own.rows, width), own.code.dtype) for s, width in own.widths.items()}
    for i, memory in enumerate(memories):
        for s, values in final.items():
            values[blocks[i].order] = _carry(own, s, i, memory)[:, : values.shape[1]]
    return final, _gradients(own, memories)


def _array_fields(layout: Mapping[str, Any], inputs: Mapping[str, Array | None], outputs: Mapping[str, Array], item: int) -> list[tuple[int, int]]:
    fields, found = layout["fields"], []
    for kind, given, names in (("input", inputs, layout["inputs"]), ("output", outputs, layout["outputs"])):
        for name in names:
            array = given.get(name)
            if array is not None:
                first = fields.index(f"{kind} {name}")  # address, then the strides of t, b, d
                t, b, *d = array.strides
                found += [(first, address(array)), (first + 1, t // item), (first + 2, b // item), (first + 3, d[0] // item if d else 0)]
    return found


def _fill_tape(table: Array, layout: Mapping[str, Any], tape: Tape, block: int) -> None:
    own = tape.plan.tape[block]
    if tape.plan.code.layout is layout:
        own.fill(table, tape.memory)
        return
    fields = layout["fields"]
    for name, (_, _, life) in layout["buffers"].items():
        if life == "taped":
            table[fields.index(f"buffer {name}")] = own.named[f"buffer {name}"] + tape.memory.start


def _carry(own: Plan, state: str, block: int, memory: Memory) -> Array:
    width = padded(own.widths[state], own.code.layout["lanes"])
    return memory.view(own.scratch[block].named[f"carry {state}"], (len(own.blocks[block].order), width), own.code.dtype)


def _load_carry(own: Plan, states: Mapping[str, Array], block: int, memory: Memory) -> None:
    for name, width in own.widths.items():
        view = _carry(own, name, block, memory)
        given = states.get(name)
        if given is None:
            view[:] = 0
        else:
            view[:, width:] = 0
            view[:, :width] = given.reshape(given.shape[0], width)[own.blocks[block].order]


def _gradients(own: Plan, memories: list[Memory]) -> dict[str, Array]:
    lanes, found = own.code.layout["lanes"], {}
    for name, shape in own.code.layout["gradients"].items():
        full = tuple(evaluate_size(s, own.sizes) for s in shape)
        parts = [memory.view(r.named[f"gradient {name}"], _stored(shape, own.sizes, lanes), own.code.dtype) for r, memory in zip(own.scratch, memories)]
        cut = tuple(slice(0, n) for n in (full or (1,)))
        total = parts[0][cut].copy()
        for part in parts[1:]:
            total += part[cut]
        found[name] = total.reshape(full)
    return found


def read_history(tape: Tape, steps: int) -> dict[str, Array]:
    """Every state after every step, [T, B, width], from the tape; zero past a row's end."""
    own, layout, found = tape.plan, tape.plan.code.layout, {}
    histories = [b for b, (_, kind, _) in layout["buffers"].items() if kind == "history"]
    for (name, width), buffer in zip(own.widths.items(), histories):
        values = np.zeros((steps, own.rows, width), own.code.dtype)
        for block, part in zip(own.blocks, own.tape):
            view = tape.memory.view(part.named[f"buffer {buffer}"], (block.history_rows, padded(width, layout["lanes"])), own.code.dtype)
            for t0, count, n, _, before in block.chunks.tolist():
                for s in range(count):
                    live = n if block.active is None else int(block.active[t0 + s])
                    values[t0 + s, block.order[:live]] = view[before + (s + 1) * n : before + (s + 1) * n + live, :width]
        found[name] = values
    return found
