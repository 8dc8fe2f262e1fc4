"""What torch.nn.RNN, LSTM and GRU have beside their call, for programs that touch it: sizes,
`mode`, lists of weights, checks of shapes, the text of `print`.

In: the Config of layers, and the arguments that they were made with. Nothing here computes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rnnspec.errors import DtypeError, ShapeError, UnsupportedError
from rnnspec.interop.torch_config import OPTIONS, with_dropout
from rnnspec.interop.torch_module import Weighted

SIZES = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size")
FIXED = {*SIZES, *OPTIONS, "mode", "nonlinearity"}
SCRIPT = (
    "torch.jit.script can't compile these layers, which are operators with a text for the equations. torch.jit.trace"
    " takes them, and torch.export.export and torch.compile do."
)


def in_torchs_order(init: Callable[..., None]) -> Callable[..., None]:
    """An __init__ that takes `nonlinearity` by position too: torch.nn.RNN has it before bias."""

    @functools.wraps(init)
    def wrapped(
        self: Any, cell: Any, input_size: Any, hidden_size: Any, num_layers: Any = None, *args: Any, **options: Any
    ) -> None:
        if args and isinstance(args[0], str):
            if "nonlinearity" in options:
                raise TypeError(f"nonlinearity is given twice: {args[0]!r} and {options['nonlinearity']!r}.")
            options["nonlinearity"], *args = args  # type: ignore[assignment]
        init(self, cell, input_size, hidden_size, num_layers, *args, **options)

    return wrapped


def call_in(tracer: Any, module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
    """A call of a module in the graph of torch.fx, as torch.nn's stand in it: one node."""
    try:
        path = tracer.path_of_module(module)
    except NameError:  # the module is what is traced, not a part of it
        path = ""
    if not path:
        raise UnsupportedError(
            "torch.fx.symbolic_trace of these layers themselves: there is nothing in them to trace. As part of a module"
            " (torch.nn.Sequential(layer)) they become one node of its graph."
        )
    while args and args[-1] is None:
        args = args[:-1]
    return tracer.create_proxy("call_module", path, args, {})


class Names(Weighted):
    """The attributes and methods of torch.nn.RNN, LSTM and GRU, but for call and weights."""

    batch_first: bool

    input_size = property(lambda self: self._settings["input_size"])
    hidden_size = property(lambda self: self._settings["hidden_size"])
    num_layers = property(lambda self: self._settings["num_layers"])
    bias = property(lambda self: self._settings["bias"])
    bidirectional = property(lambda self: self._settings["bidirectional"])
    proj_size = property(lambda self: self._settings["proj_size"])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED:
            raise AttributeError(f"{name} is settled when layers are made: make new ones, with {name}={value!r}.")
        super().__setattr__(name, value)

    @property
    def dropout(self) -> float:
        """The probability that dropout between layers drops a number in training; may be
        assigned."""
        return self._settings["dropout"]

    @dropout.setter
    def dropout(self, value: float) -> None:
        self.config = with_dropout(self.config, value)
        self._settings = self._settings | {"dropout": value}

    @property
    def mode(self) -> str:
        """As torch.nn has it ("LSTM", "GRU", "RNN_TANH", "RNN_RELU") where the first cell is one of
        these; the cell's own name elsewhere."""
        peer = self._settings["peer"]
        if not peer:
            return self._settings["cells"][0]
        return "_".join([peer["class"], *([peer["nonlinearity"]] if "nonlinearity" in peer else [])]).upper()

    @property
    def nonlinearity(self) -> str:
        """ "tanh" or "relu", of a cell that is torch.nn.RNN; others have no such attribute."""
        if "nonlinearity" not in self._settings["peer"]:
            raise AttributeError(f"the cell {self._settings['cells'][0]!r} is no torch.nn.RNN and has no nonlinearity.")
        return self._settings["peer"]["nonlinearity"]

    # --- weights

    @property
    def _all_weights(self) -> list[list[str]]:
        groups: dict[str, list[str]] = {}
        for name in self.config.trained:
            groups.setdefault(name[name.rindex("_l") :], []).append(name)
        return list(groups.values())

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for name, _ in self.config.weights]

    @property
    def _flat_weights(self) -> list[Tensor | None]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Tensor | None]) -> None:
        for name, weight in zip(self._flat_weights_names, weights, strict=True):
            if getattr(self, name, None) is not weight:
                setattr(self, name, weight)

    def flatten_parameters(self) -> None:
        """Nothing to do: torch.nn.LSTM has this for cuDNN, and code that calls it may stay as it
        is."""

    _init_flat_weights = _update_flat_weights = flatten_parameters

    # --- checks

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raises ShapeError or DtypeError unless this is an input of these layers: [T, B, D], or
        the data of a PackedSequence, [N, D], beside its batch_sizes."""
        first = getattr(self, self._flat_weights_names[0]) if self._flat_weights_names else input
        if input.dtype != first.dtype and not torch.is_autocast_enabled("cpu"):
            raise DtypeError(f"the input has dtype {input.dtype}, the weights {first.dtype}: convert one of them.")
        axes = 3 if batch_sizes is None else 2
        if input.dim() != axes or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"the input must have {axes} axes and {self.input_size} features at its end, got {tuple(input.shape)}."
            )

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, ...]:
        """The shape of the first state for this input: (layers * directions, B, H)."""
        return self._expected(0, input, batch_sizes)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, ...]:
        """The shape of the second state for this input."""
        return self._expected(1, input, batch_sizes)

    def _expected(self, number: int, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, ...]:
        rows = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        _, (lead, *rest) = self.config.states[number]
        return (lead, rows, *rest)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, ...], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raises ShapeError unless a state has this shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise ShapeError(msg.format(tuple(expected_hidden_size), list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """`check_input`, and `check_hidden_size` of each state."""
        self.check_input(input, batch_sizes)
        states = hidden if isinstance(hidden, tuple | list) else (hidden,)
        if len(states) != len(self.config.states):
            raise ShapeError(f"{len(states)} states are given; these layers have {len(self.config.states)}.")
        for number, ((name, _), state) in enumerate(zip(self.config.states, states)):
            message = f"Expected state {name} of size {{}}, got {{}}"
            self.check_hidden_size(state, self._expected(number, input, batch_sizes), message)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States with their rows in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple | list):
            return tuple(self.permute_hidden(state, permutation) for state in hx)
        return hx.index_select(1, permutation)

    # --- text and programs

    def extra_repr(self) -> str:
        cells, chosen = self._settings["shown"]
        shown = [repr(cells[0]) if len(set(cells)) == 1 else repr(cells), str(self.input_size), str(self.hidden_size)]
        usual = {
            "num_layers": 1 if len(set(cells)) == 1 else len(cells),
            "bias": True,
            "dropout": 0.0,
            "bidirectional": False,
            "proj_size": 0,
        }
        shown += [f"{n}={self._settings[n]}" for n, value in usual.items() if self._settings[n] != value]
        shown += [f"{n}={option!r}" for n, option in chosen.items()]
        options = json.loads(self.config.text)
        shown += [f"{n}={options[n]!r}" for n in OPTIONS if n in options] + ["batch_first=True"] * self.batch_first
        return ", ".join(shown)

    def __prepare_scriptable__(self) -> Any:
        raise UnsupportedError(SCRIPT)
