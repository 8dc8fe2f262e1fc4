"""Weights as a kernel reads them: panels side by side, biases summed, vectors filled up."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import Arena, Memory, address, padded
from rnnspec.backends.cpu.launch.rows import columned
from rnnspec.backends.cpu.machine import JOB
from rnnspec.backends.memo import Memo
from rnnspec.language.sizes import evaluate_size
from rnnspec.storage.locks import once_only

if TYPE_CHECKING:
    from rnnspec.backends.cpu.launch.code import CpuCode


Job = tuple[tuple[str, int], bool, tuple[int, ...]]


@dataclass(frozen=True)
class Packed:
    """Packed weights, and what a kernel's table must hold to find them: values [n] in the places
    `fields` [n]; [groups, n] where rows have weights of their own."""

    fields: Array
    values: Array
    memory: object

    def fill(self, table: Array, group: int = 0) -> None:
        table[self.fields] = self.values[group] if self.values.ndim > 1 else self.values


NOTHING = Packed(np.empty(0, np.int64), np.empty(0, np.int64), None)


@dataclass(frozen=True)
class PackPlan:
    """What packing needs that depends on sizes alone. A parameter that there is one of for each
    column is [columns, ...], and is packed column by column.

    jobs [n, JOB]: a row for each matrix in a panel and each vector, as `pack` in moves.py takes
    them, but for addresses and strides; sources [n]: the parameters they read, and which column,
    -1 where there is but one; transposed [n]: whether units are the columns; flat [n]: whether it
    is a vector. sums: offset, width and the
    parameters that are added to a vector. fields, values, moved: places in the kernel's table, what
    belongs there, and whether that is an offset in the memory. bound: see `strided`.
    """

    code: CpuCode
    size: int
    jobs: Array
    sources: tuple[tuple[str, int], ...]
    transposed: tuple[bool, ...]
    flat: tuple[bool, ...]
    sums: tuple[tuple[int, int, tuple[str, ...]], ...]
    fields: Array
    values: Array
    moved: Array
    bound: Memo[Any, tuple[Array, Array]] = field(default_factory=lambda: Memo(8), compare=False, repr=False)

    @once_only
    def read(self) -> tuple[tuple[str, int, bool], ...]:
        """What is read, once each: a parameter, which column, and whether as a vector."""
        return tuple(dict.fromkeys(self._reads))

    @property
    def _reads(self) -> list[tuple[str, int, bool]]:
        """The same of each job."""
        return [(name, column, flat) for (name, column), flat in zip(self.sources, self.flat)]

    @once_only
    def vectors(self) -> tuple[str, ...] | None:
        """The parameters that are read as vectors; None where some are read column by column."""
        if any(column >= 0 for _, column, _ in self.read):
            return None
        return tuple(name for name, _, flat in self.read if flat)

    @once_only
    def kept(self) -> int | None:
        """The place of the product whose terms a 0 leaves out, where the kernel has one."""
        fields = self.code.layout["fields"]
        return fields.index("kept product") if "kept product" in fields else None

    def strided(self, strides: tuple[tuple[int, ...], ...]) -> tuple[Array, Array]:
        """The jobs for strides of what is read, in bytes, and which of these is the source of each.
        A call has them from the last ones of the same strides."""
        found = self.bound.get(strides)
        if found is not None:
            return found
        jobs, item = self.jobs.copy(), self.code.dtype.itemsize
        place = {what: number for number, what in enumerate(self.read)}
        which = np.array([place[what] for what in self._reads], np.int64)
        for job, at, transposed in zip(jobs, which, self.transposed):
            rows, columns = (n // item for n in (*strides[at], 0, 0)[:2])
            job[1:3] = (columns, rows) if transposed else (rows, columns)
        return self.bound.keep(strides, (jobs, which))


def together(code: CpuCode, own: Packed, directions: Packed) -> Packed:
    """Weights and their directions, packed apart, as a kernel reads them: of what is told of both,
    how to multiply, what does for the one that asks for more."""
    both = (own, directions)
    fields, values = np.concatenate([p.fields for p in both]), np.concatenate([p.values for p in both], axis=-1)
    if "kept product" in code.layout["fields"]:
        of_products = fields == code.layout["fields"].index("kept product")
        if len(np.unique(values[..., of_products])) > 1:
            values[..., of_products] = code.runtime.kept_product
    return Packed(fields, values, (own.memory, directions.memory))


def pack_plan(
    code: CpuCode, sizes: Mapping[str, int], widths: Mapping[str, int], columns: int = 1, *, directions: bool = False
) -> PackPlan:
    """The plan for sizes.

    widths: the number of elements of each vector parameter. directions: whether to pack what there
    is of for each of so many columns, or what there is but one of.
    """
    layout, arena = code.layout, Arena()
    named, counts, matrices = _panels(code, sizes, columns, arena, directions)
    vectors, sums, each = list[Job](), [], columned(layout, "parameters")
    for f, names in {**layout["biases"], **{f"vector {p}": [p] for p in layout["vectors"]}}.items():
        if (by_column := names[0] in each) != directions:
            continue
        width = widths[names[0]]
        row = padded(width, layout["lanes"])
        named[f] = arena.add(row * (columns if by_column else 1), code.dtype.itemsize)
        for column in range(columns) if by_column else (-1,):
            start = named[f] + max(0, column) * row * code.dtype.itemsize
            slots = (1, 1, row // layout["lanes"] - 1, 1, 1, 0)
            vectors.append(((names[0], column), False, (width, 1, start, layout["lanes"], 0, *slots)))
        if len(names) > 1:
            sums.append((named[f], width, tuple(names[1:])))
    jobs = matrices + vectors
    sources, transposed, rows = tuple(zip(*jobs)) or ((), (), ())
    table = np.zeros((len(jobs), JOB), dtype=np.int64)
    table[:, 3:] = np.array(rows, dtype=np.int64).reshape(-1, JOB - 3)
    flat = (False,) * len(matrices) + (True,) * len(vectors)
    return PackPlan(code, arena.size, table, sources, transposed, flat, tuple(sums), *_places(layout, named, counts))


def _panels(
    code: CpuCode, sizes: Mapping[str, int], columns: int, arena: Arena, directions: bool
) -> tuple[dict[str, int], dict[str, int], list[Job]]:
    """Places for all panels, what is to be told of each, and the matrices in them. Panels of the
    same matrices are packed once: a step's, and those of its directions."""
    layout, item, lanes = code.layout, code.dtype.itemsize, code.layout["lanes"]
    named, counts, jobs, known = dict[str, int](), dict[str, int](), list[Job](), dict[str, int]()
    for number, panel in enumerate(layout["panels"]):
        gates, blocks, by_column = len(panel["matrices"]), panel["blocks"], panel.get("by_column", False)
        if by_column != directions:
            continue
        units = evaluate_size(panel["size"], sizes)
        last = (padded(units, lanes) // lanes - 1) // blocks
        rest = (padded(units, lanes) // lanes - last * blocks) * gates
        inner = [evaluate_size(o, sizes) for o in panel["operands"]]
        stride = sum(inner) * gates * blocks * lanes
        whole, same = last * stride + sum(inner) * rest * lanes, known.get(str(panel))
        offset = arena.add(whole * (columns if by_column else 1), item) if same is None else same
        named[f"panels {number}"] = known[str(panel)] = offset
        counts |= {
            f"panels {number}, stride": stride,
            f"panels {number}, vectors": gates * blocks,
            f"panels {number}, last vectors": rest,
            f"panels {number}, last": last,
            f"panels {number}, column": whole * item,
        }
        for gate, terms in enumerate(panel["matrices"] if same is None else ()):
            for i, (name, transposed) in enumerate(terms):
                slots = (sum(inner[:i]), gates * blocks, rest, last, blocks, gates, gate)
                for column in range(columns) if by_column else (-1,):
                    start = offset + max(0, column) * whole * item
                    jobs.append(((name, column), transposed, (units, inner[i], start, stride, *slots)))
    return named, counts, jobs


def _places(
    layout: Mapping[str, Any], offsets: Mapping[str, int], counts: Mapping[str, int]
) -> tuple[Array, Array, Array]:
    index = {f: i for i, f in enumerate(layout["fields"])}
    found = [
        (index[f], v, moved) for values, moved in ((offsets, 1), (counts, 0)) for f, v in values.items() if f in index
    ]
    fields, values, moved = np.array(found, dtype=np.int64).reshape(-1, 3).T.copy()
    return fields, values, moved


def pack(plan: PackPlan, params: Mapping[str, Array], groups: int = 0, grouped: Collection[str] = ()) -> Packed:
    """Packs the weights: a copy, so later changes of `params` are not seen.

    groups: how many weights there are, where rows have weights of their own: of those of params
    that are `grouped` [groups, ...]. All of a group lies together, what is shared too.
    """
    count, item = max(1, groups), plan.code.dtype.itemsize
    memory = Memory(plan.size * count)
    starts, strides, apart, flattened = sources(plan, params, grouped)
    jobs, which = plan.strided(tuple(strides))
    if groups:
        begins = memory.start + plan.size * np.arange(count)
        jobs, values = np.repeat(jobs[None], count, axis=0), plan.values + plan.moved * begins[:, None]
        jobs[..., 0] = np.array(starts, np.int64)[which] + np.arange(count)[:, None] * np.array(apart, np.int64)[which]
        jobs[..., 5] += begins[:, None]
    else:
        jobs, values = jobs.copy(), plan.values + plan.moved * memory.start
        jobs[:, 0] = np.array(starts, np.int64)[which]
        jobs[:, 5] += memory.start
    if len(which):
        c_function(plan.code.runtime.pack, 2)(address(jobs), len(which) * count)
    flattened.clear()
    for offset, width, more in plan.sums:
        view = np.ndarray((count, width), plan.code.dtype, memory.bytes, memory.offset + offset, (plan.size, item))
        for name in more:
            view += params[name].reshape(count if name in grouped else 1, -1)
    fields = plan.fields
    if plan.kept is not None:
        fields = np.append(fields, plan.kept)
        kept = np.full((*values.shape[:-1], 1), _kept_product(plan, params))
        values = np.append(values, kept, axis=-1)
    return Packed(fields, values, memory)


def sources(
    plan: PackPlan, params: Mapping[str, Array], grouped: Collection[str]
) -> tuple[list[int], list[tuple[int, ...]], list[int], list[Array]]:
    """Of each array that is read: its address, its strides, and how far apart those of two groups
    lie; then arrays that have to live until they are packed."""
    starts, strides, apart, flattened = list[int](), list[tuple[int, ...]](), list[int](), list[Array]()
    if not grouped and plan.vectors is not None and all(params[name].ndim < 2 for name in plan.vectors):
        arrays = [params[name] for name, _, _ in plan.read]
        return [address(a) for a in arrays], [a.strides for a in arrays], apart, flattened
    for name, column, flat in plan.read:
        array, lead = params[name] if column < 0 else params[name][column, ...], 1 if name in grouped else 0
        if flat and array.ndim > 1 + lead:  # a matrix that is read element by element
            array = np.ascontiguousarray(array).reshape(*array.shape[:lead], -1)
            flattened.append(array)
        starts.append(address(array))
        strides.append(array.strides[lead:])
        apart.append(array.strides[0] if lead else 0)
    return starts, strides, apart, flattened


def _kept_product(plan: PackPlan, params: Mapping[str, Array]) -> int:
    """The product whose terms a 0 leaves out: with finite weights, the one that all others are."""
    matrices = {name for (name, _), flat in zip(plan.sources, plan.flat) if not flat}
    finite = all(np.isfinite(params[name]).all() for name in matrices)
    return plan.code.runtime.product if finite else plan.code.runtime.kept_product


@lru_cache(maxsize=16)
def c_function(at: int, arguments: int) -> Callable[..., Any]:
    """A function of the runtime as a Python callable; it runs without the GIL."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(at)
