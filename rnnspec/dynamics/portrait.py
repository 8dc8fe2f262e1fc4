"""What is known of a cell's dynamics, and the plane that it is shown in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.dynamics.branch import Branch
from rnnspec.dynamics.points import Points
from rnnspec.dynamics.similarity import Similarity
from rnnspec.dynamics.spectrum import Lyapunov


@dataclass(frozen=True)
class Portrait:
    """name: of the cell. trajectories [T, B, N]: all states together, as the cell went through
    them. points: fixed points or cycles; slow: slow points. What was not asked for is None.
    similarity: with the cell called `other`."""

    name: str
    trajectories: Array
    points: Points
    slow: Points | None = None
    exponents: Lyapunov | None = None
    branch: Branch | None = None
    similarity: Similarity | None = None
    other: str = ""

    __repr__ = brief_repr

    def to_json(self) -> dict[str, Any]:
        parts = {"slow": self.slow, "exponents": self.exponents, "branch": self.branch}
        found = {"name": self.name, **self.points.to_json()}
        found |= {n: part.to_json() for n, part in parts.items() if part is not None}
        if self.similarity is not None:
            s = self.similarity
            found["similarity"] = {
                "to": self.other,
                "distance": s.distance,
                "relative": s.relative,
                "explained": list(s.explained),
                "fit": list(s.fit),
            }
        return found


@dataclass(frozen=True)
class Plane:
    """The first two principal components of states. middle [N]; axes [2, N], of length 1; part [2]:
    of the variance along each."""

    middle: Array
    axes: Array
    part: Array

    def of(self, vectors: Array) -> Array:
        """Vectors [..., N] as points of the plane, [..., 2]."""
        return (vectors - self.middle) @ self.axes.T

    def turned(self, directions: Array) -> Array:
        """Directions [..., N] in the plane, [..., 2]."""
        return directions @ self.axes.T


def plane(vectors: Array) -> Plane:
    """The plane of states [M, N] in which they vary most; of one number the second axis is 0."""
    middle = vectors.mean(axis=0)
    _, lengths, axes = np.linalg.svd(vectors - middle, full_matrices=False)
    whole = np.zeros((2, vectors.shape[1]))
    whole[: len(axes[:2])] = axes[:2]
    whole *= np.where(whole.sum(axis=1, keepdims=True) < 0, -1, 1)  # a singular vector has either sign
    total = float((lengths**2).sum())
    part = np.zeros(2)
    part[: len(lengths[:2])] = lengths[:2] ** 2 / total if total > 0 else 0.0
    return Plane(middle, whole, part)


def modes(points: Points, index: int, most: int = 2) -> tuple[Array, Array]:
    """The slowest or most unstable directions of a point, real [K, N] of length 1, and their
    eigenvalues [K]: those whose absolute value is largest, of a complex pair its real and imaginary
    parts."""
    values, directions = points.eigenvalues[index], points.eigenvectors[index]
    found, kept = [], []
    for value, direction in zip(values, directions.T):
        if value.imag < 0:
            continue
        for part in (direction.real, direction.imag) if value.imag > 0 else (direction.real,):
            size = np.linalg.norm(part)
            if size > 0:
                found.append(part / size)
                kept.append(value)
    return np.array(found[:most]).reshape(-1, points.vectors.shape[1]), np.array(kept[:most], complex)
