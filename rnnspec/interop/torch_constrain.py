"""Modules whose cells hold weights to something (`constrain` of a spec): their parameters obey
after every step of any optimiser of torch, and before every call.

In: a module with `constrain()`. torch tells of steps by a hook for all optimisers
(torch.optim.optimizer.register_optimizer_step_post_hook); it is set when the first such module is
made, and acts on such modules alone. What the module calls its weights, and torch's state_dict,
stay as they are; that is why these are no parametrizations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from rnnspec.errors import UnsupportedError
from rnnspec.interop.torch_config import DTYPES, Config, dtype_name
from rnnspec.interop.torch_ops import stack_of
from rnnspec.layers.constrained import constrained_names, constrained_weights


class Obeying(Protocol):
    """A module that can make its parameters obey."""

    def constrain(self) -> None: ...
    def parameters(self, recurse: bool = True) -> Any: ...


# torch's hooks are the process's; which modules there are is what they must know. Each with copies
# of its weights as they last obeyed, so that a call does not look for eigenvalues again.
_watched: WeakKeyDictionary[Any, dict[str, Array]] = WeakKeyDictionary()
_hooks: list[Any] = []


def watch(module: Obeying) -> None:
    """From now on the module's parameters obey after every step of an optimiser of theirs."""
    if not _hooks:
        _hooks.append(register_optimizer_step_post_hook(_after_step))
    _watched.setdefault(module, {})


def _after_step(optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    moved = {id(p) for group in optimiser.param_groups for p in group["params"]}
    for module in list(_watched):
        if any(id(p) in moved for p in module.parameters(recurse=False)):
            module.constrain()


def obey(module: Obeying, config: Config, tensors: Mapping[str, Tensor | None], initial: bool = False) -> None:
    """Makes a module's weights obey, in place.

    tensors: its parameters and buffers by the names of the Config, None for one that is made of
    others. Nothing is done while torch compiles or transforms, for meta tensors, and where
    parameters were exchanged for tensors of somebody's (torch.func.functional_call): those are
    computed with as they are. Raises UnsupportedError for a constrained weight that another
    parametrization makes.
    """
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return
    first = next((t for t in tensors.values() if t is not None), None)
    if first is None or first.dtype not in DTYPES:
        return
    layers = stack_of(config.text, dtype_name(first.dtype), None).description
    for name in constrained_names(layers):
        if tensors[name] is None:
            raise UnsupportedError(
                f"the weight {name} is made by a parametrization, and its cell holds it to constraints, which are kept"
                " in the weight itself: take one of the two away."
            )
    arrays = {name: _as_array(t, name in config.fixed) for name, t in tensors.items() if t is not None}
    if any(array is None or array.dtype != layers.dtype for array in arrays.values()):
        return
    known: dict[str, Array] = {n: a for n, a in arrays.items() if a is not None}
    seen = _watched.get(module, {})
    if not initial and seen.keys() == known.keys() and all(np.array_equal(seen[n], a) for n, a in known.items()):
        return
    with torch.no_grad():
        for name, value in constrained_weights(layers, known, initial).items():
            tensors[name].copy_(torch.from_numpy(value))  # type: ignore[union-attr]
    _watched[module] = {n: a.copy() for n, a in known.items()}


def _as_array(tensor: Tensor, fixed: bool) -> Array | None:
    """The memory of a module's parameter or buffer; None for a tensor that is something else."""
    own = type(tensor) is (Tensor if fixed else torch.nn.Parameter)
    if not own or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    array: Array = tensor.detach().numpy()
    return array
