"""Kernels in memory of their own, for calls that come again with other numbers alone.

In: Plans of one block of rows on one thread (`is_simple`), and how weights are packed. Then a call
is a few addresses: everything else stands in the tables since the first one. One call at a time;
whoever uses such an object has it alone. An interrupt leaves nothing that the next call relies on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.execute import Bound
from rnnspec.backends.cpu.launch.memory import Memory, address
from rnnspec.backends.cpu.launch.pack import Packed, PackPlan, c_function, sources
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.cpu.launch.tape import Tape, new_tape

Params = Mapping[str, Array]


def is_simple(plan: Plan) -> bool:
    """Whether one thread runs the kernel once, over rows in the caller's order."""
    plain = not plan.pieces and not plan.groups and not plan.code.columns
    alone = len(plan.blocks) == 1 and plan.parts == 1 and plan.blocks[0].lengths is None
    return plain and alone and "counts" not in plan.code.layout["fields"]


def is_repeatable(packing: PackPlan) -> bool:
    """Whether packing reads weights where they lie, and does not look at them."""
    return packing.kept is None and not packing.sums and packing.vectors is not None


class Direct:
    """A kernel with its table and memory. carries: name -> [1, B, width], the states, before a run
    those it starts from, after it those it ends with."""

    def __init__(self, plan: Plan, packed: Packed, tape: Tape | None = None):
        self.bound = Bound(plan)
        self.bound.use(packed, tape)
        self.inputs, self.outputs = plan.code.inputs, plan.code.outputs
        self.carries = {name: parts[0][None] for name, parts in self.bound.carries.items()}
        self._cells = memoryview(self.bound.all[0])
        self._strides: dict[int, tuple[int, ...]] = {}  # of the array that stands at a place
        self._item = plan.code.dtype.itemsize
        self._kernel, self._at = plan.code.text.kernel, self.bound.addresses[0]

    def start(self, states: Mapping[str, Array]) -> None:
        """Sets the states before the first step, [1, B, width], zero where left out, and sums of
        gradients to zero."""
        self.bound.zeroed[0].fill(0)
        for name, carry in self.carries.items():
            given = states.get(name)
            if given is None:
                carry.fill(0)
            else:
                carry[...] = given

    def point(self, first: int, array: Array | None) -> None:
        """Sets an array [T, B, ...] of the caller's, None for none. first: its place in the
        table."""
        cells = self._cells
        if array is None:
            cells[first] = 0
            return
        strides = array.strides
        if self._strides.get(first) != strides:
            self._strides.pop(first, None)
            t, b, *d = strides
            item = self._item
            cells[first + 1], cells[first + 2], cells[first + 3] = t // item, b // item, d[0] // item if d else 0
            self._strides[first] = strides
        cells[first] = address(array)

    def run(self) -> None:
        self._kernel(self._at)


class Repacking:
    """Packs weights into the same memory, call after call.

    plan: how; read: what kernels read of the weights that lie at `bases` (addresses and sizes in
    bytes), as views of these; what lies elsewhere is read where it is.
    """

    def __init__(self, plan: PackPlan, read: Params, bases: Sequence[tuple[int, int]]):
        starts, strides, _, self._copies = sources(plan, read, ())
        self.memory = Memory(plan.size)
        table, which = plan.strided(tuple(strides))
        self._jobs, self._read = table.copy(), dict(read)
        self._jobs[:, 5] += self.memory.start
        numbers, offsets, self._fixed = list[int](), list[int](), list[int]()
        for start in starts:
            inside = [(i, start - at) for i, (at, size) in enumerate(bases) if at <= start < at + size]
            number, offset = inside[0] if inside else (len(bases) + len(self._fixed), 0)
            self._fixed += [] if inside else [start]
            numbers.append(number)
            offsets.append(offset)
        self._numbers, self._offsets = np.array(numbers, np.int64)[which], np.array(offsets, np.int64)[which]
        self._at, self._count = address(self._jobs), len(which)
        self._pack = c_function(plan.code.runtime.pack, 2)
        self._addresses: list[int] | None = None
        self.packed = Packed(plan.fields, plan.values + plan.moved * self.memory.start, self.memory)

    def pack(self, addresses: list[int]) -> None:
        """Packs the weights that lie at these addresses, in the order of `bases`."""
        if addresses != self._addresses:
            self._addresses = None
            self._jobs[:, 0] = np.array(addresses + self._fixed, np.int64)[self._numbers] + self._offsets
            self._addresses = addresses
        if self._count:
            self._pack(self._at, self._count)


class Training:
    """A forward kernel and its backward kernel, their tape, and the weights that both read."""

    def __init__(self, plans: Sequence[Plan], packings: Sequence[PackPlan], read: Params, bases: list[tuple[int, int]]):
        self._packings = [Repacking(packing, read, bases) for packing in packings]
        self._tape = new_tape(plans[0])
        self.forward, self.backward = (
            Direct(plan, packing.packed, self._tape) for plan, packing in zip(plans, self._packings, strict=True)
        )

    def pack(self, addresses: list[int]) -> None:
        """Packs the weights for both kernels: they are those of the backward pass too, whatever
        becomes of the arrays."""
        for packing in self._packings:
            packing.pack(addresses)

    @property
    def bytes(self) -> int:
        """What all of it takes."""
        kernels = self.forward.bound.bytes + self.backward.bound.bytes
        return kernels + self._tape.tape_bytes + sum(packing.memory.size for packing in self._packings)

    def gradients_in(self, layout: Mapping[str, Sequence[str]]) -> list[tuple[str, list[Array]]] | None:
        """Where a backward run leaves the gradients of arrays, part by part, one under another;
        None where they have to be computed. layout: name of an array -> the parameters in it."""
        sums, found = self.backward.bound.sums, []
        for name, parameters in layout.items():
            parts = [sums.get(parameter, ([], ())) for parameter in parameters]
            flat = any(f"{parameter} flat" in sums for parameter in parameters)
            if flat or any(len(levels) != 1 or levels[0].shape != full for levels, full in parts):
                return None
            found.append((name, [levels[0] for levels, _ in parts]))
        return found
