"""Derivatives of the operators of torch_ops.py, and their rules for what maps and transforms them:
autograd, torch.func, vmap, batched gradients.

Imported for what it registers, by interop/torch.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rnnspec.errors import UnsupportedError
from rnnspec.interop.torch_ops import (
    FORWARDS,
    backward,
    chosen,
    differentiable,
    forward,
    infer,
    split,
    stack_for,
    values,
)

TWICE = (
    "rnnspec has no gradients of gradients: the backward pass is a kernel, not a graph. Leave create_graph out, or"
    " write the cell with torch operations where a second derivative is needed."
)
EVALUATED = (
    "these layers were traced for evaluation and keep no tape, so there is no gradient. Export them in training mode"
    " (.train(), under which dropout and noise act) to train what was exported."
)
UNEQUAL = (
    "torch.func.vmap over lengths that differ from entry to entry: what is kept for the gradient would have a size for"
    " each. Give the mapped axis as rows of the batch, which the kernels work on at once, or write a loop."
)


# --- autograd


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    config, params, x, states, fed, given, lengths, resets, seed, _ = inputs
    layers = stack_for(config, params, x).description
    ctx.set_materialize_grads(False)
    ctx.config, ctx.given, ctx.counts = config, (fed, given), (len(params), len(x), len(states), 3)
    ctx.trained = [n not in layers.fixed for n in layers.shapes]
    ctx.with_gradient = [n in differentiable(layers, fed) for n in chosen(layers.inputs, fed)]
    ctx.values = values(layers)
    ctx.save_for_backward(*params, *x, *states, lengths, resets, seed, *output[ctx.values :])


def _gradients(
    ctx: Any, grads: list[Tensor | None], operator: Callable[..., list[Tensor]] | None = None
) -> tuple[Any, ...]:
    params, inputs, states, beside, kept = split(ctx.saved_tensors, ctx.counts)
    present = [i for i, g in enumerate(grads[: ctx.values]) if g is not None]
    if not present:
        return (
            None,
            [None] * len(params),
            [None] * len(inputs),
            [None] * len(states),
            None,
            None,
            None,
            None,
            None,
            None,
        )
    operator = operator or torch.ops.rnnspec.backward
    results = iter(
        operator(
            ctx.config,
            params,
            inputs,
            states,
            *ctx.given,
            *beside,
            kept,
            [grads[i] for i in present],
            sum(1 << i for i in present),
        )
    )
    dparams = [next(results) if trained else None for trained in ctx.trained]
    dinputs = [next(results) if has else None for has in ctx.with_gradient]
    dstates = [next(results) if s.is_floating_point() else None for s in states]  # a count of steps has none
    return None, dparams, dinputs, dstates, None, None, None, None, None, None


def _refuse(text: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError(text)

    return refuse


# without Dynamo, which after a break in a graph would trace into it, down to the making of a Stack
forward.register_autograd(_gradients, setup_context=torch._disable_dynamo(_setup))
backward.register_autograd(_refuse(TWICE))
infer.register_autograd(_refuse(EVALUATED))


# --- vmap: the operator once for each entry of the mapped axis


def _each(call: Callable[..., Sequence[Tensor]], size: int, dims: Sequence[Any], args: Sequence[Any]) -> list[Tensor]:
    """The results of a call for each entry of the arguments' mapped axes, stacked along axis 0.
    dims: the mapped axis of each argument, None without, of a list of tensors a list of these."""
    if not size:
        raise UnsupportedError("torch.func.vmap over an axis of size 0: nothing tells what a call would give.")
    found = [call(*(_entry(a, dim, i) for a, dim in zip(args, dims, strict=True))) for i in range(size)]
    columns = list(zip(*found, strict=True))
    if any(len({t.shape for t in column}) > 1 for column in columns):
        raise UnsupportedError(UNEQUAL)
    return [torch.stack(column) for column in columns]


def _entry(arg: Any, dim: Any, i: int) -> Any:
    if isinstance(dim, list | tuple):
        return [_entry(a, d, i) for a, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, i)


def _mapped(call: Callable[..., list[Tensor]]) -> Callable[..., tuple[list[Tensor], list[int]]]:
    """The rule of an operator for torch.func.vmap."""

    def rule(info: Any, dims: Sequence[Any], *args: Any) -> tuple[list[Tensor], list[int]]:
        found = _each(call, info.batch_size, dims, args)
        return found, [0] * len(found)

    return rule


for _name, _operator in (("forward", forward), ("infer", infer), ("backward", backward)):
    _operator.register_vmap(_mapped(getattr(torch.ops.rnnspec, _name)))


def _in_older_batches(*args: Any) -> list[Tensor]:
    """`backward` on the batched tensors of torch.autograd.grad(is_grads_batched=True) and of
    torch.autograd.functional.jacobian(vectorize=True), which are not those of torch.func.vmap."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    *rest, kept, grads, which = args
    # a tensor that is not of this level gets an axis of size 1
    plain = [torch._remove_batch_dim(g, level, 1, 0) for g in grads]
    size = max(g.shape[0] for g in plain)
    operator = functools.partial(torch.ops.rnnspec.backward, *rest, kept)
    entries = [[g[i if len(g) > 1 else 0] for g in plain] for i in range(size)]
    columns = zip(*(operator(entry, which) for entry in entries), strict=True)
    return [torch._add_batch_dim(torch.stack(column), 0, level) for column in columns]


