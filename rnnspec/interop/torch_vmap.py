"""The operators of torch_ops.py under torch.func.vmap: entries of a mapped axis become rows of one
call.

In: what torch hands a rule, the arguments with the place of the mapped axis in each. Out: results,
and where their axis is. Entries of inputs, states, lengths and resets become rows of a larger
batch, those of weights weights by row (rnnspec.engine.groups); the gradients of shared weights are
then sums over the rows of each entry (`rnnspec::backward_rows`). Where that can't be, the operator
runs once for each entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnnspec.errors import UnsupportedError
from rnnspec.interop.torch_ops import ARGUMENTS, DEVICES, gradients_by, stack_for, values, with_gradient
from rnnspec.layers.description import Layers

UNEQUAL = (
    "torch.func.vmap over calls whose results differ in size from entry to entry: what is kept for the gradient would"
    " have a size for each. Give the mapped axis as rows of the batch, which the kernels work on at once, or write a"
    " loop."
)
PARAMS, INPUTS, STATES, LENGTHS, RESETS, SEED, SHARED = 1, 2, 3, 6, 7, 8, 9  # places of arguments, and how many
KEPT, GRADS = 9, 10  # of `backward`
Call = Callable[..., list[Tensor]]  # an operator by name, and its arguments
Mapped = tuple[list[Tensor], list[int | None]]


@torch.library.custom_op(
    "rnnspec::backward_rows",
    mutates_args=(),
    device_types=DEVICES,
    schema=f"({ARGUMENTS}, Tensor[] kept, Tensor[] grads, int which, int groups) -> Tensor[]",
)
def backward_rows(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which, groups
):
    """`backward`, whose gradients of params are sums over the rows of each of so many equal groups
    of rows, [groups, ...]. The other arguments are those of `backward`."""

    def summed(array: np.ndarray) -> np.ndarray:
        rows = len(array) // groups
        return array if rows == 1 else array.reshape(groups, rows, *array.shape[1:]).sum(1)

    rest = (fed, given, lengths, resets, seed, kept, grads, which)
    return gradients_by(config, params, inputs, states, *rest, summed)


@backward_rows.register_fake
def _(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which, groups
):
    layers = stack_for(config, params, inputs).description
    shapes = [layers.shapes[n] for n in layers.shapes if n not in layers.fixed]
    rest = with_gradient(layers, params, inputs, states, fed)[len(shapes) :]
    return [*(inputs[0].new_empty((groups, *s)) for s in shapes), *(x.new_empty(x.shape) for x in rest)]


def mapped(name: str, size: int, dims: Sequence[Any], args: Sequence[Any], call: Call) -> Mapped:
    """The results of an operator for each entry of the arguments' mapped axes.

    size: of the axis; dims: where it is in each argument, None without, of a list of tensors a list
    of these; call: runs an operator on what is left of the transforms around.
    """
    if not size:  # an entry of zeros tells the shapes of none
        results, axes = mapped(name, 1, dims, [_zeros(a, d) for a, d in zip(args, dims, strict=True)], call)
        return [t if d is None else t.narrow(d, 0, 0) for t, d in zip(results, axes, strict=True)], axes
    found = None
    if name in ("forward", "infer", "backward", "backward_rows"):
        found = _as_rows(name, size, dims, args, call)
    if found is None:
        results = each_entry(lambda *entry: call(name, *entry), size, dims, args)
        return results, [0] * len(results)
    return found


# --- entries as rows


def _as_rows(name: str, size: int, dims: Sequence[Any], args: Sequence[Any], call: Call) -> Mapped | None:
    layers = stack_for(*args[:3]).description
    folded = _folded(layers, size, dims, args)
    if folded is None:
        return None
    by_row, shared = folded
    if name in ("forward", "infer"):
        results, count = call(name, *shared, args[SHARED]), values(layers)
        apart = [_apart(t, size, 1) for t in results[:count]]
        axes: list[int | None] = [*[1] * count, *[None] * (len(results) - count)]
        return [*apart, *results[count:]], axes
    if any(d is not None for d in dims[KEPT]):
        return None  # the forward pass ran once for each entry
    grads = [_rows(g, d, size, 1) for g, d in zip(args[GRADS], dims[GRADS], strict=True)]
    if _differentiated(args):  # once more: a pass over rows has no derivative, and one over an entry has

        def entry(*one: Any) -> list[Tensor]:
            kept = call("forward", *one[:SHARED], 0)[values(layers) :]
            return call("backward", *one[:SHARED], kept, *one[GRADS : GRADS + 2])

        if name == "backward_rows":
            return None
        results = each_entry(entry, size, [*dims[:KEPT], None, *dims[GRADS:]], [*args[:KEPT], None, *args[GRADS:]])
        return results, [0] * len(results)
    rest = (*shared, args[KEPT], grads, args[GRADS + 1])
    if name == "backward" and by_row:
        results = call("backward", *rest)
    else:
        results = call("backward_rows", *rest, size * (args[GRADS + 2] if name == "backward_rows" else 1))
    trained = len(layers.shapes) - len(layers.fixed)
    whole = results[:trained]
    if name == "backward_rows" or any(_several(layers, dims, args)):  # there is an axis of groups already
        whole = [_apart(t, size, 0) for t in whole]
    places: list[int | None] = [*[0] * trained, *[1] * (len(results) - trained)]
    return [*whole, *(_apart(t, size, 1) for t in results[trained:])], places


def _folded(layers: Layers, size: int, dims: Sequence[Any], args: Sequence[Any]) -> tuple[bool, list[Any]] | None:
    """Whether there are weights by row, and the arguments that all operators share with the entries
    as rows; None where that can't be: nothing but gradients is mapped, or numbers are drawn."""
    of_rows = [*dims[INPUTS], *dims[STATES], dims[LENGTHS], dims[RESETS]]
    if args[SEED] is not None or all(d is None for d in (*of_rows, *dims[PARAMS])):
        return None
    params, several = list(args[PARAMS]), _several(layers, dims, args)
    by_row = any(d is not None for d in dims[PARAMS]) or any(several)
    if by_row:
        if layers.learn_initial or not all(layer.kernel.takes_groups for layer in layers.layers):
            return None
        params = [_first(p, d, size) for p, d in zip(params, dims[PARAMS], strict=True)]
        params = [p.flatten(0, 1) if more else p for p, more in zip(params, several)]
    shared = list(args[:SHARED])
    shared[PARAMS] = params
    for place in (INPUTS, STATES):
        shared[place] = [_rows(t, d, size, 1) for t, d in zip(args[place], dims[place], strict=True)]
    for place, axis in ((LENGTHS, 0), (RESETS, 1)):
        if args[place] is not None:
            shared[place] = _rows(args[place], dims[place], size, axis)
    return by_row, shared


