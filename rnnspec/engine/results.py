"""What the calls of a Kernel give back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy import ndarray as Array

from rnnspec.language.sizes import full_shape

if TYPE_CHECKING:
    from rnnspec.backends.cpu.launch.pack import Packed
    from rnnspec.backends.cpu.launch.plan import Plan
    from rnnspec.backends.cpu.launch.segments import Segments
    from rnnspec.backends.cpu.launch.tape import Tape
    from rnnspec.engine.kernel import Kernel
    from rnnspec.engine.spans import Pieces


@dataclass
class Run:
    """A forward run. outputs, states: name -> [T, B, ...], every step; final: name -> [B, ...], the
    states after each row's last step. tape_bytes: what it keeps for `backward` beside these and the
    weights."""

    outputs: dict[str, Array]
    final: dict[str, Array]
    sizes: dict[str, int]
    steps: int
    rows: int
    _kernel: Kernel = field(repr=False)
    _tape: Tape | Segments = field(repr=False)
    _backward: Plan = field(repr=False)
    _packed: Packed = field(repr=False)
    _inputs: dict[str, tuple[int, ...]] = field(repr=False)
    _params: dict[str, Array] = field(repr=False)  # of cells that compute something of them once per sequence
    _pieces: Pieces | None = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Run can't be copied or pickled: its tape belongs to this process. Keep run.outputs, run.states and"
            " run.final instead."
        )

    @cached_property
    def states(self) -> dict[str, Array]:
        """Every state at every step, [T, B, ...]; zero past a row's end. Taken from the tape when
        first asked for."""
        from rnnspec.backends.cpu.launch.tape import Tape, new_histories, read_history

        if isinstance(self._tape, Tape):
            found = new_histories(self._tape, self.steps, self.rows)
            read_history(self._tape, found)
        else:
            found = self._tape.histories(self.steps, self.rows)
        return {s: v.reshape(v.shape[:2] + full_shape(self._kernel.states[s], self.sizes)) for s, v in found.items()}

    @property
    def tape_bytes(self) -> int:
        return self._tape.tape_bytes


@dataclass(frozen=True)
class Gradients:
    """Gradients by name: params [...] summed over batch and time, inputs [T, B, ...], states [B,
    ...] before the first step."""

    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]


@dataclass(frozen=True)
class Inference:
    """outputs: name -> [T, B, ...]; final: name -> [B, ...]."""

    outputs: dict[str, Array]
    final: dict[str, Array]


@dataclass(frozen=True)
class Taped(Inference):
    """tape: [n] uint8, all that `resume` needs beside the arguments of the call. Its memory is used
    again once the array is gone."""

    tape: Array

    @property
    def tape_bytes(self) -> int:
        return self.tape.nbytes


class State(dict[str, Array]):
    """The states after one step, name -> [B, ...], to be given to the next; `outputs` are what the
    step emitted."""

    outputs: dict[str, Array]
