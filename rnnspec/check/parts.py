"""Parts of cases and of results: some steps, some rows, what belongs to rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.difference import worst
from rnnspec.check.kinds import TIMED, ArrayKind, Values, per_row, summed
from rnnspec.check.outcome import Outcome
from rnnspec.check.sampling import Case
from rnnspec.check.tolerances import EXACT, REORDERED

Rows = slice | list[int] | Array


def steps(case: Case, which: slice) -> Case:
    timed: dict[str, Any] = {g: {n: a[which] for n, a in getattr(case, g).items()} for g in ("inputs", "d_outputs")}
    return replace(case, **timed, steps=len(range(case.steps)[which]))


def rows(case: Case, which: Rows) -> Case:
    changed: dict[str, Any] = {
        g: {n: a[:, which] for n, a in getattr(case, g).items()} for g in ("inputs", "d_outputs")
    }
    changed |= {g: {n: a[which] for n, a in getattr(case, g).items()} for g in ("states", "d_final")}
    return replace(
        case,
        **changed,
        rows=len(np.arange(case.rows)[which]),
        lengths=None if case.lengths is None else case.lengths[which],
    )


def alone(case: Case, row: int) -> Case:
    """One row of a ragged case, cut to its length."""
    assert case.lengths is not None
    return replace(steps(rows(case, slice(row, row + 1)), slice(0, int(case.lengths[row]))), lengths=None)


def with_inputs(case: Case, change: Callable[[Array], Array]) -> Case:
    return replace(case, inputs={n: change(a) for n, a in case.inputs.items()})


def of_rows(values: Values, which: Rows) -> dict[ArrayKind, dict[str, Array]]:
    """What belongs to some rows."""
    return {
        kind: {n: a[:, which] if kind in TIMED else a[which] for n, a in arrays.items()}
        for kind, arrays in per_row(values).items()
    }


def of_steps(values: Values, which: slice) -> dict[ArrayKind, dict[str, Array]]:
    """The values with some steps alone of what has steps."""
    return {k: {n: a[which] if k in TIMED else a for n, a in arrays.items()} for k, arrays in values.items()}


def same_but_for_sums(found: Values, expected: Values, dtype: str, detail: str) -> list[Outcome]:
    """Outcomes for the same bits, but for the gradients that are sums over rows: those may be
    summed in another order."""
    outcomes = []
    for part, tolerance in ((per_row, EXACT), (summed, REORDERED[dtype])):
        gap = worst(part(found), part(expected))
        outcomes.append(Outcome(gap.error, tolerance, f"{gap.text} {detail}"))
    return outcomes
