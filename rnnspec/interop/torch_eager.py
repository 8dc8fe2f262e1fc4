"""One step without a gradient, past torch's dispatcher, which takes several times as long as a
small kernel; and what tells whether any call may go past it.

In: a Config and tensors. Out: tensors, or None wherever something may want to see the operator
(compilers, traces, transforms, modes, profiles), or anything is not as it mostly is: then the
operator runs, and says what is wrong. Every line here counts: a step takes tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_char
from functools import lru_cache
from typing import Any

import torch
from numpy import ndarray as Array
from torch import Tensor
from torch.autograd import forward_ad

from rnnspec.backends.memo import Memo
from rnnspec.engine.arrays import check_counts
from rnnspec.engine.recent import Seen
from rnnspec.interop import torch_ops
from rnnspec.interop.torch_config import DTYPES, Config
from rnnspec.layers.runs import StackWeights
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
_batched = torch._C._functorch.is_legacy_batchedtensor  # of is_grads_batched
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


class _Kept:
    """Weights of a call, to be known again without arrays of them: they are compared with the
    numbers that were packed, for nothing tells of a change through `.data` or NumPy. No reference
    to tensors or their memory is kept, which torch.utils.swap_tensors would refuse."""

    def __init__(self, tensors: Mapping[str, Tensor], seen: Seen[StackWeights]):
        self.made = seen.made
        self.tensors = [
            (name, t.shape, t.stride(), len(content), (c_char * len(content)).from_address, content.__eq__)
            for (name, t), (_, content) in zip(tensors.items(), seen.content)
        ]

    def holds(self, weights: Mapping[str, Tensor], dtype: torch.dtype, grad: bool) -> bool:
        """Whether these are tensors of the same shapes, without gaps, and the same numbers."""
        for name, shape, strides, size, memory, same in self.tensors:
            tensor: Any = weights.get(name)
            if (
                type(tensor) not in KINDS
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.layout is not torch.strided
                or not tensor.is_cpu
                or tensor.stride() != strides
                or tensor.is_neg()
                or (grad and tensor.requires_grad)
                # resized: what lay there is gone
                or tensor.untyped_storage().nbytes() < size + tensor.storage_offset() * dtype.itemsize
                or same(memory(tensor.data_ptr())) is not True
            ):
                return False
        return len(weights) == len(self.tensors)


class _Ready:
    """What is read of a Config at every step. main: the input that has no default, alone; width:
    the shape of a row of it; counts: whether the last state is the count of steps; kept: weights of
    the last calls, by where the first of them lies."""

    def __init__(self, stack: Stack):
        layers = stack.description
        self.stack, self.layers, self.weights = stack, layers, list(layers.shapes.items())
        self.main = next(iter(layers.required)) if len(layers.required) == 1 else None
        self.width = () if self.main is None else layers.inputs[self.main]
        self.states, self.counts = list(layers.states.values()), layers.counts
        self.most_rows = most_rows(layers)
        self.first = self.weights[0][0] if self.weights else ""
        self.kept: Memo[int, _Kept] = Memo(8)

    def packed(self, weights: Mapping[str, Tensor], dtype: torch.dtype, grad: bool) -> StackWeights | None:
        """The weights packed, where the last calls had the same numbers; else None."""
        first = weights.get(self.first)
        if first is None or first.layout is not torch.strided or len(weights) != len(self.weights):
            return None
        kept = self.kept.get(first.data_ptr())
        if kept is not None and kept.holds(weights, dtype, grad):
            return kept.made
        arrays = {}
        for name, shape in self.weights:
            tensor = weights.get(name)
            if not _plain(tensor, dtype, shape, grad):
                return None
            arrays[name] = torch_ops.array_of(tensor)  # type: ignore[arg-type]
        seen = self.stack.met(arrays)
        if seen is None or seen.made is None:
            return None
        if all(array.flags.c_contiguous for array in arrays.values()):
            self.kept.keep(first.data_ptr(), _Kept({name: weights[name] for name in arrays}, seen))
        return seen.made


@lru_cache(maxsize=64)
def _ready(text: str, dtype: torch.dtype, threads: int) -> _Ready:
    return _Ready(torch_ops.stack_of(text, DTYPES[dtype], threads))


def one_step(
    config: Config,
    weights: Mapping[str, Tensor],
    x: Tensor,
    state: Sequence[Tensor | None],
    threads: int | None,
    *,
    alone: bool = False,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]] | None:
    """Outputs [1, B, ...], states [L, B, ...] and recorded values [1, B, ...] of one step at
    evaluation.

    weights: by the names of the Config; x: [1, B, D], the one input that has no default; state: one
    tensor [L, B, ...] for each of `config.states`, or None. alone: of one layer, and the first axis
    is left out everywhere. For `unseen` calls alone.
    """
    dtype, at = x.dtype, 0 if alone else 1
    if dtype not in DTYPES or x.dim() <= at:
        return None
    ready, grad = _ready(config.text, dtype, threads or torch.get_num_threads()), torch.is_grad_enabled()
    rows = x.shape[at]
    if ready.main is None or rows > ready.most_rows:
        return None
    lead = () if alone else (1,)
    if not _plain(x, dtype, (*lead, rows, *ready.width), grad):
        return None
    packed = ready.packed(weights, dtype, grad)
    if packed is None:
        return None
    before = _before(ready, state, rows, dtype, grad, alone)
    if before is None:
        return None
    given = torch_ops.array_of(x)
    inputs = {ready.main: given if alone else given[0]}
    outputs, final, recorded = stepped(ready.layers, packed, inputs, *before, rows)
    made = torch.from_numpy
    if alone:
        return [made(a) for a in outputs.values()], [made(a[0]) for a in final], []
    return (
        [made(a[None]) for a in outputs.values()],
        [made(a) for a in final],
        [made(recorded[name][None]) for name in ready.layers.steps] if recorded else [],
    )


def _before(
    ready: _Ready, state: Sequence[Tensor | None], rows: int, dtype: torch.dtype, grad: bool, alone: bool
) -> tuple[tuple[Array | None, ...], Array | None] | None:
    """The states before the step and the count of steps, as arrays; None where one is not plain."""
    before: list[Array | None] = []
    for tensor, (first, *rest) in zip(state, ready.states):
        if tensor is None:
            before.append(None)
            continue
        if not _plain(tensor, dtype, (rows, *rest) if alone else (first, rows, *rest), grad):
            return None
        array = torch_ops.array_of(tensor)
        before.append(array[None] if alone else array)
    if not ready.counts:
        return tuple(before), None
    number, shape = state[-1], (ready.layers.num_layers, rows)
    if number is not None and not _plain(number, torch.int64, shape[1:] if alone else shape, grad):
        return None
    steps = None if number is None else torch_ops.array_of(number)
    return tuple(before), check_counts(steps[None] if steps is not None and alone else steps, shape)


def plain_memory(tensor: Tensor) -> bool:
    """Whether this is a tensor whose memory can be read as it is, gradient or not."""
    return (
        type(tensor) in KINDS
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not _batched(tensor)
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
