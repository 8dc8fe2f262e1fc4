"""Cells as PyTorch modules: what torch.nn.LSTM does, for any cell.

    from rnnspec.interop.torch import Recurrent

    layer = Recurrent("lstm", 16, 32, num_layers=2, bidirectional=True)     # in place of torch.nn.LSTM(16, 32, num_layers=2, bidirectional=True)
    y, (h, c) = layer(x)                                                    # x [T, B, 16], y [T, B, 64], h and c [4, B, 32]

`describe` and `recurrent` are the same without a module. Both run on operators of torch.library (see _torch_ops.py), so that autograd,
torch.compile, torch.export and torch.func.functional_call know them. CPU, float32 and float64.
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rnnspec.errors import BackendUnavailable, DtypeError, ShapeError, UnsupportedError
from rnnspec.interop import _torch_ops
from rnnspec.language.rewrite import to_yaml
from rnnspec.stack import Cell, Stack

__all__ = ["Config", "Recurrent", "describe", "recurrent"]

DTYPES = {torch.float32: "float32", torch.float64: "float64"}
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Config:
    """What the layers are, as plain data: made by `describe`, taken by `recurrent`.

    text: all of it, the equations of the cells included. weights: (name, shape) in torch's order. inputs, outputs, recorded: (name, shape
    of a step); states: (name, shape without the axis of rows). random: whether training draws numbers (dropout, noise).
    """

    text: str
    weights: Shapes
    inputs: Shapes
    outputs: Shapes
    states: Shapes
    recorded: Shapes
    random: bool

    def init(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Initial weights by name, as the cells' `init` says."""
        found = _torch_ops.stack_of(self.text, _dtype_name(dtype), None).init(seed)
        return {name: torch.from_numpy(array) for name, array in found.items()}


def describe(cell: Cell | Sequence[Cell], input_size: int, hidden_size: int, num_layers: int | None = None, bias: bool = True, dropout: float = 0.0,
             bidirectional: bool = False, proj_size: int = 0, *, memory: str = "full", **options: Any) -> Config:
    """The Config of layers. Arguments as of rnnspec.Recurrent, but for batch_first, dtype, threads and seed; errors too."""
    stack = Stack(cell, input_size, hidden_size, num_layers, bias, dropout, bidirectional, proj_size, memory=memory, **options)
    texts = [to_yaml(layer.spec) for layer in stack.layers]
    cells = list(dict.fromkeys(texts))
    settings = {"cells": cells, "layers": [cells.index(text) for text in texts], "input_size": stack.input_size, "hidden_size": stack.hidden_size,
                "bias": stack.bias, "dropout": float(dropout) if len(texts) > 1 else 0.0, "bidirectional": bool(bidirectional), "proj_size": proj_size,
                "memory": memory} | {name: value for name, value in options.items() if name in stack.options}
    random = settings["dropout"] > 0 or any(layer.spec.noise for layer in stack.layers)
    return Config(json.dumps(settings), *(tuple(group.items()) for group in (stack.shapes, stack.inputs, stack.outputs, stack.states, stack.steps)), random)
