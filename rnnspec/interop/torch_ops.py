"""The operators behind rnnspec.interop.torch: `rnnspec::forward`, `rnnspec::infer` and
`rnnspec::backward` of torch.ops.

They are functions of a text and of tensors alone. The text says what the layers are
(`Config.text`): whoever loads an exported program or a pickle makes the same Stack of it. Nothing
is remembered between calls: the tape is among the results of `forward`, as rows of bytes in real
tensors that autograd keeps and frees, and can save, move or drop like any other. Tensors are read
and results made without a copy.

Arguments: params, inputs and states in the order of Config; fed, given: a bit for each input, and
each state, that is given; lengths, resets: as of a Stack, or None; seed: an int64 number that
dropout and noise are drawn from, or two, the second for what is drawn once a sequence; None for
evaluation; threads: 0 for torch.get_num_threads().
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor
from torch.autograd import forward_ad

from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.language.load import loads
from rnnspec.layers import tapes
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import StackCall, StackGradients
from rnnspec.layers.stack import Stack

DEVICES = (
    "cpu",
    # where there are kernels. Those of another device are registered by
    # forward.register_kernel("cuda"), ..., and named here
)
ARGUMENTS = (
    "str config, Tensor[] params, Tensor[] inputs, Tensor[] states, int fed, int given, Tensor? lengths, Tensor?"
    " resets, Tensor? seed"
)
FORWARDS = (
    "dual tensors of forward mode reached an operator of rnnspec itself, which takes none: call the layer, or use"
    " torch.func.jvp."
)


@lru_cache(maxsize=64)
def stack_of(config: str, dtype: str, threads: int | None) -> Stack:
    """The Stack that a text describes."""
    described = json.loads(config)
    specs = [loads(text) for text in described.pop("cells")]
    layers = [specs[i] for i in described.pop("layers")]
    return Stack(layers, dtype=dtype, threads=threads, **described)


def stack_for(config: str, params: Sequence[Tensor], inputs: Sequence[Tensor], threads: int | None = None) -> Stack:
    return stack_of(config, str((*params, *inputs)[0].dtype).removeprefix("torch."), threads)


class _Memory:
    """A tensor as NumPy's from_dlpack takes it, whether it requires a gradient or not.

    Tensor.numpy() does not do: it makes the storage one that can't be resized, for good, and
    torch.distributed's fully_shard resizes those of weights.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return torch.utils.dlpack.to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def array_of(tensor: Tensor) -> Array:
    """A view, whatever the strides and whether it requires a gradient. Raises ShapeError for a
    tensor whose storage was made smaller than itself: it would be read beyond its end."""
    array = np.from_dlpack(_Memory(tensor))  # type: ignore[arg-type]
    held = tensor.untyped_storage().nbytes() - tensor.storage_offset() * array.itemsize
    if held < array.nbytes and array.size and held < _span(array):
        raise ShapeError(
            f"a tensor of shape {tuple(tensor.shape)} needs {_span(array)} bytes, and its storage has {max(0, held)}"
            " left: it was resized (untyped_storage().resize_), as sharding frees weights. Gather or fill it before"
            " the call."
        )
    return array


def _span(array: Array) -> int:
    """Bytes from the first number of an array to behind its last one; no stride is negative."""
    return array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides))


def has_duals(*groups: Sequence[Tensor]) -> bool:
    """Whether there are dual tensors of forward-mode differentiation."""
    if getattr(forward_ad, "_current_level", 0) < 0:  # outside of a dual level, which is cheap to see
        return False
    # below a tracer's mode torch can't unpack; what is traced was asked above it (torch_calls.py)
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.ADInplaceOrView):
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for group in groups for tensor in group)


def refuse_duals(*groups: Sequence[Tensor]) -> None:
    """Raises UnsupportedError for dual tensors: an operator would drop their tangents without a
    word, for torch asks one for a derivative only where something requires a gradient."""
    if has_duals(*groups):
        raise UnsupportedError(FORWARDS)


def tensors_of(arrays: Sequence[Array]) -> list[Tensor]:
    """Tensors of the arrays, on the same memory where that is contiguous. NumPy calls an axis of
    one step contiguous whatever its stride, and torch takes no negative ones: those are copied."""
    return [torch.from_numpy(np.asarray(a, order="C") if min(a.strides, default=0) >= 0 else a.copy()) for a in arrays]


def bits(known: Iterable[str], given: Collection[str]) -> int:
    """A bit for each of the known names, set where it is given."""
    return sum(1 << i for i, name in enumerate(known) if name in given)


