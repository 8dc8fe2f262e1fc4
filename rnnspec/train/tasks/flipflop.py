"""The flip-flop (Sussillo & Barak 2013, three bits): each input has a pulse of +1 or -1 now and
then, and each output holds the sign of the last one; 0 before the first. Saying 0 always has an
error of nearly 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel, joined
from rnnspec.train.problem import MakeLayer, Metric, Predictions, Task, Trajectories
from rnnspec.train.tasks.shared import Drawn

TESTED = 200
DRAWN = 3  # sequences whose way is drawn


class FlipFlopProblem(Drawn):
    """Pulses [T, B, bits] at a chance for each bit and step."""

    loss_unit = "mean squared error"
    metric = Metric("error", "mean squared error")

    def __init__(self, config: TrainingConfig):
        self.config, self.bits, self.chance = config, int(config.options["bits"]), float(config.options["pulses"])
        if self.bits < 1 or not 0 < self.chance <= 1 or config.length < 1:
            raise TrainError(
                f"bits and --length must be at least 1, and pulses above 0 and at most 1; got {self.bits},"
                f" {config.length} and {self.chance:g}"
            )
        self.test = self.held_out(TESTED)
        self.baseline = ("always 0", float(np.mean(self.test.target**2)))

    def about(self) -> dict[str, Any]:
        return {"steps": self.config.length, "bits": self.bits, "pulses": self.chance}

    def summary(self) -> str:
        return (
            f"{self.bits} bits over {self.config.length} steps, a pulse at {100 * self.chance:g} % of them;"
            f" {TESTED} held-out sequences; an error of {self.test.target.var():.3f} if it says 0"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        loss = Loss("squared_error")
        return SequenceModel(make_layer(self.bits), self.bits, features=self.bits, loss=loss, seed=self.config.seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        outputs = model.outputs(self.test.x)[0].astype(np.float64)
        held = self.test.target != 0
        right = (np.sign(outputs) == self.test.target)[held]
        return {
            "error": float(np.mean((outputs - self.test.target) ** 2)),
            "right": float(right.mean()) if right.size else float("nan"),
        }

    def predictions(self, model: SequenceModel) -> Predictions:
        """Of the first bit of the first held-out sequence, step after step."""
        outputs = model.outputs(self.test.x[:, :1])[0]
        return Predictions(self.test.target[:, 0, 0], outputs[:, 0, 0], "first bit", True, "step of a sequence")

    def trajectories(self, model: SequenceModel) -> Trajectories:
        """The way of some held-out sequences."""
        outputs = joined(model.layer.infer(model.features(self.test.x[:, :DRAWN]))[0])
        return Trajectories.of({f"sequence {n + 1}": outputs[:, n] for n in range(outputs.shape[1])})

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        shape = (self.config.length, count, self.bits)
        pulses = np.where(rng.random(shape) < self.chance, rng.choice([-1.0, 1.0], shape), 0.0).astype(np.float32)
        return Batch(pulses, held(pulses))


def held(pulses: np.ndarray) -> np.ndarray:
    """The last pulse that is not 0 of each bit up to each step, 0 before the first: [T, B,
    bits]."""
    steps = np.arange(len(pulses)).reshape(-1, 1, 1)
    last = np.maximum.accumulate(np.where(pulses != 0, steps, 0), axis=0)
    return np.take_along_axis(pulses, last, axis=0)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> FlipFlopProblem:
    return FlipFlopProblem(config)


TASK = Task(
    name="flipflop",
    shape="n to n",
    about="hold the sign of the last pulse of each of three inputs; scored by the mean squared error, 1 for saying 0",
    data="none: it is made",
    make=make,
    defaults={"hidden": 64, "length": 60, "batch": 32, "steps": 1500, "lr": 5e-3, "clip": 1.0},
    fields=("length",),
    length="steps of a sequence",
    options={"bits": 3, "pulses": 0.1},
    about_options={"bits": "inputs and outputs", "pulses": "chance of a pulse, for each bit and step"},
)
