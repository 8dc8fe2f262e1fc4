"""A forward run that keeps little: the states at the start of each segment of steps, and the tape
of one segment.

Backward runs a segment forward once more before it needs its tape. With segments of about sqrt(T)
steps both parts of what is kept grow as sqrt(T), and the whole costs one forward run more.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.execute import Bound
from rnnspec.backends.cpu.launch.pack import Packed
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.cpu.launch.tape import checked_bytes, new_histories, new_tape, read_history
from rnnspec.backends.pins import Pins
from rnnspec.storage.locks import Lock


def segment_steps(steps: int) -> int:
    """Steps of a segment."""
    return max(1, math.isqrt(max(0, steps - 1)) + 1)


class Segments:
    """A forward run that keeps the states at the start of each segment, and the tape of one
    segment.

    The caller's inputs are kept as they are, not copied; where `forward` was told to watch them,
    every later call raises if they were changed since."""

    def __init__(self, forward: Plan, packed: Packed, inputs: Mapping[str, Array], counts: Array | None = None):
        self.inputs, self.sums, self.counts = dict(inputs), dict[str, int](), counts
        self.given: Array | None = None  # the caller's bytes, where the starts lie in them
        self.pins = [Pins(self.inputs.values())]
        self.tape = new_tape(forward)
        self.bound = Bound(forward)
        self.bound.use(packed, self.tape)
        self.bound.start_at(counts)
        self.count = len(forward.blocks[0].segments)
        self.starts: list[dict[str, Array]] = []
        self.taped = -1  # the segment whose tape is in memory
        self.lock = Lock()

    @property
    def tape_bytes(self) -> int:
        return self.tape.plan.tape_size + sum(a.nbytes for start in self.starts for a in start.values())

    def kept(self) -> Array:
        """What was kept as one row of bytes, for `restored` with equal arguments."""
        arrays = [a for start in self.starts for a in start.values()]
        arrays += [] if self.counts is None else [self.counts]
        return np.concatenate([np.empty(0, np.uint8), *(a.reshape(-1).view(np.uint8) for a in arrays)])

    def forward(self, outputs: Mapping[str, Array], states: Mapping[str, Array], watch: bool) -> dict[str, Array]:
        """All segments from the first to the last; returns the states after the last step, [B,
        width]. watch: the inputs, at one pass over them here and one in each later call; of no use
        where the caller goes on with `kept`."""
        self.sums = checksums(self.inputs) if watch else {}
        self.bound.point(self.inputs, outputs)
        self.bound.load(states)
        for segment in range(self.count):
            self.starts.append(self.bound.states())
            self._run(segment, outputs)
        return self.bound.states()

    def backward(
        self,
        plan: Plan,
        packed: Packed,
        inputs: Mapping[str, Array | None],
        outputs: Mapping[str, Array],
        states: Mapping[str, Array],
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Runs a backward kernel over all segments, the last one first; returns what
        `execute` does with a whole tape. plan: of the backward kernel; packed, inputs, outputs,
        states: as `execute` takes them."""
        with self.lock:
            self._check()
            bound = Bound(plan)
            bound.use(packed, self.tape)
            bound.start_at(self.counts)
            bound.point(inputs, outputs)
            bound.load(states)
            for segment in reversed(range(self.count)):
                self._recall(segment)
                bound.select(segment)
                bound.run(keep=(inputs, outputs, self))
            return bound.states(), bound.gradients()

    def histories(self, steps: int, rows: int) -> dict[str, Array]:
        """Every state after every step, [T, B, width]."""
        with self.lock:
            self._check()
            found = new_histories(self.tape, steps, rows)
            for segment in range(self.count):
                self._recall(segment)
                read_history(self.tape, found, segment)
            return found

    def _run(self, segment: int, outputs: Mapping[str, Array]) -> None:
        self.taped = -1  # in case of an interrupt
        self.bound.select(segment)
        self.bound.run(keep=(self.inputs, outputs))
        self.taped = segment

    def _recall(self, segment: int) -> None:
        """Has the tape of a segment in memory."""
        if self.taped != segment:
            self.bound.point(self.inputs, {})
            self.bound.load(self.starts[segment])
            self._run(segment, {})

    def _check(self) -> None:
        now = checksums(self.inputs) if self.sums else {}
        if changed := [name for name in now if now[name] != self.sums[name]]:
            raise ValueError(
                f"input {', '.join(map(repr, changed))} was changed after forward(...). With memory='low' the kernel"
                " keeps no copy of its inputs and needs them again: leave them as they are until backward, or compile"
                " with memory='full'."
            )


def restored(forward: Plan, packed: Packed, inputs: Mapping[str, Array], kept: Array, counts: Array | None) -> Segments:
    """The Segments whose `kept` this is, for a run with these inputs, weights and counts."""
    found, item = Segments(forward, packed, inputs, counts), forward.code.dtype.itemsize
    row = sum(forward.widths.values()) * forward.rows * item
    kept = checked_bytes(kept, row * found.count + (0 if counts is None else counts.nbytes), "")
    ends = np.cumsum([0, *forward.widths.values()]) * forward.rows * item
    found.given = kept
    found.pins.append(Pins([kept]))
    for start in np.ascontiguousarray(kept[: row * found.count]).reshape(found.count, row):
        found.starts.append(
            {
                name: start[a:b].view(forward.code.dtype).reshape(forward.rows, width)
                for (name, width), a, b in zip(forward.widths.items(), ends[:-1], ends[1:])
            }
        )
    return found


def checksums(arrays: Mapping[str, Array]) -> dict[str, int]:
    """A number for each array that tells of nearly every change to it."""
    return {
        name: zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) for name, array in arrays.items()
    }
