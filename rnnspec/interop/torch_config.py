"""What layers are, as plain data for torch: the Config that `interop.torch.recurrent` takes.

In: the arguments of rnnspec.Recurrent. Out: a Config, whose text is all that an operator, an
exported program or a pickle needs to make the same layers again.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnnspec.errors import DtypeError, UnsupportedError
from rnnspec.interop import torch_ops
from rnnspec.language.load import load
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.spec import Spec
from rnnspec.layers.description import Cell, Layers, check_dropout, describe_layers
from rnnspec.layers.stack import Stack

DTYPES = {torch.float32: "float32", torch.float64: "float64"}
OPTIONS = {  # with the defaults, which a Config leaves out
    n: p.default
    for n, p in inspect.signature(describe_layers).parameters.items()
    if p.kind is p.KEYWORD_ONLY and n not in ("dtype", "threads", "backend")
}
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Config:
    """What the layers are, as plain data: made by `describe`, taken by `recurrent`.

    text: all of it, the equations of the cells included. weights: (name, shape) in torch's order;
    fixed: the names of those that are constants of their cells, without a gradient.
    inputs, outputs, recorded: (name, shape of a step); states: (name, shape without the axis of
    rows), t among them for cells that count their steps. required: the inputs that have no default.
    random: whether training draws numbers (dropout, noise).
    """

    text: str
    weights: Shapes
    inputs: Shapes
    outputs: Shapes
    states: Shapes
    recorded: Shapes
    required: tuple[str, ...]
    random: bool
    fixed: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the weights that are not fixed."""
        return tuple(n for n, _ in self.weights if n not in self.fixed)

    def init(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Initial weights by name, as the cells' `init` says. Raises DtypeError."""
        weights = torch_ops.stack_of(self.text, dtype_name(dtype), None).init(seed)
        return {name: torch.from_numpy(array) for name, array in weights.items()}


def describe(
    cell: Cell | Sequence[Cell],
    input_size: int,
    hidden_size: int,
    num_layers: int | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    bidirectional: bool = False,
    proj_size: int = 0,
    *,
    nonlinearity: str | None = None,
    merge: str = "concat",
    share_directions: bool = False,
    residual: bool = False,
    go_backwards: bool = False,
    learn_initial: bool = False,
    return_all_states: bool | Sequence[str] = False,
    backend: str = "cpu",
    memory: str = "full",
    sizes: Mapping[str, int] | None = None,
    **settings: object,
) -> Config:
    """The Config of layers. Arguments and errors are those of rnnspec.Recurrent, without
    batch_first, dtype, threads and seed, which are no part of it; nonlinearity: torch.nn.RNN's, see
    `Recurrent`. UnsupportedError for another backend than the CPU."""
    given: dict[str, Any] = {
        "input_size": input_size,
        "hidden_size": hidden_size,
        "bias": bias,
        "dropout": dropout,
        "bidirectional": bidirectional,
        "proj_size": proj_size,
    }
    if unwanted := [n for n in ("dtype", "threads") if n in settings]:
        raise TypeError(
            f"{' and '.join(unwanted)}: a Config has none; the dtype is that of the weights, and `recurrent` takes"
            " threads."
        )
    check_backend(backend)
    more: dict[str, Any] = {"merge": merge, "share_directions": share_directions, "residual": residual}
    more |= {"go_backwards": go_backwards, "learn_initial": learn_initial, "return_all_states": return_all_states}
    more |= {"memory": memory, "sizes": sizes}
    chosen = with_nonlinearity(cell, settings, nonlinearity)
    return config_of(Stack(cell, num_layers=num_layers, **given, **more, **chosen).description, given, more)


def check_backend(backend: str) -> None:
    """UnsupportedError for another backend than the CPU."""
    if backend != "cpu":
        raise UnsupportedError(
            f"backend={backend!r}: the operators of torch have kernels for the CPU alone. Leave it out here; for a GPU "
            "rnnspec.compile(cell, backend='cuda') takes torch's tensors."
        )


def with_nonlinearity(
    cell: Cell | Sequence[Cell], settings: Mapping[str, object], wanted: str | None
) -> Mapping[str, Any]:
    """The settings of a cell with torch.nn.RNN's `nonlinearity`: with the choice by which the cell
    says that it is that layer. ValueError where there is none."""
    if wanted is None:
        return settings
    found = set()
    name = str(cell)
    if isinstance(cell, str | os.PathLike):
        for choice, known in load(cell, **settings).choices.items():
            for option in known.options:
                spec = load(cell, **{**settings, choice: option})
                values = {
                    a["nonlinearity"]
                    for n, a in spec.same_as.items()
                    if n.startswith("torch.nn.") and "nonlinearity" in a
                }
                if wanted in values:
                    return {**settings, choice: option}
                found |= values
    elif isinstance(cell, Spec):
        name = cell.name
    if found:
        raise ValueError(
            f"nonlinearity must be one of {', '.join(map(repr, sorted(map(str, found))))}; got {wanted!r}."
        )
    raise ValueError(
        f"nonlinearity={wanted!r}: that is torch.nn.RNN's, and the cell {name!r} has no choice for it. A Spec is made"
        " with its choices, as rnnspec.load('rnn', phi='relu') does."
    )


def with_dropout(config: Config, dropout: float) -> Config:
    """The Config of the same layers with another dropout between them. Raises ValueError for what
    is no probability."""
    check_dropout(dropout)
    described = json.loads(config.text)
    several = len(described["layers"]) > 1
    described["dropout"] = dropout if several else 0.0
    text = json.dumps(described, default=_plain)
    noisy = any(layer.spec.noise for layer in torch_ops.stack_of(text, "float32", None).layers)
    return replace(config, text=text, random=(several and dropout > 0) or noisy)


def config_of(layers: Layers, given: Mapping[str, Any], options: Mapping[str, Any]) -> Config:
    """The Config of layers.

    given: the arguments that they were made with, by name; options: the keywords beside these,
    without the cells' settings, which the cells have.
    """
    specs = [replace(layer.spec, outputs=names) for layer, names in zip(layers.layers, layers.emitted)]
    texts = [to_yaml(spec) for spec in specs]
    cells, several = list(dict.fromkeys(texts)), layers.num_layers > 1
    arguments: dict[str, Any] = {"cells": cells, "layers": [cells.index(t) for t in texts]} | dict(given)
    arguments |= {name: value for name, value in options.items() if value != OPTIONS[name]}
    if not several:  # it would do nothing, and warn each time that a Stack is made
        arguments["dropout"] = 0.0
    text = json.dumps(arguments, default=_plain)
    # the one whose kernels run, of equations in the order of the text
    again = torch_ops.stack_of(text, str(layers.dtype), None).description
    return Config(
        text=text,
        weights=tuple(again.shapes.items()),
        inputs=tuple(again.inputs.items()),
        outputs=tuple(again.outputs.items()),
        states=tuple(again.carried.items()),
        recorded=tuple(again.steps.items()),
        required=tuple(n for n in again.inputs if n in again.required),
        random=(several and layers.dropout > 0) or any(spec.noise for spec in specs),
        fixed=tuple(n for n in again.shapes if n in again.fixed),
    )


def _plain(value: Any) -> Any:
    return (
        value.item() if isinstance(value, np.generic) else list(value) if isinstance(value, Sequence) else dict(value)
    )


def dtype_name(dtype: torch.dtype, what: str = "dtype") -> str:
    """The name that NumPy has for a dtype of tensors; DtypeError for one without kernels. what: has
    it, for messages."""
    if dtype not in DTYPES:
        raise DtypeError(
            f"{what}: {dtype} is not supported: kernels are made for {' and '.join(map(str, DTYPES))}. Give it as"
            " .float(); under torch.autocast that is done for you."
        )
    return DTYPES[dtype]
