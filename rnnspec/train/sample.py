"""Text written by a model, one character after the other."""

from __future__ import annotations

import numpy as np

from rnnspec.train.data import Vocabulary
from rnnspec.train.errors import TrainError
from rnnspec.train.model import SequenceModel


def generate(
    model: SequenceModel,
    vocabulary: Vocabulary,
    length: int,
    *,
    temperature: float = 0.8,
    prompt: str = "\n",
    seed: int = 0,
) -> str:
    """`length` characters that follow the prompt, drawn from softmax(logits / temperature).

    model: gives the logits; vocabulary: its characters. Temperature 0 takes the likeliest character
    each time. The unknown symbol is never drawn. The same seed gives the same text.
    """
    if not temperature >= 0:
        raise TrainError(f"the temperature must be 0 or more; got {temperature}")
    rng = np.random.default_rng([seed, 2])
    ids = vocabulary.encode(prompt or "\n")[:, None]  # [T, 1]
    written: list[int] = []
    state = None
    for _ in range(length):
        logits, state = model.outputs(ids, state)
        ids = np.full((1, 1), draw(rng, logits[-1, 0], temperature))
        written.append(int(ids[0, 0]))
    return vocabulary.decode(np.array(written, np.int64))


def draw(rng: np.random.Generator, logits: np.ndarray, temperature: float) -> int:
    """One id from logits [V], never 0 (the unknown symbol)."""
    z = logits[1:].astype(np.float64)
    if temperature == 0:
        return int(z.argmax()) + 1
    p = np.exp((z - z.max()) / temperature)
    at = np.searchsorted(np.cumsum(p), rng.random() * p.sum(), side="right")
    return int(min(at, len(p) - 1)) + 1
