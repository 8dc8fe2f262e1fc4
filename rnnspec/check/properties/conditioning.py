"""Errors measured by what rounding alone does: where terms cancel, a result carries the rounding
errors of the terms.

Used where a comparison is above its tolerance; at most points nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.reference import Numbers, rounded_at_random
from rnnspec.check.subject import Values, kind_of, largest_values, worst
from rnnspec.check.tolerances import DRAWS, FREEDOM, ILL_CONDITIONED, ROUNDING

Definition = Callable[[Numbers], Values]


def measure(found: Values, expected: Values, definition: Definition, dtype: str, tolerance: float) -> tuple[float, str]:
    """The largest error and which array has it, as `worst` has them, but measured by what rounding
    to `dtype` does to the array where that is more than the tolerance allows for. definition: the
    same arrays by the definition, in given numbers."""
    error, name = worst(found, expected)
    if error <= tolerance or set(found) != set(expected):
        return error, name
    spread = rounding_spread(definition, expected, dtype)
    scales = largest_values(expected)
    error, name = worst(found, expected, {n: allowed(s, tolerance, scales[kind_of(n)]) for n, s in spread.items()})
    return error, f"{name} (rounding alone changes it by {spread.get(name, 0.0):.1e})" if name in spread else name


def allowed(spread: float, tolerance: float, scale: float) -> float:
    """What an error is measured by, relative to which the tolerance stays as it is: `spread` is
    what rounding does to it."""
    return min(FREEDOM * spread / tolerance, ILL_CONDITIONED * scale)


def rounding_spread(definition: Definition, expected: Mapping[str, Array], dtype: str) -> dict[str, float]:
    """How far each array moves when every value of the definition is rounded at random to `dtype`:
    the largest of some draws."""
    spread = dict.fromkeys(expected, 0.0)
    for seed in range(DRAWS):
        moved = definition(rounded_at_random(ROUNDING[dtype], seed))
        for name, array in expected.items():
            gap = np.abs(moved[name] - array)
            spread[name] = max(spread[name], float(np.where(np.isnan(gap), 0.0, gap).max(initial=0.0)))
    return spread
