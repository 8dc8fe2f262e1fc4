"""Calls of layers in torch, as functions of a Config and of tensors.

In: whatever was passed to a module or to `recurrent`. Out: tensors, with the axes of the input. One
step without a gradient takes a way of its own (torch_eager.py); all else runs an operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.interop import torch_eager, torch_ops
from rnnspec.interop.torch_arguments import (
    as_tensor,
    autocast,
    by_name,
    check_tensors,
    inputs_of,
    resets_of,
    weights_of,
)
from rnnspec.interop.torch_autograd import eager, transformed
from rnnspec.interop.torch_config import Config
from rnnspec.language.spec import STEP

ONNX = (
    "torch.onnx.export has no operators for these layers. Where the cell has a layer of torch, export the model with"
    " that in its place: torch.nn.LSTM(...).load_state_dict(layer.state_dict()). torch.export.export and"
    " torch.jit.trace take the layer as it is."
)


def recurrent(
    config: Config,
    weights: Mapping[str, Tensor],
    input: Any,
    hx: Any = None,
    lengths: Any = None,
    *,
    resets: Any = None,
    training: bool = False,
    batch_first: bool = False,
    threads: int | None = None,
) -> Any:
    """Layers as a function: y, the state after the last step, and a dict of values they record.

    weights: one tensor for each name in config.weights, all float32 or all float64. input: [T, B,
    D] ([B, T, D] with batch_first, [T, D] for one row), a PackedSequence, or for a cell with
    several inputs a dict or a tuple of tensors. hx: the state before the first step, as
    torch.nn.LSTM takes it: [layers * directions, B, H], a tuple of these where there are several;
    entries may be None. Of cells that count their steps, and of these alone, it ends with the
    count, int64 [layers * directions, B]: (h, c, t). lengths: [B] integers in any order, zeros too:
    the steps of each row. resets: [T, B] booleans, axes as of input: whether a row starts over
    before that step. training: whether dropout and noise act; they are drawn by torch's generator
    (torch.manual_seed). threads: None for torch.get_num_threads().

    Without gradients (torch.no_grad, or nothing requires one) no tape is kept. Nothing is copied or
    cast on the way in or out, but under torch.autocast: there bfloat16 and float16 come in as
    float32, and results go out in autocast's dtype. Raises ShapeError, DtypeError, and ValueError
    for lengths; BackendUnavailable for tensors on a device that has no kernels.
    """
    if type(input) is Tensor:
        if lengths is None and resets is None and not (training and config.random) and torch_eager.unseen():
            found = _one_step(config, weights, input, hx, batch_first, threads)
            if found is not None:
                return found
    elif isinstance(input, PackedSequence):
        return _packed(config, weights, input, hx, lengths, resets, {"training": training, "threads": threads})
    inputs, single = inputs_of(config, input, batch_first)
    again = None if resets is None else resets_of(_own(resets), inputs, single, batch_first)
    axes = single, batch_first
    states = states_of(config, hx, single)
    ends, seed = _lengths(lengths, single), seed_of(config, training)
    return run(config, weights, inputs, states, ends, again, seed, axes, threads, training)


def seed_of(config: Config, training: bool) -> Tensor | None:
    """What dropout and noise of a call are drawn from; None where nothing is."""
    return torch.randint(2**63 - 1, ()) if training and config.random else None


def run(
    config: Config,
    weights: Mapping[str, Tensor],
    inputs: dict[str, Tensor],
    states: dict[str, Tensor],
    lengths: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    axes: tuple[bool, bool],
    threads: int | None,
    training: bool,
) -> Any:
    """The results of `recurrent`, of inputs and states by name, time first. seed: as of the
    operators; axes: whether arrays came without rows, and with the rows first; training: whether it
    is, though nothing is drawn."""
    (params, inputs, states), low = autocast(weights_of(config, weights), inputs, states)
    check_tensors(
        {f"weight {n!r}": t for n, t in params.items()}
        | {f"input {n!r}": t for n, t in inputs.items()}
        | {f"state {n!r}": t for n, t in states.items() if n != STEP}
    )
    tensors = [list(group.values()) for group in (params, inputs, states)]
    fed, given = torch_ops.bits(dict(config.inputs), inputs), torch_ops.bits(dict(config.states), states)
    results = _operator(tensors, training)(config.text, *tensors, fed, given, lengths, resets, seed, threads or 0)
    if low is not None:
        results = [t.to(low) if t.is_floating_point() else t for t in results]
    return _results(config, results, *axes)


def _one_step(
    config: Config, weights: Mapping[str, Tensor], x: Tensor, hx: Any, batch_first: bool, threads: int | None
) -> Any:
    """The results of a call of one step, where it can be had without an operator; else None."""
    axes, count = x.dim(), len(config.states)
    if axes not in (2, 3) or x.size(1 if batch_first and axes == 3 else 0) != 1:
        return None
    single, state = axes == 2, states_given(hx, count)
    if state is None:
        return None
    if single:
        x, state = x[None], [None if s is None else s.unsqueeze(1) for s in state]
    elif batch_first:
        x = x.transpose(0, 1)
    found = torch_eager.one_step(config, weights, x, state, threads)
    if found is None:
        return None
    outputs, states, recorded = found
    if single or batch_first or recorded:
        return _results(config, [*outputs, *states, *recorded], single, batch_first)
    return outputs[0] if len(outputs) == 1 else tuple(outputs), states[0] if count == 1 else tuple(states)


def states_given(hx: Any, count: int) -> Sequence[Tensor | None] | None:
    """The states of a call as so many tensors; None where they are something else, or not plain."""
    if count == 1 and type(hx) is Tensor:
        return (hx,)
    state = hx if type(hx) in (tuple, list) else (hx,) * (count if hx is None else 1)
    if len(state) != count or not all(s is None or type(s) is Tensor for s in state):
        return None
    return state


def _operator(groups: list[list[Tensor]], training: bool) -> Any:
    """The one that keeps a tape, where it is wanted. A program traced or exported for evaluation
    has none, though its weights require gradients."""
    if torch._C._are_functorch_transforms_active():
        return transformed  # whatever requires a gradient: wrapped tensors do not say so
    if torch_ops.has_duals(*groups):
        return transformed
    tracing = torch.jit.is_tracing()  # which checks what it traced under no_grad, and wants the same
    wanted = any(t.requires_grad for group in groups for t in group) and (tracing or torch.is_grad_enabled())
    # before torch 2.7 an exported program keeps a tape that nobody reads
    exporting = getattr(torch.compiler, "is_exporting", lambda: False)()
    if torch.onnx.is_in_onnx_export():
        raise UnsupportedError(ONNX)
    plain = torch_eager.unseen() and all(torch_eager.plain_memory(t) for group in groups for t in group)
    if not wanted or ((exporting or tracing) and not training):
        return torch_ops.untaped if plain else torch.ops.rnnspec.infer
    return eager if plain else torch.ops.rnnspec.forward


# --- tensors in


def states_of(config: Config, hx: Any, single: bool) -> dict[str, Tensor]:
    """The states that are given, with a batch axis."""
    if hx is None:
        return {}
    given = _given(config, hx, () if single else None)
    return {n: t.unsqueeze(1) if single else t for n, t in given.items()}


def _given(config: Config, hx: Any, rows: tuple[int, ...] | None) -> dict[str, Tensor]:
    """The states that are given, by name, and checked against the axis of rows, where it is known
    here and not only to the operator."""
    given = by_name(hx, [n for n, _ in config.states], "state")
    tensors = {n: as_tensor(f"state {n!r}", t) for n, t in given.items() if t is not None}
    for name, (first, *rest) in config.states:
        shape = (first, *(rows or ()), *rest)
        if rows is not None and name in tensors and tuple(tensors[name].shape) != shape:
            raise ShapeError(f"state {name!r} must have shape {shape}, got {tuple(tensors[name].shape)}.")
    return tensors


def _lengths(lengths: Any, single: bool) -> Tensor | None:
    if lengths is None:
        return None
    tensor = _own(lengths)
    return tensor.unsqueeze(0) if single and tensor.dim() == 0 else tensor


def _own(value: Any) -> Tensor:
    """A tensor as it is, whose changes autograd notices; a copy of anything else, for backward
    reads it again."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value).clone()


