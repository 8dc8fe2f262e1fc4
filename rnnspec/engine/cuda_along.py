"""Runs along directions on a GPU: forward, and back over the tape of such a run.

In: a Call and its Directions, NumPy arrays. Out: NumPy arrays of values and directions. The
programs are those of the CPU, with one column in each: K directions are K runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.launch.code import CudaCode
from rnnspec.backends.cuda.launch.execution import Execution
from rnnspec.backends.cuda.launch.memory import DeviceArray
from rnnspec.engine.call import Call, Cell, Named
from rnnspec.engine.derived import Derived
from rnnspec.engine.directions import Directions, parameter_directions
from rnnspec.engine.results import Gradients, Jvp
from rnnspec.engine.spans import scattered
from rnnspec.engine.weights import Weights
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import TANGENT, tangent_of

Tape = dict[str, DeviceArray]


class Runs(Protocol):
    """What a kernel on a GPU has that runs programs."""

    @property
    def cell(self) -> Cell: ...
    @property
    def derived(self) -> Derived: ...
    def code(self, mode: str) -> CudaCode: ...
    def packed(self, mode: str, call: Call) -> Mapping[str, DeviceArray]: ...
    def rows(self, what: str, array: Any, pieces: Any = None) -> DeviceArray: ...
    def execute(
        self,
        mode: str,
        packed: Mapping[str, DeviceArray],
        sizes: Mapping[str, int],
        extent: tuple[int, int],
        lengths: Array | None,
        inputs: Mapping[str, DeviceArray],
        states: Mapping[str, DeviceArray],
        tape: Tape,
        counts: Array | None,
    ) -> Execution: ...


def extent_of(call: Call) -> tuple[int, int]:
    """The steps and rows of a run: of one of pieces, those of its longest, and how many there
    are."""
    if call.pieces is None:
        return call.steps, call.rows
    return int(call.pieces.length.max(initial=0)), len(call.pieces)


@dataclass(frozen=True)
class CudaAlong:
    """A call along directions. mode: of the kernel that runs it."""

    kernel: Runs
    call: Call
    along: Directions
    mode: str

    def ahead(self) -> tuple[Jvp, list[Tape]]:
        """The run, and the tape of each column."""
        call, spec = self.call, self.kernel.cell.spec
        full = {o: (call.steps, call.rows, *call.sizes.full(spec.shapes[o])) for o in spec.outputs}
        full |= {tangent_of(o): shape for o, shape in full.items()}
        each, tapes = list[tuple[Named, Named]](), list[Tape]()
        for one in self.along.each():
            inputs = {**call.inputs, **{tangent_of(n): a[0] for n, a in one.inputs.items()}}
            states = {**call.states, **{tangent_of(n): a[0] for n, a in one.states.items()}}
            done = self._run(one, inputs, states, {})
            each.append((self._rows(done, full), self._states(done)))
            tapes.append(done.tape)
        (outputs, final), columns = each[-1], self.along.columns
        own = [{n: a for n, a in found.items() if not n.startswith(TANGENT)} for found in (outputs, final)]
        moved = [_stacked([found[i] for found in each], columns) for i in range(2)]
        given = [{n: self.along.given(a, True) for n, a in found.items()} for found in moved]
        return Jvp(own[0], own[1] | call.counted(), *given), tapes

    def back(self, tapes: list[Tape], outputs: Named, final: Named) -> tuple[Gradients, Gradients]:
        """Gradients of the kernel's own, empty where it has none, and the directions of gradients.

        tapes: of the run ahead, column by column, or one for all. outputs, final: gradients of its
        outputs [T, B, ...] and final states [B, ...].
        """
        call, derived = self.call, self.kernel.derived
        params = self._params()
        layout, each = self.kernel.code(self.mode).layout, list[tuple[Named, Named, Named]]()
        full = {n: call.inputs[n.removeprefix(TANGENT)].shape for n in layout["outputs"]}
        own = dict[str, Array]()
        for k, one in enumerate(self.along.each()):
            inputs = {f"gradient of {o}": a for o, a in outputs.items()}
            inputs |= {tangent_of(f"gradient of {o}"): a[0] for o, a in one.outputs.items()}
            states = {**final, **{tangent_of(n): a[0] for n, a in one.final.items()}}
            done = self._run(one, inputs, states, tapes[min(k, len(tapes) - 1)])
            shapes = {n: full_shape(shape, call.sizes) for n, shape in layout["gradients"].items()}
            sums = {n: a.numpy().reshape(shapes[n]) for n, a in done.gradients.items()}
            summed = {n: a[None] if n.startswith(TANGENT) else a for n, a in sums.items()}
            moved = derived.gradient_directions(summed, params, one.params, call.sizes, 1)
            each.append(({tangent_of(n): a[0] for n, a in moved.items()}, self._rows(done, full), self._states(done)))
            own = {n: a for n, a in sums.items() if not n.startswith(TANGENT)}
        groups = [[found[i] for found in each] for i in range(3)]
        tangent = [_stacked(group, self.along.columns) for group in groups]
        given = [{n: self.along.given(a, True) for n, a in found.items()} for found in tangent]
        before = [{n: a for n, a in group[-1].items() if not n.startswith(TANGENT)} for group in groups[1:]]
        return Gradients(derived.gradients(own, params, call.sizes) if before[1] else {}, *before), Gradients(*given)

    def _params(self) -> Mapping[str, Array]:
        return self.call.params.held if isinstance(self.call.params, Weights) else self.call.params

    def _run(self, one: Directions, inputs: Named, states: Named, tape: Tape) -> Execution:
        """A run of the kernel with one column."""
        kernel, call, packed = self.kernel, self.call, dict(self.kernel.packed(self.mode, self.call))
        layout = kernel.code(self.mode).layout
        for name, array in parameter_directions(kernel.derived, layout, self._params(), one, call.sizes).items():
            packed[name] = kernel.rows(f"the direction of '{name}'", array[0])
        ready = {n: kernel.rows(f"'{n}'", a, call.pieces) for n, a in inputs.items()}
        starts = {n: kernel.rows(f"'{n}'", a) for n, a in states.items()}
        rest = call.lengths, ready, starts, tape, call.counts
        return kernel.execute(self.mode, packed, call.sizes, extent_of(call), *rest)

    def _rows(self, done: Execution, full: Mapping[str, tuple[int, ...]]) -> Named:
        """What a run put out, [T, B, ...]."""
        pieces, found = self.call.pieces, {}
        for name, array in done.outputs.items():
            host = array.numpy().reshape(done.steps, done.n, *full[name][2:])
            found[name] = host if pieces is None else scattered(host, pieces, full[name])
        return found

    def _states(self, done: Execution) -> Named:
        """The states that a run ended with, [B, ...]."""
        shapes = self.kernel.cell.states
        full = {n: self.call.sizes.full(shapes[n.removeprefix(TANGENT)]) for n in done.final}
        return {n: a.numpy().reshape(done.n, *full[n]) for n, a in done.final.items()}


@dataclass(frozen=True)
class CudaLinear:
    """A run along directions that can be gone back (`Linear`, results.py). run: what it gave;
    tapes: what it left, column by column; back: the same call, of the kernel that goes back."""

    run: Jvp
    tapes: list[Tape]
    back: CudaAlong

    def backward(self, outputs: Named, final: Named, along: Directions) -> tuple[Gradients, Gradients]:
        back = CudaAlong(self.back.kernel, self.back.call, along, self.back.mode)
        return back.back(self.tapes, outputs, final)


def _stacked(found: list[Named], columns: int) -> Named:
    """What there is of directions in the runs of all columns, [columns, ...], by the names of what
    they are directions of."""
    names = [n for n in found[0] if n.startswith(TANGENT)]
    return {n.removeprefix(TANGENT): np.stack([f[n] for f in found])[:columns] for n in names}
