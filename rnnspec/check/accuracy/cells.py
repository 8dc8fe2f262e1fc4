"""How accurate kernels are: a cell's values and gradients, against the definition in numbers of 50
digits.

report = measure_cells(["lstm"])
print(report.to_text())
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers
from rnnspec.check.kinds import Key, Values, flat
from rnnspec.check.sampling import NoSampleError, Shapes
from rnnspec.check.subject import Subject, run_kernel, run_reference, subject, with_kernel
from rnnspec.check.tolerances import KINK_COMPARISON
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import load, spec_names
from rnnspec.language.spec import Spec
from rnnspec.storage.jsontext import json_text

DIGITS = 50
SHAPES = (Shapes(8, 2, (5, 6, 3)), Shapes(3, 2, (1, 9, 4), ragged=True))


@dataclass(frozen=True)
class Errors:
    """The errors of values, or of gradients: the largest and the median of each measure, over all
    numbers that are not exactly 0.

    ulp: in units in the last place of each number. relative: to that number. of_largest: to the
    largest number of all values, or all gradients, which is what `rnnspec check` measures. count:
    how many numbers. where: the array with the largest error in ULP.
    """

    ulp: tuple[float, float]
    relative: tuple[float, float]
    of_largest: tuple[float, float]
    count: int
    where: str


@dataclass(frozen=True)
class Measurement:
    """How accurate one cell is in one dtype on one backend.

    values: outputs and final states. gradients: of parameters, inputs and initial states. skipped:
    why there are none.
    """

    cell: str
    dtype: str
    backend: str
    values: Errors | None
    gradients: Errors | None
    skipped: str = ""


@dataclass(frozen=True)
class AccuracyReport:
    measurements: tuple[Measurement, ...] = field(default_factory=tuple)

    def to_json(self) -> str:
        return json_text({"digits": DIGITS, "cells": [asdict(m) for m in self.measurements]})

    def to_text(self) -> str:
        """One line for the values and one for the gradients of each cell and dtype."""
        lines = [
            f"{'cell':<24}{'dtype':<9}{'':<11}{'ULP, largest':>13}{'median':>8}{'relative':>10}{'median':>9}"
            f"{'of largest':>12}  where"
        ]
        for m in self.measurements:
            for what, errors in (("values", m.values), ("gradients", m.gradients)):
                head = f"{m.cell:<24}{m.dtype:<9}{what:<11}"
                if errors is None:
                    lines.append(f"{head}skipped: {m.skipped}")
                    break
                lines.append(
                    f"{head}{errors.ulp[0]:>13.1f}{errors.ulp[1]:>8.2f}{errors.relative[0]:>10.1e}"
                    f"{errors.relative[1]:>9.1e}{errors.of_largest[0]:>12.1e}  {errors.where}"
                )
        return "\n".join(lines)


def measure_cells(
    cells: Sequence[str | Spec] | None = None,
    dtypes: Sequence[str] = ("float32", "float64"),
    progress: Callable[[str, int, int], None] | None = None,
    seed: int = 0,
) -> AccuracyReport:
    """Measures kernels of cells (names, paths or Specs; None: all) forward and backward against a
    run of the definition with 50 digits.

    The points are drawn as numbers of the dtype, so that both sides start from the same; weights
    are scaled by 1/sqrt(fan-in), inputs lie in [-1, 1].
    """
    loaded = [c if isinstance(c, Spec) else load(c) for c in (spec_names() if cells is None else cells)]
    made: list[Measurement] = []
    for number, spec in enumerate(loaded):
        known = subject(spec, seed)
        for which, dtype in enumerate(dtypes):
            if progress is not None:
                progress(f"{spec.name}, {dtype}", number * len(dtypes) + which, len(loaded) * len(dtypes))
            made.append(measure(with_kernel(known, dtype)))
    return AccuracyReport(tuple(made))


def measure(known: Subject) -> Measurement:
    """The errors of one kernel over a few cases."""
    try:
        pairs = [pair for number, shapes in enumerate(SHAPES) for pair in _pairs(known, shapes, number)]
    except (UnsupportedError, NoSampleError) as error:
        return Measurement(known.spec.name, known.dtype, "cpu", None, None, str(error))
    values, gradients = ([p for p in pairs if p[0].kind.is_gradient == kind] for kind in (False, True))
    return Measurement(
        known.spec.name, known.dtype, "cpu", _errors(values, known.dtype), _errors(gradients, known.dtype)
    )


def _pairs(known: Subject, shapes: Shapes, number: int) -> Iterator[tuple[Key, Array, Array]]:
    case = known.draw(shapes, f"accuracy {number}", KINK_COMPARISON)
    found = flat(run_kernel(known.compiled(), case))
    for key, array in flat(exact(known, case)).items():
        yield key, found[key].ravel(), array.ravel()


def exact(known: Subject, case: Any) -> Values:
    """Everything that a run gives, as mpmath numbers of 50 digits."""
    import mpmath

    with mpmath.workdps(DIGITS):
        return run_reference(known, case, numbers.mpmath_numbers())


def _errors(pairs: list[tuple[Key, Array, Array]], dtype: str) -> Errors | None:
    ulps, relative, absolute, where = [], [], [], []
    for key, found, expected in pairs:
        counted = np.array([v != 0 for v in expected], bool)
        found, expected = found[counted], expected[counted]
        gaps, sizes = distances(found, expected), np.abs(expected.astype(np.float64))
        ulps.append(distances(found, expected, spacing(sizes, dtype)))
        relative.append(gaps / sizes)
        absolute.append(gaps)
        where += [str(key)] * int(counted.sum())
    if not where:
        return Errors((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0, "all are 0")
    ulp, rel, gap = (np.concatenate(a) for a in (ulps, relative, absolute))
    largest = max(float(np.abs(e.astype(np.float64)).max(initial=0)) for _, _, e in pairs)
    return Errors(_summary(ulp), _summary(rel), _summary(gap / largest), len(where), where[int(ulp.argmax())])


def _summary(errors: Array) -> tuple[float, float]:
    return float(errors.max()), float(np.median(errors))


def distances(found: Array, expected: Array, unit: Array | float = 1.0) -> Array:
    """|found - expected| / unit of numbers against mpmath numbers, as float64: only the result is
    rounded."""
    import mpmath

    with mpmath.workdps(DIGITS):
        return np.array(
            [
                float(abs(mpmath.mpf(float(a)) - b) / float(u))
                for a, b, u in zip(found, expected, np.broadcast_to(unit, found.shape))
            ]
        )


def spacing(values: Array, dtype: str) -> Array:
    """The unit in the last place of numbers of that size, as float64; of a subnormal that of the
    smallest numbers."""
    info = np.finfo(dtype)
    _, exponents = np.frexp(np.maximum(np.minimum(np.abs(values), float(info.max)), float(info.smallest_normal)))
    return np.ldexp(1.0, exponents - 1 - info.nmant)
