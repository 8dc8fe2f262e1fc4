"""What the calls of a Kernel give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief, brief_repr
from rnnspec.engine.frozen import Sizes
from rnnspec.language.spec import Shape
from rnnspec.storage.locks import once_only


class Saved(Protocol):
    """What a forward run leaves for its backward run; only the kernel that made it looks further
    into it."""

    @property
    def tape_bytes(self) -> int:
        """The size of the tape."""

    @property
    def read_again(self) -> Mapping[str, Array]:
        """The caller's arrays that the backward run reads once more, by what they are called."""

    def histories(self, steps: int, rows: int) -> dict[str, Array]:
        """Every state after every step, [T, B, width]; zero past a row's end."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A forward run. outputs, states: name -> [T, B, ...], every step; final: name -> [B, ...], the
    states after each row's last step, and of a cell that counts its steps the count, int64 [B],
    under "t". tape_bytes: what it keeps for `backward` beside these and the
    weights. sizes: the value of every size; steps, rows: T and B.

    owner: the kernel that made it, whose `backward` takes it; saved: what that needs; shapes: those
    of the states, in sizes.
    """

    outputs: dict[str, Array]
    final: dict[str, Array]
    sizes: Sizes
    steps: int
    rows: int
    owner: object = field(repr=False)
    saved: Saved = field(repr=False)
    shapes: Mapping[str, Shape] = field(repr=False)

    __repr__ = brief_repr

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Run can't be copied or pickled: its tape belongs to this process. Keep run.outputs, run.states and"
            " run.final instead."
        )

    @once_only
    def states(self) -> dict[str, Array]:
        """Every state at every step, [T, B, ...]; zero past a row's end. Taken from the tape when
        first asked for."""
        histories = self.saved.histories(self.steps, self.rows)
        return {
            name: array.reshape(array.shape[:2] + self.sizes.full(self.shapes[name]))
            for name, array in histories.items()
        }

    @property
    def tape_bytes(self) -> int:
        return self.saved.tape_bytes


@dataclass(frozen=True)
class Gradients:
    """Gradients by name: params [...] summed over batch and time (by row [B, ...], over time),
    inputs [T, B, ...], states [B, ...] before the first step."""

    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]

    __repr__ = brief_repr


class RowGradients(Protocol):
    """The gradients of parameters of every row of a batch, before they are made."""

    def gradients(self, first: int, end: int) -> dict[str, Array]:
        """Those of the rows from `first` to before `end`, name -> [end - first, ...]."""

    def squared_norms(self, rows: int) -> dict[str, Array]:
        """Their sums of squares, name -> float64 [rows]; few gradients are held at once."""


@dataclass(frozen=True)
class Inference:
    """What a run without a tape gives. outputs: name -> [T, B, ...]; final: name -> [B, ...], as of
    a Run."""

    outputs: dict[str, Array]
    final: dict[str, Array]

    __repr__ = brief_repr


@dataclass(frozen=True)
class Taped(Inference):
    """A forward run whose tape is the caller's. tape: [n] uint8, all that `resume` needs beside the
    arguments of the call. Its memory is used again once the array is gone."""

    tape: Array

    __repr__ = brief_repr

    @property
    def tape_bytes(self) -> int:
        return self.tape.nbytes


@dataclass(frozen=True)
class Jvp(Inference):
    """A run and its derivative along directions. tangent_outputs: name -> [T, B, ...];
    tangent_final: name -> [B, ...]; of K directions at once [K, T, B, ...] and [K, B, ...]."""

    tangent_outputs: dict[str, Array]
    tangent_final: dict[str, Array]


class Linear(Protocol):
    """A run along directions that can be gone back."""

    @property
    def run(self) -> Jvp:
        """What it gave."""

    def backward(self, outputs: dict[str, Array], final: dict[str, Array], along: Any) -> tuple[Gradients, Gradients]:
        """Gradients, and their directions. outputs, final: gradients from outside; along: the
        directions of the call, and those of outputs and final
        (rnnspec.engine.directions.Directions)."""


@dataclass(frozen=True)
class Hvp(Jvp):
    """A run, its gradients, and the derivatives of all of them along directions.
    tangent_gradients: as gradients; of K directions at once params [K, ...], inputs [K, T, B, ...],
    states [K, B, ...]."""

    gradients: Gradients
    tangent_gradients: Gradients


@dataclass(frozen=True)
class Ggn(Jvp):
    """A run along directions, and what a Gauss-Newton matrix makes of them. products: as gradients;
    of K directions at once params [K, ...], inputs [K, T, B, ...], states [K, B, ...]."""

    products: Gradients


def taped_counts(tape: object, rows: int) -> Array | None:
    """The count of steps before a run, int64 [rows], which stands at the end of its tape; None
    where that can be no tape."""
    if not isinstance(tape, np.ndarray) or tape.dtype != np.uint8 or tape.ndim != 1 or tape.size < 8 * rows:
        return None
    return tape[tape.size - 8 * rows :].copy().view(np.int64)


class State(dict[str, Array]):
    """The states after one step, name -> [B, ...], to be given to the next, and the count of steps
    of a cell that has one. outputs: name -> [B, ...], what the step emitted; final: a dict of what
    this one holds, under the name that it has in the results of other calls."""

    outputs: dict[str, Array]

    @classmethod
    def of(cls, states: dict[str, Array], outputs: dict[str, Array]) -> State:
        """A State that holds these arrays."""
        state = cls(states)
        state.outputs = outputs
        return state

    @property
    def final(self) -> dict[str, Array]:
        return dict(self)

    def __repr__(self) -> str:
        return f"State({brief(dict(self))}, outputs={brief(getattr(self, 'outputs', {}))})"
