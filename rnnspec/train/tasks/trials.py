"""What tasks of trials share: a fixation, a stimulus, a delay, a decision. At every step one of a
few actions is asked for: fixate until the decision, and the choice from there.

In: how a trial's stimulus is made. Out: a problem over whole trials of one length. The score is the
share of the trials whose last action is right, of those that have a right answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel, joined
from rnnspec.train.problem import MakeLayer, Metric, Psychometric, Trajectories
from rnnspec.train.tasks import shared

TESTED = 1000
FIXATE = "fixate"
COHERENCES = (0.0, 0.064, 0.128, 0.256, 0.512)
"""Shares of the evidence, as in the monkeys' task (Britten et al. 1992, Roitman & Shadlen 2002)."""


@dataclass(frozen=True)
class Periods:
    """Steps of a trial, one after the other: fixation, stimulus, delay, decision."""

    fixation: int
    stimulus: int
    delay: int
    decision: int

    @property
    def steps(self) -> int:
        return self.fixation + self.stimulus + self.delay + self.decision

    @property
    def shown(self) -> slice:
        return slice(self.fixation, self.fixation + self.stimulus)

    @property
    def answer(self) -> slice:
        return slice(self.steps - self.decision, self.steps)


@dataclass(frozen=True)
class TrialBatch:
    """x [T, B, D] and target [T, B] of `batch`; of each trial [B]: signed strength of what decides,
    the group that it is drawn with, and whether it has a right answer."""

    batch: Batch
    strength: np.ndarray
    group: np.ndarray
    decided: np.ndarray

    __repr__ = brief_repr


class TrialProblem(shared.Drawn):
    """Trials. channels: what the inputs are, the first of them the fixation light (1 until the
    decision); choices: the actions beside fixating; groups: names of the groups of trials."""

    metric = Metric("accuracy", "of the trials right", less=False)
    channels: tuple[str, ...]
    choices: tuple[str, ...]
    groups: tuple[str, ...] = ("all trials",)
    strength_unit = ""

    def __init__(self, config: TrainingConfig, periods: Periods):
        self.config, self.periods = config, periods
        self.noise = float(config.options["noise"])
        if min(periods.stimulus, periods.decision) < 1 or periods.delay < 0 or not self.noise >= 0:
            raise TrainError(
                "a trial needs a stimulus and a decision of at least 1 step each, a delay and a noise of at least 0;"
                f" got {periods.stimulus}, {periods.decision}, {periods.delay} and {self.noise:g}"
            )
        self.trials = self.make(np.random.default_rng([config.seed, 9]), TESTED)
        self.test = self.trials.batch
        answer = periods.decision / periods.steps
        self.baseline = ("a choice by chance", float(np.log(len(self.choices)) * answer))
        self.memory: Mapping[str, Any] = {"classes": [FIXATE, *self.choices]}

    def make(self, rng: np.random.Generator, count: int) -> TrialBatch:
        raise NotImplementedError(f"{type(self).__name__} has no method make(rng, count), which TrialProblem calls")

    def trial(self, rng: np.random.Generator, means: np.ndarray, choice: np.ndarray) -> Batch:
        """Noise around means [T, B, D - 1] of the channels after the first, and the actions: choice
        [B] from 0, in the decision."""
        steps, count, width = means.shape
        x = np.empty((steps, count, width + 1), np.float32)
        noise = rng.standard_normal(means.shape)
        x[..., 1:] = means + self.noise * noise * (means != 0)  # where something is shown
        x[..., 0] = 1
        x[self.periods.answer, :, 0] = 0
        target = np.zeros((steps, count), np.int64)
        target[self.periods.answer] = choice + 1
        return Batch(x, target)

    @property
    def chance(self) -> float:
        """The score of a choice by chance."""
        return 1 / len(self.choices)

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        return self.make(rng, count).batch

    def about(self) -> dict[str, Any]:
        return {"channels": list(self.channels), "actions": self.memory["classes"], **vars(self.periods)}

    def summary(self) -> str:
        p = self.periods
        return (
            f"trials of {p.steps} steps ({p.fixation} of fixation, {p.stimulus} of stimulus, {p.delay} of delay,"
            f" {p.decision} of decision); {TESTED:,} held out; {100 * self.chance:.0f} % right by chance"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        width, classes = len(self.channels), 1 + len(self.choices)
        return SequenceModel(make_layer(width), classes, features=width, loss=Loss(), seed=self.config.seed)

    def chosen(self, model: SequenceModel) -> np.ndarray:
        """The last action of each held-out trial [N], as a class."""
        return np.asarray(model.outputs(self.test.x)[0][-1].argmax(axis=-1))

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        logits = model.outputs(self.test.x)[0]
        right = logits[-1].argmax(axis=-1) == self.test.target[-1]
        fixates = logits[: -self.periods.decision].argmax(axis=-1) == 0
        loss, _ = Loss()(logits, self.test.target)
        return {
            "accuracy": float(right[self.trials.decided].mean()),
            "fixates": float(fixates.mean()),
            "held_out_loss": loss,
        }

    def confusion(self, model: SequenceModel) -> tuple[list[str], np.ndarray]:
        names = [FIXATE, *self.choices]
        return names, shared.confusion(len(names), self.chosen(model), self.test.target[-1])

    def psychometric(self, model: SequenceModel) -> Psychometric | None:
        """The share of first choices at each signed strength, of each group of trials."""
        if not self.strength_unit:
            return None
        chosen, curves = self.chosen(model), {}
        for number, name in enumerate(self.groups):
            own = self.trials.group == number
            strengths = np.unique(self.trials.strength[own])
            shares = [np.mean(chosen[own & (self.trials.strength == s)] == 1) for s in strengths]
            curves[name] = (strengths, np.array(shares))
        return Psychometric(curves, self.strength_unit, f"share of '{self.choices[0]}'")

    def trajectories(self, model: SequenceModel) -> Trajectories:
        """The mean outputs of the trials of each group and choice asked for, step after step."""
        paths = {
            f"{self.choices[c]}{', ' * (len(self.groups) > 1)}{name if len(self.groups) > 1 else ''}": own
            for number, name in enumerate(self.groups)
            for c in range(len(self.choices))
            if (own := (self.trials.group == number) & (self.test.target[-1] == c + 1)).any()
        }
        outputs = joined(model.layer.infer(model.features(self.test.x))[0])
        return Trajectories.of({name: outputs[:, own].mean(axis=1) for name, own in paths.items()})


def signed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Signed coherences [count], each of COHERENCES in both directions alike."""
    return rng.choice(COHERENCES, count) * rng.choice([-1.0, 1.0], count)


def answer_of(strength: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """0 where the strength is above 0, 1 where it is below, a coin where it is 0."""
    return np.where(strength == 0, rng.integers(0, 2, len(strength)), strength < 0).astype(np.int64)
