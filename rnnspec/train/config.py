"""What a run was asked to do, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainingConfig:
    """`steps` or `seconds` may be None, not both; whichever is reached first ends the run.

    options: the task's own settings.
    layers, dropout (between them), bidirectional: of the recurrent layer.
    clip: of the global norm, clip_value: of each element before that (inf: none).
    retain: steps that gates which keep a state should keep it for at the start (0: as the cell's
        `init` says).
    patience: snapshots without an improvement after which the run ends with its best weights (0:
        never).
    every: steps between snapshots.
    equations, digest, cell_text: of the cell; the text is a file of it.
    task, task_digest: a task's name and "", or the path of a file with one and its SHA-256.
    """

    cell: str
    task: str = "text"
    choices: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    hidden: int = 256
    embed: int = 64
    layers: int = 1
    dropout: float = 0.0
    bidirectional: bool = False
    steps: int | None = 600
    seconds: float | None = None
    batch: int = 32
    length: int = 64
    optimiser: str = "adam"
    lr: float = 4e-3
    momentum: float = 0.0
    decay: float = 0.0
    schedule: str = "flat-cosine"
    clip: float = 5.0
    clip_value: float = math.inf
    retain: int = 0
    patience: int = 0
    every: int = 250
    seed: int = 0
    equations: tuple[str, ...] = ()
    digest: str = ""
    cell_text: str = ""
    task_digest: str = ""

    @property
    def task_name(self) -> str:
        """The task in a word, good for a file's name: of one from a file that file's."""
        return Path(self.task).stem if self.task_digest else self.task.replace(":", "-")
