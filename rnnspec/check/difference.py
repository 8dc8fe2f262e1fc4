"""How far two sets of arrays are from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.kinds import ArrayKind, Key, Values, flat


class Worst(NamedTuple):
    """The largest difference of any array.

    text: the array's kind and name, and where nothing but words can say it, what is wrong with it;
    "all arrays" if none differs. key: the array, None if none differs or some are missing.
    """

    error: float
    text: str
    key: Key | None = None


def worst(found: Values, expected: Values, at_least: Mapping[Key, float] = {}) -> Worst:
    """The largest difference of any array, and which array that is.

    Values are measured by the largest value expected of any array, gradients by the largest
    gradient: one that cancels to nearly nothing carries the rounding errors of those that do not;
    an array that stands in `at_least` by no less than what stands there. Infinite where the names
    or shapes differ, or a NaN or infinity stands where none is expected (or the other way round):
    the text says what stands where then.
    """
    ours, theirs = flat(found), flat(expected)
    if set(ours) != set(theirs):
        return Worst(float("inf"), f"these are not in both: {', '.join(sorted(map(str, set(ours) ^ set(theirs))))}")
    scale = scales(expected)
    errors = {k: difference(ours[k], a, max(scale[k.kind], at_least.get(k, 0.0))) for k, a in theirs.items()}
    key = max(errors, key=lambda k: errors[k], default=None)
    if key is None or not errors[key]:
        return Worst(0.0, "all arrays")
    if np.isfinite(errors[key]):
        return Worst(errors[key], str(key), key)
    return Worst(errors[key], f"{key}{_odd_one(ours[key], theirs[key])}", key)


def _odd_one(found: Array, expected: Array) -> str:
    """What differs beyond all measure, in words."""
    if found.shape != expected.shape:
        return f" has shape {found.shape}, expected {expected.shape}"
    same = np.isfinite(found) & np.isfinite(expected) | (found == expected) | np.isnan(found) & np.isnan(expected)
    if same.all():
        same = found == expected
    where = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{list(where) if where else ''} is {found[where]:.9g}, expected {expected[where]:.9g}"


def scales(expected: Values) -> dict[ArrayKind, float]:
    """What the errors of each kind are measured by: the largest value, or the largest gradient."""
    sizes = {kind: max(map(_size, arrays.values()), default=0.0) for kind, arrays in expected.items()}
    return {kind: max(s for other, s in sizes.items() if other.is_gradient == kind.is_gradient) for kind in sizes}


def _size(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def difference(found: Array, expected: Array, scale: float) -> float:
    """The largest difference, relative to `scale`; 0 if nothing differs."""
    if found.shape != expected.shape or not np.array_equal(np.isnan(found), np.isnan(expected)):
        return float("inf")
    good, infinite = np.isfinite(expected), np.isinf(expected)
    if not np.array_equal(found[infinite], expected[infinite]) or not np.isfinite(found[good]).all():
        return float("inf")
    gap = _size(found[good].astype(np.float64) - expected[good].astype(np.float64))
    if not gap:
        return 0.0
    return gap / scale if scale else float("inf")
