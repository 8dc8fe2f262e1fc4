"""Context-dependent integration (Mante et al. 2013): motion and colour have a signed coherence
each, and a cue says which of the two decides. Streams are as in `perceptual`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train.config import TrainingConfig
from rnnspec.train.problem import Task
from rnnspec.train.tasks.trials import Periods, TrialBatch, TrialProblem, answer_of, signed


class ContextProblem(TrialProblem):
    channels = ("fixation", "motion right", "motion left", "colour right", "colour left", "motion cue", "colour cue")
    choices = ("right", "left")
    groups = ("motion decides", "colour decides")
    strength_unit = "signed coherence of what decides"

    def make(self, rng: np.random.Generator, count: int) -> TrialBatch:
        both, context = np.stack([signed(rng, count), signed(rng, count)]), rng.integers(0, 2, count)
        means = np.zeros((self.periods.steps, count, 4))
        c = both[[0, 0, 1, 1]] * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
        means[self.periods.shown] = ((1 + c) / 2).T
        strength = both[context, np.arange(count)]
        batch = self.trial(rng, means, answer_of(strength, rng))
        cues = np.zeros((self.periods.steps, count, 2), np.float32)
        cues[: -self.periods.decision, np.arange(count), context] = 1
        x = np.concatenate([batch.x, cues], axis=-1)
        return TrialBatch(type(batch)(x, batch.target), strength, context, strength != 0)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> ContextProblem:
    return ContextProblem(config, Periods(2, config.length, int(config.options["delay"]), 3))


TASK = Task(
    name="context",
    shape="n to n",
    about="decide by motion or by colour, as a cue says; scored by the share of trials right, 50 % by chance",
    data="none: trials are drawn",
    make=make,
    defaults={"hidden": 64, "length": 20, "batch": 64, "steps": 1500, "lr": 1e-2, "clip": 1.0},
    fields=("length",),
    length="steps of the stimulus",
    options={"delay": 0, "noise": 0.3},
    about_options={"delay": "steps between stimulus and decision", "noise": "deviation of each stream at each step"},
)
