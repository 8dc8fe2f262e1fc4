"""A line of maps: one parameter or input of a cell that moves, and the curve of its fixed points,
(s, v) with s = F(s, v), on which v stands for where it is between the ends of a range.

Newton's method on the curve, with one more equation for how far along it is (Keller 1977).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.dynamics.system import System
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.weights import Weights
from rnnspec.errors import RnnspecError, ShapeError

CORRECTIONS = 12  # of Newton's method at a point of the curve
_PLACE = re.compile(r"(\w+)(?:\[([\d, ]+)\])?")


@dataclass(frozen=True)
class Moved:
    """What moves: value v of the range (low, high) has parameters and inputs p + (value - begin) *
    direction. params, inputs: name -> direction. label: what it is called; begin: where it is."""

    label: str
    params: Mapping[str, Array]
    inputs: Mapping[str, Array]
    begin: float
    low: float
    high: float


class Path:
    """The map at every place of a range. Points are vectors [N + 1], the states and v in [0, 1]."""

    def __init__(
        self,
        kernel: Kernel,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any],
        along: str | Mapping[str, Any],
        over: tuple[float, float],
    ):
        self.system = System(kernel, params, inputs, states)
        self.moved = moved(self.system, along, over)
        self.width = self.moved.high - self.moved.low

    def value(self, v: float) -> float:
        """What the parameter or input is."""
        return self.moved.low + v * self.width

    def at(self, v: float) -> System:
        """The map there."""
        system, far = self.system, self.value(v) - self.moved.begin
        found = copy.copy(system)
        dtype = system.kernel.dtype
        if self.moved.params:
            held = system.weights.params
            more = {n: np.asarray(held[n] + far * d, dtype) for n, d in self.moved.params.items()}
            found.weights = system.kernel.pack({**held, **more})
        more = {n: np.asarray(system.inputs[n] + far * d, dtype) for n, d in self.moved.inputs.items()}
        found.inputs = {**system.inputs, **more}
        return found

    def equations(self, point: Array) -> tuple[Array, Array]:
        """F(s, v) - s [N], and its derivative by s and v [N, N + 1]."""
        system, s = self.at(float(point[-1])), point[None, :-1]
        dtype = system.kernel.dtype
        directions: dict[str, Any] = {}
        if self.moved.params:
            directions["tangent_params"] = {n: np.asarray(d * self.width, dtype) for n, d in self.moved.params.items()}
        if self.moved.inputs:
            more = {n: np.asarray(d * self.width, dtype)[None, None] for n, d in self.moved.inputs.items()}
            directions["tangent_inputs"] = more
        after, slope = system.along(s, **directions)
        by_state = system.jacobian(s)[0] - np.eye(system.size)
        return (after - s)[0], np.concatenate([by_state, slope.reshape(-1, 1)], axis=1)

    def corrected(self, point: Array, normal: Array) -> tuple[Array, Array, int] | None:
        """The point of the curve in the plane through `point` with this normal, the equations'
        derivatives there, and the steps of Newton's method it took; None where there is none
        near."""
        now, tolerance = point.copy(), self.system.tolerance
        before = np.inf
        for count in range(CORRECTIONS):
            residual, slopes = self.equations(now)
            error = float(np.abs(residual).max())
            if not np.isfinite(error) or error > 2 * before + 1:
                return None
            if error <= tolerance * (1 + float(np.abs(now[:-1]).max())):
                return now, slopes, count
            before = error
            step = solved(np.vstack([slopes, normal]), np.append(-residual, -normal @ (now - point)))
            if step is None:
                return None
            now = now + step
        return None

    @staticmethod
    def tangent(slopes: Array, before: Array) -> Array:
        """The curve's direction where the equations have these derivatives, of length 1, on the
        side of the one before."""
        right = np.zeros(slopes.shape[1])
        right[-1] = 1
        found = solved(np.vstack([slopes, before]), right)
        if found is None:
            found = np.linalg.svd(slopes)[2][-1]
            found = found * np.sign(found @ before or 1.0)
        return found / np.linalg.norm(found)


def solved(matrix: Array, right: Array) -> Array | None:
    """None where the matrix is singular."""
    try:
        found = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def moved(system: System, along: str | Mapping[str, Any], over: tuple[float, float]) -> Moved:
    """What `along` means for a cell. ShapeError where it is nothing of its."""
    low, high = map(float, over)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ShapeError(f"a range is (low, high), two numbers with low < high; got {over}.")
    params, inputs = system.weights.params, system.inputs
    label, begin = str(along), 0.0
    if isinstance(along, str):
        along, begin = _place(system, along)
    else:
        label = " + ".join(f"v * {n}" for n in along)
    given = {n: np.asarray(d, np.float64) for n, d in along.items()}
    for name, direction in given.items():
        there = params.get(name, inputs.get(name))
        if there is None:
            raise ShapeError(f"'{system.kernel.spec.name}' has no '{name}' to move. {_there(system)}")
        if direction.shape != there.shape:
            raise ShapeError(f"the direction of '{name}' has shape {direction.shape}, expected {there.shape}.")
    if not any(d.any() for d in given.values()) or not all(np.isfinite(d).all() for d in given.values()):
        raise ShapeError("a direction, {name: array}, has finite numbers of which at least one is not 0.")
    if not low <= begin <= high:
        raise ShapeError(f"{label} is {begin:g} at the start, which is not within the range {low:g} to {high:g}.")
    of_params = {n: d for n, d in given.items() if n in params}
    return Moved(label, of_params, {n: d for n, d in given.items() if n not in params}, begin, low, high)


def _place(system: System, text: str) -> tuple[dict[str, Array], float]:
    """The direction of one number, "b" or "W[0, 3]", and what it is."""
    match = _PLACE.fullmatch(text.strip())
    name = match[1] if match else text
    there = system.weights.params.get(name, system.inputs.get(name))
    if match is None or there is None:
        raise ShapeError(f"'{system.kernel.spec.name}' has no '{text}' to move. {_there(system)}")
    at = tuple(int(i) for i in match[2].split(",")) if match[2] else ()
    if len(at) != there.ndim or any(not 0 <= i < n for i, n in zip(at, there.shape)):
        raise ShapeError(
            f"'{text}' must be one number of '{name}', of shape {there.shape}: give an index, like {name}[0, 3] of a"
            " matrix, or a direction, {name: array}."
        )
    direction = np.zeros(there.shape)
    direction[at] = 1
    return {name: direction}, float(there[at])


def _there(system: System) -> str:
    params, inputs = ", ".join(system.weights.params) or "none", ", ".join(system.inputs) or "none"
    return f"Its parameters: {params}; inputs that are held: {inputs}."


def begun(path: Path, states: Mapping[str, Any]) -> tuple[Array, Array]:
    """The fixed point [N + 1] that a curve begins with, from a state near it, and the equations'
    derivatives there. RnnspecError where
    Newton's method finds none."""
    v = (path.moved.begin - path.moved.low) / path.width
    near = np.append(path.system.joined(states)[0], v)
    upright = np.zeros(len(near))
    upright[-1] = 1
    found = path.corrected(near, upright)
    if found is None:
        raise RnnspecError(
            f"no fixed point was found near the start, with {path.moved.label} at {path.moved.begin:g}: give one that"
            " fixed_points found."
        )
    return found[0], found[1]
