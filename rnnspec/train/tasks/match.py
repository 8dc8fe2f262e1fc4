"""Delayed match to sample (Miller, Erickson & Desimone 1996): a sample, a delay, a test; is the
test the sample again? Half of the trials match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.problem import Task
from rnnspec.train.tasks.trials import Periods, TrialBatch, TrialProblem

SHOWN, DECIDED = 3, 3  # steps of a stimulus, and of the decision


class MatchProblem(TrialProblem):
    choices = ("match", "no match")

    def __init__(self, config: TrainingConfig, periods: Periods):
        self.stimuli = int(config.options["stimuli"])
        if self.stimuli < 2:
            raise TrainError(f"stimuli must be at least 2, for two that differ; got {self.stimuli}")
        self.channels = ("fixation", *(f"stimulus {n}" for n in range(1, self.stimuli + 1)))
        super().__init__(config, periods)

    def make(self, rng: np.random.Generator, count: int) -> TrialBatch:
        sample, match = rng.integers(0, self.stimuli, count), rng.integers(0, 2, count) == 1
        other = (sample + rng.integers(1, self.stimuli, count)) % self.stimuli
        tested, rows = np.where(match, sample, other), np.arange(count)
        means = np.zeros((self.periods.steps, count, self.stimuli))
        start = self.periods.fixation
        means[start : start + SHOWN, rows, sample] = 1
        end = self.periods.fixation + self.periods.stimulus
        means[end - SHOWN : end, rows, tested] = 1
        batch = self.trial(rng, means, np.where(match, 0, 1))
        return TrialBatch(batch, np.zeros(count), np.zeros(count, np.int64), np.ones(count, bool))


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> MatchProblem:
    if config.length < 0:
        raise TrainError(f"--length must be at least 0, the steps between sample and test; got {config.length}")
    return MatchProblem(config, Periods(2, 2 * SHOWN + config.length, 0, DECIDED))


TASK = Task(
    name="match",
    shape="n to n",
    about="is the second stimulus the first one again; scored by the share of trials right, 50 % by chance",
    data="none: trials are drawn",
    make=make,
    defaults={"hidden": 64, "length": 15, "batch": 64, "steps": 2000, "lr": 1e-2, "clip": 1.0, "retain": 30},
    fields=("length",),
    length="steps between sample and test",
    options={"stimuli": 4, "noise": 0.2},
    about_options={"stimuli": "how many different ones", "noise": "deviation of a stimulus at each step"},
)
