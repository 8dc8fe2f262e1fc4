"""Tensors that a caller gives to layers in torch: by name, checked, time first; and what
torch.autocast makes of them.

In: whatever was passed to `recurrent`. Out: dicts of tensors. States and lengths are in torch.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rnnspec.errors import BackendUnavailable, DtypeError, ShapeError
from rnnspec.interop import torch_ops
from rnnspec.interop.torch_config import Config, dtype_name
from rnnspec.layers.arguments import check_leads, check_resets_shape

LOW = (torch.bfloat16, torch.float16)


def inputs_of(config: Config, x: Any, batch_first: bool) -> tuple[dict[str, Tensor], bool]:
    """Inputs by name, time first, and whether they came without a batch axis."""
    # under which sizes are tensors, and comparing them is a warning: the operator compares them too
    tracing = torch.jit.is_tracing()
    shapes, needed = dict(config.inputs), list(config.required) or [n for n, _ in config.inputs]
    whole = isinstance(x, tuple) and len(x) == len(shapes)
    given = by_name(x, list(shapes) if whole else needed, "input", list(shapes))
    for name, tensor in given.items():
        axes, shape = as_tensor(f"input {name!r}", tensor).dim(), shapes[name]
        if axes not in (len(shape) + 1, len(shape) + 2):
            raise ShapeError(
                f"input {name!r} must have {len(shape) + 2} axes ({'B, T' if batch_first else 'T, B'}, features), or"
                f" {len(shape) + 1} for one row without a batch; got shape {tuple(tensor.shape)}."
            )
        if not tracing and tuple(tensor.shape[axes - len(shape) :]) != shape:
            raise ShapeError(
                f"input {name!r} has shape {tuple(tensor.shape)}, expected {shape[-1]} features at its end."
            )
    single = {tensor.dim() == len(shapes[name]) + 1 for name, tensor in given.items()}
    if len(single) > 1:
        raise ShapeError(
            "some inputs have a batch axis and some have none: "
            + ", ".join(f"{n} {tuple(t.shape)}" for n, t in given.items())
            + "."
        )
    alone = True in single
    if batch_first and not alone and len(given) > 1 and _told(*given.values()):  # the operator sees them turned
        check_leads({n: tuple(tensor.shape[1::-1]) for n, tensor in given.items()}, batch_first)
    return {n: time_first(given[n], alone, batch_first) for n in shapes if n in given}, alone


def resets_of(resets: Tensor, inputs: Mapping[str, Tensor], single: bool, batch_first: bool) -> Tensor:
    """Resets time first. inputs: by name, time first."""
    turned, first = time_first(resets, single, batch_first), next(iter(inputs.values()))
    if batch_first and not single and _told(turned, first):
        check_resets_shape(tuple(turned.shape), first.shape[0], first.shape[1], batch_first)
    return turned


def _told(*tensors: Tensor) -> bool:
    """Whether sizes are numbers, and comparing them is no part of a program that is being made."""
    return not torch.compiler.is_compiling() and all(type(size) is int for t in tensors for size in t.shape)


def by_name(value: Any, names: list[str], what: str, optional: Sequence[str] = ()) -> dict[str, Any]:
    """One of each name, from a dict, a tuple, or a single one. optional: what a dict may have
    beside them."""
    form = (
        f"one tensor ({names[0]})"
        if len(names) == 1
        else f"a dict or a tuple of {len(names)} tensors ({', '.join(names)})"
    )
    if isinstance(value, Mapping):
        if not set(names) <= set(value) <= {*names, *optional}:
            raise ShapeError(f"{what} must be {form}; got {', '.join(map(str, value))}.")
        return {n: value[n] for n in optional or names if n in value}
    given = value if isinstance(value, tuple | list) else (value,)
    if len(given) != len(names):
        raise ShapeError(f"{what} must be {form}; got {len(given)}.")
    return dict(zip(names, given))


def weights_of(config: Config, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in the order of the Config. Raises ShapeError naming all that are wrong."""
    tracing = torch.jit.is_tracing()
    wrong = [f"missing {n!r}" for n, _ in config.weights if n not in weights]
    wrong += [f"unexpected {n!r}" for n in weights if n not in dict(config.weights)]
    wrong += [
        f"{n!r} has shape {tuple(weights[n].shape)}, expected {shape}"
        for n, shape in config.weights
        if n in weights and not tracing and tuple(as_tensor(f"weight {n!r}", weights[n]).shape) != shape
    ]
    if wrong:
        raise ShapeError(f"weights: {'; '.join(wrong)}.")
    return {n: weights[n] for n, _ in config.weights}


def autocast(*groups: dict[str, Tensor]) -> tuple[tuple[dict[str, Tensor], ...], torch.dtype | None]:
    """The tensors as these layers compute under torch.autocast: in float32, and the dtype that
    results are given then. Outside of it, and of float64, all is as it is and the dtype is None."""
    if not torch.is_autocast_enabled("cpu"):
        return groups, None
    raised = tuple({n: t.float() if t.dtype in LOW else t for n, t in group.items()} for group in groups)
    first = next((t for group in raised for t in group.values()), None)
    low = torch.get_autocast_dtype("cpu")
    return raised, low if first is not None and first.dtype == torch.float32 and low in LOW else None


def as_tensor(what: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise DtypeError(
            f"{what} must be a tensor; got {type(value).__name__}. rnnspec.Recurrent is the layer for NumPy arrays."
        )
    return value


def check_tensors(tensors: Mapping[str, Tensor]) -> None:
    """All are dense, of one supported dtype, and on one device that has kernels."""
    (head, first), *_ = tensors.items()
    name = dtype_name(first.dtype, head)
    if first.device.type not in (*torch_ops.DEVICES, "meta"):
        raise BackendUnavailable(
            f"{head} is on {first.device}, and in this version there are kernels for {', '.join(torch_ops.DEVICES)}"
            " alone: move the module and its inputs there with .to('cpu')."
        )
    for what, tensor in tensors.items():
        if tensor.dtype != first.dtype:
            dtype_name(tensor.dtype, what)
            raise DtypeError(
                f"{what} has dtype {tensor.dtype}, but {head} has {first.dtype}: nothing is cast. Convert it with"
                f" .to(torch.{name}), or the module with .to({tensor.dtype})."
            )
        if tensor.device != first.device:
            raise BackendUnavailable(
                f"{what} is on {tensor.device}, but {head} on {first.device}: move both to one device."
            )
        if tensor.layout != torch.strided:
            raise DtypeError(
                f"{what} must be a dense tensor, got one of layout {tensor.layout}; .to_dense() makes it one."
            )


def time_first(tensor: Tensor, single: bool, batch_first: bool) -> Tensor:
    return tensor.unsqueeze(1) if single else tensor.transpose(0, 1) if batch_first and tensor.dim() > 1 else tensor
