"""Fixed points, cycles and slow points of a cell's map: where it stays, and where it lingers.

Newton's method with exact Jacobians from many starts at once (Sussillo & Barak 2013 minimise the
speed instead; a slow point is a minimum of it that is no fixed point).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.dynamics.system import System
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError
from rnnspec.storage.locks import once_only

HALVINGS = 20  # of a Newton step, before its row is left
ENOUGH = 1e-4  # of the decrease that the slope promises (Armijo 1966)
ON_CIRCLE = 1e-9  # how far from 1 in absolute value an eigenvalue is neither stable nor unstable
SINGULAR_STEP = 1e6  # of a state's size: a longer Newton step is that of a singular Jacobian
Progress = Callable[[int, int], None]  # rows done, all rows


@dataclass(frozen=True)
class Points:
    """M points of a map F, those with fewer unstable directions first.

    states: name -> [M, ...]; orbit [M, period, N]: the states of each cycle, as vectors; residual
    [M]: max|F(s) - s|; speed [M]: |F(s) - s|^2 / 2; jacobian [M, N, N] of F, or of its
    period-th power; eigenvalues [M, N], largest first, and right eigenvectors [M, N, N] in columns.
    starts [M]: from how many starts each was reached; missed: from how many none was. names: of the
    N numbers. (F is the map after `period` steps.)
    """

    states: dict[str, Array]
    orbit: Array
    residual: Array
    speed: Array
    jacobian: Array
    eigenvalues: Array
    eigenvectors: Array
    starts: Array
    missed: int
    names: tuple[str, ...]

    __repr__ = brief_repr

    def __len__(self) -> int:
        return len(self.orbit)

    @property
    def vectors(self) -> Array:
        """[M, N]: all states of each point together, of a cycle its first."""
        return self.orbit[:, 0]

    @property
    def period(self) -> int:
        return self.orbit.shape[1]

    @once_only
    def unstable(self) -> Array:
        """[M]: the number of unstable directions, |eigenvalue| > 1."""
        return (np.abs(self.eigenvalues) > 1 + ON_CIRCLE).sum(axis=1)

    @once_only
    def stable(self) -> Array:
        """[M]: whether all |eigenvalue| < 1."""
        return (np.abs(self.eigenvalues) < 1 - ON_CIRCLE).all(axis=1)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; eigenvalues as pairs [real, imaginary]."""
        return {
            "period": self.period,
            "missed": self.missed,
            "points": [
                {
                    "states": {n: a[m].tolist() for n, a in self.states.items()},
                    "residual": float(self.residual[m]),
                    "speed": float(self.speed[m]),
                    "stable": bool(self.stable[m]),
                    "unstable": int(self.unstable[m]),
                    "starts": int(self.starts[m]),
                    "eigenvalues": [[float(v.real), float(v.imag)] for v in self.eigenvalues[m]],
                }
                for m in range(len(self))
            ],
        }


def fixed_points(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    starts: Mapping[str, Any],
    *,
    tolerance: float | None = None,
    merge: float | None = None,
    steps: int = 100,
    progress: Progress | None = None,
) -> Points:
    """The fixed points s = F(s) that Newton's method finds, by J and a line search on |F(s) - s|^2.

    inputs: name -> [...], what every step reads (or a number). starts: name -> [B, ...], of every
        state; those left out are 0.
    tolerance: max|F(s) - s| in parts of 1 + max|s|; None: eps ** 0.75 of the kernel's dtype.
    merge: how near, in the same parts, two are one; None: the tolerance's square root.
    steps: of Newton's method at most. progress: called with the rows done and all.

    A float64 kernel is what to ask this of. Raises UnsupportedError for a cell that counts its
    steps, or whose derivative is not that of its values (spiking cells).
    """
    return cycles(kernel, params, inputs, starts, 1, tolerance=tolerance, merge=merge, steps=steps, progress=progress)


def cycles(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    starts: Mapping[str, Any],
    period: int,
    *,
    tolerance: float | None = None,
    merge: float | None = None,
    steps: int = 100,
    progress: Progress | None = None,
) -> Points:
    """The cycles of a period: states that come back after so many steps and not before, each
    cycle once. Arguments and errors are those of `fixed_points`, whose points are of period 1."""
    if not isinstance(period, int | np.integer) or period < 1:
        raise ShapeError(f"a cycle has a period of 1 or more whole steps, not {period}.")
    _check_widths(tolerance, merge, steps)
    system = System(kernel, params, inputs, starts)
    tolerance = system.tolerance if tolerance is None else tolerance
    begun = system.joined(starts)
    found, good = _newton(system, begun, period, tolerance, steps, progress)
    return _points(system, found, good, period, tolerance**0.5 if merge is None else merge)