# --- axes


def _results(config: Config, tensors: list[Tensor], single: bool, batch_first: bool) -> Any:
    """What an operator gave, with the axes of the input."""
    left = iter(tensors)

    def ready(tensor: Tensor) -> Tensor:
        return tensor.select(1, 0) if single else tensor.transpose(0, 1) if batch_first else tensor

    outputs = tuple(ready(next(left)) for _ in config.outputs)
    states = tuple(s.select(1, 0) if single else s for s in (next(left) for _ in config.states))
    results = outputs[0] if len(outputs) == 1 else outputs, states[0] if len(states) == 1 else states
    return (*results, {n: ready(next(left)) for n, _ in config.recorded}) if config.recorded else results


def _packed(
    config: Config,
    weights: Mapping[str, Tensor],
    x: PackedSequence,
    hx: Any,
    lengths: Any,
    resets: Any,
    options: Mapping[str, Any],
) -> Any:
    """Runs layers over a PackedSequence, whose rows are sorted by length: outputs come as one with
    the same rows, states in the caller's order."""
    if len(config.required) > 1 or lengths is not None or resets is not None:
        raise UnsupportedError(
            "a PackedSequence is one input and has its lengths: to give several inputs, lengths or resets, give padded"
            " tensors (torch.nn.utils.rnn.pad_packed_sequence)."
        )
    padded, steps = pad_packed_sequence(PackedSequence(x.data, x.batch_sizes))
    if hx is not None and x.sorted_indices is not None:
        given = _given(config, hx, (padded.shape[1],))  # before they are sorted: of too many rows that would take some
        hx = tuple(
            s.index_select(1, x.sorted_indices) if (s := given.get(n)) is not None else None for n, _ in config.states
        )
    outputs, states, *recorded = recurrent(config, weights, padded, hx, steps, **options)

    def packed(y: Any) -> Any:
        if isinstance(y, tuple):
            return tuple(map(packed, y))
        return PackedSequence(pack_padded_sequence(y, steps).data, x.batch_sizes, x.sorted_indices, x.unsorted_indices)

    def unsorted(s: Any) -> Any:
        return (
            tuple(map(unsorted, s))
            if isinstance(s, tuple)
            else s
            if x.unsorted_indices is None
            else s.index_select(1, x.unsorted_indices)
        )

    return (packed(outputs), unsorted(states), *({n: packed(y) for n, y in r.items()} for r in recorded))
