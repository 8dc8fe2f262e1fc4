"""Stochastic gradient descent, Adam and AdamW, as torch.optim has them.

An optimiser is a frozen row of numbers; what it remembers is a flat dict of arrays, made by `init`,
so that a checkpoint is a matter of saving that dict. `step` changes the parameters and the dict in
place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rnnspec.train import compiled as native
from rnnspec.train.errors import TrainError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class SGD:
    """v = momentum * v + g, p = p - lr * v; with `nesterov`, p = p - lr * (g + momentum * v).
    torch.optim.SGD, dampening 0."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _not_negative(lr=self.lr, momentum=self.momentum)
        if self.nesterov and not self.momentum:
            raise TrainError("nesterov has no effect without momentum")

    def init(self, params: Mapping[str, np.ndarray]) -> Arrays:
        _apart(params)
        state = {f"v.{name}": np.zeros_like(p) for name, p in params.items()} if self.momentum else {}
        return {"step": np.zeros((), np.int64), **state}

    def step(
        self, params: Mapping[str, np.ndarray], grads: Mapping[str, np.ndarray], state: Arrays, lr: float | None = None
    ) -> None:
        """One step, in place; `lr` overrides the rate for this step (schedules)."""
        rate = self.lr if lr is None else lr
        arrays = _arrays(params, grads, state, "v" if self.momentum else "")
        native.check(arrays)
        state["step"] += 1
        for p, move, *moments in arrays:
            for v in moments:
                v *= self.momentum
                v += move
                move = move + self.momentum * v if self.nesterov else v
            p -= rate * move


@dataclass(frozen=True)
class Adam:
    """Kingma & Ba 2015, algorithm 1, with epsilon outside the bias correction as in
    torch.optim.Adam:

        m = b1 m + (1 - b1) g
        v = b2 v + (1 - b2) g**2
        p = p - lr / (1 - b1**t) * m / (sqrt(v / (1 - b2**t)) + eps)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    threads: int = 1  # over the pieces of large arrays; the numbers don't depend on it

    def __post_init__(self) -> None:
        _not_negative(lr=self.lr, eps=self.eps)
        if not all(0 <= b < 1 for b in self.betas):
            raise TrainError(f"betas must be at least 0 and below 1; got {self.betas}")
        if self.threads < 1:
            raise TrainError(f"threads must be at least 1; got {self.threads}")

    def init(self, params: Mapping[str, np.ndarray]) -> Arrays:
        _apart(params)
        moments = {f"{moment}.{name}": np.zeros_like(p) for name, p in params.items() for moment in "mv"}
        return {"step": np.zeros((), np.int64), **moments}

    def step(
        self, params: Mapping[str, np.ndarray], grads: Mapping[str, np.ndarray], state: Arrays, lr: float | None = None
    ) -> None:
        """One step, in place; `lr` overrides the rate for this step (schedules)."""
        b1, b2 = self.betas
        arrays, t = _arrays(params, grads, state, "mv"), int(state["step"]) + 1
        lr = self.lr if lr is None else lr
        root = math.sqrt(1 - b2**t)
        rate, eps, keep = (
            lr * root / (1 - b1**t),
            self.eps * root,
            self._keep(lr),
        )  # the formula with both roots taken out of the quotient
        native.adam(arrays, (1 - b1, b2, 1 - b2, eps, rate, keep), self.threads)
        state["step"] += 1

    def _keep(self, rate: float) -> float:
        """What is left of a weight before the step."""
        return 1.0


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam after p = (1 - lr * decay) p: Loshchilov & Hutter 2019, algorithm 2, as
    torch.optim.AdamW has it."""

    decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        _not_negative(decay=self.decay)

    def _keep(self, rate: float) -> float:
        return 1 - rate * self.decay


def _arrays(
    params: Mapping[str, np.ndarray], grads: Mapping[str, np.ndarray], state: Arrays, moments: str
) -> list[tuple[np.ndarray, ...]]:
    """Every parameter with its gradient and its moments."""
    for name in params:
        if name not in grads:
            raise TrainError(f"the parameter {name} has no gradient")
        for moment in moments:
            if f"{moment}.{name}" not in state:
                raise TrainError(f"the parameter {name} has no moment {moment}; `init` of this optimiser makes them")
    return [(p, grads[name], *[state[f"{moment}.{name}"] for moment in moments]) for name, p in params.items()]


def _not_negative(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 <= value < math.inf:
            raise TrainError(f"{name} must be 0 or more; got {value}")


def _apart(params: Mapping[str, np.ndarray]) -> None:
    """TrainError if two parameters share memory: they would be moved twice in a step, and several
    threads would meet there."""
    for (name, a), (other, b) in combinations(params.items(), 2):
        if np.may_share_memory(a, b) and np.shares_memory(a, b):
            raise TrainError(
                f"the parameters {name} and {other} share memory: give them once, with the sum of their gradients"
            )


def make_optimiser(name: str, lr: float, decay: float = 0.0, momentum: float = 0.0, threads: int = 1) -> SGD | Adam:
    """The optimiser of a name, which takes nothing that it has no use for.

    name: "sgd", "adam" or "adamw". lr: the learning rate. decay: of weights, for "adamw" alone.
    momentum: for "sgd" alone. threads: that share a step of "adam" or "adamw". Raises TrainError.
    """
    unused = {"decay": decay if name != "adamw" else 0, "momentum": momentum if name != "sgd" else 0}
    for setting, value in unused.items():
        if value:
            raise TrainError(f"{setting} has no effect on {name}: {'adamw' if setting == 'decay' else 'sgd'} has it")
    match name:
        case "sgd":
            return SGD(lr, momentum=momentum)
        case "adam":
            return Adam(lr, threads=threads)
        case "adamw":
            return AdamW(lr, decay=decay, threads=threads)
    raise TrainError(f"unknown optimiser {name!r}: sgd, adam or adamw")
