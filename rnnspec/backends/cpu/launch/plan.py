"""What a call of a kernel needs that depends on sizes alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.code import CpuCode
from rnnspec.backends.cpu.launch.memory import Arena, Memory, address, padded
from rnnspec.backends.cpu.launch.pool import yield_address
from rnnspec.backends.cpu.launch.rows import Block, columned
from rnnspec.backends.cpu.machine import descriptor_fields
from rnnspec.language.sizes import evaluate_size, full_shape

BARRIER_BYTES = 192  # three cache lines, see `wait` in simd.py


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
    """What a call of a kernel needs that depends on sizes alone. Every block of rows is worked on
    by `parts` threads, each at a part of the units, or if `by_rows`, of the rows: then they meet
    after each chunk, where each sums the gradients of a part of the units. tables: per block and
    part, complete but for addresses; scratch: per block; own: what each part has for itself.
    pieces: 0 where rows are those of a batch; else they are parts of them that may start anywhere
    (see rnnspec/engine/spans.py), and steps lead on (1) or back (-1). at_once: how many
    blocks are worked on at a time, 0 for all: one where blocks are what gradients are summed of.
    groups: of each block the number of the weights that it has, where rows have weights of their
    own; empty where all have the same. columns: how many
    there are of what there is of for each column."""

    code: CpuCode
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
    levels: int  # how many sums there are of each gradient (rows.py), `level_bytes` apart
    level_bytes: int
    pieces: int = 0
    by_rows: bool = False
    at_once: int = 0
    columns: int = 1
    groups: tuple[int, ...] = ()
    number: int = field(default_factory=itertools.count().__next__)  # no other plan has it

    @property
    def rows(self) -> int:
        return sum(len(b.order) for b in self.blocks)


def plan(
    own: CpuCode,
    sizes: Mapping[str, int],
    blocks: tuple[Block, ...],
    parts: int = 1,
    pieces: int = 0,
    by_rows: bool = False,
    at_once: int = 0,
    columns: int = 1,
    groups: tuple[int, ...] = (),
) -> Plan:
    """The plan of a kernel for sizes and blocks of rows, each of them shared by `parts` threads.
    own: the kernel; sizes: the value of every size; the others: see Plan."""
    layout = own.layout
    levels = 1 + max((int(block.chunks[:, 5].max(initial=0)) for block in blocks), default=0)
    level_bytes = _level_bytes(own, sizes, columns)
    static = _static_fields(own, sizes) | {"parts": parts, "yielding": yield_address(), "by_rows": int(by_rows)}
    static |= {"sums size": level_bytes // own.dtype.itemsize, "columns": columns}
    tables = []
    for block in blocks:
        fields = static | _block_fields(block)
        tables.append(
            tuple(
                np.array([(fields | {"part": part}).get(f, 0) for f in layout["fields"]], dtype=np.int64)
                for part in range(parts)
            )
        )
    scratch, zeroed = zip(*(_scratch(own, sizes, block, levels, columns) for block in blocks))
    tape, size = _tape(own, sizes, blocks, columns)
    widths = {s: evaluate_size(w, sizes) for s, w in layout["states"].items()}
    return Plan(
        own,
        sizes,
        blocks,
        parts,
        tuple(tables),
        scratch,
        _own(own, columns),
        tape,
        size,
        widths,
        zeroed[0],
        levels,
        level_bytes,
        pieces,
        by_rows,
        at_once,
        columns,
        groups,
    )


def _static_fields(own: CpuCode, sizes: Mapping[str, int]) -> dict[str, int]:
    r = own.runtime
    outer, fold = (r.outer, r.fold) if own.layout["gradients"] else (0, 0)
    fields = {"product": r.product, "outer": outer, "gather": r.gather, "scatter": r.scatter, "fold": fold}
    if "kept outer" in own.layout["fields"]:
        fields["kept outer"] = r.kept_outer
    for f in own.layout["fields"]:
        if f.startswith("size "):
            width = evaluate_size(f.removeprefix("size "), sizes)
            fields |= {f: width, f"padded {f.removeprefix('size ')}": padded(width, own.layout["lanes"])}
    return fields


def _block_fields(block: Block) -> dict[str, int]:
    return {
        "chunks": len(block.chunks),
        "chunk_table": address(block.chunks),
        "order": address(block.places),
        "active": 0 if block.active is None else address(block.active),
        "lengths": 0 if block.lengths is None else address(block.lengths),
    }


def _width(own: CpuCode, size: str, sizes: Mapping[str, int]) -> int:
    return padded(evaluate_size(size, sizes), own.layout["lanes"])


def sum_shapes(own: CpuCode, sizes: Mapping[str, int], columns: int) -> dict[str, tuple[int, ...]]:
    """The shape in which each gradient is summed, with an axis of columns before where each has its
    own."""
    layout, each = own.layout, columned(own.layout, "gradients")
    stored = {n: stored_shape(shape, sizes, layout["lanes"]) for n, shape in layout["gradients"].items()}
    return {n: (columns, *shape) if n in each else shape for n, shape in stored.items()}


def _gradients(own: CpuCode, sizes: Mapping[str, int], arena: Arena, columns: int) -> dict[str, int]:
    """The places of the gradients' sums, one after another."""
    shapes = sum_shapes(own, sizes, columns)
    return {f"gradient {n}": arena.add(int(np.prod(shape)), own.dtype.itemsize) for n, shape in shapes.items()}