def chosen(known: Iterable[Any], which: int) -> list[Any]:
    """Those whose bit is set."""
    return [name for i, name in enumerate(known) if which >> i & 1]


def _arrays(known: Iterable[Any], which: int, tensors: Sequence[Tensor]) -> dict[Any, Array]:
    return {name: array_of(t) for name, t in zip(chosen(known, which), tensors, strict=True)}


def split(tensors: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The first so many, the next so many, ..., and the rest."""
    ends = [*itertools.accumulate(counts), len(tensors)]
    return [list(tensors[a:b]) for a, b in zip([0, *ends], ends)]


def call_of(
    stack: Stack,
    params: Sequence[Tensor],
    inputs: Sequence[Tensor],
    states: Sequence[Tensor],
    fed: int,
    given: int,
    lengths: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
) -> StackCall:
    """The arguments of an operator, as a Stack takes them."""
    refuse_duals(params, inputs, states)
    before = _arrays(stack.carried, given, states)
    numbers = None if seed is None else seed.reshape(-1).tolist()
    call = stack.call(
        dict(zip(stack.shapes, map(array_of, params), strict=True)),
        _arrays(stack.inputs, fed, inputs),
        [before.get(n) for n in stack.carried],
        None if lengths is None else array_of(lengths),
        resets=None if resets is None else array_of(resets),
        training=numbers is not None,
        seed=numbers[0] if numbers else 0,
    )
    return replace(call, sequence=tuple(numbers[1:])) if numbers and len(numbers) > 1 else call


def taped(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    """Outputs, final states, recorded values; then the number of threads and the tapes, for
    `backward`.

    config: the layers, as `Config.text` has them. params: every weight, in the order of
    `Stack.shapes`. inputs [T, B, ...], states [L * D, B, ...]: those that are given, whose bits are
    set in fed and given (`bits`). lengths: [B] integers, resets: [T, B] booleans, None without.
    seed: one integer or two, of dropout and noise, None at evaluation. threads: 0 for torch's
    number.
    """
    threads = threads or torch.get_num_threads()
    stack = stack_for(config, params, inputs, threads)
    call = call_of(stack, params, inputs, states, fed, given, lengths, resets, seed)
    run, rows = stack.run_record(call)
    return tensors_of([*run.outputs.values(), *run.final, *run.steps.values(), np.array([threads], np.int64), *rows])


def untaped(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    """Outputs, final states, recorded values. Arguments are those of `taped`."""
    stack = stack_for(config, params, inputs, threads or torch.get_num_threads())
    run = stack.run_infer(call_of(stack, params, inputs, states, fed, given, lengths, resets, seed))
    return tensors_of([*run.outputs.values(), *run.final, *run.steps.values()])


forward, infer = (
    torch.library.custom_op(
        f"rnnspec::{name}", mutates_args=(), device_types=DEVICES, schema=f"({ARGUMENTS}, int threads) -> Tensor[]"
    )(function)
    for name, function in (("forward", taped), ("infer", untaped))
)


@torch.library.custom_op(
    "rnnspec::backward",
    mutates_args=(),
    device_types=DEVICES,
    schema=f"({ARGUMENTS}, Tensor[] kept, Tensor[] grads, int which) -> Tensor[]",
)
def backward(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which
):
    """Gradients of the params that are not fixed, of the inputs that have one, and of the given
    states but for the count of steps. kept: of `forward`; grads: of its results for which a bit of
    `which` is set, the others count as zero. The other arguments are those of `forward`."""
    return gradients_by(config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which)


def gradients_by(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which, per_row=None
) -> list[Tensor]:
    """What `backward` gives. per_row: makes gradients of params of those by row, [B, ...]."""
    refuse_duals(grads)
    stack = stack_for(config, params, inputs, int(kept[0]))
    call = call_of(stack, params, inputs, states, fed, given, lengths, resets, seed)
    run = stack.run_resume(call, [array_of(k) for k in kept[1:]])
    outputs, states_, steps = list(stack.outputs), list(stack.carried), list(stack.steps)
    arrays = _arrays(range(len(outputs + states_ + steps)), which, grads)
    count = values(stack.description)
    dy, dstate, dsteps = split([arrays.get(i) for i in range(count)], (len(outputs), len(states_)))
    flowing = (dict(zip(outputs, dy)), dstate[: len(stack.states)], dict(zip(steps, dsteps)))
    result = stack.backward(run, *flowing, per_row=per_row is not None)
    if per_row is not None:
        result = replace(result, params={n: per_row(a) for n, a in result.params.items()})
    return gradients_of(stack.description, result, params, inputs, states, fed, given)


def gradients_of(
    layers: Layers,
    found: StackGradients,
    params: Sequence[Tensor],
    inputs: Sequence[Tensor],
    states: Sequence[Tensor],
    fed: int,
    given: int,
) -> list[Tensor]:
    """The gradients that `backward` gives, from those of a Stack; the other arguments are the
    operator's."""
    before = dict(zip(layers.states, found.states))
    return [
        *_named_gradients(found.params, _trained(layers, params).items()),
        *_named_gradients(found.inputs, _differentiable(layers, fed, inputs).items()),
        *_named_gradients(before, ((n, s) for n, s in zip(chosen(layers.carried, given), states) if n in before)),
    ]


def with_gradient(
    layers: Layers, params: Sequence[Tensor], inputs: Sequence[Tensor], states: Sequence[Tensor], fed: int
) -> list[Tensor]:
    """What `backward` gives the gradients of, in its order."""
    before = filter(torch.is_floating_point, states)  # a count of steps has no gradient
    return [*_trained(layers, params).values(), *_differentiable(layers, fed, inputs).values(), *before]


def _named_gradients(found: Mapping[str, Array | None], like: Iterable[tuple[str, Tensor]]) -> list[Tensor]:
    """The gradients by name, in order, zeros like the tensor where there is none: of what a cell
    multiplies by nothing."""
    return [
        torch.zeros_like(tensor, memory_format=torch.contiguous_format)
        if (gradient := found.get(name)) is None
        else tensors_of([gradient])[0]
        for name, tensor in like
    ]


def values(layers: Layers) -> int:
    """How many results there are beside what is kept."""
    return len(layers.outputs) + len(layers.carried) + len(layers.steps)


def differentiable(layers: Layers, fed: int) -> list[str]:
    """The inputs that are given and have a gradient."""
    first = layers.layers[0]
    names = {
        n
        for layer in layers.layers
        for n in (*layer.others, *([first.main] if layer is first else []))
        if n not in layer.spec.no_gradient
    }
    return [n for n in chosen(layers.inputs, fed) if n in names]


def _differentiable(layers: Layers, fed: int, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """The inputs that are given and have a gradient, by name."""
    names = differentiable(layers, fed)
    return {n: x for n, x in zip(chosen(layers.inputs, fed), inputs, strict=True) if n in names}


def _trained(layers: Layers, params: Sequence[Tensor]) -> dict[str, Tensor]:
    """The weights that are not fixed, by name."""
    return {n: p for n, p in zip(layers.shapes, params, strict=True) if n not in layers.fixed}


# --- shapes, for tracing


def _empty(layers: Layers, like: Tensor) -> list[Tensor]:
    """The results of a call on inputs like this one."""
    steps, rows = like.shape[:2]
    outputs, recorded = (
        [like.new_empty((steps, rows, *s)) for s in known.values()] for known in (layers.outputs, layers.steps)
    )
    kinds = {n: like.dtype if n in layers.states else torch.int64 for n in layers.carried}
    states = [like.new_empty((s[0], rows, *s[1:]), dtype=kinds[n]) for n, s in layers.carried.items()]
    return [*outputs, *states, *recorded]


@infer.register_fake
def _(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    return _empty(stack_for(config, params, inputs).description, inputs[0])


@forward.register_fake
def _(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    layers = stack_for(config, params, inputs).description
    count = tapes.count(layers, seed is not None)
    if inputs[0].device.type == "meta" or not _has_symbols(inputs[0]):
        sizes = [0] * count
    else:  # the size of a tape depends on how rows are dealt out to threads, and on lengths
        sizes = [torch.library.get_ctx().new_dynamic_size() for _ in range(count)]
    return [
        *_empty(layers, inputs[0]),
        inputs[0].new_empty(1, dtype=torch.int64),
        *(inputs[0].new_empty(n, dtype=torch.uint8) for n in sizes),
    ]


def _has_symbols(tensor: Tensor) -> bool:
    """Whether the mode of a fake tensor has sizes that depend on data, as tracing has, and a
    FakeTensorMode by itself has not."""
    mode = getattr(tensor, "fake_mode", None)
    symbols = getattr(mode, "shape_env", None)
    return symbols is not None and symbols.allow_dynamic_output_shape_ops


@backward.register_fake
def _(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which
):
    layers = stack_for(config, params, inputs).description
    return [x.new_empty(x.shape) for x in with_gradient(layers, params, inputs, states, fed)]
