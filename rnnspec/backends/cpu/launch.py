"""Runs emitted kernels: splits rows over threads and steps into chunks, packs weights, and lays out every buffer.

In: a kernel's LAYOUT (see emit.py), sizes, and the caller's arrays. Out: arrays. Nothing here knows a cell; nothing
here does arithmetic on values but the sum of the threads' weight gradients.
"""
from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from rnnspec.backends.cpu.pool import run_blocks
from rnnspec.backends.cpu.tile import Runtime, runtime
from rnnspec.language.sizes import evaluate_size

Array = np.ndarray
CACHE_BYTES = 1 << 20  # scratch of one chunk: what stays in a core's cache between the phases
LEAST_ROWS = 128  # rows of a chunk, where there are so many: shorter sums make the weight gradients wait for memory
FLOPS_PER_THREAD = 4_000_000  # below this a second thread costs more than it brings
STAGGER = 3 * 64  # bytes between neighbouring buffers, so that equal offsets in them do not meet in one cache set


@dataclass(frozen=True)
class Code:
    """An imported kernel."""

    module: ModuleType
    dtype: np.dtype

    @property
    def layout(self) -> Mapping[str, Any]:
        return self.module.LAYOUT  # type: ignore[no-any-return]

    @property
    def runtime(self) -> Runtime:
        return runtime(self.dtype.name)


@dataclass(frozen=True)
class Block:
    """The rows of one thread: `order` their places in the batch, longest first; `active` how many are live at each step."""

    order: Array  # [n] int64
    lengths: Array | None  # [n] int64, falling
    active: Array | None  # [T] int64
    chunks: Array  # [chunks, 5] int64: first step, steps, rows, rows before it, history rows before it
    rows: int
    history_rows: int