def _level_bytes(own: CpuCode, sizes: Mapping[str, int], columns: int) -> int:
    """How far apart two levels of the gradients' sums lie."""
    arena = Arena()
    start = arena.size
    _gradients(own, sizes, arena, columns)
    return arena.size - start


def _scratch(own: CpuCode, sizes: Mapping[str, int], block: Block, levels: int, columns: int) -> tuple[Region, int]:
    """A block's memory: gradients, zeros and the barrier first, then buffers of a chunk and
    carries."""
    layout, item = own.layout, own.dtype.itemsize
    arena = Arena()
    places = {"sums": arena.size} | _gradients(own, sizes, arena, columns)
    arena.size += (levels - 1) * _level_bytes(own, sizes, columns)
    widest = max(
        (_width(own, f.removeprefix("size "), sizes) for f in layout["fields"] if f.startswith("size ")),
        default=layout["lanes"],
    )
    places["zeros"] = arena.add(widest, item)
    places["barrier"] = arena.add(BARRIER_BYTES, 1)
    zeroed = arena.size
    for name, (size, kind, life) in layout["buffers"].items():
        if life == "scratch":
            rows = block.most_history_rows if kind == "history" else block.most_rows
            rows *= columns if name in columned(layout, "buffers") else 1
            places[f"buffer {name}"] = arena.add(rows * _width(own, size, sizes), item)
    for name, size in layout["states"].items():
        rows = len(block.order) * (columns if name in columned(layout, "states") else 1)
        places[f"carry {name}"] = arena.add(rows * _width(own, size, sizes), item)
    return region(layout, places, arena.size), zeroed


def _own(own: CpuCode, columns: int) -> Region:
    """Memory of one part: descriptors, and scratch of the outer products."""
    arena = Arena()
    places = {
        f"fields {number}": arena.add(
            descriptor_fields(len(panel["operands"])) * (columns if panel.get("by_column") else 1), 8
        )
        for number, panel in enumerate(own.layout["panels"])
    }
    if own.layout["gradients"]:
        places["scratch"] = arena.add(own.runtime.outer_scratch, 1)
    return region(own.layout, places, arena.size)


def stored_shape(shape: tuple[str, ...], sizes: Mapping[str, int], lanes: int) -> tuple[int, ...]:
    """The shape in which a gradient is summed: rows in whole vectors."""
    full = full_shape(shape, sizes)
    return (*full[:-1], padded(full[-1], lanes)) if full else (lanes,)


def _tape(
    own: CpuCode, sizes: Mapping[str, int], blocks: tuple[Block, ...], columns: int
) -> tuple[tuple[Region, ...], int]:
    """Where each block's part of the tape lies: of the kernel that writes it."""
    arena, found = Arena(), []
    for block in blocks:
        places = {}
        for name, (size, kind, life) in own.layout["buffers"].items():
            if life == "saved":
                rows = block.history_rows if kind == "history" else block.rows
                rows *= columns if name in columned(own.layout, "buffers") else 1
                places[f"buffer {name}"] = arena.add(rows * _width(own, size, sizes), own.dtype.itemsize)
        found.append(places)
    return tuple(region(own.layout, places, arena.size) for places in found), arena.size
