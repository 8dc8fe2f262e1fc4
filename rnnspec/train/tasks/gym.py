"""Tasks of the package neurogym (Molano-Mazon et al. 2022), `--task neurogym:NAME`: its trials, one
after the other, and at every step the action that its environment says is right.

The package is imported when a problem is made, not before; a name is one of its own environments,
and never a module to be imported (gymnasium would take `module:NAME` for one).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np

from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.tasks import shared

PREFIX = "neurogym:"
TESTED = 200
TRIED = 20  # sequences that are drawn twice, to see that they follow from their seed
MISSING = (
    "the tasks of neurogym need that package, which is not installed here: pip install neurogym. Without it there are"
    " perceptual, context and match"
)


class GymProblem(shared.Drawn):
    """Sequences of `config.length` steps, of as many trials as that takes; the last is cut."""

    metric = Metric("accuracy", "of the decisions right", less=False)

    def __init__(self, config: TrainingConfig, env: Any, name: str):
        self.config, self.env, self.name = config, env, name
        self.width = int(np.prod(env.observation_space.shape))
        self.actions = int(env.action_space.n)
        if config.length < 1:
            raise TrainError(f"--length must be at least 1; got {config.length}")
        self._check_trials()
        self.test = self.held_out(TESTED)
        asked = self.test.target[self.test.target != 0]
        counts = np.bincount(asked, minlength=self.actions)
        self.chance = float(counts.max() / max(1, counts.sum()))

    def _check_trials(self) -> None:
        """TrainError for an environment without right actions at every step, or whose trials do not
        follow from a seed: a run of it could not be resumed."""
        try:
            first, again = (self.draw(np.random.default_rng(0), TRIED) for _ in range(2))
        except (AttributeError, TypeError, ValueError) as error:
            raise TrainError(f"{self.name} of neurogym gives no trials that can be learned from: {error}") from error
        if first.target.min() < 0 or first.target.max() >= self.actions:
            raise TrainError(f"{self.name} of neurogym asks for actions beyond its {self.actions}: take another one")
        if (first.x != again.x).any() or (first.target != again.target).any():
            raise TrainError(
                f"{self.name} of neurogym makes other trials of the same seed, so that a run could not be resumed: take"
                " another one"
            )

    def about(self) -> dict[str, Any]:
        return {"environment": self.name, "inputs": self.width, "actions": self.actions, "most_frequent": self.chance}

    def summary(self) -> str:
        return (
            f"{self.name} of neurogym: {self.width} inputs, {self.actions} actions, {self.config.length} steps a"
            f" sequence, {TESTED} of them held out; {100 * self.chance:.0f} % right with the most frequent action"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        layer = make_layer(self.width)
        return SequenceModel(layer, self.actions, features=self.width, loss=Loss(), seed=self.config.seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        logits, target = model.outputs(self.test.x)[0], self.test.target
        right, asked = logits.argmax(axis=-1) == target, target != 0
        loss, _ = Loss()(logits, target)
        shares = {"accuracy": right[asked], "fixates": right[~asked]}
        means = {name: float(part.mean()) if part.size else float("nan") for name, part in shares.items()}
        return {**means, "held_out_loss": loss}

    def confusion(self, model: SequenceModel) -> tuple[list[str], np.ndarray]:
        found, target = model.outputs(self.test.x)[0].argmax(axis=-1), self.test.target
        names = [f"action {n}" for n in range(self.actions)]
        return names, shared.confusion(self.actions, found.reshape(-1), target.reshape(-1))

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        """A row follows from a number of `rng` alone: the environment is seeded with it."""
        steps = self.config.length
        x, target = np.zeros((steps, count, self.width), np.float32), np.zeros((steps, count), np.int64)
        for row, seed in enumerate(rng.integers(0, 2**31 - 1, count)):
            self.env.seed(int(seed))
            self.env.reset(seed=int(seed))
            begin = 0
            while begin < steps:
                self.env.new_trial()
                shown, right = np.asarray(self.env.ob), np.asarray(self.env.gt)
                own = min(len(shown), steps - begin)
                if own < 1:
                    raise TrainError(f"{self.name} of neurogym made a trial without a step")
                x[begin : begin + own, row] = shown[:own].reshape(own, -1)
                target[begin : begin + own, row] = right[:own]
                begin += own
        return Batch(x, target)


def gym_task(name: str) -> Task:
    """The row of the table for `neurogym:NAME`; nothing of neurogym is imported. TrainError for
    what can't be the name of an environment."""
    environment = name.removeprefix(PREFIX)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", environment):
        raise TrainError(
            f"{name[:60]!r} names no environment: write neurogym:NAME, as in neurogym:PerceptualDecisionMaking-v0"
        )

    def make(config: TrainingConfig, memory: Mapping[str, Any]) -> GymProblem:
        dt = config.options["dt"]
        return GymProblem(config, environment_of(environment, int(dt)), environment)

    return Task(
        name=name,
        shape="n to n",
        about=f"the environment {environment} of the package neurogym; scored by the share of actions right",
        data="none: trials are drawn by neurogym",
        make=make,
        defaults={"hidden": 64, "length": 100, "batch": 16, "steps": 1000, "lr": 5e-3, "clip": 1.0},
        fields=("length",),
        length="steps of a sequence, of trial after trial",
        options={"dt": 100},
        about_options={"dt": "milliseconds of a step"},
    )


def environment_of(name: str, dt: int) -> Any:
    """An environment of neurogym. TrainError where the package is missing, for a name that it has
    not, and for one whose trials are not inputs and actions to be chosen from."""
    try:
        registration = import_module("neurogym.envs.registration")
    except ImportError as error:
        raise TrainError(MISSING) from error
    known = [str(found) for found in registration.all_envs()]
    full = name if name in known else f"{name}-v0"
    if full not in known:
        near = get_close_matches(name, known, 1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise TrainError(f"neurogym has no environment {name!r}{hint} It has {len(known)}: {', '.join(known[:8])}, ...")
    try:
        env = registration.make(full, dt=dt).unwrapped
    except (TypeError, ValueError, AttributeError) as error:
        raise TrainError(f"{full} of neurogym can't be made with dt = {dt}: {error}") from error
    if not hasattr(env.action_space, "n") or not hasattr(env, "new_trial") or env.observation_space.shape is None:
        raise TrainError(f"{full} of neurogym has no trials of inputs and actions to be chosen from: take another one")
    return env
