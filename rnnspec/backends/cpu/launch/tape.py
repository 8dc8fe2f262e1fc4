"""What a forward run leaves for its backward run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import Memory, padded
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.pins import Pins
from rnnspec.errors import ShapeError


@dataclass(frozen=True)
class Tape:
    """What a forward run leaves for its backward run. given: the caller's bytes, where they are
    read in place; pins: of these."""

    plan: Plan
    memory: Memory
    given: Array | None = None
    pins: Pins | None = None

    @property
    def tape_bytes(self) -> int:
        return self.plan.tape_size

    def histories(self, steps: int, rows: int) -> dict[str, Array]:
        """Every state after every step, [T, B, width]; zero past a row's end."""
        found = new_histories(self, steps, rows)
        read_history(self, found)
        return found

    def kept(self) -> Array:
        """All of it as bytes, not copied, for `restored` with an equal plan; the array holds the
        memory."""
        return np.asarray(self.memory)


def new_tape(forward: Plan, beside: Array | None = None) -> Tape:
    """Memory for a run of this plan. beside: what is kept at its end for whoever goes on with the
    bytes."""
    tape = Tape(forward, Memory(forward.tape_size + (0 if beside is None else beside.nbytes)))
    if beside is not None:
        tape.memory.view(forward.tape_size, beside.shape, beside.dtype)[...] = beside
    return tape


def checked_bytes(kept: object, expected: int, hint: str) -> Array:
    """A view of a tape that the caller kept. Raises ShapeError where it is no array of `expected`
    bytes, uint8; hint: what to give in its place."""
    kept = kept.view(np.ndarray) if isinstance(kept, np.ndarray) else kept  # nobody else changes its shape
    if not isinstance(kept, np.ndarray) or kept.dtype != np.uint8:
        what = f"an array of {kept.dtype}" if isinstance(kept, np.ndarray) else f"a {type(kept).__name__}"
        raise ShapeError(f"a tape is an array of bytes (uint8), as `record` gives it; got {what}.")
    if kept.shape != (expected,):
        raise ShapeError(
            f"a tape of {kept.size} bytes is not of these arguments, whose tape has {expected}. Give the"
            f" arguments of `record`{hint}."
        )
    return kept


def restored(forward: Plan, kept: Array, beside: int = 0) -> Tape:
    """The Tape whose bytes these are, for a run of this plan. beside: how many of them are no part
    of it, at its end. Raises ShapeError for others."""
    array = np.ascontiguousarray(checked_bytes(kept, forward.tape_size + beside, ""))
    pins = Pins([array])
    memory = Memory(array.size, array)
    return Tape(forward, memory, array, pins) if memory.bytes is array else Tape(forward, memory)


def new_histories(tape: Tape, steps: int, rows: int) -> dict[str, Array]:
    """Zeros for every state after every step, [T, B, width]."""
    own = tape.plan
    return {name: np.zeros((steps, rows, width), own.code.dtype) for name, width in own.widths.items()}


def read_history(tape: Tape, into: Mapping[str, Array], segment: int = 0) -> None:
    """The states of the steps of a segment, from the tape into arrays [T, B, width]; nothing is
    written past a row's end."""
    own, layout = tape.plan, tape.plan.code.layout
    histories = [b for b, (_, kind, _) in layout["buffers"].items() if kind == "history"]
    for (name, width), buffer in zip(own.widths.items(), histories):
        steps, rows, _ = into[name].shape
        through, step = into[name].reshape(steps * rows, width), rows * (own.pieces or 1)
        for block, part in zip(own.blocks, own.tape):
            view = tape.memory.view(
                part.named[f"buffer {buffer}"], (block.history_rows, padded(width, layout["lanes"])), own.code.dtype
            )
            begin, many = block.segments[segment]
            for t0, count, n, _, before, _ in block.chunks[begin : begin + many].tolist():
                for s in range(count):
                    live = n if block.active is None else int(block.active[t0 + s])
                    through[block.places[:live] + (t0 + s) * step] = view[
                        before + (s + 1) * n : before + (s + 1) * n + live, :width
                    ]
