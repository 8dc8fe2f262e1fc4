"""The property that parameters obey what a cell holds them to: from the start, and after every one
of some updates by random gradients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.outcome import Outcome, largest
from rnnspec.check.sampling import size_values
from rnnspec.check.subject import Subject
from rnnspec.check.tolerances import BALANCED, EXACT, NEAREST, SPECTRAL_RADIUS
from rnnspec.engine.constrain import broken, constrained, projected, spectral_radius
from rnnspec.engine.initialise import initialise
from rnnspec.language.constraints import Constraint
from rnnspec.language.spec import Spec

SIZES = (1, 5, 13)
UPDATES = 20
RATE = 0.3  # times the largest weight and normal numbers: most updates break something
Params = Mapping[str, Array]


def constraints_kept(known: Subject) -> Outcome:
    """Initial values obey, and are balanced and of the spectral radius that is asked for; after
    each update by random gradients every constraint holds exactly; what obeys stays bit by bit; and
    a projection gives the nearest value that obeys."""
    if not known.spec.constraints:
        return Outcome(skipped="the cell holds its parameters to nothing")
    found = [
        outcome
        for dtype in ("float32", "float64")
        for number in SIZES
        for outcome in _at(known, number, np.dtype(dtype))
    ]
    return largest(found)


def _at(known: Subject, number: int, dtype: np.dtype) -> list[Outcome]:
    spec = known.spec
    sizes = size_values(spec, (number, number + 2, number))
    params = initialise(spec, sizes, known.seed, dtype)
    about = f"{', '.join(f'{n} = {v}' for n, v in sizes.items())}, {dtype}"
    found = [_obeys(spec, params, f"at the start, {about}"), *_begins(spec, params, about)]
    rng = np.random.default_rng([known.seed, number])
    for step in range(UPDATES):
        moved = {n: _updated(a, rng) if n in spec.trained else a for n, a in params.items()}
        params = {**moved, **constrained(spec, moved)}
        when = f"after update {step + 1}, {about}"
        found.append(_obeys(spec, params, when))
        if constrained(spec, params):
            found.append(Outcome(1.0, EXACT, f"what obeys is changed {when}"))
        found += [_nearest(held, n, moved[n], params, rng, when) for n, held in spec.constraints.items()]
    return found


def _updated(value: Array, rng: np.random.Generator) -> Array:
    size = max(float(abs(value).max(initial=0.0)), 0.1)
    return (value + RATE * size * rng.normal(size=value.shape)).astype(value.dtype)


def _obeys(spec: Spec, params: Params, when: str) -> Outcome:
    for name, held in spec.constraints.items():
        if which := broken(held, name, params[name], params):
            return Outcome(1.0, EXACT, f"{name} breaks {which} {when}")
    return Outcome(0.0, EXACT, f"{', '.join(spec.constraints)} {when}")


def _begins(spec: Spec, params: Params, about: str) -> list[Outcome]:
    found = []
    for name, held in spec.constraints.items():
        kinds, value = {c.kind: c for c in held}, params[name].astype(np.float64)
        if kinds.keys() & {"sign", "dale"} and not kinds.keys() & {"bounded"}:
            gives, takes = np.maximum(value, 0).sum(-1), np.maximum(-value, 0).sum(-1)
            gap = np.where((gives > 0) & (takes > 0), abs(gives - takes) / np.maximum(gives, 1e-300), 0.0)
            found.append(Outcome(float(gap.max(initial=0.0)), BALANCED, f"balance of {name}, {about}"))
        if "spectral_radius" in kinds and not kinds.keys() & {"bounded", "norm"} and value.ndim == 2:
            most, radius = float(kinds["spectral_radius"].args[0]), spectral_radius(value)
            error = abs(radius - most) / most if radius else 0.0
            found.append(Outcome(error, SPECTRAL_RADIUS, f"spectral radius of {name}, {about}"))
    return found


def _nearest(
    held: tuple[Constraint, ...], name: str, moved: Array, params: Params, rng: np.random.Generator, when: str
) -> Outcome:
    """(moved - kept) . (other - kept) <= 0 for every other value that obeys, where those that obey
    are a convex set (Kinderlehrer & Stampacchia 1980, chapter 1)."""
    if any(c.row.order == 2 for c in held) or not moved.size:
        return Outcome(0.0, NEAREST, f"{name} {when}")
    kept = params[name].astype(np.float64)
    other = projected(held, name, _updated(moved, rng), params).astype(np.float64)
    apart, to = moved.astype(np.float64) - kept, other - kept
    scale = float(np.linalg.norm(apart) * np.linalg.norm(to)) or 1.0
    return Outcome(float((apart * to).sum()) / scale, NEAREST, f"another value nearer to {name} {when}")
