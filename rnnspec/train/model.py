"""A character model: embedding, recurrent layer, linear head. Forward, backward, and the losses in bits per character."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from rnnspec.train import heads, losses
from rnnspec.train.data import Streams, make_streams

Outputs = np.ndarray | tuple[np.ndarray, ...]
State = Any  # what the layer gives and takes: None, an array [1, B, H], or a tuple of them

EVALUATION_ROWS = 16
EVALUATION_STEPS = 256


class Layer(Protocol):
    """What the model needs of `rnnspec.Recurrent`."""

    @property
    def output_size(self) -> int: ...
    @property
    def params(self) -> Mapping[str, np.ndarray]: ...
    @property
    def grads(self) -> Mapping[str, np.ndarray]: ...
    def __call__(self, x: np.ndarray, state: State = None) -> tuple[Outputs, State]: ...
    def infer(self, x: np.ndarray, state: State = None) -> tuple[Outputs, State]: ...
    def backward(self, dy: Outputs) -> tuple[np.ndarray, State]: ...


class CharacterModel:
    """ids [T, B] -> embedding [T, B, E] -> layer [T, B, H] -> logits [T, B, V].

    `params` and `grads` are flat: "embed.weight", "layer.W_i", ..., "head.weight", "head.bias". The arrays of `params` are the
    layer's own, so an optimiser that works in place trains it.
    """

    def __init__(self, layer: Layer, symbols: int, features: int, seed: int = 0):
        rng = np.random.default_rng([seed, 1])
        self.layer = layer
        self.embed = heads.init_embedding(rng, symbols, features)
        self.head = heads.init_linear(rng, layer.output_size, symbols)

    @property
    def params(self) -> dict[str, np.ndarray]:
        return join({"embed": self.embed, "layer": self.layer.params, "head": self.head})

    def gradients(self, ids: np.ndarray, labels: np.ndarray, state: State = None) -> tuple[float, dict[str, np.ndarray], State]:
        """The mean loss of a chunk in nats, its gradients, and the state after it.

        ids, labels [T, B]. The state goes in and comes out as a value: nothing flows back through it (truncated BPTT).
        """
        y, state = self.layer(heads.embed(self.embed, ids), state)
        features = joined(y)
        loss, d_logits = losses.cross_entropy(heads.linear(self.head, features), labels)
        d_features, d_head = heads.linear_backward(self.head, features, d_logits)
        d_x, _ = self.layer.backward(parted(d_features, y))
        d_embed = heads.embed_backward(self.embed, ids, d_x)
        return loss, join({"embed": d_embed, "layer": self.layer.grads, "head": d_head}), state

    def logits(self, ids: np.ndarray, state: State = None) -> tuple[np.ndarray, State]:
        """Logits [T, B, V] of ids [T, B], and the state after them; keeps nothing for a backward pass."""
        y, state = self.layer.infer(heads.embed(self.embed, ids), state)
        return heads.linear(self.head, joined(y)), state

    def bits(self, ids: np.ndarray) -> float:
        """Bits per character of a text, ids [N], the state carried from its first character to its last.

        It is read as 16 streams side by side (fewer if it is short), so 15 places besides the first start without context.
        """
        rows = max(1, min(EVALUATION_ROWS, len(ids) // EVALUATION_STEPS))
        return self._bits(make_streams(ids, rows))

    def _bits(self, streams: Streams) -> float:
        total, state = 0.0, None
        for start in range(0, streams.length, EVALUATION_STEPS):
            ids, labels = streams.chunk(start, EVALUATION_STEPS)
            logits, state = self.logits(ids, state)
            total += float(losses.token_losses(logits, labels).sum(dtype=np.float64))
        return total / streams.labels.size / math.log(2)

    def warm_up(self, train: bool = True) -> None:
        """Runs every kernel once on one step, so that compiling happens here and not in the first measured step."""
        ids = np.zeros((1, 1), np.int64)
        self.logits(ids)
        if train:
            self.gradients(ids, ids)


def make_model(
    make_layer: Callable[..., Layer],
    symbols: int,
    *,
    cell: str,
    embed: int,
    hidden: int,
    seed: int = 0,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    choices: Mapping[str, Any] | None = None,
) -> CharacterModel:
    """The model of one run; `make_layer` is `rnnspec.Recurrent`."""
    more: dict[str, Any] = {"sizes": sizes} if sizes else {}
    layer = make_layer(cell, input_size=embed, hidden_size=hidden, dtype="float32", threads=threads, seed=seed, **more, **(choices or {}))
    return CharacterModel(layer, symbols, embed, seed)


def joined(y: Outputs) -> np.ndarray:
    """The outputs of a cell side by side: [T, B, ...] each (one [T, B, H] is the rule) to [T, B, output_size]."""
    parts = [part.reshape(*part.shape[:2], -1) for part in (y if isinstance(y, tuple) else (y,))]
    return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def parted(d_features: np.ndarray, y: Outputs) -> Outputs:
    """The gradient of each output from that of `joined(y)`."""
    parts = y if isinstance(y, tuple) else (y,)
    ends = np.cumsum([math.prod(part.shape[2:]) for part in parts])[:-1]
    split = [np.ascontiguousarray(d).reshape(part.shape) for d, part in zip(np.split(d_features, ends, axis=-1), parts)]
    return tuple(split) if isinstance(y, tuple) else split[0]


def join(groups: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """{"head": {"bias": a}} to {"head.bias": a}."""
    return {f"{group}.{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
