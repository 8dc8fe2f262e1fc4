"""What a task is to the loop, the checkpoint and the command: a `Task` is a row of the table, and a
`TrainingProblem` is a task with its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.train.batches import Batch, Cursor
from rnnspec.train.config import TrainingConfig
from rnnspec.train.model import MakeLayer, Model

OPTIONAL = ("embed", "length", "bidirectional")  # fields of TrainingConfig that not every task has a use for


@dataclass(frozen=True)
class Metric:
    """The score that decides: its name among the scores, its unit, and whether less is better."""

    name: str
    unit: str
    less: bool = True

    @property
    def direction(self) -> str:
        """Which scores are better: "lower" or "higher"."""
        return "lower" if self.less else "higher"

    @property
    def is_share(self) -> bool:
        """Whether it is a part of one, "of the strings right"."""
        return self.unit.startswith("of the ")

    def better(self, new: float, old: float) -> bool:
        """Whether `new` is the better score; a number always is beside NaN."""
        if math.isnan(new) or math.isnan(old):
            return not math.isnan(new)
        return new < old if self.less else new > old


@dataclass(frozen=True)
class Predictions:
    """Numbers [N] that a model gives for held-out data, beside what is true, NaN where that is not
    known. unit: of both; over_steps: whether they are those of one series, step after step, which
    `axis` then names."""

    true: np.ndarray
    predicted: np.ndarray
    unit: str
    over_steps: bool = False
    axis: str = ""

    __repr__ = brief_repr


@dataclass(frozen=True)
class Psychometric:
    """How often something is chosen at each strength of the evidence. curves: name -> strengths
    [N], in order, and shares [N]; strength, share: what the axes are called."""

    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
    strength: str
    share: str

    __repr__ = brief_repr


@dataclass(frozen=True)
class Trajectories:
    """Ways of a network's outputs in their first two principal components. paths: name -> [T, 2];
    explained: the share of the variance along each."""

    paths: Mapping[str, np.ndarray]
    explained: tuple[float, float]

    __repr__ = brief_repr

    @classmethod
    def of(cls, outputs: Mapping[str, np.ndarray]) -> Trajectories:
        """Of outputs by name, [T, F] each: their mean over all of them is the origin. A component
        that there is not is 0."""
        whole = np.concatenate([a.astype(np.float64) for a in outputs.values()])
        middle = whole.mean(axis=0)
        _, sizes, axes = np.linalg.svd(whole - middle, full_matrices=False)
        total = max(float(np.square(sizes).sum()), 1e-300)
        shares = [float(s**2 / total) for s in sizes[:2]] + [0.0, 0.0]
        turn = np.zeros((whole.shape[1], 2))
        turn[:, : len(axes[:2])] = axes[:2].T
        return cls({name: (a - middle) @ turn for name, a in outputs.items()}, (shares[0], shares[1]))


class TrainingProblem(Protocol):
    """A task with its data, for one configuration. Nothing in it changes while it is trained."""

    @property
    def loss_unit(self) -> str: ...
    @property
    def loss_scale(self) -> float:
        """From what the model gives (nats, squared units) to loss_unit."""

    @property
    def metric(self) -> Metric: ...
    @property
    def baseline(self) -> tuple[str, float] | None:
        """What can be had without reading the sequence, in loss_unit."""

    @property
    def digest(self) -> str:
        """The digest of the data."""

    @property
    def memory(self) -> Mapping[str, Any]:
        """JSON that a resumed run must be given back, such as a vocabulary."""

    @property
    def epoch_steps(self) -> int | None:
        """Steps that go once through the data; None where it is made."""

    def about(self) -> dict[str, Any]:
        """The data, for metrics.json."""

    def summary(self) -> str:
        """The data, in one line."""

    def model(self, make_layer: MakeLayer) -> Model: ...

    def next(self, cursor: Cursor) -> tuple[Batch, Cursor]:
        """The next batch and where to go on; the cursor {} is the start."""

    def score(self, model: Any, quick: bool) -> dict[str, float]:
        """The scores on held-out data: what `metric` names and other numbers. quick: a part of the
        data is enough."""

    def sample(self, model: Any, length: int, temperature: float) -> str:
        """Something to read that the model made; "" where there is nothing. `length` and
        `temperature` where they mean something."""

    def confusion(self, model: Any) -> tuple[list[str], np.ndarray] | None:
        """Names of the classes and counts [true, predicted], for tasks with classes."""

    def predictions(self, model: Any) -> Predictions | None:
        """Held-out numbers beside what is true, for tasks whose answers are numbers."""

    def psychometric(self, model: Any) -> Psychometric | None:
        """How choices depend on the strength of the evidence, for tasks that have one."""

    def trajectories(self, model: Any) -> Trajectories | None:
        """Ways of the layer's outputs on held-out data, where they are worth a look."""


@dataclass(frozen=True)
class Task:
    """One row of the table of tasks.

    make: the problem of a configuration, and of the memory of the run being resumed ({} for a new
    one). defaults: the fields of TrainingConfig that the task uses and sets otherwise than it does.
    fields: those of the optional ones (embed, length, bidirectional) that it has a use for.
    options: its own settings, by name, with defaults of their type. about_options: what each means.
    vocabulary: from a problem's memory, what turns its symbols into ids and back (`encode`,
    `decode`), or a pair of these, source and target; None where data are numbers. file, digest: set
    for a task that a file of the user's has: its path, and the SHA-256 of its text.
    """

    name: str
    shape: str  # "n to 1", ...
    about: str
    data: str  # what --data takes, and what is used without it
    make: Callable[[TrainingConfig, Mapping[str, Any]], TrainingProblem]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 0  # how often the data is gone through where no steps are given (0: a number of steps)
    fields: tuple[str, ...] = ()
    length: str = ""  # what --length means
    options: Mapping[str, Any] = field(default_factory=dict)
    of_made: tuple[str, ...] = ()  # fields and options that say how data is made: without a meaning for data of a file
    of_files: tuple[str, ...] = ()  # options without a meaning for made data
    writes: bool = False  # the sample is drawn at a temperature, of any length
    about_options: Mapping[str, str] = field(default_factory=dict)
    vocabulary: Callable[[Mapping[str, Any]], Any] = lambda memory: None
    file: str = ""
    digest: str = ""

    def config(self, cell: str, **changed: Any) -> TrainingConfig:
        """A configuration of this task: its defaults, with changed fields; of `options`, those that
        are given change."""
        options = dict(self.options) | changed.pop("options", {})
        given = {"cell": cell, "task": self.file or self.name, "task_digest": self.digest, "options": options}
        return TrainingConfig(**{**self.defaults, **given, **changed})
