"""The adding problem: of T random numbers two are marked, and their sum is to be given at the end
(Hochreiter & Schmidhuber 1997, section 5.4; numbers from [0, 1] and one mark in each half as in Le,
Jaitly & Hinton 2015). Saying 1 always has an error of 1/6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import tables
from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Predictions, Task
from rnnspec.train.tasks.shared import Drawn

TESTED = 1000
LARGEST = 1e18  # of the numbers of a file: sums of two are squared in float32


class AddingProblem(Drawn):
    """`values`: [N, T] of a file, whose rows are drawn at random and marked; None: uniform
    numbers."""

    loss_unit = "mean squared error"
    metric = Metric("error", "mean squared error")

    def __init__(self, config: TrainingConfig, values: np.ndarray | None = None, digest: str = "made"):
        self.config, self.values, self.digest = config, values, digest
        spread = 1 / 12 if values is None else float(values.var())
        self.baseline = ("always the mean", 2 * spread)
        self.test = self.held_out(TESTED)

    def about(self) -> dict[str, Any]:
        return {"steps": self.config.length if self.values is None else self.values.shape[1], "file": self.config.data}

    def summary(self) -> str:
        where = "" if self.values is None else f" of {self.config.data}"
        return f"two of {self.about()['steps']} numbers{where} to be added; {TESTED:,} held-out sequences"

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        return SequenceModel(make_layer(2), 1, features=2, loss=Loss("squared_error", "last"), seed=self.config.seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        outputs, _ = model.outputs(self.test.x)
        return {"error": float(np.mean(np.square(np.subtract(outputs, self.test.target, dtype=np.float64))))}

    def predictions(self, model: SequenceModel) -> Predictions:
        outputs, _ = model.outputs(self.test.x)
        return Predictions(self.test.target[:, 0], outputs[:, 0], "sum")

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        if self.values is None:
            values = rng.random((self.config.length, count), dtype=np.float32)
        else:
            values = self.values[rng.integers(len(self.values), size=count)].T.astype(np.float32)
        steps, rows = len(values), np.arange(count)
        marks = np.zeros_like(values)
        marks[rng.integers(0, steps // 2, count), rows] = 1
        marks[rng.integers(steps // 2, steps, count), rows] = 1
        return Batch(np.stack([values, marks], axis=-1), (values * marks).sum(axis=0)[:, None])


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> AddingProblem:
    if config.data is None:
        if config.length < 2:
            raise TrainError(f"--length must be at least 2, for two numbers to be marked; got {config.length}")
        return AddingProblem(config)
    values, digest = tables.read_npy(config.data)
    if values.ndim != 2 or values.shape[1] < 2:
        raise TrainError(
            f"{config.data} has shape {list(values.shape)}; [N, T] with T of at least 2 is wanted, a sequence a row"
        )
    for place in np.argwhere(np.abs(values) > LARGEST)[:1]:
        row, column = map(int, place)
        found = f"row {row} (counted from 0): {values[row, column]:g} at [{row}, {column}]"
        raise TrainError(f"{config.data}, {found}; at most {LARGEST:g} can be added in float32")
    return AddingProblem(config, values, digest)


TASK = Task(
    name="adding",
    shape="n to 1",
    about="the sum of two marked numbers among many; scored by the mean squared error",
    data="a .npy array [N, T] of numbers, a sequence a row (default: uniform from 0 to 1)",
    make=make,
    defaults={"hidden": 64, "length": 200, "batch": 32, "steps": 2500, "lr": 3e-3, "clip": 1.0, "retain": 200},
    fields=("length",),
    of_made=("length",),
    length="numbers in a sequence (of made ones)",
)
