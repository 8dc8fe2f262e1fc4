"""Parameters that obey what their cell holds them to (`constrain`): projected after an update, and
so from the start.

In: a Spec's constraints and arrays by the cell's names. Out: arrays that obey. An array that obeys
comes back as it is, the same object. Numbers that are not finite have no nearest one that obeys:
limits of single numbers act on infinities, and all else is left.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.language.constraints import Constraint
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import numpy_part

Held = tuple[Constraint, ...]
Arrays = Mapping[str, Array]
FLOAT64 = 2.0**-52
ROUNDS = 60  # each shrinks twice as much as the one before: from one rounding error to nothing


def constrained(spec: Spec, params: Arrays, initial: bool = False) -> dict[str, Array]:
    """The parameters that change so that all obey, by name; {} where all do.

    params: name -> array, of all weights. initial: whether these are initial values, whose signs
    and balance are made too (`begun`), and not only kept.
    """
    found: dict[str, Array] = {}
    make = begun if initial else projected
    for name in sorted(spec.constraints, key=lambda n: n not in spec.fixed):  # others may read fixed ones
        value = make(spec.constraints[name], name, params[name], {**params, **found})
        if value is not params[name]:
            found[name] = value
    return found


def projected(held: Held, name: str, value: Array, given: Arrays) -> Array:
    """The nearest value that obeys; `value` itself where it does. name: of the parameter, which
    `density` is drawn by; given: the arrays that constraints name."""
    low, high = limits(held, name, value.shape, given)
    low, high = inwards(low, value.dtype, up=True), inwards(high, value.dtype, up=False)
    if not ((value >= low) & (value <= high) | np.isnan(value)).all():
        value = np.clip(value, low, high, dtype=value.dtype)
    for c in held:
        value = SCALED[c.kind](value, c) if c.kind in SCALED else value
    return value


def begun(held: Held, name: str, value: Array, given: Arrays) -> Array:
    """An initial value that obeys: folded into its limits, so that its size stays; of one with
    signs each row's inhibition is scaled to its excitation, so that units are balanced; of one with
    a spectral radius all of it is scaled."""
    low, high = limits(held, name, value.shape, given)
    kinds = {c.kind: c for c in held}
    wide = _folded(value.astype(np.float64), low, high)
    if "sign" in kinds or "dale" in kinds:
        wide = _balanced(wide)
    most = kinds.get("spectral_radius")
    if most is not None and not (wide == 0).all():
        wide = projected(tuple(c for c in held if c is not most), name, wide, given)
        wide = _each(wide, lambda w: w * (float(most.args[0]) / (spectral_radius(w) or math.inf)))
    return projected(held, name, wide.astype(value.dtype), given)


def broken(held: Held, name: str, value: Array, given: Arrays) -> str:
    """The first constraint that a value does not obey, as a file has it; "" where it obeys all."""
    for c in held:
        if projected((c,), name, value, given) is not value:
            return c.to_text()
    return ""


# --- limits of single numbers: mask, density, sign, dale, no_self, nonnegative, bounded


def limits(held: Held, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    """The lowest and the highest that each number may be, float64, of a shape that goes with
    `shape`."""
    low, high = np.asarray(-math.inf), np.asarray(math.inf)
    for c in held:
        if c.kind in LIMITS:
            least, most = LIMITS[c.kind](c, name, shape, given)
            low, high = np.maximum(low, least), np.minimum(high, most)
    return low, np.maximum(low, high)


def inwards(limit: Array, dtype: np.dtype, up: bool) -> Array:
    """A limit in a dtype, rounded to the side where numbers obey."""
    near = limit.astype(dtype)
    beyond = near < limit if up else near > limit
    return np.where(beyond, np.nextafter(near, dtype.type(math.inf if up else -math.inf)), near)


def kept_places(part: float, seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """Where `density` has weights: in each row max(1, round(part * columns)) of them, drawn by the
    seed and the parameter's name."""
    random = numpy_part("random")
    rng = random.Generator(random.PCG64(random.SeedSequence([seed, zlib.crc32(name.encode())])))
    order = np.argsort(rng.random(shape), axis=-1, kind="stable").argsort(axis=-1, kind="stable")
    return order < max(1, round(part * shape[-1]))


def _where(there: Array) -> tuple[Array, Array]:
    """No limit where there are weights, 0 elsewhere."""
    most = np.where(there, math.inf, 0.0)
    return -most, most


def _of_signs(d: Array) -> tuple[Array, Array]:
    return np.where(d < 0, -math.inf, 0.0), np.where(d > 0, math.inf, 0.0)


