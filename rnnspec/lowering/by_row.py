"""A backward program whose gradients of parameters are not summed: it emits, step by step, what
they are sums of.

In: the backward Program. Out: one of the same stages and panels, so that weights which are packed
for the one serve the other. The gradient of a row is a sum over its steps of outer products left
right^T, or of values; whoever runs the program has these for all steps and makes the sums, row by
row (backends/cpu/launch/row_sums.py).
"""

from __future__ import annotations

from dataclasses import replace

from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.program import Buffer, BufferPlace, Program, RowSum
from rnnspec.lowering.signature import gradient_sums
from rnnspec.symbolic.graph import size_of


def by_row(program: Program) -> Program:
    """The program that emits "row VALUE" for each value of `Program.row_sums`, beside its
    outputs."""
    graph, buffers, places = program.graph, dict(program.buffers), dict(program.places)
    sums = [RowSum(o.parameter, o.right, o.left, program.kept(o)) for o in program.outers]
    after = []
    for stage in program.after:
        stored = {value for value, _ in stage.stores}
        stores = list(stage.stores)
        for gradient, value in gradient_sums(graph, stage):
            sums.append(RowSum(gradient, value))
            if value not in places:
                name = fresh(value, buffers)
                buffers[name], places[value] = Buffer(name, size_of(graph, value)), BufferPlace(name)
            if value not in stored and places[value].buffer not in program.buffers:
                stores.append((value, places[value]))
                stored.add(value)
        after.append(replace(stage, sums=(), stores=tuple(stores)))
    emitted = {f"row {v}": v for s in sums for v in (s.left, s.value) if v is not None}
    changed = replace(
        program,
        name=f"{program.name} by row",
        buffers=buffers,
        places=places,
        outputs={**program.outputs, **emitted},
        after=tuple(after),
        outers=(),
        row_sums=tuple(sums),
    )
    changed.verify()
    return changed
