"""Parts of cases and of results: some steps, some rows, what belongs to rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.outcome import Outcome
from rnnspec.check.sampling import Case
from rnnspec.check.subject import Values, worst
from rnnspec.check.tolerances import EXACT, REORDERED

PER_ROW = ("output", "final", "gradient of input", "gradient of initial")
TIMED = ("output", "gradient of input")
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


def per_row(values: Values) -> Values:
    return {n: a for n, a in values.items() if n.startswith(PER_ROW)}


def summed(values: Values) -> Values:
    """The gradients that are sums over rows."""
    return {n: a for n, a in values.items() if not n.startswith(PER_ROW)}


def of_rows(values: Values, which: Rows) -> Values:
    """What belongs to some rows."""
    return {n: a[:, which] if n.startswith(TIMED) else a[which] for n, a in per_row(values).items()}


def same_but_for_sums(found: Values, expected: Values, dtype: str, detail: str) -> list[Outcome]:
    """The same bits, but for the gradients that are sums over rows, which may be summed in another
    order."""
    outcomes = []
    for part, tolerance in ((per_row, EXACT), (summed, REORDERED[dtype])):
        error, name = worst(part(found), part(expected))
        outcomes.append(Outcome(error, tolerance, f"{name} {detail}"))
    return outcomes