def _mask(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return _where(np.asarray(given[str(c.args[0])]) != 0)


def _density(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    part, seed = (*c.args, 0.0)[:2]
    return _where(kept_places(float(part), int(seed), name, shape))


def _sign(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return _of_signs(np.asarray(given[str(c.args[0])]))


def _dale(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return _of_signs(np.where(np.arange(shape[-1]) < round(float(c.args[0]) * shape[-1]), 1.0, -1.0))


def _no_self(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return _where(~np.eye(shape[-1], dtype=bool))


def _nonnegative(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return np.asarray(0.0), np.asarray(math.inf)


def _bounded(c: Constraint, name: str, shape: tuple[int, ...], given: Arrays) -> tuple[Array, Array]:
    return np.asarray(float(c.args[0])), np.asarray(float(c.args[1]))


LIMITS: Mapping[str, Callable[[Constraint, str, tuple[int, ...], Arrays], tuple[Array, Array]]] = {
    "mask": _mask,
    "density": _density,
    "sign": _sign,
    "dale": _dale,
    "no_self": _no_self,
    "nonnegative": _nonnegative,
    "bounded": _bounded,
}


def _folded(value: Array, low: Array, high: Array) -> Array:
    """What lies beyond a limit, as far on its other side; between two limits to and fro."""
    width = high - low
    with np.errstate(invalid="ignore"):
        over = np.mod(value - low, 2 * np.where(np.isfinite(width) & (width > 0), width, 1.0))
        between = low + np.where(over > width, 2 * width - over, over)
        one = np.where(np.isfinite(low), low + abs(value - low), high - abs(high - value))
    folded = np.where(width == 0, low, np.where(np.isfinite(width), between, one))
    return np.where((value >= low) & (value <= high), value, folded)


def _balanced(value: Array) -> Array:
    """Each row with its negative numbers scaled so that the row's sum is 0; one without any, or
    with nothing else, as it is."""
    gives, takes = np.maximum(value, 0).sum(-1, keepdims=True), np.maximum(-value, 0).sum(-1, keepdims=True)
    both = (gives > 0) & (takes > 0)
    return np.where((value < 0) & both, value * (gives / np.where(both, takes, 1.0)), value)


# --- of whole rows and matrices: norm, spectral_radius, orthogonal


def spectral_radius(matrix: Array) -> float:
    """The largest absolute eigenvalue of a matrix [n, n], 0 of an empty one."""
    values = numpy_part("linalg").eigvals(matrix.astype(np.float64)) if matrix.size else np.zeros(1)
    return float(abs(values).max())


def orthogonality_error(matrix: Array) -> float:
    """The largest number of |w.T @ w - eye|, in float64."""
    wide = matrix.astype(np.float64)
    return float(abs(wide.T @ wide - np.eye(len(wide))).max(initial=0.0))


def _norms(rows: Array) -> Array:
    """The norm of each row, without overflow."""
    wide = rows.astype(np.float64)
    largest = abs(wide).max(-1, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return scale * np.sqrt(np.square(wide / scale).sum(-1, keepdims=True))


def _norm(value: Array, c: Constraint) -> Array:
    return _shrunk(value, _norms, float(c.args[0]))


def _spectral(value: Array, c: Constraint) -> Array:
    most = float(c.args[0])
    return _each(value, lambda matrix: _shrunk(matrix, lambda w: np.asarray(spectral_radius(w)), most))


def _shrunk(value: Array, measure: Callable[[Array], Array], most: float) -> Array:
    """The value scaled down to where its measure, which scales with it, is at most `most`."""
    if not np.isfinite(value).all() or (measure(value) <= most).all():
        return value
    size, start = measure(value), value
    step = FLOAT64 if value.dtype == np.float64 else float(np.finfo(value.dtype).eps)
    for number in range(ROUNDS):  # the quotient is rounded, so it may take some
        factor = np.where(size > most, most / np.where(size > most, size, 1.0) * max(0.0, 1 - step * 2.0**number), 1.0)
        value = (start * factor).astype(start.dtype)
        if (measure(value) <= most).all():
            break
    return value


def _orthogonal(value: Array, c: Constraint) -> Array:
    return _each(value, _nearest_orthogonal)


def _nearest_orthogonal(matrix: Array) -> Array:
    """The orthogonal factor of the polar decomposition: the nearest orthogonal matrix (Higham 1986,
    Computing the polar decomposition)."""
    tolerance = 2 * float(np.finfo(matrix.dtype).eps) + 16 * len(matrix) * FLOAT64
    if not np.isfinite(matrix).all() or orthogonality_error(matrix) <= tolerance:
        return matrix
    u, _, vt = numpy_part("linalg").svd(matrix.astype(np.float64))
    return np.asarray(u @ vt).astype(matrix.dtype)


def _each(value: Array, change: Callable[[Array], Array]) -> Array:
    """`change` of a matrix, or of each of a parameter with more axes; the same object where it
    changes none."""
    if value.ndim == 2:
        return change(value)
    made: Any = {index: change(value[index]) for index in np.ndindex(value.shape[:-2])}
    if all(new.base is value or np.shares_memory(new, value) for new in made.values()):
        return value
    result = value.copy()
    for index, new in made.items():
        result[index] = new
    return result


SCALED: Mapping[str, Callable[[Array, Constraint], Array]] = {
    "norm": _norm,
    "spectral_radius": _spectral,
    "orthogonal": _orthogonal,
}
