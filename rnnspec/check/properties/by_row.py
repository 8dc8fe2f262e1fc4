"""Properties of what each row of a batch has of its own: gradients of parameters by row."""

from __future__ import annotations

import numpy as np

from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.parts import rows
from rnnspec.check.sampling import Shapes
from rnnspec.check.subject import Subject
from rnnspec.check.tolerances import EXACT, REORDERED


@at_sizes(lambda known: (Shapes(7, 3, (known.lanes() + 1, 3, 2), ragged=True), Shapes(5, 2, (2, 5, known.lanes()))))
def gradients_by_row(known: Subject, shapes: Shapes) -> Outcome:
    """The gradients of each row are those of a backward pass of this row alone, their sum is what
    `backward` gives, their squares are those of `row_norms`; all else is `backward`'s, bit for
    bit."""
    kernel, case = known.compiled(), known.draw(shapes, f"gradients by row {shapes.number}")
    run = kernel.forward(case.params, case.inputs, case.states, case.lengths, **case.extent)
    whole = kernel.backward(run, case.d_outputs, final=case.d_final)
    each = kernel.backward(run, case.d_outputs, final=case.d_final, per_row=True)
    norms = kernel.row_norms(run, case.d_outputs, final=case.d_final)
    single = []
    for row in range(case.rows):
        one = rows(case, slice(row, row + 1))
        alone = kernel.forward(one.params, one.inputs, one.states, one.lengths, **one.extent)
        single.append(kernel.backward(alone, one.d_outputs, final=one.d_final).params)
    squares = {n: np.square(a, dtype=np.float64).reshape(case.rows, -1).sum(1) for n, a in each.params.items()}
    told, kind, found = REORDERED[known.dtype], ArrayKind.PARAM_GRADIENT, []
    for arrays, expected, what in (
        (each.params, {n: np.stack([s[n] for s in single]) for n in whole.params}, "by row, against each alone"),
        ({n: a.sum(0) for n, a in each.params.items()}, whole.params, "summed over rows"),
        (norms.params, squares, "by row, squared norms"),
    ):
        gap = worst({kind: arrays}, {kind: expected})
        found.append(Outcome(gap.error, told, f"{gap.text} {what}, at {case.about()}"))
    for other in (each, norms):
        ours, theirs = (
            {ArrayKind.INPUT_GRADIENT: g.inputs, ArrayKind.STATE_GRADIENT: g.states} for g in (other, whole)
        )
        gap = worst(ours, theirs)
        found.append(Outcome(gap.error, EXACT, f"{gap.text} beside gradients by row, at {case.about()}"))
    return largest(found)
