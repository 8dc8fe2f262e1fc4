"""The recurrent layer of a training run, its gates keeping a state for long from the start where
that is asked for."""

from __future__ import annotations

from typing import Any

from rnnspec.errors import RnnspecError
from rnnspec.language.spec import Spec
from rnnspec.language.transforms.retain import keeping
from rnnspec.layers.recurrent import Recurrent
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.model import TrainedLayer
from rnnspec.train.problem import MakeLayer
from rnnspec.train.sizes import fitted


def layer_maker(spec: Spec, config: TrainingConfig, threads: int | None = None, *, chosen: bool = False) -> MakeLayer:
    """make(width, seed): a layer of the configuration's cell, sizes and initial values for data of
    this width.

    A cell that leaves the width no choice (x: H) makes one of its own width, `layer.input_size`;
    with `chosen`, the width was asked for by name, and that is an error.
    """
    cell = keeping(spec, config.retain) if config.retain else spec

    def make(width: int, seed: int = config.seed) -> TrainedLayer:
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
