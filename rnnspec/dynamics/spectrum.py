"""Lyapunov exponents: how fast neighbouring states of a cell part, along each direction.

Tangents as columns, carried by the kernel's own Jacobian over several steps and made orthogonal
again by QR (Benettin et al. 1980; Shimada & Nagashima 1979); of recurrent networks Engelken et al.
2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.dynamics.system import Named, System, all_finite, finite
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError

MOST_STEPS = 64  # between two QR decompositions
AIM = 0.7  # of the spread that is allowed: what the next number of steps aims at
LOST = 4.0  # times sqrt(N) eps, and the longest column: one that is shorter after a step is lost
Progress = Callable[[int, int], None]  # steps done, all steps


@dataclass(frozen=True)
class Lyapunov:
    """exponents [K]: per step, largest first, means over rows; by_row [B, K]. -inf stands for a
    direction that a step loses altogether. times [C]: steps counted so far; history [C, K]: the
    exponents up to then. steps: counted in all; qr: how many decompositions they took. final: name
    -> [B, ...], the states at the end."""

    exponents: Array
    by_row: Array
    times: Array
    history: Array
    steps: int
    qr: int
    final: Named

    __repr__ = brief_repr

    @property
    def dimension(self) -> float:
        """The Kaplan-Yorke dimension, j + (sum of the j largest) / |the next one|, with the last j
        at which the sum is not negative (Kaplan & Yorke 1979); NaN where all that were asked for
        sum to more, since then the next one is not known."""
        return kaplan_yorke(self.exponents)

    def to_json(self) -> dict[str, Any]:
        arrays = {"exponents": self.exponents, "by_row": self.by_row, "times": self.times, "history": self.history}
        return {
            **{n: a.tolist() for n, a in arrays.items()},
            "steps": self.steps,
            "qr": self.qr,
            "dimension": self.dimension,
        }


def kaplan_yorke(exponents: Array) -> float:
    """The Kaplan-Yorke dimension of exponents, largest first."""
    sums = np.cumsum(exponents)
    if not len(sums) or not sums[0] >= 0:
        return 0.0
    last = int(np.flatnonzero(sums >= 0)[-1])
    if last + 1 == len(exponents):
        return float("nan")
    return float(last + 1 + sums[last] / abs(exponents[last + 1]))


def lyapunov(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    k: int | None = None,
    *,
    states: Mapping[str, Any] | None = None,
    steps: int | None = None,
    warmup: int = 1000,
    settle: int = 200,
    spread: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Lyapunov:
    """The k largest Lyapunov exponents of a cell, or all (None), in natural logarithms per step.

    inputs: name -> [...], held for every step; or all of them [T, B, ...], which drive the cell:
        then steps is what they have beyond warmup and settle, and may be left out.
    states: name -> [B, ...] at the beginning, one row of zeros where left out. steps: counted
        (10,000). warmup: steps before, for the state to come to its attractor. settle: steps after
        these, in which tangents turn and are not counted yet.
    spread: how far the lengths of columns may part before the next QR, which comes after as many
        steps as that allows; the error of a single one is about eps times it. None: 1e8 in float64,
        1e3 in float32. seed: of the first tangents.

    Raises RnnspecError where the states explode, and as `fixed_points` does.
    """
    work, total = _begun(kernel, params, inputs, k, states or {}, (steps, warmup, settle), spread, seed)
    work.run(settle, None)
    work.reset()
    work.run(total, progress)
    by_row = work.logs / total
    return Lyapunov(
        exponents=np.sort(by_row.mean(axis=0))[::-1],
        by_row=-np.sort(-by_row, axis=1),
        times=np.array(work.times),
        history=np.array(work.history),
        steps=total,
        qr=work.count,
        final=work.system.split(work.now),
    )


def _begun(
    kernel: Kernel,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    k: int | None,
    states: Mapping[str, Any],
    counts: tuple[int | None, int, int],
    spread: float | None,
    seed: int,
) -> tuple[_Work, int]:
    """What is ready after the warm-up, and the steps that are counted; arguments as `lyapunov` has
    them, counts: steps, warmup, settle."""
    driven, (steps, warmup, settle) = _driven(kernel, inputs), counts
    total = _total(driven, steps, warmup, settle)
    given = None if driven is None else {n: np.asarray(a) for n, a in inputs.items()}
    system = System(kernel, params, inputs if given is None else {n: a[0, 0] for n, a in given.items()}, states)
    rows = driven[1] if driven is not None else next((len(a) for a in states.values()), 1)
    k = system.size if k is None else k
    if not 1 <= k <= system.size:
        raise ShapeError(f"k is from 1 to {system.size}, the numbers in all states together; got {k}.")
    if spread is None:
        spread = 1e8 if kernel.dtype == np.float64 else 1e3
    if not 1 < spread < np.inf:
        raise ShapeError(f"spread is a factor above 1, not {spread}.")
    all_finite("input", given or {})
    source = _Inputs(system, given, rows)
    now = system.joined(states) if states else np.zeros((rows, system.size))
    now = finite(source.after(now, 0, warmup), "the state after the warm-up")
    return _Work(system, source, now, _tangents(rows, system.size, k, seed), np.log(spread), warmup), total


def _driven(kernel: Kernel, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
    """T and B of inputs that drive a cell, None for those that are held. ShapeError for a
    mixture."""
    known = kernel.spec.inputs
    more = {n: np.ndim(a) - len(known[n]) for n, a in (inputs or {}).items() if n in known}
    if set(more.values()) <= {0}:
        return None
    if set(more.values()) != {2}:
        told = ", ".join(f"'{n}' {list(np.shape(inputs[n]))}" for n in more)
        raise ShapeError(f"inputs are all held, [...], or all drive the cell, [T, B, ...]; got {told}.")
    lead = next(np.shape(a)[:2] for a in inputs.values())
    return int(lead[0]), int(lead[1])


def _total(driven: tuple[int, int] | None, steps: int | None, warmup: int, settle: int) -> int:
    """The steps that are counted."""
    if min(warmup, settle) < 0:
        raise ShapeError(f"warmup and settle are 0 or more steps, not {warmup} and {settle}.")
    found = (10_000 if driven is None else driven[0] - warmup - settle) if steps is None else steps
    if found < 1:
        raise ShapeError(f"{found} steps are left to count; the inputs, or steps, must have more than warmup + settle.")
    if driven is not None and warmup + settle + found > driven[0]:
        raise ShapeError(
            f"warmup, settle and steps are {warmup} + {settle} + {found}; the inputs have {driven[0]} steps."
        )
    return found


def _tangents(rows: int, size: int, k: int, seed: int) -> Array:
    """Orthonormal columns [B, N, K], drawn at random, the same for every row."""
    drawn = np.linalg.qr(np.random.default_rng([seed, 8]).standard_normal((size, k)))[0]
    return np.repeat(drawn[None], rows, axis=0)


@dataclass
class _Inputs:
    """What the steps read, of a cell that is driven or not."""

    system: System
    given: Named | None
    rows: int

    def of(self, start: int, count: int) -> Named:
        if self.given is None:
            return self.system.steps(count, self.rows)
        return {n: a[start : start + count] for n, a in self.given.items()}

    def after(self, now: Array, start: int, count: int) -> Array:
        if not count:
            return now
        system = self.system
        found = system.kernel.infer(
            system.weights, self.of(start, count), system.split(now), steps=count, rows=self.rows, noise="mean"
        )
        return system.joined(found.final)


class _Work:
    """States [B, N] and orthonormal tangents [B, N, K] on their way. logs [B, K]: the logarithms of
    how far columns have grown."""

    def __init__(self, system: System, source: _Inputs, now: Array, tangents: Array, most: float, at: int):
        self.system, self.source, self.now, self.tangents = system, source, now, tangents
        self.most, self.at, self.each = most, at, 1
        self.logs = np.zeros((len(now), tangents.shape[2]))
        self.eps = LOST * system.size**0.5 * float(np.finfo(system.kernel.dtype).eps)
        self.reset()

    def reset(self) -> None:
        """Counts from here on; directions that are lost stay so."""
        self.logs = np.where(np.isfinite(self.logs), 0.0, -np.inf)
        self.times: list[int] = []
        self.history: list[Array] = []
        self.count = 0

    def run(self, steps: int, progress: Progress | None) -> None:
        done = 0
        while done < steps:
            count = min(self.each, steps - done)
            if not self._advance(count):
                continue  # too far apart: the same steps again, in smaller pieces
            done += count
            self.count += 1
            self.times.append(done)
            self.history.append(np.sort((self.logs / done).mean(axis=0))[::-1])
            if progress:
                progress(done, steps)

    def _advance(self, count: int) -> bool:
        """Some steps and a QR; False, with nothing changed but the number of steps to come, where
        columns part further than is allowed."""
        along = np.moveaxis(self.tangents, 2, 0)
        now, moved = self.system.along(self.now, along, self.source.of(self.at, count), count)
        finite(now, f"the state after step {self.at + count}")
        finite(moved, f"a tangent after step {self.at + count}")
        q, r = np.linalg.qr(np.moveaxis(moved, 0, 2))
        grown = np.abs(np.einsum("bii->bi", r))
        alive = np.isfinite(self.logs)
        with np.errstate(divide="ignore"):
            logs = np.where(alive, np.log(grown), -np.inf)
        largest = logs.max(axis=1, keepdims=True, initial=-np.inf)
        if count == 1:
            logs = np.where(logs < largest + np.log(self.eps), -np.inf, logs)
            alive = np.isfinite(logs)
        apart = float(np.max(np.where(alive, largest - np.where(alive, logs, 0), 0), initial=0))
        aim = int(AIM * count * self.most / apart) if apart > 0 else MOST_STEPS
        if count > 1 and not apart <= self.most:
            self.each = max(1, min(count // 2, aim))
            return False
        self.each = max(1, min(MOST_STEPS, 2 * self.each, aim))
        self.now, self.tangents, self.at = now, q, self.at + count
        self.logs = self.logs + logs
        return True