def slow_points(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    starts: Mapping[str, Any],
    *,
    tolerance: float = 1e-8,
    slower: float = 0.0,
    merge: float = 1e-4,
    steps: int = 300,
    progress: Progress | None = None,
) -> Points:
    """Minima of the speed q = |F(s) - s|^2 / 2 (Sussillo & Barak 2013), by Levenberg and Marquardt.
    A fixed point is one, with q = 0.

    tolerance: of the gradient of q, max|(J - I)' (F(s) - s)|, in parts of 1 + max|s|.
    slower: a speed: where a start comes to after `steps` is taken too if it is at most that, though
        it is no minimum yet, as on a slow manifold, whose floor is all but flat. Other starts that
        do not come to a minimum are missed.

    The others are as for `fixed_points`.
    """
    _check_widths(tolerance, merge, steps)
    system = System(kernel, params, inputs, starts)
    found, good = _slowest(system, system.joined(starts), tolerance, steps, progress)
    with np.errstate(over="ignore", invalid="ignore"):
        good |= ((system.after(found) - found) ** 2).sum(axis=1) / 2 <= slower
    return _points(system, found, good, 1, merge)


def _check_widths(tolerance: float | None, merge: float | None, steps: int) -> None:
    for name, value in (("tolerance", tolerance), ("merge", merge), ("steps", steps)):
        if value is not None and not 0 <= value < np.inf:
            raise ShapeError(f"{name} is a number from 0, not {value}.")


def _around(system: System, vectors: Array, period: int) -> tuple[Array, Array]:
    """F(s) - s [B, N] and its Jacobian [B, N, N] after `period` steps."""
    now, jacobian = vectors, None
    for _ in range(period):
        step = system.jacobian(now)
        jacobian = step if jacobian is None else step @ jacobian
        now = system.after(now)
    assert jacobian is not None
    return now - vectors, jacobian - np.eye(system.size)


