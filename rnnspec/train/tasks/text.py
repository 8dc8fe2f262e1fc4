"""A language model of characters: truncated backpropagation over the streams of one text, the state
carried from chunk to chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import losses
from rnnspec.train.batches import Batch, Cursor
from rnnspec.train.config import TrainingConfig
from rnnspec.train.data import Corpus, Vocabulary, default_text, make_corpus, make_streams, read_text
from rnnspec.train.errors import TrainError
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Task
from rnnspec.train.sample import generate
from rnnspec.train.tasks.shared import Plain

SNAPSHOT_CHARACTERS = 65_536
EVALUATION_ROWS = 16
EVALUATION_STEPS = 256
PROMPT = 64


class TextProblem(Plain):
    """A corpus for a configuration."""

    loss_unit = "bits per character"
    loss_scale = 1 / math.log(2)
    metric = Metric("held_out_bits", "bits per character")

    def __init__(self, config: TrainingConfig, corpus: Corpus):
        need = config.batch * config.length + 1
        if len(corpus.train) < need or len(corpus.held_out) < 2:
            raise TrainError(
                f"{corpus.name} is too short: it has {len(corpus.train):,} characters to train on, and a batch of"
                f" {config.batch} times a length of {config.length} needs {need:,}. Give a longer text, or smaller"
                " --batch and --length"
            )
        self.config, self.corpus = config, corpus
        self.digest = corpus.digest
        self.memory = {"vocabulary": corpus.vocabulary.characters}
        self.baseline = ("unigram entropy", corpus.unigram_bits)
        self.streams = make_streams(corpus.train, config.batch)

    @property
    def epoch_steps(self) -> int:
        return max(1, self.streams.length // self.config.length)

    def about(self) -> dict[str, Any]:
        corpus = self.corpus
        counts = {
            "train": len(corpus.train),
            "held_out": len(corpus.held_out),
            "symbols": len(corpus.vocabulary),
            "unknown": corpus.unknown,
        }
        return {"name": corpus.name, "sha256": corpus.digest, **counts, "unigram_bits": corpus.unigram_bits}

    def summary(self) -> str:
        corpus = self.corpus
        unknown = f" ({corpus.unknown} of them unknown)" if corpus.unknown else ""
        return (
            f"{corpus.name}: {len(corpus.train):,} characters to train on, {len(corpus.held_out):,} held out{unknown}, "
            f"{len(corpus.vocabulary)} symbols"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        config, symbols = self.config, len(self.corpus.vocabulary)
        return SequenceModel(make_layer(config.embed), symbols, symbols=symbols, seed=config.seed)

    def next(self, cursor: Cursor) -> tuple[Batch, Cursor]:
        """The next chunk. At the end of the text the next round begins up to T - 1 steps later,
        from a state of zero, so that chunks are cut elsewhere."""
        steps, length = self.config.length, self.streams.length
        start, number = cursor.get("start", 0), cursor.get("round", 0)
        carried = start > 0
        if start + steps > length:
            number, carried = number + 1, False
            start = int(np.random.default_rng([self.config.seed, 0, number]).integers(min(steps, length - steps + 1)))
        inputs, labels = self.streams.chunk(start, steps)
        return Batch(inputs, labels, carried=carried), {"start": start + steps, "round": number}

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        return {
            "held_out_bits": bits(model, self.corpus.held_out[:SNAPSHOT_CHARACTERS] if quick else self.corpus.held_out)
        }

    def sample(self, model: SequenceModel, length: int, temperature: float) -> str:
        """`length` characters after the first 64 of the held-out text, as the model would go on."""
        vocabulary = self.corpus.vocabulary
        prompt = vocabulary.decode(self.corpus.held_out[:PROMPT])
        return generate(model, vocabulary, length, temperature=temperature, prompt=prompt, seed=self.config.seed)


def bits(model: SequenceModel, ids: np.ndarray) -> float:
    """Bits per character of a text, ids [N], the state carried from its first character to its
    last.

    It is read as 16 streams side by side (fewer if it is short), so 15 places besides the first
    start without context.
    """
    streams = make_streams(ids, max(1, min(EVALUATION_ROWS, len(ids) // EVALUATION_STEPS)))
    total, state = 0.0, None
    for start in range(0, streams.length, EVALUATION_STEPS):
        inputs, labels = streams.chunk(start, EVALUATION_STEPS)
        logits, state = model.outputs(inputs, state)
        total += float(losses.token_losses(logits, labels).sum(dtype=np.float64))
    return total / streams.labels.size / math.log(2)


def corpus(config: TrainingConfig, memory: Mapping[str, Any]) -> Corpus:
    """The run's text, or the default one, in the symbols of the run that it goes on with."""
    text, name = (default_text(), "the default text") if config.data is None else (read_text(config.data), config.data)
    return make_corpus(text, name, Vocabulary(memory["vocabulary"]) if "vocabulary" in memory else None)


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> TextProblem:
    return TextProblem(config, corpus(config, memory))


TASK = Task(
    name="text",
    shape="n to n",
    about="a language model of characters, scored in bits per character of held-out text",
    data="a UTF-8 text; its last tenth is held out (default: tales made by rules, 465,000 characters)",
    make=make,
    fields=("embed", "length"),
    writes=True,
    vocabulary=lambda memory: Vocabulary(memory["vocabulary"]),
    length="steps that the gradient goes back",
)