def padded(width: int, lanes: int) -> int:
    """Width in whole vectors, one at least."""
    return max(1, -(-width // lanes)) * lanes


def block_count(rows: int, flops: float, threads: int) -> int:
    return max(1, min(threads, rows, int(flops // FLOPS_PER_THREAD) or 1))


def split_rows(rows: int, steps: int, lengths: Array | None, blocks: int, chunk_rows: int) -> tuple[Block, ...]:
    """Rows dealt out to blocks so that all have about the same work, and each block's chunks."""
    if lengths is None:
        cuts = [rows * i // blocks for i in range(blocks + 1)]
        return tuple(_block(np.arange(a, b, dtype=np.int64), None, steps, chunk_rows) for a, b in zip(cuts, cuts[1:]))
    order = np.argsort(-lengths, kind="stable")
    return tuple(_block(np.ascontiguousarray(order[i::blocks], dtype=np.int64), lengths, steps, chunk_rows) for i in range(blocks))


def _block(order: Array, lengths: Array | None, steps: int, chunk_rows: int) -> Block:
    own = None if lengths is None else np.ascontiguousarray(lengths[order], dtype=np.int64)
    active = None if own is None else np.array([np.count_nonzero(own > t) for t in range(steps)], dtype=np.int64)
    last = steps if own is None else int(own[0]) if len(own) else 0
    chunks, t, rows, history = [], 0, 0, 0
    while t < last and len(order):
        n = len(order) if active is None else int(active[t])
        size = min(last - t, max(1, chunk_rows // n))
        chunks.append((t, size, n, rows, history))
        t, rows, history = t + size, rows + size * n, history + (size + 1) * n
    return Block(order, own, active, np.array(chunks, dtype=np.int64).reshape(-1, 5), rows, history)


def chunk_rows(layouts: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], item: int) -> int:
    """Rows of a chunk: as many as fit the cache in the hungriest of the kernels that share the tape, but no fewer than LEAST_ROWS."""
    widest = 1
    for layout in layouts:
        own = sum(padded(evaluate_size(s, sizes), layout["lanes"]) for s, _, life in layout["buffers"].values() if life == "scratch")
        widest = max(widest, own * item)
    return max(LEAST_ROWS, CACHE_BYTES // widest)


def flops(layout: Mapping[str, Any], sizes: Mapping[str, int], rows: int) -> float:
    return 2.0 * rows * sum(evaluate_size(a, sizes) * evaluate_size(b, sizes) for a, b in layout["flops"])


# --- memory ----------------------------------------------------------------------------------------------------------


class Arena:
    """One allocation that holds many buffers; `offsets` in bytes."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, count: int, item: int) -> int:
        offset = self.size
        self.size += -(-count * item // 64) * 64 + STAGGER
        return offset

    def allocate(self, *, zero: bool = False) -> tuple[Array, int]:
        """The memory, and its first address, at a cache line."""
        memory = (np.zeros if zero else np.empty)(self.size + 64, dtype=np.uint8)
        return memory, -(-address(memory) // 64) * 64


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def as_view(memory: Array, at: int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """An array over part of an arena; it keeps the arena alive."""
    start = at - address(memory)
    count = int(np.prod(shape, dtype=np.int64))
    return memory[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


@dataclass(frozen=True)
class Tape:
    """What a forward run leaves for its backward run: per block and buffer the address, and the memory itself."""

    blocks: tuple[Block, ...]
    buffers: tuple[Mapping[str, int], ...]
    memory: Array


def new_tape(code: Code, sizes: Mapping[str, int], blocks: tuple[Block, ...]) -> Tape:
    arena, layout, item = Arena(), code.layout, code.dtype.itemsize
    offsets: list[dict[str, int]] = []
    for block in blocks:
        own = {}
        for name, (size, kind, life) in layout["buffers"].items():
            if life == "saved":
                own[name] = arena.add((block.history_rows if kind == "history" else block.rows) * padded(evaluate_size(size, sizes), layout["lanes"]), item)
        offsets.append(own)
    memory, start = arena.allocate()
    return Tape(blocks, tuple({n: start + o for n, o in own.items()} for own in offsets), memory)


# --- weights ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """The table fields that weights give a kernel, and the memory behind them."""

    fields: Mapping[str, int]
    memory: Array


def pack(code: Code, sizes: Mapping[str, int], params: Mapping[str, Array]) -> Packed:
    """Weights as the kernel reads them: panels, summed biases, padded vectors."""
    layout, item, lanes = code.layout, code.dtype.itemsize, code.layout["lanes"]
    arena, fields, jobs = Arena(), dict[str, int](), []
    for number, panel in enumerate(layout["panels"]):
        shape = _panel_shape(panel, sizes, lanes)
        offset = arena.add(shape.total, item)
        fields |= {f"panels {number}": offset, f"panels {number}, stride": shape.stride, f"panels {number}, vectors": shape.vectors,
                   f"panels {number}, last vectors": shape.last_vectors, f"panels {number}, last": shape.last}
        jobs.append((panel, shape, offset))
    vectors = {f: names for f, names in layout["biases"].items()} | {f"vector {p}": [p] for p in layout["vectors"]}
    places = {f: arena.add(padded(params[names[0]].size, lanes), item) for f, names in vectors.items()}
    memory, start = arena.allocate()
    for panel, shape, offset in jobs:
        _fill_panel(code, panel, shape, start + offset, params, sizes)
    for f, names in vectors.items():
        into = as_view(memory, start + places[f], (padded(params[names[0]].size, lanes),), code.dtype)
        width = params[names[0]].size
        into[:width] = params[names[0]].reshape(-1)
        into[width:] = 0
        for more in names[1:]:
            into[:width] += params[more]
    addresses = {f: v + start if f.count(",") == 0 else v for f, v in fields.items()}
    return Packed(addresses | {f: start + o for f, o in places.items()}, memory)


@dataclass(frozen=True)
class _PanelShape:
    vectors: int
    last_vectors: int
    last: int
    stride: int
    total: int


def _panel_shape(panel: Mapping[str, Any], sizes: Mapping[str, int], lanes: int) -> _PanelShape:
    gates, blocks = len(panel["matrices"]), panel["blocks"]
    units = padded(evaluate_size(panel["size"], sizes), lanes) // lanes
    last = (units - 1) // blocks
    rest = (units - last * blocks) * gates
    inner = sum(evaluate_size(o, sizes) for o in panel["operands"])
    stride = inner * gates * blocks * lanes
    return _PanelShape(gates * blocks, rest, last, stride, last * stride + inner * rest * lanes)


def _fill_panel(code: Code, panel: Mapping[str, Any], shape: _PanelShape, dest: int, params: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    item = code.dtype.itemsize
    units = evaluate_size(panel["size"], sizes)
    for gate, terms in enumerate(panel["matrices"]):
        before = 0
        for (name, transposed), operand in zip(terms, panel["operands"]):
            matrix = params[name]
            inner = evaluate_size(operand, sizes)
            along = [s // item for s in matrix.strides]
            s_unit, s_k = along[::-1] if transposed else along
            _call(code.runtime.pack, address(matrix), s_unit, s_k, units, inner, dest, shape.stride, before, shape.vectors, shape.last_vectors,
                  shape.last, panel["blocks"], len(panel["matrices"]), gate)
            before += inner


def _call(function: int, *args: int) -> None:
    """A function of the runtime, from Python; the GIL is released."""
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(args))
    kind(function)(*args)


# --- a call ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrays:
    """The caller's arrays of one call: [T, B, ...] inputs and outputs, [B, ...] states before and after (`carry` in, out)."""

    inputs: Mapping[str, Array | None]
    outputs: Mapping[str, Array]
    states: Mapping[str, Array | None]


def execute(code: Code, sizes: Mapping[str, int], blocks: tuple[Block, ...], packed: Packed, arrays: Arrays,
            tape: Tape | None = None) -> tuple[dict[str, Array], dict[str, Array]]:
    """Runs a kernel over all blocks. Returns the states after the last step [B, ...] and the summed gradients of parameters."""
    layout = code.layout
    common = dict(packed.fields) | _size_fields(layout, sizes) | _array_fields(layout, arrays, code.dtype.itemsize)
    scratches = [_scratch(code, sizes, block, tape is None or layout["reverse"]) for block in blocks]
    rows = sum(len(b.order) for b in blocks)
    tables = []
    for i, block in enumerate(blocks):
        memory, places = scratches[i]
        _load_carry(layout, sizes, arrays.states, block, memory, places, code.dtype)
        fields = common | places | _block_fields(code.runtime, block)
        if tape is not None:
            fields |= {f"buffer {n}": a for n, a in tape.buffers[i].items()}
        tables.append(np.array([fields.get(f, 0) for f in layout["fields"]], dtype=np.int64))
    run_blocks(code.module.kernel, [address(t) for t in tables])
    final = {s: np.empty((rows, evaluate_size(size, sizes)), code.dtype) for s, size in layout["states"].items()}
    for block, (memory, places) in zip(blocks, scratches):
        for s, size in layout["states"].items():
            width = padded(evaluate_size(size, sizes), layout["lanes"])
            final[s][block.order] = as_view(memory, places[f"carry {s}"], (len(block.order), width), code.dtype)[:, : final[s].shape[1]]
    return final, _gradients(code, sizes, scratches)


def _size_fields(layout: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    fields = {}
    for f in layout["fields"]:
        if f.startswith("size "):
            width = evaluate_size(f.removeprefix("size "), sizes)
            fields |= {f: width, f"padded {f.removeprefix('size ')}": padded(width, layout["lanes"])}
    return fields


def _array_fields(layout: Mapping[str, Any], arrays: Arrays, item: int) -> dict[str, int]:
    fields: dict[str, int] = {}
    for kind, given, names in (("input", arrays.inputs, layout["inputs"]), ("output", arrays.outputs, layout["outputs"])):
        for name in names:
            array = given.get(name)
            if array is None:
                continue
            t, b, *d = [s // item for s in array.strides]
            fields |= {f"{kind} {name}": address(array), f"{kind} {name}, t": t, f"{kind} {name}, b": b, f"{kind} {name}, d": d[0] if d else 0}
    return fields


def _block_fields(own: Runtime, block: Block) -> dict[str, int]:
    return {"product": own.product, "outer": own.outer, "gather": own.gather, "scatter": own.scatter, "chunks": len(block.chunks),
            "chunk_table": address(block.chunks), "order": address(block.order), "active": 0 if block.active is None else address(block.active),
            "lengths": 0 if block.lengths is None else address(block.lengths)}


def _scratch(code: Code, sizes: Mapping[str, int], block: Block, own_history: bool) -> tuple[Array, dict[str, int]]:
    """A thread's memory: scratch buffers, carries, descriptors, and gradients, which start at zero."""
    layout, item, lanes = code.layout, code.dtype.itemsize, code.layout["lanes"]
    most = max((s * n for _, s, n, _, _ in block.chunks.tolist()), default=0)
    most_history = max(((s + 1) * n for _, s, n, _, _ in block.chunks.tolist()), default=0)
    gradients, arena, places = Arena(), Arena(), dict[str, int]()
    for name, shape in layout["gradients"].items():
        places[f"gradient {name}"] = gradients.add(_gradient_count(shape, sizes, lanes), item)
    zeros = max([padded(v, lanes) for f, v in _size_fields(layout, sizes).items() if f.startswith("padded ")], default=lanes)
    places["zeros"] = gradients.add(zeros, item)
    for name, (size, kind, life) in layout["buffers"].items():
        if life == "scratch":
            places[f"buffer {name}"] = arena.add((most_history if kind == "history" else most) * padded(evaluate_size(size, sizes), lanes), item)
    for name, size in layout["states"].items():
        places[f"carry {name}"] = arena.add(len(block.order) * padded(evaluate_size(size, sizes), lanes), item)
    for number, panel in enumerate(layout["panels"]):
        places[f"fields {number}"] = arena.add(48 + 4 * len(panel["operands"]), 8)
    places["scratch"] = arena.add(code.runtime.outer_scratch, 1)
    if own_history:
        pass
    head = gradients.size
    whole = Arena()
    whole.size = head + arena.size
    memory, start = whole.allocate()
    as_view(memory, start, (head,), np.dtype(np.uint8))[:] = 0
    first = [f for f in places if f.startswith("gradient ") or f == "zeros"]
    return memory, {f: start + o + (0 if f in first else head) for f, o in places.items()}


def _gradient_count(shape: tuple[str, ...], sizes: Mapping[str, int], lanes: int) -> int:
    full = [evaluate_size(s, sizes) for s in shape]
    return (full[0] if len(full) == 2 else 1) * padded(full[-1] if full else 1, lanes)


def _load_carry(layout: Mapping[str, Any], sizes: Mapping[str, int], states: Mapping[str, Array | None], block: Block, memory: Array,
                places: Mapping[str, int], dtype: np.dtype) -> None:
    for name, size in layout["states"].items():
        width = evaluate_size(size, sizes)
        view = as_view(memory, places[f"carry {name}"], (len(block.order), padded(width, layout["lanes"])), dtype)
        given = states.get(name)
        view[:] = 0
        if given is not None:
            view[:, :width] = given.reshape(given.shape[0], -1)[block.order]


def _gradients(code: Code, sizes: Mapping[str, int], scratches: Sequence[tuple[Array, Mapping[str, int]]]) -> dict[str, Array]:
    lanes, found = code.layout["lanes"], {}
    for name, shape in code.layout["gradients"].items():
        full = tuple(evaluate_size(s, sizes) for s in shape)
        stored = (full[0], padded(full[1], lanes)) if len(full) == 2 else (padded(full[0] if full else 1, lanes),)
        parts = [as_view(memory, places[f"gradient {name}"], stored, code.dtype) for memory, places in scratches]
        cut = tuple(slice(0, n) for n in (full or (1,)))
        total = parts[0][cut].copy()
        for part in parts[1:]:
            total += part[cut]
        found[name] = total.reshape(full)
    return found


def read_history(code: Code, sizes: Mapping[str, int], tape: Tape, steps: int, rows: int) -> dict[str, Array]:
    """Every state after every step, [T, B, width], from the tape."""
    layout, found = code.layout, {}
    for (name, size), buffer in zip(layout["states"].items(), (b for b, (_, kind, _) in layout["buffers"].items() if kind == "history")):
        width = evaluate_size(size, sizes)
        values = np.zeros((steps, rows, width), code.dtype)
        for block, buffers in zip(tape.blocks, tape.buffers):
            view = as_view(tape.memory, buffers[buffer], (block.history_rows, padded(width, layout["lanes"])), code.dtype)
            for t0, count, n, _, before in block.chunks.tolist():
                part = view[before + n : before + (count + 1) * n].reshape(count, n, -1)
                for s in range(count):
                    live = n if block.active is None else int(block.active[t0 + s])
                    values[t0 + s, block.order[:live]] = part[s, :live, :width]
        found[name] = values
    return found
