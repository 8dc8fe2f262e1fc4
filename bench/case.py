"""One piece of work to be measured: a cell, its sizes, dtype and mode, and the arrays it works
on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

import rnnspec

Array = np.ndarray

CELLS = ("lstm", "gru", "rnn", "lstm_peephole", "gru_reset_before", "indrnn", "mgu")
IN_TORCH = ("lstm", "gru", "rnn")  # that torch.nn has
SHAPES = (
    (128, 1, 64),
    (128, 1, 256),
    (128, 16, 32),
    (128, 32, 128),
    (128, 32, 256),
    (64, 64, 512),
    (32, 64, 1024),
    (100, 7, 37),
    (100, 20, 100),
    (10000, 1, 32),
    (2000, 8, 64),
)  # T, B, D = H
MODES = ("inference", "training", "step")
CHECKED_STEPS = 3  # of mode step, from states of zero, after which values are compared


@dataclass(frozen=True)
class Case:
    """T steps of B rows, D features, H units. Mode: inference, training (forward and backward), or
    step (one step, T = 1)."""

    cell: str
    T: int
    B: int
    D: int
    H: int
    dtype: str = "float32"
    mode: str = "inference"

    def __str__(self) -> str:
        return f"{self.cell} {self.shape} {self.mode}"

    @property
    def shape(self) -> str:
        return f"T{self.T} B{self.B} H{self.H}" if self.D == self.H else f"T{self.T} B{self.B} D{self.D} H{self.H}"

    @property
    def flops(self) -> int:
        """Two for each multiply-add of a weight matrix, each of which acts once per step and row;
        three times that in training."""
        sizes = {"D": self.D, "H": self.H}
        matrices = sum(sizes[s[0]] * sizes[s[1]] for s in rnnspec.load(self.cell).parameters.values() if len(s) == 2)
        return 2 * self.T * self.B * matrices * (3 if self.mode == "training" else 1)

    def padded(self, lanes: int) -> Case:
        """The same work with D and H rounded up to multiples of the lanes."""
        return Case(**asdict(self) | {"D": -(-self.D // lanes) * lanes, "H": -(-self.H // lanes) * lanes})


@dataclass(frozen=True)
class Data:
    """The arrays of a case: parameters as the cell's `init` says, x and dy normal."""

    case: Case

    @cached_property
    def spec(self) -> Any:
        return rnnspec.load(self.case.cell)

    @cached_property
    def params(self) -> dict[str, Array]:
        return rnnspec.compile(self.spec, dtype=self.case.dtype).init(D=self.case.D, H=self.case.H, seed=0)

    @cached_property
    def x(self) -> Array:
        """[T, B, D]"""
        return self._normal(1, self.case.D)

    @cached_property
    def dy(self) -> Array:
        """[T, B, H], the gradient of the output."""
        return self._normal(2, self.case.H)

    @cached_property
    def dx(self) -> Array:
        """[T, B, D], a direction of the input."""
        return self._normal(3, self.case.D)

    def _normal(self, seed: int, width: int) -> Array:
        return np.random.default_rng(seed).standard_normal((self.case.T, self.case.B, width)).astype(self.case.dtype)


def cases(cells: list[str], shapes: list[tuple[int, int, int]], dtype: str, modes: list[str]) -> list[Case]:
    """Every combination; a single step has no T, so shapes that differ in nothing else give one."""
    every = [
        Case(cell, 1 if mode == "step" else T, B, D, D, dtype, mode)
        for cell in cells
        for mode in modes
        for T, B, D in shapes
    ]
    return list(dict.fromkeys(every))
