"""The operators behind rnnspec.interop.torch: `rnnspec::forward`, `rnnspec::infer` and
`rnnspec::backward` of torch.ops.

They are functions of a text and of tensors alone. The text says what the layers are
(`Config.text`): whoever loads an exported program or a pickle makes the same Stack of it. Nothing
is remembered between calls: the tape is among the results of `forward`, as rows of bytes in real
tensors that autograd keeps and frees, and can save, move or drop like any other. Tensors are read
and results made without a copy.

Arguments: params, inputs and states in the order of Config; fed, given: a bit for each input, and
each state, that is given; lengths, resets: as of a Stack, or None; seed: an int64 number that
dropout and noise are drawn from, None for evaluation; threads: 0 for torch.get_num_threads().
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor

from rnnspec.errors import UnsupportedError
from rnnspec.language.load import loads
from rnnspec.layers import tapes
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import StackCall
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
TWICE = (
    "rnnspec has no gradients of gradients: the backward pass is a kernel, not a graph. Leave create_graph out, or"
    " write the cell with torch operations where a second derivative is needed."
)
MAPPED = (
    "torch.func.vmap does not map over rnnspec's layers, nor do jacrev, jacfwd and hessian, which use it: give the"
    " mapped axis as rows of the batch, which the kernels work on at once, or write a loop."
)
FORWARDS = "rnnspec has no forward-mode derivatives (jvp) in torch: use reverse mode (torch.func.grad, vjp)."
EVALUATED = (
    "these layers were traced for evaluation and keep no tape, so there is no gradient. Export them in training mode"
    " (.train(), under which dropout and noise act) to train what was exported."
)


@lru_cache(maxsize=64)
def stack_of(config: str, dtype: str, threads: int | None) -> Stack:
    """The Stack that a text describes."""
    described = json.loads(config)
    specs = [loads(text) for text in described.pop("cells")]
    layers = [specs[i] for i in described.pop("layers")]
    return Stack(layers, dtype=dtype, threads=threads, **described)


def _stack(config: str, params: Sequence[Tensor], inputs: Sequence[Tensor], threads: int | None = None) -> Stack:
    return stack_of(config, str((*params, *inputs)[0].dtype).removeprefix("torch."), threads)


def _array(tensor: Tensor) -> Array:
    """A view, whatever the strides and whether it requires a gradient."""
    return tensor.numpy(force=True)


def _tensors(arrays: Sequence[Array]) -> list[Tensor]:
    """Tensors of the arrays, on the same memory where that is contiguous. NumPy calls an axis of
    one step contiguous whatever its stride, and torch takes no negative ones: those are copied."""
    return [torch.from_numpy(np.asarray(a, order="C") if min(a.strides, default=0) >= 0 else a.copy()) for a in arrays]


def bits(known: Iterable[str], given: Collection[str]) -> int:
    """A bit for each of the known names, set where it is given."""
    return sum(1 << i for i, name in enumerate(known) if name in given)


def _chosen(known: Iterable[Any], which: int) -> list[Any]:
    """Those whose bit is set."""
    return [name for i, name in enumerate(known) if which >> i & 1]


def _arrays(known: Iterable[Any], which: int, tensors: Sequence[Tensor]) -> dict[Any, Array]:
    return {name: _array(t) for name, t in zip(_chosen(known, which), tensors, strict=True)}


def _split(tensors: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The first so many, the next so many, ..., and the rest."""
    ends = [*itertools.accumulate(counts), len(tensors)]
    return [list(tensors[a:b]) for a, b in zip([0, *ends], ends)]


