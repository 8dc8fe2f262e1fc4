"""The recurrent layer of a training run, its gates keeping a state for long from the start where
that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnspec.errors import RnnspecError
from rnnspec.language.spec import Spec
from rnnspec.language.transforms.retain import keeping
from rnnspec.layers.recurrent import Recurrent
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.sizes import fitted

MakeRecurrent = Callable[..., Recurrent]  # (input_size, seed) -> layer


def layer_maker(
    spec: Spec, config: TrainingConfig, threads: int | None = None, *, chosen: bool = False
) -> MakeRecurrent:
    """make(width, seed): a layer of the configuration's cell, sizes and initial values for data of
    this width.

    A cell that leaves the width no choice (x: H) makes one of its own width, `layer.input_size`;
    with `chosen`, the width was asked for by name, and that is an error.
    """
    cell = keeping(spec, config.retain) if config.retain else spec

    def make(width: int, seed: int = config.seed) -> Recurrent:
        width, sizes = fitted(spec, config.hidden, width, config.sizes, chosen=chosen)
        more: dict[str, Any] = {"num_layers": config.layers} if config.layers > 1 else {}
        more |= {"dropout": config.dropout} if config.dropout else {}
        more |= {"bidirectional": True} if config.bidirectional else {}
        try:
            return Recurrent(cell, width, config.hidden, threads=threads, seed=seed, sizes=sizes, **more)
        except (ValueError, TypeError) as error:  # the layer's own checks of sizes
            hint = (
                " On the command line: --size NAME=N, as in --size P=64."
                if "proj_size" in str(error) or "sizes=" in str(error)
                else ""
            )
            raise error if isinstance(error, RnnspecError) else TrainError(f"{error}{hint}") from error
        except MemoryError:
            raise TrainError(f"not enough memory for --layers {config.layers} of --hidden {config.hidden}") from None

    return make


class TimeFirst:
    """A layer whose arrays have the rows first (`batch_first`), for a model, whose arrays have the
    steps first: ids and features [T, B, ...] go in and out; states are the same in both."""

    def __init__(self, layer: Recurrent):
        self.layer = layer

    @property
    def calls(self) -> int:
        return self.layer.calls

    @calls.setter
    def calls(self, number: int) -> None:
        self.layer.calls = number

    @property
    def input_size(self) -> int:
        return self.layer.input_size

    @property
    def output_size(self) -> int:
        return self.layer.output_size

    @property
    def params(self) -> Mapping[str, np.ndarray]:
        return self.layer.params

    @property
    def grads(self) -> Mapping[str, np.ndarray]:
        return self.layer.grads

    @property
    def fixed(self) -> Mapping[str, np.ndarray]:
        return self.layer.fixed

    def constrain(self) -> None:
        self.layer.constrain()

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        y, state = self.layer(self._turned(x), state, lengths)
        return self._turned(y), state

    def infer(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        y, state = self.layer.infer(self._turned(x), state, lengths)
        return self._turned(y), state

    def backward(self, dy: Any = None, dstate: Any = None) -> tuple[Any, Any]:
        dx, dstate = self.layer.backward(self._turned(dy), dstate)
        return self._turned(dx), dstate

    def _turned(self, arrays: Any) -> Any:
        """An array, a tuple or a dict of them, with the other axis first, if the layer's have it
        now."""
        match arrays:
            case None:
                return None
            case tuple():
                return tuple(map(self._turned, arrays))
            case dict():
                return {name: self._turned(array) for name, array in arrays.items()}
        return np.swapaxes(arrays, 0, 1) if self.layer.batch_first else arrays
