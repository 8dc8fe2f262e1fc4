"""Models: embedding or features, recurrent layer, linear head; and an encoder with a decoder.
Forward and backward; and what a model is made of as plain data, from which it is made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rnnspec.train import heads
from rnnspec.train.batches import Batch
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss

Outputs = np.ndarray | tuple[np.ndarray, ...]
State = Any  # what the layer gives and takes: None, an array [L, B, H], or a tuple of them
Grads = dict[str, np.ndarray]
KINDS = ("sequence", "translation")  # of models


@dataclass(frozen=True)
class ModelPlan:
    """What a model is made of beside its cell and its weights: plain data, kept with the weights.

    kind: "sequence" or "translation". width: features that the layer reads. classes: outputs of the
    head. symbols, features: as of `SequenceModel`; of a translation `symbols` are the source's and
    `classes` the target's. main: the cell's input that they go into.
    """

    kind: str
    width: int
    classes: int
    symbols: int | None = None
    features: int | None = None
    loss: Loss = field(default_factory=Loss)
    two_ways: bool = False
    main: str = ""


class TrainedLayer(Protocol):
    """What a model needs of `rnnspec.Recurrent`. calls: the number of the next call in training,
    which dropout and noise are drawn by."""

    calls: int

    @property
    def input_size(self) -> int: ...
    @property
    def output_size(self) -> int: ...
    @property
    def params(self) -> Mapping[str, np.ndarray]: ...
    @property
    def grads(self) -> Mapping[str, np.ndarray]: ...
    @property
    def fixed(self) -> Mapping[str, np.ndarray]: ...
    def __call__(self, x: Any, state: State = None, lengths: Any = None) -> tuple[Outputs, State]: ...
    def infer(self, x: Any, state: State = None, lengths: Any = None) -> tuple[Outputs, State]: ...
    def backward(self, dy: Outputs | None = None, dstate: State = None) -> tuple[Any, State]: ...
    def constrain(self) -> None: ...


MakeLayer = Callable[..., TrainedLayer]  # (input_size, seed) -> layer


class Model(Protocol):
    """What the loop trains. `params` are live arrays by flat name ("layer.weight_ih_l0",
    "head.bias"): an optimiser changes them in place. `fixed`, named alike, are what no optimiser
    changes. `plan` is None for a model that is not of this file: only its task can make it
    again."""

    @property
    def plan(self) -> ModelPlan | None: ...
    @property
    def params(self) -> dict[str, np.ndarray]: ...
    @property
    def fixed(self) -> dict[str, np.ndarray]: ...
    def gradients(self, batch: Batch, state: State = None) -> tuple[float, Grads, State]:
        """The loss of a batch, its gradients by the names of `params`, and the state after it,
        through which nothing flows back."""
        ...

    def at_step(self, number: int) -> None:
        """Which training step comes next: what dropout and noise draw follows from it, so that a
        resumed run draws the same."""
        ...

    def constrain(self) -> None:
        """Makes the parameters obey what the cell holds them to; called after every update. A model
        of another class whose cell holds them to nothing needs none."""
        ...

    def warm_up(self, batch: Batch) -> None:
        """Runs every kernel once, so that compiling happens here and not in the first measured
        step."""
        ...


class SequenceModel:
    """ids [T, B] (or features [T, B, D]) -> embedding [T, B, E] -> layer [T, B, H] -> head [T, B,
    C], or [B, C] for a loss over "last".

    symbols: how many ids there are. Without it x are features [T, B, `features`], which go into the
    layer as they are; a layer that reads another number of them (a cell with x: H) gets a linear
    map of them. two_ways: the layer's output is that of two directions, side by side. main: the
    input of the cell that x goes into, where batches have `inputs` for others.
    """

    def __init__(
        self,
        layer: TrainedLayer,
        classes: int,
        *,
        symbols: int | None = None,
        features: int | None = None,
        loss: Loss | None = None,
        seed: int = 0,
        two_ways: bool = False,
        main: str = "",
    ):
        rng = np.random.default_rng([seed, 1])
        self.layer, self.loss, self.main = layer, loss or Loss(), main
        self.embed = {} if symbols is None else heads.init_embedding(rng, symbols, layer.input_size)
        self.head = heads.init_linear(rng, layer.output_size, classes)
        self.two_ways = two_ways
        self.plan = ModelPlan("sequence", layer.input_size, classes, symbols, features, self.loss, two_ways, main)
        mapped = features is not None and features != layer.input_size
        self.map = heads.init_linear(rng, features or 0, layer.input_size) if mapped else {}

    @property
    def params(self) -> dict[str, np.ndarray]:
        return join({"embed": self.embed, "map": self.map, "layer": self.layer.params, "head": self.head})

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        return join({"layer": self.layer.fixed})

    def gradients(self, batch: Batch, state: State = None) -> tuple[float, Grads, State]:
        """The state goes in and comes out as a value: nothing flows back through it (truncated
        BPTT)."""
        y, state = self.layer(self._read(batch.x, batch.inputs), state, batch.lengths)
        whole, last = joined(y), self.loss.over == "last"
        reverse = self._of_reverse(y)
        used = at_ends(whole, batch.lengths, reverse) if last else whole
        loss, d_outputs = self.loss(heads.linear(self.head, used), batch.target, None if last else batch.lengths)
        d_used, d_head = heads.linear_backward(self.head, used, d_outputs)
        d_whole = at_ends_backward(whole, batch.lengths, reverse, d_used) if last else d_used
        d_x, _ = self.layer.backward(parted(d_whole, y))
        d_x = d_x[self.main] if isinstance(d_x, dict) else d_x
        d_embed = heads.embed_backward(self.embed, batch.x, d_x) if self.embed else {}
        d_map = heads.linear_backward(self.map, batch.x, d_x)[1] if self.map else {}
        return loss, join({"embed": d_embed, "map": d_map, "layer": self.layer.grads, "head": d_head}), state

    def outputs(
        self,
        x: np.ndarray,
        state: State = None,
        lengths: np.ndarray | None = None,
        inputs: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, State]:
        """Outputs [T, B, C] (or [B, C]) of x, and the state after it; keeps nothing for a backward
        pass. inputs: the cell's other ones, by name, [T, B, ...]."""
        y, state = self.layer.infer(self._read(x, inputs or {}), state, lengths)
        used = at_ends(joined(y), lengths, self._of_reverse(y)) if self.loss.over == "last" else joined(y)
        return heads.linear(self.head, used), state

    def at_step(self, number: int) -> None:
        self.layer.calls = number

    def constrain(self) -> None:
        self.layer.constrain()

    def warm_up(self, batch: Batch) -> None:
        self.outputs(batch.x, None, batch.lengths, batch.inputs)
        self.gradients(batch)

    def _read(self, x: np.ndarray, inputs: Mapping[str, np.ndarray]) -> Any:
        """What the layer is called with: the features, and by name where there is more."""
        return {self.main: self.features(x), **inputs} if inputs else self.features(x)

    def _of_reverse(self, y: Outputs) -> np.ndarray | None:
        """Which columns of `joined(y)` the reverse direction made: the second half of every output.
        None for a layer in one direction."""
        if not self.two_ways:
            return None
        widths = [part.shape[-1] for part in (y if isinstance(y, tuple) else (y,))]
        return np.concatenate([np.arange(width) >= width // 2 for width in widths])

    def features(self, x: np.ndarray) -> np.ndarray:
        """What goes into the layer: [T, B, features]."""
        return heads.embed(self.embed, x) if self.embed else heads.linear(self.map, x) if self.map else x


class EncoderDecoder:
    """Source ids [T, B] -> embedding -> encoder; its final state is the decoder's first, which
    reads ids [M, B] -> head [M, B, C].

    Sutskever et al. 2014, without its reversal of the source. Both layers are of one cell and of
    one size, whatever states it has.
    """

    def __init__(
        self,
        encoder: TrainedLayer,
        decoder: TrainedLayer,
        symbols: tuple[int, int],
        loss: Loss | None = None,
        seed: int = 0,
    ):
        rng = np.random.default_rng([seed, 1])
        self.encoder, self.decoder, self.loss = encoder, decoder, loss or Loss()
        self.source, self.target = (heads.init_embedding(rng, count, encoder.input_size) for count in symbols)
        self.head = heads.init_linear(rng, decoder.output_size, symbols[1])
        self.plan = ModelPlan("translation", encoder.input_size, symbols[1], symbols[0], loss=self.loss)

    @property
    def params(self) -> dict[str, np.ndarray]:
        layers = {"encoder": self.encoder.params, "decoder": self.decoder.params}
        return join({"source": self.source, "target": self.target, **layers, "head": self.head})

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        return join({"encoder": self.encoder.fixed, "decoder": self.decoder.fixed})

    def gradients(self, batch: Batch, state: State = None) -> tuple[float, Grads, State]:
        """`batch.given` is what the decoder reads (the targets one step late: teacher forcing);
        targets to be left out are IGNORE."""
        assert batch.given is not None
        _, between = self.encoder(heads.embed(self.source, batch.x), None, batch.lengths)
        y, _ = self.decoder(heads.embed(self.target, batch.given), between)
        loss, d_logits = self.loss(heads.linear(self.head, joined(y)), batch.target)
        d_y, d_head = heads.linear_backward(self.head, joined(y), d_logits)
        d_given, d_between = self.decoder.backward(parted(d_y, y))
        d_x, _ = self.encoder.backward(None, d_between)
        embeddings = {
            "source": heads.embed_backward(self.source, batch.x, d_x),
            "target": heads.embed_backward(self.target, batch.given, d_given),
        }
        return (
            loss,
            join({**embeddings, "encoder": self.encoder.grads, "decoder": self.decoder.grads, "head": d_head}),
            None,
        )

    def greedy(self, x: np.ndarray, lengths: np.ndarray | None, start: int, end: int, most: int) -> np.ndarray:
        """The likeliest symbol at each step, fed back: ids [M, B], M at most `most`, `end` from a
        row's end on.

        x: the ids to read, [T, B]; lengths: [B] integers, None for all T; start, end: the ids that
        begin and end what is written. The decoder reads what it wrote from its start again at every
        step: a cell that counts its steps is right too.
        """
        _, between = self.encoder.infer(heads.embed(self.source, x), None, lengths)
        given = np.full((1, x.shape[1]), start)
        for _ in range(most):
            y, _ = self.decoder.infer(heads.embed(self.target, given), between)
            best = heads.linear(self.head, joined(y)[-1]).argmax(axis=-1)
            given = np.concatenate([given, np.where((given == end).any(axis=0), end, best)[None]])
            if (given == end).any(axis=0).all():
                break
        return given[1:]

    def constrain(self) -> None:
        self.encoder.constrain()
        self.decoder.constrain()

    def at_step(self, number: int) -> None:
        self.encoder.calls = self.decoder.calls = number

    def warm_up(self, batch: Batch) -> None:
        self.greedy(batch.x, batch.lengths, 0, 0, 1)
        self.gradients(batch)


def build(plan: ModelPlan, make_layer: MakeLayer) -> SequenceModel | EncoderDecoder:
    """A model of this plan, with weights that are about to be replaced."""
    match plan.kind:
        case "sequence":
            return SequenceModel(
                make_layer(plan.width),
                plan.classes,
                symbols=plan.symbols,
                features=plan.features,
                loss=plan.loss,
                two_ways=plan.two_ways,
                main=plan.main,
            )
        case "translation":
            layers = make_layer(plan.width), make_layer(plan.width)
            return EncoderDecoder(*layers, (plan.symbols or 0, plan.classes), plan.loss)
    raise TrainError(f"there is no kind of model called {plan.kind!r}: {', '.join(KINDS)}")


def joined(y: Outputs) -> np.ndarray:
    """The outputs of a cell side by side, [T, B, output_size]: one vector [T, B, H] is the rule;
    numbers [T, B] and matrices become vectors."""
    if isinstance(y, np.ndarray) and y.ndim == 3:
        return y
    return np.concatenate(
        [part.reshape(*part.shape[:2], -1) for part in (y if isinstance(y, tuple) else (y,))], axis=-1
    )


def parted(d_features: np.ndarray, y: Outputs) -> Outputs:
    """The gradient of each output from that of `joined(y)`."""
    outputs = y if isinstance(y, tuple) else (y,)
    ends = np.cumsum([int(np.prod(part.shape[2:])) for part in outputs])[:-1]
    parts = tuple(d.reshape(part.shape) for d, part in zip(np.split(d_features, ends, axis=-1), outputs))
    return parts if isinstance(y, tuple) else parts[0]


def at_ends(y: np.ndarray, lengths: np.ndarray | None, reverse: np.ndarray | None) -> np.ndarray:
    """What was read of the whole sequence, [B, F] of y [T, B, F]: a row's last valid step, and the
    first in the columns that `reverse` tells."""
    last = heads.at_last(y, lengths)
    return last if reverse is None else np.where(reverse, y[0], last)


def at_ends_backward(
    y: np.ndarray, lengths: np.ndarray | None, reverse: np.ndarray | None, d_ends: np.ndarray
) -> np.ndarray:
    """The gradient of y from that of `at_ends(y, lengths, reverse)`."""
    if reverse is None:
        return heads.at_last_backward(y, lengths, d_ends)
    d_y = heads.at_last_backward(y, lengths, np.where(reverse, 0, d_ends))
    d_y[0] += np.where(reverse, d_ends, 0)
    return d_y


def join(groups: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """{"head": {"bias": a}} to {"head.bias": a}."""
    return {f"{group}.{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
