"""What runs on the CPU keep: a forward run for its backward run, and a stepper for its next
step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.execute import Bound, execute
from rnnspec.backends.cpu.launch.memory import address
from rnnspec.backends.cpu.launch.pack import Packed, c_function
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.cpu.launch.row_sums import RowSums
from rnnspec.backends.cpu.launch.segments import Segments
from rnnspec.backends.cpu.launch.tape import Tape
from rnnspec.backends.cpu.runtime.addresses import steps
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call, Cell, Named
from rnnspec.engine.derived import Derived
from rnnspec.engine.frozen import Frozen, Sizes
from rnnspec.engine.groups import Groups
from rnnspec.engine.spans import Pieces
from rnnspec.language.sizes import evaluate_size


@dataclass(frozen=True, kw_only=True)
class CpuSaved:
    """What a forward run on the CPU leaves for its backward run.

    plan, packed: of the backward kernel. params: copies of the parameters, where something is
    computed of them once per sequence. inputs: the shapes of all inputs. pieces, counts, groups: of
    the call.
    """

    tape: Tape | Segments
    plan: Plan
    packed: Packed
    params: Mapping[str, Array]
    inputs: Mapping[str, tuple[int, ...]]
    pieces: Pieces | None
    counts: Array | None
    groups: Groups | None

    def params_of(self, group: int) -> Mapping[str, Array]:
        """The `params` of one group of rows."""
        return self.params if self.groups is None else self.groups.of(self.params, group)

    @property
    def tape_bytes(self) -> int:
        return self.tape.tape_bytes

    @property
    def read_again(self) -> Mapping[str, Array]:
        inputs = self.tape.inputs if isinstance(self.tape, Segments) else {}
        tape = {} if self.tape.given is None else {"the tape": self.tape.given}
        return {f"input {name!r}": array for name, array in inputs.items()} | tape

    def histories(self, steps: int, rows: int) -> Named:
        return self.tape.histories(steps, rows)


def new_outputs(cell: Cell, call: Call, out: Mapping[str, Array] | None, columns: tuple[int, ...] = ()) -> Named:
    """The arrays that outputs are written to, with an axis of columns where there are some; zero
    where a row may end early, for nothing is written past its end."""
    spec, sizes = cell.spec, call.sizes
    full = {o: (*columns, call.steps, call.rows, *sizes.full(spec.shapes[o])) for o in spec.outputs}
    short = call.lengths is not None and int(call.lengths.sum()) < call.steps * call.rows
    return checked.ready(full, out, cell.dtype, zero=short, numbered=call.pieces is not None)


def final_states(cell: Cell, states: Named, call: Call) -> Named:
    """What a call carries on: the states, and the count of steps where there is one."""
    final = shaped(cell, states, call.sizes)
    return final if call.counts is None else final | call.counted()


def shaped(cell: Cell, states: Named, sizes: Sizes) -> Named:
    """States [B, width] in their own shapes."""
    return {s: a.reshape(a.shape[0], *sizes.full(cell.states[s])) for s, a in states.items()}


MOST_BYTES = 1 << 20  # of gradients by row that are held at once for their norms


@dataclass(frozen=True, kw_only=True)
class CpuRows:
    """The gradients of every row of a batch, before they are made.

    sums: what they are sums of; derived, saved, sizes: what makes gradients of parameters of these.
    """

    sums: RowSums
    derived: Derived
    saved: CpuSaved
    sizes: Sizes

    @property
    def threads(self) -> int:
        return self.saved.plan.parts * max(1, self.saved.plan.at_once)

    def gradients(self, first: int, end: int) -> Named:
        sums, groups = self.sums.gradients(first, end, self.threads), self.saved.groups
        many = 1 if groups is None else max(1, len(self.sums.ends) // groups.count)  # rows of the same weights
        return self.derived.gradients_of_rows(
            sums, lambda row: self.saved.params_of((first + row) // many), self.sizes, end - first
        )

    def squared_norms(self, rows: int) -> Named:
        trained, dtype = self.derived.spec.trained, self.derived.dtype
        found = {name: np.zeros(rows) for name in trained}
        size = sum(math.prod(self.sizes.full(shape)) for shape in trained.values()) * dtype.itemsize
        many, squares = max(self.threads, MOST_BYTES // max(1, size)), c_function(steps(dtype.name).squares, 3)
        for first in range(0, rows, many):
            for name, array in self.gradients(first, min(rows, first + many)).items():
                for row, numbers in enumerate(np.ascontiguousarray(array), first):
                    squares(address(found[name]) + 8 * row, address(numbers), numbers.size)
        return found


class CpuStepper:
    """Single steps on the CPU: all that they need is planned, packed and allocated beforehand.
    mode: of the kernel that runs them."""

    def __init__(self, infer: Plan, sizes: Sizes, inputs: Named, outputs: Named, mode: str):
        self.sizes, self.rows, self.mode = sizes, infer.rows, mode
        self.inputs: Named = Frozen(inputs)
        self.outputs: Named = Frozen(outputs)
        self.kept = (*inputs.values(), *outputs.values())  # the kernel writes there for as long as this object lives
        self.bound = Bound(infer)
        self.bound.point({n: _steps(a) for n, a in inputs.items()}, {n: _steps(a) for n, a in outputs.items()})
        self._chunk_tables = [block.chunks for block in infer.blocks]  # column 0: a chunk's first step
        self._t = -1  # what stands there

    def run(self, t: int) -> None:
        if t != self._t:
            self._t = -1  # an interrupt may leave some of them as they were
            for chunks in self._chunk_tables:
                chunks[:, 0] = t
            self._t = t
        self.bound.run()

    def states(self) -> Named:
        return self.bound.states()

    def load(self, states: Mapping[str, Array]) -> None:
        self.bound.load(states)

    def start_at(self, counts: Array | None) -> None:
        self.bound.start_at(counts)


def read_out(planned: Plan, packed: Packed, sizes: Sizes, given: Named, counts: Array | None) -> tuple[Named, Named]:
    """What the kernel of a readout (rnnspec/symbolic/readout.py) makes of one step's arrays, [B,
    ...]: its outputs [B, width], and the gradients that it sums."""
    layout, rows, dtype = planned.code.layout, planned.rows, planned.code.dtype
    found = {n: np.empty((1, rows, evaluate_size(s, sizes)), dtype) for n, s in layout["outputs"].items()}
    _, sums = execute(planned, packed, {n: given[n][None] for n in layout["inputs"]}, found, {}, counts=counts)
    return {n: a[0] for n, a in found.items()}, sums


def _steps(array: Array) -> Array:
    """A view [1, B, width] of one step [B, ...], with stride 0 in time: it serves as every step."""
    flat = array if array.ndim < 3 else array.reshape(array.shape[0], -1)
    return np.lib.stride_tricks.as_strided(flat[None], strides=(0, *flat.strides))
