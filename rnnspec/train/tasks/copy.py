"""Copy memory: symbols are shown, then blanks, and after a sign they are to be said again in order
(Hochreiter & Schmidhuber 1997; in this form Arjovsky, Shah & Bengio 2016, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import tables, vocabulary
from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.tasks.shared import EVALUATION, Drawn, predictions

BLANK, GO = 0, 1  # ids; the symbols follow
MOST = 10_000  # symbols


class CopyProblem(Drawn):
    """`rows`: ids [N, items] of a file, drawn from at random; None: random symbols."""

    metric = Metric("recalled", "of the symbols", less=False)

    def __init__(self, config: TrainingConfig, names: list[str], rows: np.ndarray | None = None, digest: str = "made"):
        self.config, self.names, self.rows, self.digest = config, names, rows, digest
        self.items, self.memory = int(config.options["items"]), {"symbols": names}
        steps = config.length + 2 * self.items
        self.baseline = ("no memory", self.items * math.log(len(names)) / steps)
        self.test = self.held_out(EVALUATION)

    def about(self) -> dict[str, Any]:
        return {"symbols": len(self.names), "items": self.items, "delay": self.config.length, "file": self.config.data}

    def summary(self) -> str:
        return f"{self.items} of {len(self.names)} symbols, to be said again after {self.config.length} steps" + (
            f"; lines of {self.config.data}" if self.rows is not None else ""
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        config, symbols = self.config, len(self.names) + 2
        return SequenceModel(make_layer(config.embed), symbols, symbols=symbols, loss=Loss(), seed=config.seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        predicted, true, loss = predictions(model, [self.test])
        return {"recalled": float((predicted == true)[true != BLANK].mean()), "held_out_loss": loss}

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        items, delay = self.items, self.config.length
        if self.rows is None:
            shown = rng.integers(2, 2 + len(self.names), (items, count))
        else:
            shown = self.rows[rng.integers(len(self.rows), size=count)].T
        x = np.full((delay + 2 * items, count), BLANK)
        x[:items], x[items + delay - 1] = shown, GO
        target = np.full_like(x, BLANK)
        target[-items:] = shown
        return Batch(x, target)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> CopyProblem:
    items, count = int(config.options["items"]), int(config.options["symbols"])
    if items < 1 or not 2 <= count <= MOST:
        raise TrainError(f"items must be at least 1 and symbols 2 to {MOST}; got {items} and {count}")
    if config.data is None:
        return CopyProblem(config, [str(i) for i in range(count)])
    lines, digest = tables.read_lines(config.data)
    names = list(memory.get("symbols") or vocabulary.of_words([list(line) for _, line in lines], MOST, first=()).names)
    if len(names) < 2:
        raise TrainError(f"{config.data} has only one symbol: nothing to remember")
    for row, line in lines:
        if len(line) < items:
            raise TrainError(
                f"{config.data}, row {row}: {len(line)} characters; items={items} are to be copied from each line"
            )
    ids = vocabulary.Symbols(tuple(names))
    return CopyProblem(config, names, np.stack([ids.encode(line[:items]) + 2 for _, line in lines]), digest)


TASK = Task(
    name="copy",
    shape="n to n",
    about="say shown symbols again after a delay; scored by the part of them that is right",
    data="a UTF-8 text whose lines begin with what is to be copied (default: random symbols)",
    make=make,
    defaults={
        "hidden": 96,
        "embed": 16,
        "length": 20,
        "batch": 64,
        "steps": 1500,
        "lr": 1e-2,
        "clip": 1.0,
        "retain": 40,
    },
    fields=("embed", "length"),
    length="steps between what is shown and what is asked",
    vocabulary=lambda memory: vocabulary.Symbols(("<blank>", "<go>", *memory["symbols"])),
    options={"symbols": 8, "items": 5},
    of_made=("symbols",),
    about_options={"symbols": "how many different symbols (of random ones)", "items": "symbols to copy"},
)
