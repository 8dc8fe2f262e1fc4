"""Perceptual decision making: which of two noisy streams is the stronger one (Britten et al. 1992;
for networks Song, Yang & Wang 2016). Streams have the means (1 + c) / 2 and (1 - c) / 2, c the
signed coherence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train.config import TrainingConfig
from rnnspec.train.problem import Task
from rnnspec.train.tasks.trials import Periods, TrialBatch, TrialProblem, answer_of, signed


class PerceptualProblem(TrialProblem):
    channels = ("fixation", "right", "left")
    choices = ("right", "left")
    strength_unit = "signed coherence"

    def make(self, rng: np.random.Generator, count: int) -> TrialBatch:
        c = signed(rng, count)
        means = np.zeros((self.periods.steps, count, 2))
        means[self.periods.shown] = np.stack([(1 + c) / 2, (1 - c) / 2], axis=-1)
        choice = answer_of(c, rng)
        return TrialBatch(self.trial(rng, means, choice), c, np.zeros(count, np.int64), c != 0)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> PerceptualProblem:
    return PerceptualProblem(config, Periods(2, config.length, int(config.options["delay"]), 3))


TASK = Task(
    name="perceptual",
    shape="n to n",
    about="which of two noisy streams is stronger; scored by the share of trials right, 50 % by chance",
    data="none: trials are drawn",
    make=make,
    defaults={"hidden": 64, "length": 20, "batch": 64, "steps": 800, "lr": 1e-2, "clip": 1.0},
    fields=("length",),
    length="steps of the stimulus",
    options={"delay": 0, "noise": 0.3},
    about_options={"delay": "steps between stimulus and decision", "noise": "deviation of each stream at each step"},
)
