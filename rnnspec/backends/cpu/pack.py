"""Weights as a kernel reads them: panels side by side, biases summed, vectors filled up."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnspec.backends.cpu.memory import Arena, Memory, address
from rnnspec.language.sizes import evaluate_size

if TYPE_CHECKING:
    from rnnspec.backends.cpu.launch import Code

Array = np.ndarray


@dataclass(frozen=True)
class Packed:
    """Packed weights, and what a kernel's table must hold to find them: values [n] in the places `fields` [n]."""

    fields: Array
    values: Array
    memory: Memory | None

    def fill(self, table: Array) -> None:
        table[self.fields] = self.values


NOTHING = Packed(np.empty(0, np.int64), np.empty(0, np.int64), None)


@dataclass(frozen=True)
class _Job:
    """One matrix into its place in a panel; the arguments of `pack` (tile.py) but for addresses and strides."""

    parameter: str
    transposed: bool
    offset: int
    rest: tuple[int, ...]


@dataclass(frozen=True)
class PackPlan:
    """What packing needs that depends on sizes alone. vectors: offset, padded width, width and the parameters summed there;
    fields, values, moved: places in the kernel's table, what belongs there, and whether that is an offset in the packed memory."""

    code: Code
    size: int
    jobs: tuple[_Job, ...]
    vectors: tuple[tuple[int, int, int, tuple[str, ...]], ...]
    fields: Array
    values: Array
    moved: Array


def pack_plan(code: Code, sizes: Mapping[str, int], widths: Mapping[str, int]) -> PackPlan:
    """The plan for sizes; widths: the number of elements of each vector parameter."""
    from rnnspec.backends.cpu.launch import padded

    layout, item, lanes = code.layout, code.dtype.itemsize, code.layout["lanes"]
    arena, named, counts, jobs = Arena(), dict[str, int](), dict[str, int](), list[_Job]()
    for number, panel in enumerate(layout["panels"]):
        gates, blocks = len(panel["matrices"]), panel["blocks"]
        units = evaluate_size(panel["size"], sizes)
        last = (padded(units, lanes) // lanes - 1) // blocks
        rest = (padded(units, lanes) // lanes - last * blocks) * gates
        inner = [evaluate_size(o, sizes) for o in panel["operands"]]
        stride = sum(inner) * gates * blocks * lanes
        offset = arena.add(last * stride + sum(inner) * rest * lanes, item)
        named[f"panels {number}"] = offset
        counts |= {f"panels {number}, stride": stride, f"panels {number}, vectors": gates * blocks,
                   f"panels {number}, last vectors": rest, f"panels {number}, last": last}
        for gate, terms in enumerate(panel["matrices"]):
            for i, (name, transposed) in enumerate(terms):
                jobs.append(_Job(name, transposed, offset, (units, inner[i], stride, sum(inner[:i]), gates * blocks, rest, last, blocks, gates, gate)))
    vectors = []
    for f, names in {**layout["biases"], **{f"vector {p}": [p] for p in layout["vectors"]}}.items():
        width = widths[names[0]]
        named[f] = arena.add(padded(width, lanes), item)
        vectors.append((named[f], padded(width, lanes), width, tuple(names)))
    index = {f: i for i, f in enumerate(layout["fields"])}
    found = [(index[f], v, moved) for values, moved in ((named, 1), (counts, 0)) for f, v in values.items() if f in index]
    fields, values, moved = np.array(found, dtype=np.int64).reshape(-1, 3).T.copy()
    return PackPlan(code, arena.size, tuple(jobs), tuple(vectors), fields, values, moved)


def pack(plan: PackPlan, params: Mapping[str, Array]) -> Packed:
    """Packs the weights: a copy, so later changes of `params` are not seen."""
    memory, item = Memory(plan.size), plan.code.dtype.itemsize
    function = _function(plan.code.runtime.pack, 14)
    for job in plan.jobs:
        matrix = params[job.parameter]
        rows, columns = matrix.strides
        s_unit, s_k = (columns, rows) if job.transposed else (rows, columns)
        units, inner, *rest = job.rest
        function(address(matrix), s_unit // item, s_k // item, units, inner, memory.start + job.offset, *rest)
    for offset, whole, width, names in plan.vectors:
        view = memory.view(offset, (whole,), plan.code.dtype)
        view[:width] = params[names[0]].reshape(-1)
        view[width:] = 0
        for more in names[1:]:
            view[:width] += params[more]
    return Packed(plan.fields, plan.values + plan.moved * memory.start, memory)


@lru_cache(maxsize=16)
def _function(at: int, arguments: int) -> Callable[..., Any]:
    """A function of the runtime as a Python callable; it runs without the GIL."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(at)