_LIBRARY = torch.library.Library("rnnspec", "IMPL", "Batched")
_LIBRARY.impl("backward", _in_older_batches)


# --- torch.func, whose transforms take no operator with a registered derivative, but an
# autograd.Function


def transformed(
    config: str,
    params: list[Tensor],
    inputs: list[Tensor],
    states: list[Tensor],
    fed: int,
    given: int,
    lengths: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    threads: int,
) -> list[Tensor]:
    """`forward` under torch.func.grad, vjp, grad_and_value. Arguments are those of `forward`."""
    counts = (len(params), len(inputs), len(states))

    def nested(flat: Sequence[Any]) -> tuple[Any, ...]:
        *groups, beside = split(flat, counts)
        return config, *groups, fed, given, *beside, threads

    return list(_ForwardOp.apply(nested, *params, *inputs, *states, lengths, resets, seed))


def _transformed_backward(
    config: str,
    params: list[Tensor],
    inputs: list[Tensor],
    states: list[Tensor],
    fed: int,
    given: int,
    lengths: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    kept: list[Tensor],
    grads: list[Tensor],
    which: int,
) -> list[Tensor]:
    counts = (len(params), len(inputs), len(states), 3, len(kept))

    def nested(flat: Sequence[Any]) -> tuple[Any, ...]:
        *groups, beside, tapes, dy = split(flat, counts)
        return config, *groups, fed, given, *beside, tapes, dy, which

    return list(_BackwardOp.apply(nested, *params, *inputs, *states, lengths, resets, seed, *kept, *grads))


def _flat_rule(
    function: Any, info: Any, dims: Sequence[Any], nested: Any, flat: Sequence[Any]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """The rule of one of the functions below for torch.func.vmap."""
    found = _each(functools.partial(function.apply, nested), info.batch_size, dims[1:], flat)
    return tuple(found), (0,) * len(found)


class _ForwardOp(torch.autograd.Function):
    jvp = staticmethod(_refuse(FORWARDS))

    @staticmethod
    def forward(nested: Any, *flat: Any) -> tuple[Tensor, ...]:
        return tuple(torch.ops.rnnspec.forward(*nested(flat)))

    @staticmethod
    def vmap(info: Any, dims: Any, nested: Any, *flat: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _flat_rule(_ForwardOp, info, dims, nested, flat)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _setup(ctx, inputs[0](inputs[1:]), list(output))
        ctx.mark_non_differentiable(*output[ctx.values :])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        _, params, inputs, states, *_ = _gradients(ctx, list(grads), _transformed_backward)
        return None, *params, *inputs, *states, None, None, None


class _BackwardOp(torch.autograd.Function):
    jvp, backward = staticmethod(_refuse(FORWARDS)), staticmethod(_refuse(TWICE))

    @staticmethod
    def forward(nested: Any, *flat: Any) -> tuple[Tensor, ...]:
        return tuple(torch.ops.rnnspec.backward(*nested(flat)))

    @staticmethod
    def vmap(info: Any, dims: Any, nested: Any, *flat: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _flat_rule(_BackwardOp, info, dims, nested, flat)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no derivative of it."""
