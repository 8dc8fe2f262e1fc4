"""One comparison: arrays drawn, both sides run, and how far they are from each other.

`measure` is what the command runs in a process of its own for each package: what one sets up or
breaks, another does not see.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from bench.drift.comparison import (
    OTHER_SIZES,
    ROWS,
    SIZES,
    STEPS,
    TOLERANCES,
    Comparison,
    Found,
    Given,
    adapter,
    missing,
)
from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.sampling import Case, Shapes
from rnnspec.check.subject import Subject, run_kernel, run_reference, subject
from rnnspec.engine.compile import compile
from rnnspec.language.load import load
from rnnspec.language.sizes import sizes_in

SEED = 5
GRADIENTS = (ArrayKind.PARAM_GRADIENT, ArrayKind.INPUT_GRADIENT, ArrayKind.STATE_GRADIENT)


@dataclass(frozen=True)
class Difference:
    """The largest difference of values and of gradients (None: not compared), relative to the
    largest of each kind, and the array that has it."""

    values: float
    gradients: float | None
    where: str
    tolerance: float

    @property
    def verdict(self) -> str:
        if not self.values <= self.tolerance:
            return "different"
        return "equal" if self.gradients is None or self.gradients <= self.tolerance else "gradients differ"


def measure(package: str, cells: Sequence[str], reference: bool) -> Iterator[dict[str, Any]]:
    """A record per comparison of an adapter, or one that says why there is none."""
    theirs = adapter(package)
    about = {"package": theirs.DISTRIBUTION, "adapter": package}
    os.environ.update(theirs.ENVIRONMENT)
    if absent := missing(theirs.NEEDS):
        yield about | {"not_installed": absent}
        return
    about |= {"version": installed(theirs.DISTRIBUTION)}
    try:
        found = theirs.comparisons()
    except (ImportError, SyntaxError, OSError) as error:  # another version of what it needs
        yield about | {"not_run": f"{type(error).__name__}: {error}".splitlines()[0]}
        return
    for one in found:
        if not cells or one.cell in cells:
            yield about | record(one, reference)


def installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def record(one: Comparison, reference: bool) -> dict[str, Any]:
    """The comparison's data and outcome, as JSON has it."""
    about = {"cell": one.cell, "theirs": str(one), "dtype": one.dtype, "differs": one.differs}
    expected = "equal" if not one.differs else "gradients differ" if one.only_gradients else "different"
    about |= {"expected": expected}
    try:
        gap = compare(one, reference)
    except Exception as error:  # of another version's interface: a finding too
        return about | {"verdict": "failed", "error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return about | {
        "verdict": gap.verdict,
        "values": gap.values,
        "gradients": gap.gradients,
        "where": gap.where,
    }


def compare(one: Comparison, reference: bool = True) -> Difference:
    """Both sides of a comparison. reference: ours is the definition, interpreted in float64, and no
    kernel is compiled."""
    known = _subject(one.cell, tuple(one.options.items()))
    spec = known.spec
    names = [n for n in sizes_in(spec.parameters.values()) if n not in SIZES]
    sizes = SIZES | dict(zip(names, OTHER_SIZES)) | dict(one.sizes)
    case = _changed(one, known.draw(Shapes(STEPS, ROWS, sizes), "drift"))
    found, slopes = _evaluated(one, case)
    weights = {
        "d_outputs": {n: a for n, a in case.d_outputs.items() if n in found.outputs},
        "d_final": {n: a for n, a in case.d_final.items() if n in found.final},
    }
    case = Case(**vars(case) | weights)
    ours = run_reference(known, case) if reference else run_kernel(compile(spec, dtype="float64"), case)
    theirs: dict[ArrayKind, Mapping[str, Any]] = {ArrayKind.OUTPUT: found.outputs, ArrayKind.FINAL: found.final}
    mine = {kind: {n: ours[kind][n] for n in theirs[kind]} for kind in theirs}
    values = worst(mine, theirs)
    tolerance = TOLERANCES[one.dtype]
    if slopes is None:
        return Difference(values.error, None, values.text, tolerance)
    gradients = worst(*_gradients(one, ours, slopes))
    where = values.text if not values.error <= tolerance else gradients.text
    return Difference(values.error, gradients.error, where, tolerance)


@lru_cache
def _subject(cell: str, options: tuple[tuple[str, object], ...]) -> Subject:
    return subject(load(cell, **dict(options)), SEED)


def _changed(one: Comparison, case: Case) -> Case:
    """The case with what the comparison says of its arrays, rounded to the package's dtype."""
    rng = np.random.default_rng(SEED)

    def drawn(name: str, array: Any) -> Any:
        if name in one.values:
            return np.full_like(array, one.values[name])
        return rng.uniform(*one.bounds[name], array.shape) if name in one.bounds else array

    params = {n: drawn(n, a) for n, a in case.params.items()}
    inputs = {n: drawn(n, a) for n, a in case.inputs.items()}
    states = {n: np.zeros_like(a) if one.zero_start else drawn(n, a) for n, a in case.states.items()}
    changed = Case(**vars(case) | {"params": params, "inputs": inputs, "states": states})
    return changed.map(lambda a: a.astype(one.dtype).astype("float64"))


def _evaluated(one: Comparison, case: Case) -> tuple[Found, Given | None]:
    groups = [{n: a.astype(one.dtype) for n, a in g.items()} for g in (case.params, case.inputs, case.states)]
    given = Given(*groups, case.sizes)
    if one.framework == "numpy":
        return one.run(given), None
    side = importlib.import_module(f"bench.drift.{one.framework}_side")

    def weigh(found: Found) -> Any:
        total: Any = 0.0
        for arrays, weights in ((found.outputs, case.d_outputs), (found.final, case.d_final)):
            for name, array in arrays.items():
                total = total + (array * side.constant(weights[name].astype(one.dtype))).sum()
        return total

    return side.evaluate(one.run, given, weigh)


def _gradients(one: Comparison, ours: Values, slopes: Given) -> tuple[Values, Values]:
    """Ours and theirs, of the names that both have and that are not fixed."""
    wanted = {
        kind: [n for n in ours[kind] if n in group and n not in one.values and _asked(one, n)]
        for kind, group in zip(GRADIENTS, slopes[:3])
    }
    mine = {kind: {n: ours[kind][n] for n in names} for kind, names in wanted.items()}
    return mine, {kind: {n: group[n] for n in wanted[kind]} for kind, group in zip(GRADIENTS, slopes[:3])}


def _asked(one: Comparison, name: str) -> bool:
    return one.gradients is None or name in one.gradients
