"""The Jacobians of the steps of a sequence: derivatives of the states after a step by those before
it.

In: a kernel, and the arguments of a sequence. Out: matrices for every step and row. Each step is a
row of a sequence of one step, and the directions are unit vectors; where the structure of a cell
(rnnspec.symbolic.structure) keeps the elements of a state apart, one direction serves many of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.call import Call, Named
from rnnspec.engine.groups import refuse_groups
from rnnspec.engine.results import Jvp, Run
from rnnspec.engine.weights import Weights
from rnnspec.language.spec import STEP, Shape, Spec
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.symbolic.structure import Jacobian, Structure

Matrices = dict[str, dict[str, Array]]  # state after the step -> state before it -> [T, B, ...after, ...before]
MOST_NUMBERS = 1 << 22  # of the directions of a state that are worked on at once


class Steps(Protocol):
    """What a kernel has that runs the steps of a sequence, and their directions."""

    spec: Spec
    dtype: np.dtype

    @property
    def states(self) -> Mapping[str, Shape]: ...
    def run_forward(self, call: Call) -> Run: ...
    def jvp(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        *,
        tangent_states: Mapping[str, Any] | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Jvp: ...


def jacobian(kernel: Steps, call: Call) -> Matrices:
    """d state after the step / d state before it, [T, B, ...after, ...before], for each pair of
    states, for the steps of a call without lengths."""
    refuse_groups(call.groups, "a Jacobian", "call it with the weights and rows of each group")
    with making:
        from rnnspec.lowering.pipeline import jacobian as structure_of

        known = structure_of(kernel.spec)
    steps, rows = call.steps, call.rows
    single = _steps_as_rows(kernel, call)
    found: Matrices = {after: {} for after in kernel.states}
    for before, shape in kernel.states.items():
        apart = _apart(known, before, shape)
        each = call.sizes.full(shape)
        for after, matrix in _by_state(kernel, call, single, before, apart).items():
            told = known[after][before]
            placed = _placed(matrix, told, apart, each)
            found[after][before] = placed.reshape(steps, rows, *placed.shape[1:])
    return found


def _apart(known: Jacobian, before: str, shape: Shape) -> tuple[int, ...]:
    """The axes of a state along which no two of its elements meet in an element of any state."""
    axes = set(range(len(shape)))
    for others in known.values():
        axes &= set(others[before].unit)
    return tuple(sorted(axes))


def _steps_as_rows(kernel: Steps, call: Call) -> tuple[Named, Named]:
    """Inputs [1, T * B, ...] and states [T * B, ...] of every step of a call, as those of rows."""
    run = kernel.run_forward(call)
    states: dict[str, Array] = {}
    for name, shape in kernel.states.items():
        start = call.states.get(name)
        first = np.zeros((call.rows, *call.sizes.full(shape)), kernel.dtype) if start is None else start
        whole = np.concatenate([first[None], run.states[name][:-1]])[: call.steps]
        states[name] = whole.reshape(-1, *first.shape[1:])
    if call.counts is not None:
        states[STEP] = (call.counts + np.arange(call.steps)[:, None]).reshape(-1)
    inputs = {n: a.reshape(1, -1, *a.shape[2:]) for n, a in call.inputs.items()}
    return inputs, states


def _by_state(kernel: Steps, call: Call, single: tuple[Named, Named], before: str, apart: tuple[int, ...]) -> Named:
    """The directions of all states after each step, [T * B, ..., K], along ones in place of the
    axes `apart` of a state, and unit vectors along its others."""
    inputs, states = single
    each, rows = call.sizes.full(kernel.states[before]), call.steps * call.rows
    units = _units(each, apart, kernel.dtype)
    many = max(1, MOST_NUMBERS // max(1, rows * max(1, units[0].size if len(units) else 1)))
    made = []
    for start in range(0, max(1, len(units)), many):
        part = units[start : start + many]
        along = np.broadcast_to(part[:, None], (len(part), rows, *each))
        run = kernel.jvp(call.params, inputs, states, tangent_states={before: along}, steps=1, rows=rows)
        made.append({n: np.moveaxis(a, 0, -1) for n, a in run.tangent_final.items()})
    return {n: np.concatenate([m[n] for m in made], axis=-1) for n in kernel.states}


def _units(each: tuple[int, ...], apart: tuple[int, ...], dtype: np.dtype) -> Array:
    """Directions [K, ...each]: ones along the axes `apart`, and for the others one of each unit
    vector."""
    others = [n for axis, n in enumerate(each) if axis not in apart]
    found = np.zeros((int(np.prod(others, dtype=np.int64)), *each), dtype)
    for number, indices in enumerate(itertools.product(*map(range, others))):
        at = iter(indices)
        where = [slice(None) if axis in apart else next(at) for axis in range(len(each))]
        place = (number, *where)
        found[place] = 1
    return found


def _placed(made: Array, told: Structure, apart: tuple[int, ...], each: tuple[int, ...]) -> Array:
    """Jacobians [rows, ...after, ...before] from directions [rows, ...after, K]: an element stands
    where its indices along the axes `apart` are those that the structure says."""
    others = [axis for axis in range(len(each)) if axis not in apart]
    spread = made.reshape(*made.shape[:-1], *(each[axis] for axis in others))
    if not apart:
        return spread
    after = made.ndim - 2
    full = np.zeros((*made.shape[:-1], *each), made.dtype)
    if told.axes is None:
        return full
    grid: list[Array] = list(np.indices((*made.shape[1:-1], *(each[axis] for axis in others)), sparse=True))
    pairs = {b: a for a, b in told.axes}
    before = [grid[pairs[axis]] if axis in apart else grid[after + others.index(axis)] for axis in range(len(each))]
    where: tuple[Any, ...] = (slice(None), *grid[:after], *before)
    full[where] = spread
    return full