def _several(layers: Layers, dims: Sequence[Any], args: Sequence[Any]) -> list[bool]:
    """Which params are weights by row already, beside the mapped axis."""
    shapes = layers.shapes.values()
    return [p.dim() - (d is not None) > len(s) for p, d, s in zip(args[PARAMS], dims[PARAMS], shapes, strict=True)]


def _first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The entries along axis 0, the same for all where there is but one."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _rows(tensor: Tensor, dim: int | None, size: int, axis: int) -> Tensor:
    """The entries as rows, entry after entry; axis: that of rows."""
    whole = _first(tensor, dim, size).movedim(0, axis)
    return whole.flatten(axis, axis + 1)


def _apart(tensor: Tensor, size: int, axis: int) -> Tensor:
    """An axis of rows as one of entries and one of the rows of each."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])


def _differentiated(args: Sequence[Any]) -> bool:
    """Whether a derivative of the results may be asked for, by autograd or by a transform around
    this one."""
    kinds = {level.key().name for level in torch._C._functorch.get_interpreter_stack() or ()}
    tensors = [t for a in args for t in (a if isinstance(a, list | tuple) else [a]) if isinstance(t, Tensor)]
    return bool(kinds & {"Grad", "Jvp"}) or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


# --- entries one after another


def _zeros(arg: Any, dim: Any) -> Any:
    """One entry of zeros in place of none."""
    if isinstance(dim, list | tuple):
        return [_zeros(a, d) for a, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.new_zeros([1 if i == dim else n for i, n in enumerate(arg.shape)])


def each_entry(
    call: Callable[..., Sequence[Tensor]], size: int, dims: Sequence[Any], args: Sequence[Any]
) -> list[Tensor]:
    """The results of a call for each entry, stacked along axis 0."""
    found = [call(*(_entry(a, dim, i) for a, dim in zip(args, dims, strict=True))) for i in range(size)]
    columns = list(zip(*found, strict=True))
    if any(len({t.shape for t in column}) > 1 for column in columns):
        raise UnsupportedError(UNEQUAL)
    return [torch.stack(column) for column in columns]


def _entry(arg: Any, dim: Any, i: int) -> Any:
    if isinstance(dim, list | tuple):
        return [_entry(a, d, i) for a, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, i)
