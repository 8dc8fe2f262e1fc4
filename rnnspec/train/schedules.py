"""Learning rates over a run: one row of `SCHEDULES` each, a factor of `lr` from how much of the run
is done."""

from __future__ import annotations

import math
from collections.abc import Callable

LAST = 0.05
WARM = 0.05


def _cosine(done: float, first: float) -> float:
    """1 up to `first`, then half a cosine down to 5 %."""
    falling = min(1.0, max(0.0, (done - first) / (1 - first)))
    return LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * falling))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "flat-cosine": lambda done: _cosine(done, 0.5),
    "cosine": lambda done: _cosine(done, 0.0),
    "warm-cosine": lambda done: min(1.0, (done + WARM / 100) / WARM) * _cosine(done, WARM),
    "linear": lambda done: max(0.0, 1.0 - done),
    "step": lambda done: 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01,
}
"""done, 0 to 1, to a factor. flat-cosine: `lr` for half the run, then half a cosine down to 5 % of
it. cosine: from the start. warm-cosine: rising over the first twentieth. linear: down to 0. step: a
tenth from the half on, a hundredth from three quarters on."""


def learning_rate(schedule: str, lr: float, done: float) -> float:
    """The rate at this part of the run."""
    return lr * SCHEDULES[schedule](done)
