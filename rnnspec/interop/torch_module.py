"""The weights of layers as parameters and buffers of a module: made, drawn and looked up.

In: the arguments of a module. Out: a torch.nn.Module that has them, and that calls nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from rnnspec.interop.torch_config import Config, config_of, dtype_name
from rnnspec.interop.torch_constrain import obey, watch
from rnnspec.language.meaning.extras import ZERO
from rnnspec.layers.constrained import constrained_names
from rnnspec.layers.description import Layers
from rnnspec.layers.layer import shown_cells
from rnnspec.layers.stack import Stack


def settings_of(layers: Layers, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a module remembers of its layers: the arguments by name; `cells`, by name; `shown`, what
    a repr tells of them, see `shown_cells`; `peer`, the attributes of the layer of torch.nn that
    the first cell is the same as, its name under "class", empty without; `plain`, whether all
    weights start as torch's do; `constrained`, whether some are held to something."""
    spec = layers.layers[0].spec
    claims = {name.rpartition(".")[2]: a for name, a in spec.same_as.items() if name.startswith("torch.nn.")}
    plain = (
        not layers.learn_initial
        and not layers.fixed
        and all(
            layer.layout is not None
            and not layer.spec.init
            and not layer.spec.constraints
            and ZERO not in {n for b in layer.layout.values() for n in b}
            for layer in layers.layers
        )
    )
    return dict(given) | {
        "num_layers": layers.num_layers,
        "cells": [layer.spec.name for layer in layers.layers],
        "shown": shown_cells(layers.layers),
        "peer": next(({"class": name, **attributes} for name, attributes in claims.items()), {}),
        "plain": plain,
        "constrained": bool(constrained_names(layers)),
    }


def _loaded(module: Weighted, keys: Any) -> None:
    """torch's hook for weights that were loaded."""
    module.constrain()


class Weighted(torch.nn.Module):
    """A module whose weights are those of a Config. config: what the layers are; threads: None for
    torch.get_num_threads()."""

    config: Config
    threads: int | None
    _settings: dict[str, Any]
    _own: set[str]  # the names of parameters and buffers
    _named: dict[str, str]  # these by the names of the Config

    def _make(
        self,
        cell: Any,
        given: dict[str, Any],
        options: dict[str, Any],
        settings: Mapping[str, Any],
        num_layers: int | None,
        device: Any,
        dtype: torch.dtype | None,
        end: str = "",
    ) -> Layers:
        """Sets config, settings and weights; returns what the layers are. given, options: as of
        `config_of`; settings: choices and constants of the cells; end: of the names in the Config,
        which the module's own do without."""
        kind = torch.get_default_dtype() if dtype is None else dtype
        chosen = {"dtype": dtype_name(kind), "threads": self.threads, **settings}
        stack = Stack(cell, num_layers=num_layers, **given, **options, **chosen)
        self.config = config_of(stack.description, given, options)
        self._settings = settings_of(stack.description, given)
        self._named = {name: name.removesuffix(end) for name, _ in self.config.weights}
        self._own = set(self._named.values())
        for name, shape in self.config.weights:
            own, empty = self._named[name], torch.empty(shape, device=device, dtype=kind)
            if hasattr(self, own):
                raise ValueError(
                    f"the parameter {own!r} of the cell can't have its name in a torch.nn.Module, which has another"
                    " attribute of that name: rename it, or take Recurrent, whose names have an ending."
                )
            if name in self.config.fixed:
                self.register_buffer(own, empty)
            else:
                self.register_parameter(own, torch.nn.Parameter(empty))
        self.reset_parameters()
        self._watch()
        return stack.description

    def _watch(self) -> None:
        if self._settings["constrained"]:
            watch(self)
            self.register_load_state_dict_post_hook(_loaded)

    def constrain(self, *, initial: bool = False) -> None:
        """Makes the weights obey what the cells hold them to (`constrain` of a spec), in place. It
        is done before every call, after load_state_dict, and after every step of an optimiser of
        torch.optim. initial: make them initial values, as after a mask or signs were set."""
        held = {**self._parameters, **self._buffers}
        obey(self, self.config, {name: held.get(own) for name, own in self._named.items()}, initial)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if self._settings["constrained"]:  # a copy or a pickle has its own weights
            watch(self)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights by the names of the Config."""
        if self._settings["constrained"]:
            self.constrain()
        held, named = self._parameters, self._named
        if torch.compiler.is_compiling() or held.keys() != self._own:  # some are fixed, or made of others
            return {name: getattr(self, own) for name, own in named.items()}
        return {name: held[own] for name, own in named.items()}  # type: ignore[misc]

    def reset_parameters(self) -> None:
        """Draws the weights anew, by torch's generator: where all cells have a torch layout and say
        nothing else under `init`, the numbers that torch's own layers and cells draw, in their
        order; elsewhere as `init` says."""
        if self._settings["plain"]:
            bound = 1 / math.sqrt(self._settings["hidden_size"])
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter, -bound, bound)
            return
        tensors = {name: getattr(self, own) for name, own in self._named.items()}
        if any(t.is_meta or isinstance(t, FakeTensor) for t in tensors.values()):
            return
        first = next(iter(tensors.values()), None)
        values = {} if first is None else self.config.init(int(torch.randint(2**63 - 1, ())), first.dtype)
        with torch.no_grad():
            for name, tensor in tensors.items():
                own = self._named[name]
                if own in self._parameters or own in self._buffers:
                    tensor.copy_(values[name])
                else:  # parametrized: what it is made of is set
                    setattr(self, own, values[name])
