"""Runs along directions on the CPU: forward, and back over the tape of such a run.

In: a Call and its Directions, and what is planned and packed for them. Out: values and directions,
in the shapes that a caller has them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.execute import execute
from rnnspec.backends.cpu.launch.pack import Packed
from rnnspec.backends.cpu.launch.plan import Plan
from rnnspec.backends.cpu.launch.rows import columned
from rnnspec.backends.cpu.launch.segments import Segments
from rnnspec.backends.cpu.launch.tape import Tape, new_tape
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call, Cell, Named
from rnnspec.engine.cpu_runs import final_states, new_outputs, shaped
from rnnspec.engine.derived import Derived
from rnnspec.engine.directions import Directions
from rnnspec.engine.results import Gradients, Jvp
from rnnspec.engine.weights import Weights
from rnnspec.language.spec import TANGENT, tangent_of

Ran = tuple[Named, Named]  # the states after the last step, and the gradients that were summed


@dataclass(frozen=True)
class Along:
    """A call along directions. plan, packed: of the kernel that runs it."""

    cell: Cell
    call: Call
    along: Directions
    plan: Plan
    packed: Packed

    def ahead(self, low: bool | None = None) -> tuple[Jvp, Tape | Segments | None]:
        """The run, and its tape: None where `low` is None, else of segments of steps where it is
        true."""
        call, along, each = self.call, self.along, columned(self.plan.code.layout, "outputs")
        outputs, moved = new_outputs(self.cell, call, None), dict[str, Array]()
        for name in self.cell.spec.outputs:
            columns = (along.columns,) if tangent_of(name) in each else ()
            moved[tangent_of(name)] = new_outputs(self.cell, call, None, columns)[name]
        inputs = {**call.inputs, **self._numbered({tangent_of(n): a for n, a in along.inputs.items()})}
        states = {**call.states, **{tangent_of(n): np.moveaxis(a, 0, 1) for n, a in along.states.items()}}
        final, tape = self._run_ahead(inputs, {**outputs, **moved}, states, low)
        given = {n: along.given(moved[tangent_of(n)], tangent_of(n) in each) for n in self.cell.spec.outputs}
        own = {n: a for n, a in final.items() if not n.startswith(TANGENT)}
        moving = {n.removeprefix(TANGENT): a for n, a in final.items() if n.startswith(TANGENT)}
        return Jvp(outputs, final_states(self.cell, own, call), given, self._directions(moving)), tape

    def _run_ahead(
        self, inputs: Named, outputs: Named, states: Named, low: bool | None
    ) -> tuple[Named, Tape | Segments | None]:
        if low:
            segments = Segments(self.plan, self.packed, inputs, self.call.counts)
            return segments.forward(outputs, states, watch=False), segments
        tape = None if low is None else new_tape(self.plan, self.call.counts)
        return execute(self.plan, self.packed, inputs, outputs, states, tape, self.call.counts)[0], tape

    def back(
        self, tape: Tape | Segments | None, derived: Derived, outputs: Named, final: Named
    ) -> tuple[Gradients | None, Gradients]:
        """Gradients, None where the kernel has none of its own, and their directions.

        tape: of the run ahead. outputs, final: gradients of its outputs [T, B, ...] and final
        states [B, ...].
        """
        call, along, layout = self.call, self.along, self.plan.code.layout
        flowing = {f"gradient of {o}": a for o, a in outputs.items()}
        read = self._numbered({**flowing, **{tangent_of(f"gradient of {o}"): a for o, a in along.outputs.items()}})
        states = {**final, **{tangent_of(n): np.moveaxis(a, 0, 1) for n, a in along.final.items()}}
        each, shapes = columned(layout, "outputs"), {n: a.shape for n, a in call.inputs.items()}
        shapes = {n: (along.columns,) * (n in each) + shapes[n.removeprefix(TANGENT)] for n in layout["outputs"]}
        may_end_early = call.pieces is not None or any(block.lengths is not None for block in self.plan.blocks)
        dx = checked.ready(shapes, None, self.cell.dtype, zero=may_end_early)
        before, sums = self._run_back(tape, read, dx, states)
        params = call.params.held if isinstance(call.params, Weights) else call.params
        moved = derived.gradient_directions(sums, params, along.params, call.sizes, along.columns, call.groups)
        tangent = Gradients(
            {n: along.given(a, True) for n, a in moved.items()},
            {n: along.given(dx[tangent_of(n)], tangent_of(n) in each) for n in call.inputs if tangent_of(n) in dx},
            self._directions({n.removeprefix(TANGENT): a for n, a in before.items() if n.startswith(TANGENT)}),
        )
        own = {n: a for n, a in before.items() if not n.startswith(TANGENT)}
        if not own and any(n.startswith(TANGENT) for n in before):
            return None, tangent
        inputs = {n: a for n, a in dx.items() if not n.startswith(TANGENT)}
        summed = {n: a for n, a in sums.items() if not n.startswith(TANGENT)}
        return Gradients(
            derived.gradients(summed, params, call.sizes, call.groups), inputs, shaped(self.cell, own, call.sizes)
        ), tangent

    def _run_back(self, tape: Tape | Segments | None, read: Named, dx: Named, states: Named) -> Ran:
        if isinstance(tape, Segments):
            return tape.backward(self.plan, self.packed, read, dx, states)
        return execute(self.plan, self.packed, read, dx, states, tape, self.call.counts)

    def _numbered(self, arrays: Mapping[str, Array]) -> Named:
        """Arrays as a run of pieces reads them."""
        if self.call.pieces is None:
            return dict(arrays)
        return {n: np.ascontiguousarray(a) for n, a in arrays.items()}

    def _directions(self, states: Mapping[str, Array]) -> Named:
        """The directions of states as a caller has them; states: [B, columns, width], or [B, width]
        of those that have none."""
        each, found = columned(self.plan.code.layout, "states"), {}
        for name, array in states.items():
            has = tangent_of(name) in each
            array = np.moveaxis(array, 1, 0) if has else array
            shape = (*array.shape[:-1], *self.call.sizes.full(self.cell.states[name]))
            found[name] = self.along.given(np.ascontiguousarray(array).reshape(shape), has)
        return found


@dataclass(frozen=True)
class CpuLinear:
    """A run along directions that can be gone back (`Linear`, results.py). run: what it gave; tape:
    what it left; back: the same call, of the kernel that goes back."""

    run: Jvp
    tape: Tape | Segments | None
    back: Along
    derived: Derived

    def backward(self, outputs: Named, final: Named, along: Directions) -> tuple[Gradients, Gradients]:
        gradients, moved = self.along(outputs, final, along)
        assert gradients is not None, "a kernel with gradients of its own"
        return gradients, moved

    def along(self, outputs: Named, final: Named, along: Directions) -> tuple[Gradients | None, Gradients]:
        """As `backward`; None in place of gradients that the kernel has not."""
        return replace(self.back, along=along).back(self.tape, self.derived, outputs, final)
