"""Classes of texts: words to ids, one layer over the first max_length words, the class from its
last valid step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import tables, vocabulary
from rnnspec.train.batches import Batch, Shuffled, in_order, padded, split
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.tales import KINDS, tales
from rnnspec.train.tasks.shared import EVALUATION, Stored, confusion, confusion_text, predictions

COLUMNS = 3  # class, title, description: AG_NEWS
PIECE = 30  # words of a piece of a tale
MOST = 160  # pieces of a kind of tale
CHARACTERS = 40_000  # of each kind, which are that many pieces and some more


class ClassifyProblem(Stored):
    """Texts as word ids, and their classes from 0."""

    metric = Metric("accuracy", "of the texts", less=False)

    def __init__(
        self,
        config: TrainingConfig,
        texts: list[list[str]],
        labels: np.ndarray,
        names: list[str],
        digest: str,
        memory: Mapping[str, Any],
    ):
        self.config, self.names, self.labels, self.digest = config, names, labels, digest
        self.train, self.test = split(len(texts), float(config.options["held_out"]), config.seed, config.data)
        cut = [text[: config.length] for text in texts]
        known = memory.get("words")
        most = int(config.options["words"])
        if most < 2:
            raise TrainError(f"words must be at least 2, a word and the unknown one; got {most}")
        self.words = (
            vocabulary.Symbols(tuple(known)) if known else vocabulary.of_words([cut[i] for i in self.train], most)
        )
        self.ids = [self.words.encode(text) for text in cut]
        self.mean_words = float(np.mean([len(text) for text in texts]))
        self.memory = {"words": list(self.words.names), "classes": names}
        self.order = Shuffled(self._lengths(self.train), config.batch, config.seed)
        counts = np.bincount(labels[self.test], minlength=len(names))
        self.share = float(counts.max() / counts.sum())

    def about(self) -> dict[str, Any]:
        counts = {
            "train": len(self.train),
            "held_out": len(self.test),
            "words": len(self.words),
            "mean_words": self.mean_words,
        }
        return {"file": self.config.data, "classes": self.names, **counts, "largest_class": self.share}

    def summary(self) -> str:
        name = self.config.data or "pieces of tales"
        return (
            f"{name}: {len(self.train):,} texts to train on, {len(self.test):,} held out, {len(self.names)} classes"
            f" (the largest {self.share:.1%}), {len(self.words):,} words, {self.mean_words:.1f} a text"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        config, symbols = self.config, len(self.words)
        loss = Loss(over="last", smoothing=float(config.options["smoothing"]))
        return SequenceModel(
            make_layer(config.embed),
            len(self.names),
            symbols=symbols,
            loss=loss,
            seed=config.seed,
            two_ways=config.bidirectional,
        )

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        predicted, true, loss = predictions(model, self.batches())
        return {"accuracy": float((predicted == true).mean()), "held_out_loss": loss}

    def confusion(self, model: SequenceModel) -> tuple[list[str], np.ndarray]:
        predicted, true, _ = predictions(model, self.batches())
        return self.names, confusion(len(self.names), predicted, true)

    def sample(self, model: SequenceModel, length: int, temperature: float) -> str:
        """The confusion matrix as text, where there is room for it."""
        return confusion_text(*self.confusion(model)) if length >= 100 else ""

    def batch(self, rows: np.ndarray) -> Batch:
        """Texts by number, padded."""
        x, lengths = padded([self.ids[i] for i in rows])
        return Batch(x, self.labels[rows], lengths)

    def batches(self) -> list[Batch]:
        """All held-out texts, those of similar length together."""
        return [
            self.batch(self.test[places]) for places in in_order(len(self.test), EVALUATION, self._lengths(self.test))
        ]

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        return np.array([len(self.ids[i]) for i in rows])


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> ClassifyProblem:
    texts, labels, names, digest = (
        _tales() if config.data is None else _file(config.data, int(config.options["classes"]))
    )
    return ClassifyProblem(config, texts, np.array(labels), names, digest, memory)


def _file(path: str, classes: int) -> tuple[list[list[str]], list[int], list[str], str]:
    rows, digest = tables.read_csv(path, COLUMNS)
    if not rows[0][1][0].strip().lstrip("-").isdigit() and len(rows) > 1:
        rows = rows[1:]  # a row of names
    labels = [tables.whole_number(fields[0].strip(), path, row, "the class, in column 1,") for row, fields in rows]
    most = classes or max(labels)
    for (row, _), label in zip(rows, labels):
        if not 1 <= label <= most:
            raise TrainError(f"{path}, row {row}: class {label} is out of range: classes are 1 to {most}")
    if len(set(labels)) < 2:
        raise TrainError(
            f"{path}, row {rows[0][0]} and all others: only class {labels[0]}; at least two classes are needed"
        )
    if most > 1000:
        raise TrainError(
            f"{path}, row {rows[labels.index(max(labels))][0]}: class {max(labels)}; at most 1000 classes make sense"
            " here"
        )
    texts = [vocabulary.words(" ".join(fields[1:])) for _, fields in rows]
    for (row, _), text in zip(rows, texts):
        if not text:
            raise TrainError(f"{path}, row {row}: a text without a word")
    return texts, [label - 1 for label in labels], [str(c) for c in range(1, most + 1)], digest


def _tales() -> tuple[list[list[str]], list[int], list[str], str]:
    """Pieces of 30 words, from anywhere in tales of four kinds."""
    texts, labels = [], []
    for label, kind in enumerate(KINDS):
        words = vocabulary.words(tales(kind, CHARACTERS)[0])
        pieces = [words[i : i + PIECE] for i in range(0, len(words) - PIECE + 1, PIECE)][:MOST]
        texts += pieces
        labels += [label] * len(pieces)
    return texts, labels, list(KINDS), tables.digest(" ".join(word for text in texts for word in text).encode())


TASK = Task(
    name="classify",
    shape="n to 1",
    about="the class of a text by its first words; scored by accuracy, with a confusion matrix",
    data=(
        "a CSV file of class (from 1), title, description, as AG_NEWS has it (default: pieces of four kinds of"
        " tales that come with rnnspec)"
    ),
    make=make,
    defaults={"hidden": 64, "embed": 64, "length": 44, "batch": 64, "steps": None, "lr": 1e-3, "schedule": "constant"},
    epochs=15,
    fields=("embed", "length", "bidirectional"),
    length="words of a text that are read (max_length)",
    vocabulary=lambda memory: vocabulary.Symbols(tuple(memory["words"])),
    options={"words": 10_000, "classes": 0, "held_out": 0.1, "smoothing": 0.0},
    of_files=("classes",),
    about_options={
        "words": "size of the vocabulary: the most frequent words of the training part",
        "classes": "how many there are (0: as many as the file has)",
        "held_out": "part of the rows that is tested on",
        "smoothing": "of the labels",
    },
)
