"""The property of streams that learn: their gradients, step by step, are those of a backward
pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind
from rnnspec.check.outcome import Outcome, at_sizes
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Subject
from rnnspec.check.tolerances import ONLINE
from rnnspec.engine.spans import Pieces, cut
from rnnspec.language.spec import STEP


@at_sizes(lambda known: (Shapes(6, 3, (3, 2, 4), ragged=True),))
def online_gradients(known: Subject, shapes: Shapes) -> Outcome:
    """The sum of what `learn` gives of all steps, by the rule "exact", is the gradient of a
    backward pass over the sequence; rows end early, and one starts again on the way."""
    kernel, case = known.compiled(), known.draw(shapes, f"online {shapes.number}")
    if not known.spec.trained:
        return Outcome(detail="the cell has no parameters that are trained")
    resets = np.zeros((case.steps, case.rows), bool)
    resets[case.steps // 2 :: 2, case.rows // 2] = True
    pieces = cut(case.steps, case.rows, case.lengths, resets, False)
    starts = {n: a[pieces.row] for n, a in _starts(known, case).items()}
    run = kernel.forward(case.params, case.inputs, starts, pieces=pieces, **case.extent)
    expected = kernel.backward(run, case.d_outputs).params
    found = _learned(known, case, resets, pieces)
    gap = worst({ArrayKind.PARAM_GRADIENT: found}, {ArrayKind.PARAM_GRADIENT: expected})
    return Outcome(gap.error, ONLINE[known.dtype], f"{gap.text} at {case.about()}")


def _starts(known: Subject, case: Case) -> dict[str, Array]:
    """States before the first step; rows of a cell that counts its steps start at counts of their
    own."""
    return case.states | ({STEP: 3 * np.arange(case.rows)} if known.spec.counts else {})


def _learned(known: Subject, case: Case, resets: Array, pieces: Pieces) -> dict[str, Array]:
    """Gradients of parameters, step by step. Past its end a row goes on, and its outputs are of no
    use."""
    begin, ends = _starts(known, case), np.zeros(case.rows, np.int64)
    np.maximum.at(ends, pieces.row, pieces.start + pieces.length)
    told: dict[str, Any] = {"rows": case.rows, "limit": 1 << 30, **case.sizes}
    stream = known.compiled().online(case.params, begin, **told)
    found: dict[str, Array] = {}
    for t in range(case.steps):
        if resets[t].any():
            stream.reset({n: a[resets[t]] for n, a in begin.items()}, rows=resets[t])
        stream.step({n: a[t] for n, a in case.inputs.items()})
        flow = {n: np.where((t < ends).reshape(-1, *[1] * (a.ndim - 2)), a[t], 0) for n, a in case.d_outputs.items()}
        found = {n: found[n] + a if n in found else a for n, a in stream.learn(flow).items()}
    return found