def _call(
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
    before = _arrays(stack.states, given, states)
    return stack.call(
        dict(zip(stack.shapes, map(_array, params), strict=True)),
        _arrays(stack.inputs, fed, inputs),
        [before.get(n) for n in stack.states],
        None if lengths is None else _array(lengths),
        resets=None if resets is None else _array(resets),
        training=seed is not None,
        seed=0 if seed is None else int(seed),
    )


@torch.library.custom_op(
    "rnnspec::forward", mutates_args=(), device_types=DEVICES, schema=f"({ARGUMENTS}, int threads) -> Tensor[]"
)
def forward(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    """Outputs, final states, recorded values; then the number of threads and the tapes, for
    `backward`.

    config: the layers, as `Config.text` has them. params: every weight, in the order of
    `Stack.shapes`. inputs [T, B, ...], states [L * D, B, ...]: those that are given, whose bits are
    set in fed and given (`bits`). lengths: [B] integers, resets: [T, B] booleans, None without.
    seed: one integer, of dropout and noise, None at evaluation. threads: 0 for torch's number.
    """
    threads = threads or torch.get_num_threads()
    stack = _stack(config, params, inputs, threads)
    call = _call(stack, params, inputs, states, fed, given, lengths, resets, seed)
    run, rows = stack.run_record(call)
    return _tensors([*run.outputs.values(), *run.final, *run.steps.values(), np.array([threads], np.int64), *rows])


@torch.library.custom_op(
    "rnnspec::infer", mutates_args=(), device_types=DEVICES, schema=f"({ARGUMENTS}, int threads) -> Tensor[]"
)
def infer(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    """Outputs, final states, recorded values. Arguments are those of `forward`."""
    stack = _stack(config, params, inputs, threads or torch.get_num_threads())
    run = stack.run_infer(_call(stack, params, inputs, states, fed, given, lengths, resets, seed))
    return _tensors([*run.outputs.values(), *run.final, *run.steps.values()])


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
    states. kept: of `forward`; grads: of its results for which a bit of `which` is set, the others
    count as zero. The other arguments are those of `forward`."""
    stack = _stack(config, params, inputs, int(kept[0]))
    call = _call(stack, params, inputs, states, fed, given, lengths, resets, seed)
    run = stack.run_resume(call, [_array(k) for k in kept[1:]])
    outputs, states_, steps = list(stack.outputs), list(stack.states), list(stack.steps)
    arrays = _arrays(range(len(outputs + states_ + steps)), which, grads)
    count = values(stack.description)
    dy, dstate, dsteps = _split([arrays.get(i) for i in range(count)], (len(outputs), len(states_)))
    result = stack.backward(run, dict(zip(outputs, dy)), dstate, dict(zip(steps, dsteps)))
    before = dict(zip(states_, result.states))
    return _tensors(
        [
            *(result.params[n] for n in stack.shapes if n not in stack.fixed),
            *(result.inputs[n] for n in differentiable(stack.description, fed)),
            *(before[n] for n in _chosen(states_, given)),
        ]
    )


def values(layers: Layers) -> int:
    """How many results there are beside what is kept."""
    return len(layers.outputs) + len(layers.states) + len(layers.steps)


def differentiable(layers: Layers, fed: int) -> list[str]:
    """The inputs that are given and have a gradient."""
    first = layers.layers[0]
    names = {
        n
        for layer in layers.layers
        for n in (*layer.others, *([first.main] if layer is first else []))
        if n not in layer.spec.no_gradient
    }
    return [n for n in _chosen(layers.inputs, fed) if n in names]


# --- shapes, for tracing


def _empty(layers: Layers, like: Tensor) -> list[Tensor]:
    """The results of a call on inputs like this one."""
    steps, rows = like.shape[:2]
    shapes = [(steps, rows, *s) for s in layers.outputs.values()]
    shapes += [(s[0], rows, *s[1:]) for s in layers.states.values()]
    return [like.new_empty(shape) for shape in (*shapes, *((steps, rows, *s) for s in layers.steps.values()))]


@infer.register_fake
def _(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    return _empty(_stack(config, params, inputs).description, inputs[0])


@forward.register_fake
def _(config, params, inputs, states, fed, given, lengths, resets, seed, threads):  # type: ignore[no-untyped-def]
    layers = _stack(config, params, inputs).description
    count = tapes.count(layers, seed is not None)
    if inputs[0].device.type == "meta":  # has no sizes that depend on data
        sizes = [0] * count
    else:  # the size of a tape depends on how rows are dealt out to threads, and on lengths
        sizes = [torch.library.get_ctx().new_dynamic_size() for _ in range(count)]
    return [
        *_empty(layers, inputs[0]),
        inputs[0].new_empty(1, dtype=torch.int64),
        *(inputs[0].new_empty(n, dtype=torch.uint8) for n in sizes),
    ]


@backward.register_fake
def _(  # type: ignore[no-untyped-def]
    config, params, inputs, states, fed, given, lengths, resets, seed, kept, grads, which
):
    layers = _stack(config, params, inputs).description
    with_gradient = [x for n, x in zip(_chosen(layers.inputs, fed), inputs) if n in differentiable(layers, fed)]
    trained = [p for n, p in zip(layers.shapes, params) if n not in layers.fixed]
    return [x.new_empty(x.shape) for x in (*trained, *with_gradient, *states)]


# --- autograd


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    config, params, x, states, fed, given, lengths, resets, seed, _ = inputs
    layers = _stack(config, params, x).description
    ctx.set_materialize_grads(False)
    ctx.config, ctx.given, ctx.counts = config, (fed, given), (len(params), len(x), len(states), 3)
    ctx.trained = [n not in layers.fixed for n in layers.shapes]
    ctx.with_gradient = [n in differentiable(layers, fed) for n in _chosen(layers.inputs, fed)]
    ctx.values = values(layers)
    ctx.save_for_backward(*params, *x, *states, lengths, resets, seed, *output[ctx.values :])


def _gradients(
    ctx: Any, grads: list[Tensor | None], operator: Callable[..., list[Tensor]] | None = None
) -> tuple[Any, ...]:
    params, inputs, states, beside, kept = _split(ctx.saved_tensors, ctx.counts)
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
    return None, dparams, dinputs, list(results), None, None, None, None, None, None


def _refuse(text: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError(text)

    return refuse


# without Dynamo, which after a break in a graph would trace into it, down to the making of a Stack
forward.register_autograd(_gradients, setup_context=torch._disable_dynamo(_setup))
backward.register_autograd(_refuse(TWICE))
infer.register_autograd(_refuse(EVALUATED))
for _operator in (forward, infer, backward):
    _operator.register_vmap(_refuse(MAPPED))


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
        *groups, beside = _split(flat, counts)
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
        *groups, beside, tapes, dy = _split(flat, counts)
        return config, *groups, fed, given, *beside, tapes, dy, which

    return list(_BackwardOp.apply(nested, *params, *inputs, *states, lengths, resets, seed, *kept, *grads))


class _ForwardOp(torch.autograd.Function):
    vmap, jvp = staticmethod(_refuse(MAPPED)), staticmethod(_refuse(FORWARDS))

    @staticmethod
    def forward(nested: Any, *flat: Any) -> tuple[Tensor, ...]:
        return tuple(torch.ops.rnnspec.forward(*nested(flat)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _setup(ctx, inputs[0](inputs[1:]), list(output))
        ctx.mark_non_differentiable(*output[ctx.values :])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        _, params, inputs, states, *_ = _gradients(ctx, list(grads), _transformed_backward)
        return None, *params, *inputs, *states, None, None, None


class _BackwardOp(torch.autograd.Function):
    vmap, jvp, backward = staticmethod(_refuse(MAPPED)), staticmethod(_refuse(FORWARDS)), staticmethod(_refuse(TWICE))

    @staticmethod
    def forward(nested: Any, *flat: Any) -> tuple[Tensor, ...]:
        return tuple(torch.ops.rnnspec.backward(*nested(flat)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no derivative of it."""
