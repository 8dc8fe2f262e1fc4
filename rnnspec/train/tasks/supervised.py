"""Sequences of one's own: a class or numbers for each sequence, or for each of its steps, from an
`.npz` file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.language.load import load
from rnnspec.train.batches import Batch, Shuffled, in_order, split
from rnnspec.train.config import TrainingConfig
from rnnspec.train.data import unigram_entropy
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Predictions, Task
from rnnspec.train.sequences import AUTO, HOW, PLACES, TARGETS, Sequences, read_sequences
from rnnspec.train.sizes import data_input
from rnnspec.train.tasks.shared import EVALUATION, Stored, confusion, confusion_text, predictions

HELD_OUT = 0.2
MOST_NAMES, MOST_WRITTEN = 40, 12  # classes of a confusion matrix that is drawn, and of one that is printed
DRAWN = 2000  # predicted numbers that are drawn beside what is true
SMALL, LARGE = 0.03, 30  # means and deviations of x beyond these are told


class SupervisedProblem(Stored):
    """Sequences and their targets. main: the input of the cell that x goes into."""

    def __init__(self, config: TrainingConfig, data: Sequences, main: str):
        self.config, self.data, self.main, self.digest = config, data, main, data.digest
        self.train, self.test = self._split()
        self.memory = {"shape": data.shape} | ({} if data.classes is None else {"classes": list(data.classes)})
        self.memory |= {"inputs": list(data.inputs)} if data.inputs else {}
        self.order = Shuffled(data.lengths[self.train], config.batch, config.seed)
        used, tested = (self._counted(rows) for rows in (self.train, self.test))
        if not len(used) or not len(tested):
            raise TrainError(
                f"{config.data}: no target counts in the rows {'to train on' if not len(used) else 'held out'}:"
                " mask leaves all of them out"
            )
        if data.classes is None:
            self.loss_unit, self.metric = "mean squared error", Metric("error", "root mean squared error")
            mean = used.mean(axis=0, dtype=np.float64)
            self.baseline = ("always the mean", float(np.mean((tested - mean) ** 2)))
        else:
            unit = "of the steps right" if data.per_step else "of the sequences right"
            self.metric = Metric("accuracy", unit, less=False)
            self.share = float(np.bincount(tested).max() / len(tested))
            self.baseline = ("shares of the classes", unigram_entropy(tested) * math.log(2))

    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        config, held_out = self.config, self.data.held_out
        part = float(config.options["held_out"])
        if held_out is None:
            return split(len(self.data.x), part, config.seed, config.data)
        if part != HELD_OUT:
            raise TrainError(f"{config.data} says which rows are held out, and so does --set held_out: one of them")
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def _counted(self, rows: np.ndarray) -> np.ndarray:
        """The targets of these rows that count: class numbers [M], or numbers [M, K]."""
        y = self.data.y[rows]
        return y[~np.isnan(y[..., 0])] if self.data.classes is None else y[y >= 0]

    def about(self) -> dict[str, Any]:
        data, (mean, deviation) = self.data, self._scale()
        counts = {"train": len(self.train), "held_out": len(self.test)}
        sizes = {"steps": int(data.lengths.max()), "features": data.x.shape[2]}
        target = {"target": "numbers" if data.classes is None else "classes", "y": f"{data.dtype} {data.shape}"}
        classes = {} if data.classes is None else {"classes": list(data.classes), "largest_class": self.share}
        inputs = {"inputs": list(data.inputs), "x_mean": mean, "x_deviation": deviation}
        return {"file": self.config.data, **counts, **sizes, **target, **classes, **inputs}

    def _scale(self) -> tuple[float, float]:
        """Mean and deviation of x in the rows to train on."""
        inside = np.arange(self.data.x.shape[1]) < self.data.lengths[self.train, None]
        values = self.data.x[self.train][inside]
        return float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))

    def summary(self) -> str:
        data, (mean, deviation) = self.data, self._scale()
        each = "a step" if data.per_step else "a sequence"
        y = f"y is {data.dtype} {data.shape}: "
        if data.classes is None:
            y += f"numbers, {data.y.shape[-1]} {each}"
        else:
            y += f"{len(data.classes)} classes, one {each} (the largest {self.share:.1%})"
        beside = f"; {' and '.join(data.inputs)} beside x" if data.inputs else ""
        far = not SMALL <= deviation <= LARGE or abs(mean) > LARGE
        scale = "; cells learn best from numbers around 1: (x - x.mean()) / x.std()" if far else ""
        scale = f"; x has a mean of {mean:.3g} and a deviation of {deviation:.3g}{scale}" if far else ""
        return (
            f"{Path(self.config.data or '').name}: {len(self.train):,} sequences to train on, {len(self.test):,} held"
            f" out, up to {data.lengths.max():,} steps of {data.x.shape[2]:,}; {y}{beside}{scale}"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        data, width = self.data, self.data.x.shape[2]
        kind = "squared_error" if data.classes is None else "cross_entropy"
        return SequenceModel(
            make_layer(width),
            data.y.shape[-1] if data.classes is None else len(data.classes),
            features=width,
            loss=Loss(kind, "mean" if data.per_step else "last"),
            seed=self.config.seed,
            two_ways=self.config.bidirectional,
            main=self.main,
        )

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        """Classes: accuracy, and the loss. Numbers: the root mean squared error, and the part of
        the variance that is explained, 1 - error**2 / variance."""
        if self.data.classes is not None:
            predicted, true, loss = predictions(model, self.batches())
            return {"accuracy": float((predicted == true).mean()), "held_out_loss": loss}
        found = [self.numbers(model, batch) for batch in self.batches()]
        predicted, true = (np.concatenate(part) for part in zip(*found, strict=True))
        error, spread = np.mean((predicted - true) ** 2), np.mean((true - true.mean(axis=0)) ** 2)
        return {"error": float(error**0.5), "r2": float(1 - error / spread) if spread else float(error == 0)}

    def confusion(self, model: SequenceModel) -> tuple[list[str], np.ndarray] | None:
        if self.data.classes is None or len(self.data.classes) > MOST_NAMES:
            return None
        predicted, true, _ = predictions(model, self.batches())
        return [str(c) for c in self.data.classes], confusion(len(self.data.classes), predicted, true)

    def sample(self, model: SequenceModel, length: int, temperature: float) -> str:
        """The confusion matrix as text, where there is room for it."""
        found = self.confusion(model) if length >= 100 and len(self.data.classes or ()) <= MOST_WRITTEN else None
        return "" if found is None else confusion_text(*found)

    def predictions(self, model: SequenceModel) -> Predictions | None:
        """The first number of each target beside the true one: of held-out sequences, or of the
        steps of the longest of them, NaN where none counts."""
        if self.data.classes is not None:
            return None
        width = self.data.y.shape[-1]
        unit = "y" if width == 1 else f"y, the first of {width} numbers"
        if self.data.per_step:
            row = self.test[self.data.lengths[self.test].argmax()]
            batch = self.batch(np.array([row]))
            outputs, _ = model.outputs(batch.x, None, batch.lengths, batch.inputs)
            true, predicted = batch.target[:DRAWN, 0, 0], outputs[:DRAWN, 0, 0]
            return Predictions(true, predicted, unit, True, f"step of the held-out sequence {row}")
        rows = self.test[:DRAWN]
        found = [self.numbers(model, self.batch(rows[places])) for places in in_order(len(rows), EVALUATION)]
        predicted, true = (np.concatenate(part)[:, 0] for part in zip(*found, strict=True))
        return Predictions(true, predicted, unit)

    def numbers(self, model: SequenceModel, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Predicted and true numbers where they count, float64 [M, K]."""
        outputs, _ = model.outputs(batch.x, None, batch.lengths, batch.inputs)
        counts = ~np.isnan(batch.target[..., 0])
        return outputs[counts].astype(np.float64), batch.target[counts].astype(np.float64)

    def batch(self, rows: np.ndarray) -> Batch:
        """Sequences by number: x [T, B, D], T that of the longest."""
        data, lengths = self.data, self.data.lengths[rows]
        steps = int(lengths.max())
        x, *others = (a[rows, :steps].swapaxes(0, 1) for a in (data.x, *data.inputs.values()))
        y = data.y[rows, :steps].swapaxes(0, 1) if data.per_step else data.y[rows]
        ragged = None if (lengths == steps).all() else lengths
        return Batch(x, y, ragged, inputs=dict(zip(data.inputs, others, strict=True)))

    def batches(self) -> Iterator[Batch]:
        """All held-out sequences, those of similar length together."""
        for places in in_order(len(self.test), EVALUATION, self.data.lengths[self.test]):
            yield self.batch(self.test[places])


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> SupervisedProblem:
    if config.data is None:
        raise TrainError(f"the task supervised has no data of its own: give --data FILE.npz ({HOW} writes one)")
    for name, allowed in (("target", TARGETS), ("at", PLACES)):
        if config.options[name] not in (AUTO, *allowed):
            raise TrainError(f"{name} must be {AUTO}, {' or '.join(allowed)}; got {config.options[name]!r}")
    spec = load(config.cell, **config.choices)
    data = read_sequences(
        config.data,
        spec,
        target=str(config.options["target"]),
        at=str(config.options["at"]),
        without=[name for name in str(config.options["without"]).split(",") if name],
        classes=memory.get("classes"),
    )
    return SupervisedProblem(config, data, data_input(spec))


TASK = Task(
    name="supervised",
    shape="n to 1, or n to n",
    about="sequences of your own: a class or numbers for each of them, or for each step; accuracy, or squared error",
    data=(
        ".npz with x [N, T, D] and y [N], [N, K], [N, T] or [N, T, K] (whole numbers are classes); it may have lengths"
        " [N], mask [N, T] (steps that count), held_out [N] (rows to test on), and the cell's other inputs, like dt"
        " [N, T]"
    ),
    make=make,
    defaults={"hidden": 64, "batch": 32, "steps": None, "lr": 3e-3, "clip": 1.0},
    epochs=30,
    fields=("bidirectional",),
    options={"target": AUTO, "at": AUTO, "held_out": HELD_OUT, "without": ""},
    about_options={
        "target": "classes or numbers (auto: whole numbers are classes)",
        "at": "end or steps: where targets are (auto: as y's shape says)",
        "held_out": "part of the sequences that is tested on, where the file does not say which",
        "without": "arrays of the file to leave out, like dt,mask",
    },
)
