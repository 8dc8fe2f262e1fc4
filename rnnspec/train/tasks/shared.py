"""What problems share: the parts of the protocol that most have no use for, and scores of
classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rnnspec.train import losses
from rnnspec.train.batches import Batch, Cursor, Shuffled, made
from rnnspec.train.config import TrainingConfig
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import Predictions, Psychometric, Trajectories

EVALUATION = 256  # rows of an evaluation batch


class Plain:
    """Defaults of the TrainingProblem protocol: made data, nothing to remember, nothing to read."""

    loss_unit = "nats"
    loss_scale = 1.0
    baseline: tuple[str, float] | None = None
    digest = ""
    memory: Mapping[str, Any] = {}

    @property
    def epoch_steps(self) -> int | None:
        return None

    def sample(self, model: Any, length: int, temperature: float) -> str:
        return ""

    def confusion(self, model: Any) -> tuple[list[str], np.ndarray] | None:
        return None

    def predictions(self, model: Any) -> Predictions | None:
        return None

    def psychometric(self, model: Any) -> Psychometric | None:
        return None

    def trajectories(self, model: Any) -> Trajectories | None:
        return None


class Stored(Plain):
    """Data that is gone through in rounds. `train`: numbers of the rows to train on; `order`: in
    which order, by their place in `train`."""

    train: np.ndarray
    order: Shuffled

    @property
    def epoch_steps(self) -> int:
        return len(self.order)

    def next(self, cursor: Cursor) -> tuple[Batch, Cursor]:
        places, after = self.order.next(cursor)
        return self.batch(self.train[places]), after

    def batch(self, rows: np.ndarray) -> Batch:
        """The rows of these numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no method batch(rows), which Stored calls")


class Drawn(Plain):
    """Data that is made, or drawn at random from a file, batch by batch."""

    config: TrainingConfig

    def next(self, cursor: Cursor) -> tuple[Batch, Cursor]:
        rng, after = made(cursor, self.config.seed)
        return self.draw(rng, self.config.batch), after

    def held_out(self, count: int) -> Batch:
        """The rows that are tested on: drawn as the others are, and the same for every run with
        this seed."""
        return self.draw(np.random.default_rng([self.config.seed, 9]), count)

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        raise NotImplementedError(f"{type(self).__name__} has no method draw(rng, count), which Drawn calls")


def predictions(model: SequenceModel, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray, float]:
    """Predicted and true classes [N] of every valid place of the batches, and the mean loss there
    in nats."""
    found: list[np.ndarray] = []
    wanted: list[np.ndarray] = []
    total = 0.0
    for batch in batches:
        logits, _ = model.outputs(batch.x, None, batch.lengths, batch.inputs)
        valid = batch.target != losses.IGNORE
        if batch.lengths is not None and batch.target.ndim > 1:
            valid &= losses.length_mask(batch.lengths, *batch.target.shape)
        found.append(logits.argmax(axis=-1)[valid])
        wanted.append(batch.target[valid])
        total += float(losses.token_losses(logits[valid], batch.target[valid]).sum(dtype=np.float64))
    predicted, true = np.concatenate(found), np.concatenate(wanted)
    return predicted, true, total / max(1, len(true))


def confusion(count: int, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """How often each of `count` classes was taken for each: [true, predicted]."""
    counts = np.zeros((count, count), np.int64)
    np.add.at(counts, (true, predicted), 1)
    return counts


def confusion_text(names: list[str], counts: np.ndarray) -> str:
    """A confusion matrix as text."""
    width = max(9, *map(len, names))
    head = ["true \\ predicted".ljust(width), *[name.rjust(width) for name in names]]
    rows = [[name.ljust(len(head[0])), *[str(n).rjust(width) for n in row]] for name, row in zip(names, counts)]
    return "\n".join("  ".join(row) for row in [head, *rows])
