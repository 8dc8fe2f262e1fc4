"""The influence of parameters on states as whole matrices, of any cell: [B, S, P], of all numbers
that states hold by all numbers that parameters hold.

In: the states and inputs of each step. Out: gradients. The Jacobian of the step, and what the
parameters do in it, are gradients of the states after it, one column for each, by one run of the
kernel's adjoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.call import Call, Cell, Named
from rnnspec.engine.directions import Directions, directions
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.results import Gradients
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError


class Stepped(Protocol):
    """What a kernel has that runs the adjoint of a step."""

    @property
    def cell(self) -> Cell: ...
    def call(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        *,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Call: ...
    def run_vjp(self, call: Call, along: Directions) -> Gradients: ...


class Flat:
    """The numbers of the states that parameters reach, and of all trained parameters, one after
    another. states, numbers: how many there are."""

    def __init__(self, cell: Cell, states: Sequence[str], sizes: Sizes):
        self.cell, self.dtype = cell, cell.dtype
        self.shapes = {s: sizes.full(cell.states[s]) for s in states}
        self.trained = {p: sizes.full(shape) for p, shape in cell.spec.trained.items()}
        self.states, self.numbers = (sum(map(_count, group.values())) for group in (self.shapes, self.trained))

    def by_state(self, array: Array) -> Named:
        """name -> [..., *shape] of an array [..., S]."""
        return _parted(array, self.shapes)

    def by_param(self, array: Array) -> Named:
        """name -> [..., *shape] of an array [..., P]."""
        return _parted(array, self.trained)

    def of_states(self, arrays: Mapping[str, Array], lead: int = 1) -> Array:
        """[..., S] of arrays [..., *shape] by name, zero where left out; lead: how many axes
        lead."""
        some = next(iter(arrays.values()))
        parts = [
            arrays[n].reshape((*some.shape[:lead], -1))
            if n in arrays
            else np.zeros((*some.shape[:lead], _count(shape)), self.dtype)
            for n, shape in self.shapes.items()
        ]
        return np.concatenate(parts, axis=-1)

    def of_params(self, arrays: Mapping[str, Array], lead: int = 1) -> Array:
        """[..., P] of arrays [..., *shape] by name."""
        parts = [arrays[n].reshape((*arrays[n].shape[:lead], _count(shape))) for n, shape in self.trained.items()]
        return np.concatenate(parts, axis=-1)


class Dense:
    """The influence of all parameters on the states of some rows. pattern: booleans [S, P], what of
    it is kept, None: all."""

    def __init__(self, kernel: Stepped, flat: Flat, rows: int, pattern: Array | None = None):
        self.kernel, self.flat, self.rows, self.pattern = kernel, flat, rows, pattern
        self.influence = np.zeros((rows, flat.states, flat.numbers), flat.dtype)
        self.before = self.influence

    def use(self, weights: Weights) -> None:
        """Goes on with these weights: those of each row, so that gradients of rows come apart."""
        many = self.rows > 1
        self.weights: Mapping[str, Any] | Weights = (
            {n: np.broadcast_to(a, (self.rows, *a.shape)) for n, a in weights.held.items()} if many else weights
        )

    def step(self, inputs: Named, states: Named) -> None:
        """Takes in a step, from its inputs and the states before it, [B, ...]."""
        if not (self.flat.states and self.flat.numbers):
            return
        jacobian, own = self.derivatives(inputs, states)
        moved = jacobian @ self.influence + own
        self.before, self.influence = self.influence, moved if self.pattern is None else moved * self.pattern

    def derivatives(self, inputs: Named, states: Named) -> tuple[Array, Array]:
        """The Jacobian of a step, [B, S, S], and what parameters do in it, [B, S, P]."""
        cell, flat, rows = self.kernel.cell, self.flat, self.rows
        call = self.kernel.call(self.weights, {n: a[None] for n, a in inputs.items()}, states, steps=1, rows=rows)
        units = np.broadcast_to(np.eye(flat.states, dtype=flat.dtype)[:, None], (flat.states, rows, flat.states))
        found = self.kernel.run_vjp(call, directions(cell, call, None, None, None, None, flat.by_state(units)))
        own = {n: a if rows > 1 else a[:, None] for n, a in found.params.items()}
        pair = flat.of_states(found.states, 2), flat.of_params(own, 2)
        return np.moveaxis(pair[0], 1, 0), np.moveaxis(pair[1], 1, 0)

    def gradients(self, after: Mapping[str, Array], before: Mapping[str, Array]) -> Named:
        """The gradients of parameters, summed over rows, from those of the states after the step
        and before it, [B, ...]; zero where left out."""
        found = np.zeros(self.flat.numbers, self.flat.dtype)
        for flow, influence in ((after, self.influence), (before, self.before)):
            if flow:
                found += self.flat.of_states(flow).reshape(-1) @ influence.reshape(-1, self.flat.numbers)
        return self.flat.by_param(found)

    def reset(self, rows: Array | slice) -> None:
        """Some rows start again: nothing has an influence on them."""
        self.influence[rows] = 0
        self.before = self.influence


def refuse_above(limit: int, flat: Flat, rows: int, rule: str, why: str) -> None:
    """Raises UnsupportedError where an influence would hold more numbers than that. why: it can't
    be kept by units."""
    held, name = rows * flat.states * flat.numbers, flat.cell.spec.name
    if held <= limit:
        return
    raise UnsupportedError(
        f"{rule!r} of '{name}' keeps the influence of {flat.numbers} numbers of parameters on {flat.states} of states"
        f" for {rows} row{'s' * (rows != 1)}: {held} numbers, {held * flat.dtype.itemsize / 2**30:.3g} GiB, and a step"
        f" takes {held * flat.states:.3g} multiplications. It can't be kept by units, since {why}. Over {limit} numbers"
        f" it is refused: give limit={held} to have it, or take another rule."
    )


def _parted(array: Array, shapes: Mapping[str, tuple[int, ...]]) -> Named:
    ends = np.cumsum([_count(shape) for shape in shapes.values()])[:-1]
    parts = np.split(array, ends, axis=-1) if shapes else []
    return {n: part.reshape((*array.shape[:-1], *shape)) for (n, shape), part in zip(shapes.items(), parts)}


def _count(full: tuple[int, ...]) -> int:
    return int(np.prod(full, dtype=np.int64))
