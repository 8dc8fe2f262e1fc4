"""An encoder and a decoder (Sutskever, Vinyals & Le 2014): number words to digits, or any pairs of
a file, symbol by symbol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import losses, tables, vocabulary
from rnnspec.train.batches import Batch, Shuffled, in_order, padded, split
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import EncoderDecoder
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.tasks.shared import EVALUATION, Stored

START, END = "<start>", "<end>"
SPECIAL = (vocabulary.UNKNOWN, START, END)
SHOWN = 4
ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(n: int) -> str:
    """The number 0 to 999,999 in English: 1042 is "one thousand and forty two"."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f" {ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{ONES[n // 100]} hundred" + (f" and {in_words(n % 100)}" if n % 100 else "")
    rest = n % 1000
    return f"{in_words(n // 1000)} thousand" + (
        "" if not rest else f" and {in_words(rest)}" if rest < 100 else f" {in_words(rest)}"
    )


class TranslateProblem(Stored):
    """Pairs of symbol lists."""

    metric = Metric("exact", "of the targets right", less=False)

    def __init__(
        self, config: TrainingConfig, pairs: list[tuple[list[str], list[str]]], digest: str, memory: Mapping[str, Any]
    ):
        self.config, self.digest = config, digest
        self.train, self.test = split(len(pairs), float(config.options["held_out"]), config.seed, config.data)
        self.memory = (
            memory
            if "source" in memory
            else {
                side: list(vocabulary.of_words([pairs[i][at] for i in self.train], 50_000, SPECIAL).names)
                for at, side in enumerate(("source", "target"))
            }
        )
        self.source, self.target = (vocabulary.Symbols(tuple(self.memory[side])) for side in ("source", "target"))
        self.pairs = [(self.source.encode(a), self.target.encode(b)) for a, b in pairs]
        self.longest = max(len(b) for _, b in self.pairs)
        self.order = Shuffled(np.array([len(self.pairs[i][0]) for i in self.train]), config.batch, config.seed)

    def about(self) -> dict[str, Any]:
        counts = {
            "train": len(self.train),
            "held_out": len(self.test),
            "source_symbols": len(self.source),
            "target_symbols": len(self.target),
        }
        return {"file": self.config.data, **counts}

    def summary(self) -> str:
        name = self.config.data or "numbers in words to digits"
        return (
            f"{name}: {len(self.train):,} pairs to train on, {len(self.test):,} held out; {len(self.source)} and"
            f" {len(self.target)} symbols"
        )

    def model(self, make_layer: MakeLayer) -> EncoderDecoder:
        config = self.config
        layers = make_layer(config.embed), make_layer(config.embed, config.seed + 1)
        return EncoderDecoder(*layers, (len(self.source), len(self.target)), Loss(), config.seed)

    def score(self, model: EncoderDecoder, quick: bool) -> dict[str, float]:
        """The part of the held-out pairs whose target is written without a mistake; the decoder
        reads what it wrote."""
        right = 0
        tested = self.test[: 2 * EVALUATION] if quick else self.test
        for places in in_order(len(tested), EVALUATION):
            right += sum(
                a == list(self.pairs[i][1]) for a, i in zip(self._written(model, tested[places]), tested[places])
            )
        return {"exact": right / len(tested)}

    def sample(self, model: EncoderDecoder, length: int, temperature: float) -> str:
        shown = self.test[: SHOWN if length >= 100 else 1]
        source_gap = "" if all(len(name) == 1 for name in self.source.names[3:]) else " "
        target_gap = source_gap if self.config.data else ""
        return "\n".join(
            f"{source_gap.join(self.source.decode(self.pairs[i][0]))} -> {target_gap.join(self.target.decode(written))}"
            for i, written in zip(shown, self._written(model, shown))
        )

    def batch(self, rows: np.ndarray) -> Batch:
        """Pairs by number: the decoder reads start, y_1, ..., y_M and is to say y_1, ..., y_M,
        end."""
        x, lengths = padded([self.pairs[i][0] for i in rows])
        given, _ = padded([np.array([1, *self.pairs[i][1]]) for i in rows], 2)
        target, _ = padded([np.array([*self.pairs[i][1], 2]) for i in rows], losses.IGNORE)
        return Batch(x, target, lengths, given)

    def _written(self, model: EncoderDecoder, rows: np.ndarray) -> list[list[int]]:
        batch = self.batch(rows)
        ids = model.greedy(batch.x, batch.lengths, SPECIAL.index(START), SPECIAL.index(END), self.longest + 1)
        return [[int(i) for i in row[: int((row == 2).argmax()) if (row == 2).any() else len(row)]] for row in ids.T]


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> TranslateProblem:
    if config.data is not None:
        rows, digest = tables.read_csv(config.data, 2, delimiter="\t")
        pairs = [(vocabulary.words(a), vocabulary.words(b)) for _, (a, b) in rows]
        for (row, _), pair in zip(rows, pairs):
            if not all(pair):
                raise TrainError(f"{config.data}, row {row}: one side of the pair is empty, or has no word")
        return TranslateProblem(config, pairs, digest, memory)
    largest, count = int(config.options["largest"]), int(config.options["pairs"])
    if not 10 <= largest <= 999_999 or not 10 <= count <= largest + 1:
        raise TrainError(f"largest must be 10 to 999999 and pairs 10 to largest + 1; got {largest} and {count}")
    numbers = np.random.default_rng([config.seed, 8]).choice(largest + 1, count, replace=False)
    return TranslateProblem(
        config, [(in_words(int(n)).split(), list(str(n))) for n in numbers], f"made {largest} {count}", memory
    )


TASK = Task(
    name="translate",
    shape="n to m",
    about=(
        "a sequence into another: an encoder's last state is a decoder's first; scored by targets written without a"
        " mistake"
    ),
    data=(
        "a file of two columns, source and target, separated by a tab, word by word (default: numbers in English words"
        " to digits)"
    ),
    make=make,
    defaults={"hidden": 96, "embed": 32, "batch": 64, "steps": 1500, "lr": 5e-3, "clip": 1.0},
    fields=("embed",),
    of_made=("largest", "pairs"),
    vocabulary=lambda memory: tuple(vocabulary.Symbols(tuple(memory[side])) for side in ("source", "target")),
    options={"largest": 99_999, "pairs": 8000, "held_out": 0.1},
    about_options={
        "largest": "number of the made pairs",
        "pairs": "how many to make",
        "held_out": "part of the pairs that is tested on",
    },
)
