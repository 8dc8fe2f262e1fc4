"""Properties of what rows of a batch have of their own: gradients of parameters, and weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, per_row, summed
from rnnspec.check.outcome import Outcome, at_sizes, largest
from rnnspec.check.parts import of_rows, rows
from rnnspec.check.sampling import Shapes
from rnnspec.check.subject import Subject, run_kernel
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


@at_sizes(lambda known: (Shapes(6, 4, (known.lanes() + 1, 3, 2), ragged=True), Shapes(3, 2, (2, 5, known.lanes()))))
def weights_by_row(known: Subject, shapes: Shapes) -> Outcome:
    """Two groups of rows with weights of their own, all or every other, are as calls of their own:
    rows bit for bit, gradients of parameters but for their order."""
    kernel, case = known.compiled(), known.draw(shapes, f"weights by row {shapes.number}")
    other = known.draw(shapes, f"other weights {shapes.number}").params
    own = list(case.params)[:: shapes.number + 1]
    if not own:
        return Outcome(detail="the cell has no parameters")
    many = {n: np.stack([a, other[n]]) if n in own else a for n, a in case.params.items()}
    both, half, outcomes, sums = (
        run_kernel(kernel, replace(case, params=many)),
        case.rows // 2,
        list[Outcome](),
        dict[str, list[Array]](),
    )
    for group in range(2):
        mine = slice(group * half, (group + 1) * half)
        params = {n: a[group] if n in own else a for n, a in many.items()}
        alone = run_kernel(kernel, replace(rows(case, mine), params=params))
        gap = worst(of_rows(both, mine), per_row(alone))
        outcomes.append(Outcome(gap.error, EXACT, f"{gap.text} of group {group}, at {case.about()}"))
        for n, array in alone[ArrayKind.PARAM_GRADIENT].items():
            sums.setdefault(n, []).append(array)
    expected = {n: np.stack(each) if n in own else each[0] + each[1] for n, each in sums.items()}
    gap = worst(summed(both), {ArrayKind.PARAM_GRADIENT: expected})
    return largest([*outcomes, Outcome(gap.error, REORDERED[known.dtype], f"{gap.text}, at {case.about()}")])
