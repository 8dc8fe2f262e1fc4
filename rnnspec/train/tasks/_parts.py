"""What problems share: the parts of the protocol that most have no use for, and scores of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rnnspec.train import losses
from rnnspec.train.batches import Batch
from rnnspec.train.model import SequenceModel

EVALUATION = 256  # rows of an evaluation batch


class Plain:
    """Defaults of the Problem protocol: made data, nothing to remember, nothing to read."""

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


def predictions(model: SequenceModel, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray, float]:
    """Predicted and true classes [N] of every valid place of the batches, and the mean loss there in nats."""
    found: list[np.ndarray] = []
    wanted: list[np.ndarray] = []
    total = 0.0
    for batch in batches:
        logits, _ = model.outputs(batch.x, None, batch.lengths)
        valid = batch.target != losses.IGNORE
        if batch.lengths is not None and batch.target.ndim > 1:
            valid &= losses.length_mask(batch.lengths, *batch.target.shape)
        found.append(logits.argmax(axis=-1)[valid])
        wanted.append(batch.target[valid])
        total += float(losses.token_losses(logits[valid], batch.target[valid]).sum(dtype=np.float64))
    predicted, true = np.concatenate(found), np.concatenate(wanted)
    return predicted, true, total / max(1, len(true))


def text_of(grid: Iterable[Iterable[str]]) -> str:
    return "\n".join("  ".join(row) for row in grid)