def _newton(
    system: System, vectors: Array, period: int, tolerance: float, steps: int, progress: Progress | None
) -> tuple[Array, Array]:
    """Where each start came to [B, N], and whether that is a point [B]."""
    now, good = vectors.copy(), np.zeros(len(vectors), bool)
    active = np.flatnonzero(np.isfinite(now).all(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps + 1):
            residual = system.after(now[active], period) - now[active]
            near = np.abs(residual).max(axis=1) <= tolerance * (1 + np.abs(now[active]).max(axis=1))
            good[active[near]] = True
            active = active[~near & np.isfinite(residual).all(axis=1)]
            if progress:
                progress(len(now) - len(active), len(now))
            if not len(active):
                break
            residual, jacobian = _around(system, now[active], period)
            step = _solved(jacobian, -residual, now[active])
            moved, better = _searched(system, now[active], step, residual, period)
            now[active] = moved
            active = active[better]
    if len(at := np.flatnonzero(good)):
        now[at] = _polished(system, now[at], period)
    return now, good


def _polished(system: System, vectors: Array, period: int) -> Array:
    """One more step of Newton's method, for those whose residual it makes smaller."""
    residual, jacobian = _around(system, vectors, period)
    moved = vectors + _solved(jacobian, -residual, vectors)
    after = np.abs(system.after(moved, period) - moved).max(axis=1)
    return np.where((after < np.abs(residual).max(axis=1))[:, None], moved, vectors)


def _solved(matrices: Array, right: Array, vectors: Array) -> Array:
    """Newton steps; where a matrix is singular, or nearly so, the least-squares step that a small
    multiple of 1 makes finite."""
    try:
        step = np.linalg.solve(matrices, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        step = np.full_like(right, np.nan)
    size = SINGULAR_STEP * (1 + np.abs(vectors).max(axis=1))
    bad = ~(np.abs(step).max(axis=1) <= size)
    if bad.any():
        step[bad] = _damped(matrices[bad], right[bad], np.full(int(bad.sum()), 1e-6))
    return step


def _damped(matrices: Array, right: Array, damping: Array) -> Array:
    """(A'A + d tr(A'A)/N I)^-1 A' b for each row."""
    square = np.swapaxes(matrices, 1, 2) @ matrices
    count = square.shape[-1]
    scale = np.einsum("bii->b", square) / count
    square += ((damping * scale) + np.finfo(float).tiny)[:, None, None] * np.eye(count)
    try:
        return np.linalg.solve(square, np.einsum("bji,bj->bi", matrices, right)[..., None])[..., 0]
    except np.linalg.LinAlgError:  # a matrix of zeros, or one that is not finite
        return np.full_like(right, np.nan)


def _searched(system: System, now: Array, step: Array, residual: Array, period: int) -> tuple[Array, Array]:
    """The states after a step of each row, halved until the square of the residual falls enough,
    and whether it did."""
    square, length = (residual**2).sum(axis=1), np.ones(len(now))
    found, waiting = now.copy(), np.flatnonzero(np.isfinite(step).all(axis=1))
    better = np.zeros(len(now), bool)
    for _ in range(HALVINGS):
        if not len(waiting):
            break
        tried = now[waiting] + length[waiting, None] * step[waiting]
        after = ((system.after(tried, period) - tried) ** 2).sum(axis=1)
        fell = after <= (1 - 2 * ENOUGH * length[waiting]) * square[waiting]
        found[waiting[fell]], better[waiting[fell]] = tried[fell], True
        waiting = waiting[~fell]
        length[waiting] /= 2
    return found, better


def _slowest(
    system: System, vectors: Array, tolerance: float, steps: int, progress: Progress | None
) -> tuple[Array, Array]:
    """The minima of the speed that the starts come to [B, N], and whether they do [B]."""
    now, good = vectors.copy(), np.zeros(len(vectors), bool)
    damping, active = np.full(len(now), 1e-3), np.flatnonzero(np.isfinite(now).all(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            if not len(active):
                break
            residual, jacobian = _around(system, now[active], 1)
            slope = np.einsum("bji,bj->bi", jacobian, residual)
            flat = np.abs(slope).max(axis=1) <= tolerance * (1 + np.abs(now[active]).max(axis=1))
            good[active[flat]] = True
            keep = ~flat & np.isfinite(slope).all(axis=1)
            active, residual, jacobian = active[keep], residual[keep], jacobian[keep]
            if progress:
                progress(len(now) - len(active), len(now))
            tried = now[active] + _damped(jacobian, -residual, damping[active])
            fell = ((system.after(tried) - tried) ** 2).sum(axis=1) < (residual**2).sum(axis=1)
            now[active[fell]] = tried[fell]
            damping[active] = np.where(fell, np.maximum(damping[active] / 5, 1e-12), damping[active] * 4)
            active = active[damping[active] < 1e12]
    return now, good


def _points(system: System, found: Array, good: Array, period: int, merge: float) -> Points:
    """The points without their duplicates, with what is known of each."""
    orbits = np.swapaxes(system.orbit(found[good], period), 0, 1)  # [B, period, N]
    first, counts = _merged(orbits, merge)
    whole = np.array([_is_whole(orbits[i], merge) for i in first], bool)
    kept, starts = np.asarray(first, int)[whole], np.asarray(counts, int)[whole]
    vectors = orbits[kept, 0].reshape(-1, system.size)
    residual, less = _around(system, vectors, period)
    jacobian = less + np.eye(system.size)
    values, directions = np.linalg.eig(jacobian)
    largest = np.argsort(-np.abs(values), axis=1, kind="stable")
    values = np.take_along_axis(values, largest, 1).astype(complex)
    directions = np.take_along_axis(directions, largest[:, None], 2).astype(complex)
    unstable = (np.abs(values) > 1 + ON_CIRCLE).sum(axis=1)
    order = np.lexsort((*vectors.T[::-1], -starts, unstable))
    chosen = [a[order] for a in (orbits[kept], residual, jacobian, values, directions, starts)]
    orbit, residual, jacobian, values, directions, starts = chosen
    return Points(
        states=system.split(orbit[:, 0]),
        orbit=orbit,
        residual=np.abs(residual).max(axis=1),
        speed=(residual**2).sum(axis=1) / 2,
        jacobian=jacobian,
        eigenvalues=values,
        eigenvectors=directions,
        starts=starts,
        missed=len(good) - int(starts.sum()),
        names=system.names,
    )


def _merged(orbits: Array, merge: float) -> tuple[list[int], list[int]]:
    """The first of each set of orbits that are one, and how many are in it; a cycle begins
    anywhere."""
    left, kept, counts = np.arange(len(orbits)), [], []
    while len(left):
        first = orbits[left[0]]
        near = merge * (1 + np.abs(first[0]).max())
        same = np.zeros(len(left), bool)
        for shift in range(orbits.shape[1]):
            same |= np.abs(orbits[left, 0] - first[shift]).max(axis=1) <= near
        same[0] = True
        kept.append(int(left[0]))
        counts.append(int(same.sum()))
        left = left[~same]
    return kept, counts


def _is_whole(orbit: Array, merge: float) -> bool:
    """Whether a cycle does not come back before its period is over."""
    near = merge * (1 + np.abs(orbit[0]).max())
    return all(np.abs(orbit[k] - orbit[0]).max() > near for k in range(1, len(orbit)) if len(orbit) % k == 0)
