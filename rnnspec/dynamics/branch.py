"""Branches of fixed points as a parameter or an input moves, and where they change their kind.

Pseudo-arclength continuation (Keller 1977), which goes around folds; what is passed on the way is
told by functions that change their sign there (Kuznetsov 2004, chapters 4 and 10).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.dynamics.path import Path, begun
from rnnspec.dynamics.points import ON_CIRCLE
from rnnspec.dynamics.system import Named
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.weights import Weights

FIRST, SMALLEST = 0.2, 1e-9  # of the largest step: what is begun with, and what is given up at
GROW, EASY = 1.4, 3  # how a step grows that took no more corrections than these
STRAIGHT = 0.95  # the cosine of two tangents that a step may lie between
TRIES, CLOSE = 60, 1e-14  # to locate what is passed on a piece of the curve
PASSES = 1e-3  # how near to the circle a pair is that passes it
Progress = Callable[[int, int], None]  # points, most points


@dataclass(frozen=True)
class Special:
    """Where a branch changes its kind. kind: "fold" (an eigenvalue passes 1 and the branch turns),
    "flip" (one passes -1: period doubling), "neimark-sacker" (a complex pair passes the unit
    circle) or "branch" (another branch crosses this one). value: of what moves; states: name ->
    [...]; eigenvalue: the one that passes; after: how many points of the branch come before."""

    kind: str
    value: float
    states: Named
    eigenvalue: complex
    after: int

    __repr__ = brief_repr


@dataclass(frozen=True)
class Branch:
    """P fixed points along a curve. label: what moves; values [P]; states: name -> [P, ...];
    vectors [P, N], all states together; eigenvalues [P, N], largest first; unstable [P]: how many
    are outside the unit circle; special: what is passed, in the order of the curve. ends: why it
    ends before its first point and after its last: "range", "closed", "points" (no more were
    asked for), or "lost" (no further point was found)."""

    label: str
    values: Array
    states: Named
    vectors: Array
    eigenvalues: Array
    special: tuple[Special, ...]
    ends: tuple[str, str]
    names: tuple[str, ...]

    __repr__ = brief_repr

    def __len__(self) -> int:
        return len(self.values)

    @property
    def unstable(self) -> Array:
        return (np.abs(self.eigenvalues) > 1 + ON_CIRCLE).sum(axis=1)

    def to_json(self) -> dict[str, Any]:
        return {
            "along": self.label,
            "values": self.values.tolist(),
            "states": {n: a.tolist() for n, a in self.states.items()},
            "unstable": self.unstable.tolist(),
            "ends": list(self.ends),
            "special": [
                {
                    "kind": s.kind,
                    "value": s.value,
                    "states": {n: a.tolist() for n, a in s.states.items()},
                    "eigenvalue": [s.eigenvalue.real, s.eigenvalue.imag],
                }
                for s in self.special
            ],
        }


def continue_fixed_point(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    start: Mapping[str, Any],
    along: str | Mapping[str, Any],
    over: tuple[float, float],
    *,
    step: float = 0.02,
    points: int = 2000,
    progress: Progress | None = None,
) -> Branch:
    """The branch of fixed points through `start`, both ways, while what moves is within a range.

    start: name -> [...], a fixed point, or near one. along: one number of a parameter or an input,
        "b" or "W[0, 3]", which begins with what it is; or name -> direction, of the shape of each,
        which is added as often as a value says that begins with 0. over: (low, high), the range.
    step: the longest one along the curve, on which the range has length 1. points: at most so
        many on either side.

    Others are as for `fixed_points`. Raises RnnspecError where there is no fixed point near the
    start, ShapeError for an `along` that is not the cell's.
    """
    states = {n: np.asarray(a)[None] for n, a in start.items()}
    path = Path(kernel, params, inputs, states, along, over)
    first = begun(path, states)
    sides, ends = [], []
    for side in (-1.0, 1.0):
        found, why = _walked(path, first, side, step, points, progress)
        sides.append(found)
        ends.append(why)
        if why == "closed":
            break
    back, ahead = (sides[0], []) if len(sides) == 1 else (sides[0], sides[1][1:])
    for place in back:
        place.tangent = -place.tangent
    return _branch(path, [*back[::-1], *ahead], (ends[0], ends[-1]))


@dataclass
class _Place:
    """A point of the curve, its direction, the derivatives of its equations, and the eigenvalues of
    the map there."""

    point: Array
    tangent: Array
    slopes: Array
    eigenvalues: Array

    def told(self) -> dict[str, float]:
        """For each kind a number that changes its sign where it is passed, and near there goes
        through 0 evenly: a sign that tells, times the distance of what passes."""
        values = self.eigenvalues
        upper = (values[:, None] * values - 1)[np.triu_indices(len(values), 1)]
        turning = np.abs(np.abs(values[values.imag > 0]) - 1).min(initial=np.inf)
        return {
            "fold": float(self.tangent[-1]),
            "flip": _even(values + 1) * float(np.abs(values + 1).min()),
            "neimark-sacker": _even(upper) * float(min(turning, 1.0)),
            "branch": float(np.linalg.slogdet(np.vstack([self.slopes, self.tangent]))[0])
            * float(np.abs(values - 1).min()),
        }


def _even(values: Array) -> float:
    """The sign of a product of numbers that is real, since those that are not come in pairs."""
    return float(np.round(np.cos(np.angle(values).sum())))


def _place(found: tuple[Array, Array, int] | tuple[Array, Array], before: Array) -> _Place:
    point, slopes = found[:2]
    values = np.linalg.eigvals(slopes[:, :-1] + np.eye(len(slopes))).astype(complex)
    order = np.argsort(-np.abs(values), kind="stable")
    return _Place(point, Path.tangent(slopes, before), slopes, values[order])


def _walked(
    path: Path, first: tuple[Array, Array], side: float, most: float, points: int, progress: Progress | None
) -> tuple[list[_Place], str]:
    """The places of the curve on one side of its first, that included, and why it ends."""
    upright = np.zeros(len(first[0]))
    upright[-1] = side
    found, length = [_place(first, upright)], FIRST * most
    if not found[0].tangent[-1] * side >= 0:
        found[0].tangent = -found[0].tangent
    while len(found) <= points:
        last = found[-1]
        if not 0 <= last.point[-1] <= 1 or _at_end(last):
            return found, "range"
        ahead = path.corrected(last.point + length * last.tangent, last.tangent)
        new = None if ahead is None else _place(ahead, last.tangent)
        if new is None or ahead is None or new.tangent @ last.tangent < STRAIGHT:
            length /= 2
            if length < SMALLEST * most:
                return found, "lost"
            continue
        if not 0 <= new.point[-1] <= 1:
            end = _at_bound(path, last, new)
            return [*found, end] if end is not None else found, "range"
        found.append(new)
        if progress:
            progress(len(found), points)
        if len(found) > 10 and _closes(first[0], found, length):
            return [*found, found[0]], "closed"
        if ahead[2] <= EASY:
            length = min(most, GROW * length)
    return found, "points"


def _at_end(place: _Place) -> bool:
    """Whether a place is at an end of the range and leads out of it."""
    return bool((place.point[-1] == 0 and place.tangent[-1] < 0) or (place.point[-1] == 1 and place.tangent[-1] > 0))


def _closes(first: Array, found: list[_Place], length: float) -> bool:
    """Whether the last piece of the curve passes its first point again."""
    before, after = found[-2], found[-1]
    near = np.linalg.norm(after.point - first) <= 2 * length
    return bool(
        near
        and (first - before.point) @ before.tangent > 0
        and (first - after.point) @ after.tangent <= 0
        and after.tangent @ found[0].tangent > 0
    )


def _at_bound(path: Path, last: _Place, new: _Place) -> _Place | None:
    """The place between two at which the range ends."""
    bound = 1.0 if new.point[-1] > 1 else 0.0
    part = (bound - last.point[-1]) / (new.point[-1] - last.point[-1])
    near = last.point + part * (new.point - last.point)
    near[-1] = bound
    upright = np.zeros(len(near))
    upright[-1] = 1
    found = path.corrected(near, upright)
    return None if found is None else _place(found, last.tangent)


def _branch(path: Path, places: list[_Place], ends: tuple[str, str]) -> Branch:
    vectors = np.array([p.point[:-1] for p in places])
    special: list[Special] = []
    before = places[0].told()
    for number, (left, right) in enumerate(itertools.pairwise(places), 1):
        after = right.told()
        changed = [kind for kind in after if after[kind] * before[kind] < 0]
        passed = [_located(path, left, right, kind, (before[kind], after[kind]), number) for kind in changed]
        special += sorted(filter(None, passed), key=lambda s: abs(s.value - path.value(float(left.point[-1]))))
        before = {kind: after[kind] or before[kind] for kind in after}
    return Branch(
        label=path.moved.label,
        values=np.array([path.value(float(p.point[-1])) for p in places]),
        states=path.system.split(vectors),
        vectors=vectors,
        eigenvalues=np.array([p.eigenvalues for p in places]),
        special=tuple(special),
        ends=ends,
        names=path.system.names,
    )


def _located(
    path: Path, left: _Place, right: _Place, kind: str, ends: tuple[float, float], number: int
) -> Special | None:
    """Where between two places a kind is passed, by the rule of false position that halves the end
    that stays (Dowell & Jarratt 1971); None for a pair of real eigenvalues whose product passes 1,
    at which nothing happens."""
    (low, at_low), (high, at_high), best, stayed = (0.0, ends[0]), (1.0, ends[1]), left, 0
    for _ in range(TRIES):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        found = path.corrected(left.point + middle * (right.point - left.point), left.tangent)
        if found is None:  # at a crossing of branches there are two directions, and no Newton step
            break
        best = _place(found, left.tangent)
        value = best.told()[kind]
        if value * at_low > 0:
            low, at_low, at_high = middle, value, at_high / 2 if stayed > 0 else at_high
            stayed = 1
        else:
            high, at_high, at_low = middle, value, at_low / 2 if stayed < 0 else at_low
            stayed = -1
        if abs(value) < CLOSE or high - low < CLOSE:
            break
    critical = _critical(best.eigenvalues, kind)
    if critical is None:
        return None
    states = {n: a[0] for n, a in path.system.split(best.point[None, :-1]).items()}
    return Special(kind, path.value(float(best.point[-1])), states, critical, number)


def _critical(values: Array, kind: str) -> complex | None:
    """The eigenvalue that passes; None where a pair should and none is on the circle."""
    if kind != "neimark-sacker":
        return complex(values[np.argmin(np.abs(values - (-1.0 if kind == "flip" else 1.0)))])
    turning = values[values.imag > 0]
    if not len(turning):
        return None
    found = complex(turning[np.argmin(np.abs(np.abs(turning) - 1))])
    return found if abs(abs(found) - 1) <= PASSES else None
