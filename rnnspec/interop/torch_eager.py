"""One step without a gradient, past torch's dispatcher, which takes several times as long as a
small kernel.

In: a Config and tensors. Out: tensors, or None wherever something may want to see the operator
(compilers, traces, transforms, modes, profiles), or anything is not as it mostly is: then the
operator runs, and says what is wrong. Every line here counts: a step takes tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rnnspec.engine.arrays import check_counts
from rnnspec.interop import torch_ops
from rnnspec.interop.torch_config import DTYPES, Config
from rnnspec.layers.stack import Stack
from rnnspec.layers.steps import most_rows, stepped

KINDS = (Tensor, torch.nn.Parameter)  # subclasses have their own ideas of a call


# found once: to look these up takes as long as to call them
_compiling, _autocast, _profiled = (
    torch.compiler.is_compiling,
    torch.is_autocast_enabled,
    torch.autograd._profiler_enabled,
)
_tracing, _transformed = torch._C._is_tracing, torch._C._are_functorch_transforms_active
_dispatched, _overridden = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack


def unseen() -> bool:
    """Whether nothing follows what operators are called: neither compiler nor trace, transform,
    mode, profile or autocast."""
    return not (
        _compiling()  # first: Dynamo reads no further
        or _tracing()
        or _transformed()
        or _dispatched()
        or _overridden()
        or forward_ad._current_level >= 0
        or _autocast("cpu")
        or _profiled()
    )


class _Ready:
    """What is read of a Config at every step. main: the input that has no default, alone; width:
    the shape of a row of it; counts: whether the last state is the count of steps."""

    def __init__(self, stack: Stack):
        layers = stack.description
        self.stack, self.layers, self.weights = stack, layers, list(layers.shapes.items())
        self.main = next(iter(layers.required)) if len(layers.required) == 1 else None
        self.width = () if self.main is None else layers.inputs[self.main]
        self.states, self.counts = list(layers.states.values()), layers.counts
        self.most_rows = most_rows(layers)


@lru_cache(maxsize=64)
def _ready(text: str, dtype: torch.dtype, threads: int) -> _Ready:
    return _Ready(torch_ops.stack_of(text, DTYPES[dtype], threads))


def one_step(
    config: Config, weights: Mapping[str, Tensor], x: Tensor, state: Sequence[Tensor | None], threads: int | None
) -> tuple[list[Tensor], list[Tensor], list[Tensor]] | None:
    """Outputs [1, B, ...], states [L, B, ...] and recorded values [1, B, ...] of one step at
    evaluation.

    weights: by the names of the Config; x: [1, B, D], the one input that has no default; state: one
    tensor [L, B, ...] for each of `config.states`, or None. For `unseen` calls alone.
    """
    dtype = x.dtype
    if dtype not in DTYPES or x.dim() < 2:
        return None
    ready, grad = _ready(config.text, dtype, threads or torch.get_num_threads()), torch.is_grad_enabled()
    rows = x.shape[1]
    if ready.main is None or rows > ready.most_rows or len(weights) != len(ready.weights):
        return None
    if not _plain(x, dtype, (1, rows, *ready.width), grad):
        return None
    arrays = {}
    for name, shape in ready.weights:
        tensor = weights.get(name)
        if not _plain(tensor, dtype, shape, grad):
            return None
        arrays[name] = torch_ops.array_of(tensor)  # type: ignore[arg-type]
    packed = ready.stack.known(arrays)
    if packed is None:
        return None
    before: list[Any] = []
    for tensor, (first, *rest) in zip(state, ready.states):
        if tensor is not None and not _plain(tensor, dtype, (first, rows, *rest), grad):
            return None
        before.append(None if tensor is None else torch_ops.array_of(tensor))
    counts = None
    if ready.counts:
        number, shape = state[-1], (ready.layers.num_layers, rows)
        if number is not None and not _plain(number, torch.int64, shape, grad):
            return None
        counts = check_counts(None if number is None else torch_ops.array_of(number), shape)
    inputs = {ready.main: torch_ops.array_of(x)[0]}
    outputs, final, recorded = stepped(ready.layers, packed, inputs, tuple(before), counts, rows)
    made = torch.from_numpy
    return (
        [made(a[None]) for a in outputs.values()],
        [made(a) for a in final],
        [made(recorded[name][None]) for name in ready.layers.steps] if recorded else [],
    )


def _plain(tensor: Any, dtype: torch.dtype, shape: tuple[int, ...], grad: bool) -> bool:
    """Whether this is a tensor of this shape, memory that can be read as it is, and no gradient is
    asked for it."""
    return (
        type(tensor) in KINDS
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not (grad and tensor.requires_grad)
    )
