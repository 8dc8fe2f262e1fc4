"""The embedded Reber grammar: predict the next symbol of strings whose second symbol must come back
as the last but one (Hochreiter & Schmidhuber 1997, section 5.1; Gers et al. 2000)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import losses, tables, vocabulary
from rnnspec.train.batches import Batch, Shuffled, in_order, padded, split
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.tasks.shared import EVALUATION, Stored

SYMBOLS = "BTPSXVE"
MOST = 1_000_000  # strings
SHORTEST = 9  # BTBTXSETE
REBER = ({"B": 1}, {"T": 2, "P": 3}, {"S": 2, "X": 4}, {"T": 3, "V": 5}, {"X": 3, "S": 6}, {"P": 4, "V": 6}, {"E": 7})
"""From each state, the symbols that may come next and the states they lead to; 7 is the end. Reber
1967, as in figure 3 of the LSTM paper."""


def draw(rng: np.random.Generator) -> str:
    """One string of the embedded grammar: B, T or P, a string of the inner grammar, the same T or
    P, E."""
    outer, state, inner = "TP"[rng.integers(2)], 0, ""
    while state < len(REBER):
        symbol = sorted(REBER[state])[rng.integers(len(REBER[state]))]
        inner, state = inner + symbol, REBER[state][symbol]
    return f"B{outer}{inner}{outer}E"


def legal(string: str) -> list[str]:
    """What may follow each prefix of a string: for every symbol but the last. Raises ValueError
    naming the first symbol that may not be there."""
    if len(string) < SHORTEST:
        raise ValueError(f"the shortest string has {SHORTEST} symbols")
    allowed = ["B", "TP"]
    state = 0
    for symbol in string[2:-2]:
        allowed.append("".join(sorted(REBER[state])) if state < len(REBER) else "")
        if symbol not in allowed[-1]:
            raise ValueError(
                f"symbol {len(allowed)} is {symbol!r}, where {' or '.join(allowed[-1]) or string[1:2]} should stand"
            )
        state = REBER[state][symbol]
    if state != len(REBER):
        raise ValueError("the inner string has no end")
    allowed += [string[1], "E"]
    for place in (0, 1, len(string) - 2, len(string) - 1):
        if string[place] not in allowed[place]:
            raise ValueError(
                f"symbol {place + 1} is {string[place]!r}, where {' or '.join(allowed[place])} should stand"
            )
    return allowed[1:]


class ReberProblem(Stored):
    """Strings to train on and held out, of the embedded grammar."""

    metric = Metric("strings", "of the strings right", less=False)

    def __init__(self, config: TrainingConfig, strings: list[str], train: np.ndarray, test: np.ndarray, digest: str):
        self.config, self.strings, self.train, self.test, self.digest = config, strings, train, test, digest
        self.lengths = np.array([len(s) for s in strings])
        self.order = Shuffled(self.lengths[train] - 1, config.batch, config.seed)

    def about(self) -> dict[str, Any]:
        return {
            "train": len(self.train),
            "held_out": len(self.test),
            "longest": int(self.lengths[self.train].max()),
            "file": self.config.data,
        }

    def summary(self) -> str:
        return (
            f"{len(self.train):,} strings to train on, {len(self.test):,} held out, up to"
            f" {self.lengths[self.train].max()} symbols"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        count, seed = len(SYMBOLS), self.config.seed
        return SequenceModel(make_layer(count), count, features=count, loss=Loss(over="steps"), seed=seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        """strings: those where, at every step, each symbol that may follow is likelier than each
        that may not (the paper's criterion); outer: those whose last symbol but one is foretold."""
        right = outer = 0
        for places in in_order(len(self.test), EVALUATION, self.lengths[self.test]):
            rows = self.test[places]
            batch = self.batch(rows)
            logits, _ = model.outputs(batch.x, None, batch.lengths)
            for b, string in enumerate(self.strings[i] for i in rows):
                allowed = legal(string)
                may = np.array([[symbol in now for symbol in SYMBOLS] for now in allowed])
                own = logits[: len(allowed), b]
                right += bool((np.where(may, own, np.inf).min(axis=1) > np.where(may, -np.inf, own).max(axis=1)).all())
                outer += SYMBOLS[own[-2].argmax()] == string[-2]
        return {"strings": right / len(self.test), "outer": outer / len(self.test)}

    def batch(self, rows: np.ndarray) -> Batch:
        """Strings by number: one-hot symbols [T, B, 7] and the symbols that follow [T, B]."""
        ids = [np.array([SYMBOLS.index(symbol) for symbol in self.strings[i]]) for i in rows]
        x, lengths = padded([np.eye(len(SYMBOLS), dtype=np.float32)[row[:-1]] for row in ids])
        target, _ = padded([row[1:] for row in ids], losses.IGNORE)
        return Batch(x, target, lengths)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> ReberProblem:
    if config.data is None:
        rng = np.random.default_rng([config.seed, 8])
        count = int(config.options["strings"])
        if not 1 <= count <= MOST:
            raise TrainError(f"strings must be 1 to {MOST:,}; got {count:,}")
        strings = [draw(rng) for _ in range(count + TESTED)]
        return ReberProblem(config, strings, np.arange(count), np.arange(count, count + TESTED), "made")
    lines, digest = tables.read_lines(config.data)
    for row, line in lines:
        try:
            legal(line.strip())
        except ValueError as error:
            raise TrainError(
                f"{config.data}, row {row}: {line.strip()[:40]!r} is not of the embedded Reber grammar: {error}"
            ) from None
    strings = [line.strip() for _, line in lines]
    return ReberProblem(config, strings, *split(len(strings), 0.1, config.seed, config.data), digest)


TESTED = 500

TASK = Task(
    name="reber",
    shape="n to n",
    about=(
        "the next symbol of the embedded Reber grammar; scored by the part of the strings that is foretold without a"
        " mistake"
    ),
    data="a text with a string a line, like BTBTXSETE; a tenth is held out (default: strings drawn from the grammar)",
    make=make,
    defaults={"hidden": 32, "batch": 32, "steps": 1000, "lr": 1e-2, "clip": 1.0},
    options={"strings": 4000},
    of_made=("strings",),
    vocabulary=lambda memory: vocabulary.Symbols(tuple(SYMBOLS)),
    about_options={"strings": "how many to draw to train on"},
)
