"""Whether two sets of trajectories follow the same dynamics: DSA (Ostrow, Eisen, Kozachkov & Fiete
2023).

Each set is embedded in delays, a linear map is fitted to the leading singular vectors of that, and
the two maps are compared after the rotation or reflection of one that brings it nearest to the
other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.errors import RnnspecError, ShapeError

GROW, SHRINK = 1.6, 0.4  # of a step that went up, and of one that did not
MOST_POLISHED, POLISHING = 40, 40  # the largest rank that is polished, and in how many steps
STILL = 1e-10  # of the largest product there can be: a start that gains less is done


@dataclass(frozen=True)
class Similarity:
    """distance: the angle between A and C B C', 0 to pi; relative: |A/|A| - C B C'/|B||, 0 to 2.
    a, b [R, R]: the linear maps, of coordinates as they are numbered by singular values; rotation
    [R, R]: C, in O(R). explained: what part of each set's variance the coordinates have; fit: what
    part of the variance of the next step's coordinates the map tells, of each."""

    distance: float
    relative: float
    a: Array
    b: Array
    rotation: Array
    explained: tuple[float, float]
    fit: tuple[float, float]

    __repr__ = brief_repr


def compare(
    a: Array,
    b: Array,
    *,
    delays: int = 10,
    rank: int = 10,
    starts: int = 20,
    steps: int = 2000,
    seed: int = 0,
) -> Similarity:
    """The dynamical similarity of two sets of trajectories.

    a, b: [T, B, n], of any T, B and n each: states or outputs, as they are; means may be taken off
        before. delays: how many steps stand beside one another in an embedded vector. rank: R, of
        how many singular vectors the maps are. starts, steps: of the ascent on O(R), half of the
        starts in each of its two parts; seed: draws them.

    The ascent finds the best of the maxima it comes to: more starts find no worse one. Raises
    ShapeError where a set has too few steps or numbers, RnnspecError where one is not finite.
    """
    if starts < 2 or steps < 1:
        raise ShapeError(f"at least 2 starts and 1 step are needed; got {starts} and {steps}.")
    (left, of_a, fit_a), (right, of_b, fit_b) = (_linear(s, n, delays, rank) for s, n in ((a, "a"), (b, "b")))
    rotation = _aligned(left / np.linalg.norm(left), right / np.linalg.norm(right), starts, steps, seed)
    apart = left / np.linalg.norm(left) - rotation @ (right / np.linalg.norm(right)) @ rotation.T
    relative = float(np.linalg.norm(apart))
    angle = float(2 * np.arcsin(min(1.0, relative / 2)))
    return Similarity(angle, relative, left, right, rotation, (of_a, of_b), (fit_a, fit_b))


def _linear(trajectories: Array, name: str, delays: int, rank: int) -> tuple[Array, float, float]:
    """The map of leading delay coordinates from step to step [R, R], what of the variance they
    have, and what of it the map tells."""
    data = np.asarray(trajectories, np.float64)
    if data.ndim != 3:
        raise ShapeError(f"trajectories are [T, B, n]; {name} has shape {data.shape}.")
    if not np.isfinite(data).all():
        raise RnnspecError(f"the trajectories of {name} are not finite.")
    steps, rows, width = data.shape
    windows = steps - delays + 1
    most = min(width * delays, max(windows - 1, 0) * rows)
    if delays < 1 or not 1 <= rank <= most:
        raise ShapeError(
            f"{delays} delays and rank {rank} do not fit {name}, {steps} steps of {rows} x {width}: the rank is from 1"
            f" to {most} there."
        )
    embedded = np.concatenate([data[d : d + windows] for d in range(delays)], axis=2)  # [windows, B, n * delays]
    u, lengths, _ = np.linalg.svd(embedded.reshape(-1, width * delays), full_matrices=False)
    if not lengths[rank - 1] > lengths[0] * max(embedded.shape) * np.finfo(float).eps:
        told = int((lengths > lengths[0] * max(embedded.shape) * np.finfo(float).eps).sum())
        raise ShapeError(f"the trajectories of {name} span {told} delay coordinates: give a rank of at most that.")
    coordinates = u[:, :rank].reshape(windows, rows, rank)
    now, after = coordinates[:-1].reshape(-1, rank), coordinates[1:].reshape(-1, rank)
    found = np.linalg.lstsq(now, after, rcond=None)[0].T
    explained = float((lengths[:rank] ** 2).sum() / (lengths**2).sum())
    left = float(((after - now @ found.T) ** 2).sum() / ((after - after.mean(axis=0)) ** 2).sum())
    return found, explained, 1 - left


def _aligned(a: Array, b: Array, starts: int, steps: int, seed: int) -> Array:
    """C in O(R) with the largest <A, C B C'> that is found: gradient ascent by Cayley's transform,
    all starts at once."""
    count = len(a)
    drawn = np.random.default_rng([seed, 9]).standard_normal((starts, count, count))
    now = np.linalg.qr(drawn)[0]
    now[0] = np.eye(count)
    flipped = (np.linalg.det(now) > 0) != (np.arange(starts) % 2 == 0)
    now[flipped, :, 0] *= -1
    value, length, unit = _product(a, b, now), np.full(starts, 1.0), np.eye(count)
    gained = np.full(starts, np.inf)
    for _ in range(steps):
        slope = a @ now @ b.T + a.T @ now @ b
        turn = slope @ np.swapaxes(now, 1, 2)
        turn = (turn - np.swapaxes(turn, 1, 2)) * (length / 2)[:, None, None]
        tried = np.linalg.solve(unit - turn / 2, unit + turn / 2) @ now
        after = _product(a, b, tried)
        better = after > value
        now[better] = tried[better]
        gained = np.where(better, after - value, gained / 2)
        value = np.where(better, after, value)
        length = np.where(better, length * GROW, length * SHRINK)
        if (gained < STILL).all():
            break
    best = now[int(np.argmax(value))]
    return _polished(a, b, best) if count <= MOST_POLISHED else best


def _polished(a: Array, b: Array, rotation: Array) -> Array:
    """C by Gauss and Newton's method from near the best one: of a skew X, e^X C has the residual
    A - M - (X M - M X), M = C B C', to first order."""
    count, damping = len(a), 1e-6
    rows, columns = np.triu_indices(count, 1)
    numbers, unit = np.arange(len(rows)), np.eye(count)
    basis = np.zeros((len(rows), count, count))
    basis[numbers, rows, columns], basis[numbers, columns, rows] = 1, -1
    value = float(_product(a, b, rotation[None])[0])
    for _ in range(POLISHING):
        turned = rotation @ b @ rotation.T
        slopes = (basis @ turned - turned @ basis).reshape(len(rows), -1)
        square = slopes @ slopes.T
        square += damping * (np.trace(square) / max(1, len(rows)) + np.finfo(float).tiny) * np.eye(len(rows))
        x = np.einsum("k,kij->ij", np.linalg.solve(square, slopes @ (a - turned).reshape(-1)), basis)
        tried = np.linalg.solve(unit - x / 2, unit + x / 2) @ rotation
        after = float(_product(a, b, tried[None])[0])
        if after > value:
            rotation, value, damping = tried, after, max(damping / 10, 1e-14)
        else:
            damping *= 10
    return rotation


def _product(a: Array, b: Array, rotations: Array) -> Array:
    """<A, C B C'> for each C."""
    return np.einsum("ij,sij->s", a, rotations @ b @ np.swapaxes(rotations, 1, 2))
