"""The measurements: gradient norms against lag, Jacobians of single steps, values of gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.backends.brief import brief_repr
from rnnspec.backends.reference import Step, Trajectory
from rnnspec.errors import RnnspecError, UnsupportedError
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.syntax.tree import Call
from rnnspec.probe.subject import ProbeSubject
from rnnspec.symbolic.adjoint import adjoint, gradient_of
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph

LARGEST = 1024  # numbers in a state whose Jacobian is made
EDGE = 0.1  # of the range: closer to an end than that is saturated (Karpathy, Johnson & Fei-Fei 2016, section 4.2)


@dataclass(frozen=True)
class Gate:
    """One squashed value of the cell over all steps, rows and units. low, high: the part of its
    values in the lowest and highest tenth of its range, where its slope is small."""

    name: str
    function: str
    mean: float
    low: float
    high: float
    values: Array  # flat

    __repr__ = brief_repr


@dataclass(frozen=True)
class Probe:
    """norms[k], k = 0 ... T: ||dL/ds[T-k]||, geometric mean over rows, for a loss L = v . y[T] with
    ||v|| = 1 drawn at random; s is all states together, before the first step for k = T. norms[0]
    is NaN where the output is not a state. by_state: the same of each state. eigenvalues: of the
    Jacobian ds[t]/ds[t-1] in the middle of the sequence, all rows. radius, gain [T]: its spectral
    radius and largest singular value at each step, mean over rows."""

    name: str
    norms: Array
    by_state: Mapping[str, Array]
    eigenvalues: Array
    radius: Array
    gain: Array
    gates: tuple[Gate, ...]

    __repr__ = brief_repr

    @property
    def rate(self) -> float:
        """The factor by which the gradient changes from one step to the one before, geometric mean
        from lag 1 on."""
        norms = self.norms[1:]
        if len(norms) < 2 or not norms[0] > 0:
            return float("nan")
        return float((norms[-1] / norms[0]) ** (1 / (len(norms) - 1)))

    @property
    def reach(self) -> int:
        """The last lag at which the gradient is at least a hundredth of what it is at lag 1."""
        return int(np.flatnonzero(self.norms[1:] >= 0.01 * self.norms[1])[-1] + 1) if self.norms[1] > 0 else 0

    @property
    def left(self) -> float:
        """What the gradient is at the first step, in parts of what it is at lag 1; above 1 where it
        grows."""
        return float(self.norms[-1] / self.norms[1]) if self.norms[1] > 0 else float("nan")

    def to_json(self) -> dict[str, Any]:
        gates = [
            {"name": g.name, "function": g.function, "mean": g.mean, "low": g.low, "high": g.high} for g in self.gates
        ]
        spectrum = [[float(v.real), float(v.imag)] for v in self.eigenvalues]
        arrays = {"norms": self.norms, "radius": self.radius, "gain": self.gain}
        return {
            "name": self.name,
            "rate": self.rate,
            "reach": self.reach,
            "left": self.left,
            **{name: a.tolist() for name, a in arrays.items()},
            "by_state": {name: a.tolist() for name, a in self.by_state.items()},
            "eigenvalues": spectrum,
            "gates": gates,
        }


def probe(subject: ProbeSubject, seed: int = 0) -> Probe:
    """All measurements of a subject. UnsupportedError for a state of more than 1024 numbers,
    RnnspecError where one isn't finite."""
    graph = build(subject.spec)
    back = adjoint(graph, subject.spec.no_gradient)
    with np.errstate(over="ignore", invalid="ignore"):
        run = reference.forward(graph, subject.params, subject.inputs, sizes=subject.sizes, lead=subject.lead)
    steps, rows = subject.lead
    parts = {s: int(np.prod(run.before[s].shape[2:])) for s in graph.states}
    if sum(parts.values()) > LARGEST:
        raise UnsupportedError(
            f"the states of {subject.name} are {sum(parts.values()):,} numbers; at most {LARGEST:,} are probed: give a"
            " smaller --hidden"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        jacobians = np.stack([jacobian(back, subject, run, t) for t in range(steps)])  # [T, B, N, N]
        gradients = _gradients(back, subject, run, jacobians, seed)  # [T + 1, B, N], the first NaN where there is none
    _check_finite(subject.name, jacobians, gradients)
    ends = np.cumsum(list(parts.values()))[:-1]
    pieces = dict(zip(parts, np.split(gradients, ends, axis=-1)))
    middle = np.linalg.eigvals(jacobians[steps // 2]).reshape(-1)
    spectra = np.linalg.eigvals(jacobians.reshape(-1, *jacobians.shape[2:]))
    gains = np.linalg.norm(jacobians, ord=2, axis=(2, 3))
    radius = np.abs(spectra).max(axis=-1, initial=0).reshape(steps, rows).mean(axis=1)
    norms = {s: _norms(g) for s, g in pieces.items()}
    gates = _gates(subject, run)
    return Probe(subject.name, _norms(gradients), norms, middle, radius, gains.mean(axis=1), gates)


def _check_finite(name: str, jacobians: Array, gradients: Array) -> None:
    """RnnspecError naming the first step, or lag, where a number is too large even for float64."""
    steps = len(jacobians)
    for places, what in (
        (~np.isfinite(jacobians).all(axis=(1, 2, 3)), "the Jacobian of {name} at step {at}"),
        (~np.isfinite(gradients[1:]).all(axis=(1, 2)), "the gradient of {name} at lag {at}"),
    ):
        for at in np.flatnonzero(places)[:1] + 1:
            raise RnnspecError(
                f"{what.format(name=name, at=at)} of {steps} isn't finite: states or gradients explode. Give a smaller"
                " --length"
            )


def jacobian(back: Graph, subject: ProbeSubject, run: Trajectory, t: int) -> Array:
    """ds[t] / ds[t-1], [B, N, N] with N numbers in all states: element [b, i, j] is of number i
    after the step to number j before it.

    Row i is the adjoint of a step whose gradient is 1 at number i and 0 elsewhere; all rows go
    through it at once.
    """
    shapes = {s: h.shape[2:] for s, h in run.before.items() if s in back.states}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    count, rows = sum(sizes), subject.lead[1]
    seeds = np.tile(np.eye(count), (rows, 1))  # [B * N, N]
    flowing = {
        s: part.reshape(-1, *shapes[s]) for s, part in zip(shapes, np.split(seeds, np.cumsum(sizes)[:-1], axis=1))
    }
    none = {o: np.zeros((rows * count, *y.shape[2:])) for o, y in run.outputs.items()}
    before = _backward_step(back, subject, run, t, flowing, none, count)
    return np.concatenate([before[s].reshape(rows * count, -1) for s in shapes], axis=1).reshape(rows, count, count)


def _gradients(back: Graph, subject: ProbeSubject, run: Trajectory, jacobians: Array, seed: int) -> Array:
    """dL/ds[T-k] for k = 0 ... T, [T + 1, B, N]."""
    steps, rows, count = jacobians.shape[:3]
    rng = np.random.default_rng([seed, 6])
    v = {o: rng.standard_normal(y.shape[1:]) for o, y in run.outputs.items()}
    length = np.sqrt(sum((g.reshape(rows, -1) ** 2).sum(axis=1) for g in v.values()))
    v = {o: g / length.reshape(-1, *[1] * (g.ndim - 1)) for o, g in v.items()}
    states = {s: run.before[s].shape[2:] for s in back.states}
    first = [v[s] if s in v else np.zeros((rows, *shape)) for s, shape in states.items()]
    found = np.full((steps + 1, rows, count), np.nan)
    if set(v) <= set(states):
        found[0] = np.concatenate([g.reshape(rows, -1) for g in first], axis=1)
    none = {s: np.zeros((rows, *shape)) for s, shape in states.items()}
    before = _backward_step(back, subject, run, steps - 1, none, v, 1)
    found[1] = np.concatenate([before[s].reshape(rows, -1) for s in states], axis=1)
    for k in range(2, steps + 1):
        found[k] = np.einsum("bij,bi->bj", jacobians[steps - k], found[k - 1])
    return found


def _backward_step(
    back: Graph,
    subject: ProbeSubject,
    run: Trajectory,
    t: int,
    flowing: Mapping[str, Array],
    dy: Mapping[str, Array],
    times: int,
) -> dict[str, Array]:
    """The gradient of the states before step t; every row of the sequence `times` times over."""

    def repeated(array: Array) -> Array:
        return np.repeat(array, times, axis=0) if times > 1 else array

    now = {name: repeated(x[t]) for name, x in subject.inputs.items()} | {gradient_of(o): g for o, g in dy.items()}
    history = {s: repeated(h[t]) for s, h in run.before.items()}
    values = reference.evaluate(back, Step(now, flowing, subject.params, history, t), numbers.FLOAT64, subject.sizes)
    return {s: np.broadcast_to(values[n], flowing[s].shape) for s, n in back.states.items()}


def _norms(gradients: Array) -> Array:
    """Geometric mean over rows of the norms: [T + 1, B, N] to [T + 1]."""
    norms = np.linalg.norm(gradients, axis=-1)
    with np.errstate(divide="ignore"):
        return np.exp(np.log(norms).mean(axis=1))


def _gates(subject: ProbeSubject, run: Trajectory) -> tuple[Gate, ...]:
    gates = []
    for equation in subject.spec.equations:
        function = equation.value.function if isinstance(equation.value, Call) else ""
        row = FUNCTIONS.get(function)
        if row is None or row.range is None or equation.target not in run.values:
            continue
        low, high = row.range
        values = run.values[equation.target].ravel()
        edge = EDGE * (high - low)
        in_low, in_high = float((values < low + edge).mean()), float((values > high - edge).mean())
        gates.append(Gate(equation.target, function, float(values.mean()), in_low, in_high, values))
    return tuple(gates)
