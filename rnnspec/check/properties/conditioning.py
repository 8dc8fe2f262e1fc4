"""Errors measured by what rounding alone does: where terms cancel, a result carries the rounding
errors of the terms.

Used where a comparison is above its tolerance; at most points nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.numbers import Numbers, rounded_at_random
from rnnspec.check.difference import scales, worst
from rnnspec.check.kinds import Values, flat
from rnnspec.check.sampling import UndecidedError
from rnnspec.check.tolerances import DRAWS, FREEDOM, ILL_CONDITIONED, ROUNDING

Definition = Callable[[Numbers], Values]
K = TypeVar("K")


def measure(
    found: Values,
    expected: Values,
    definition: Definition,
    dtype: str,
    tolerance: float,
    exact: Values | None = None,
) -> tuple[float, str]:
    """The largest error and which array has it, as `worst` has them, but measured by what rounding
    to `dtype` does to the array where that is more than the tolerance allows for.

    found, expected: what is compared. definition: the same arrays by the definition, in given
    numbers. dtype: that of the kernel. tolerance: what the error may be. exact: the definition's
    arrays in float64, where `expected` comes from elsewhere. Raises UndecidedError where the error
    is above what ILL_CONDITIONED allows and yet no more than rounding does.
    """
    first = worst(found, expected)
    if first.error <= tolerance or set(flat(found)) != set(flat(expected)):
        return first.error, first.text
    spread = rounding_spread(lambda n: flat(definition(n)), flat(expected if exact is None else exact), dtype)
    scale = scales(expected)
    gap = worst(found, expected, {key: allowed(s, tolerance, scale[key.kind]) for key, s in spread.items()})
    if gap.key is None or not np.isfinite(gap.error):
        return gap.error, gap.text
    rounded = f"{gap.text} (rounding alone changes it by {spread[gap.key]:.1e})"
    if gap.error > tolerance >= worst(found, expected, {k: FREEDOM * s / tolerance for k, s in spread.items()}).error:
        raise UndecidedError(f"{rounded}, as much as the error")
    return gap.error, rounded


def allowed(spread: float, tolerance: float, scale: float) -> float:
    """What an error is measured by, relative to which the tolerance stays as it is: `spread` is
    what rounding does to it."""
    return min(FREEDOM * spread / tolerance, ILL_CONDITIONED * scale)


def rounding_spread(
    definition: Callable[[Numbers], Mapping[K, Array]], expected: Mapping[K, Array], dtype: str
) -> dict[K, float]:
    """How far each array moves when every value of the definition is rounded at random to `dtype`:
    the largest of some draws."""
    spread = dict.fromkeys(expected, 0.0)
    for seed in range(DRAWS):
        moved = definition(rounded_at_random(ROUNDING[dtype], seed))
        for name, array in expected.items():
            gap = np.abs(moved[name] - array)
            spread[name] = max(spread[name], float(np.where(np.isnan(gap), 0.0, gap).max(initial=0.0)))
    return spread
