"""Cells as PyTorch modules: what torch.nn.LSTM does, for any cell.

    from rnnspec.interop.torch import Recurrent

    # in place of torch.nn.LSTM(16, 32, num_layers=2, bidirectional=True)
    layer = Recurrent("lstm", 16, 32, num_layers=2, bidirectional=True)
    y, (h, c) = layer(x)  # x [T, B, 16], y [T, B, 64], h and c [4, B, 32]

`describe` and `recurrent` are the same without a module. Both run on operators of torch.library
(see torch_ops.py), so that autograd, torch.compile, torch.export and torch.func.functional_call
know them. CPU, float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.interop import torch_ops
from rnnspec.interop.torch_arguments import (
    as_tensor,
    autocast,
    by_name,
    check_tensors,
    inputs_of,
    time_first,
    weights_of,
)
from rnnspec.interop.torch_autograd import transformed
from rnnspec.interop.torch_config import Config, check_backend, config_of, describe, dtype_name, with_nonlinearity
from rnnspec.interop.torch_names import Names, call_in, in_torchs_order, settings_of
from rnnspec.language.spec import STEP
from rnnspec.layers.description import Cell
from rnnspec.layers.stack import Stack

ONNX = (
    "torch.onnx.export has no operators for these layers. Where the cell has a layer of torch, export the model with"
    " that in its place: torch.nn.LSTM(...).load_state_dict(layer.state_dict()). torch.export.export and"
    " torch.jit.trace take the layer as it is."
)

__all__ = ["Config", "Recurrent", "describe", "recurrent"]


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
    if isinstance(input, PackedSequence):
        return _packed(config, weights, input, hx, lengths, resets, {"training": training, "threads": threads})
    inputs, single = inputs_of(config, input, batch_first)
    (params, inputs, states), low = autocast(weights_of(config, weights), inputs, _states(config, hx, single))
    check_tensors(
        {f"weight {n!r}": t for n, t in params.items()}
        | {f"input {n!r}": t for n, t in inputs.items()}
        | {f"state {n!r}": t for n, t in states.items() if n != STEP}
    )
    tensors = [list(group.values()) for group in (params, inputs, states)]
    again = None if resets is None else time_first(_own(resets), single, batch_first)
    seed = torch.randint(2**63 - 1, ()) if training and config.random else None
    fed, given = torch_ops.bits(dict(config.inputs), inputs), torch_ops.bits(dict(config.states), states)
    results = _operator(tensors, training)(
        config.text, *tensors, fed, given, _lengths(lengths, single), again, seed, threads or 0
    )
    if low is not None:
        results = [t.to(low) if t.is_floating_point() else t for t in results]
    return _results(config, results, single, batch_first)


def _operator(groups: list[list[Tensor]], training: bool) -> Any:
    """The one that keeps a tape, where it is wanted. A program traced or exported for evaluation
    has none, though its weights require gradients."""
    if torch._C._are_functorch_transforms_active():
        return transformed  # whatever requires a gradient: wrapped tensors do not say so
    torch_ops.refuse_duals(*groups)
    tracing = torch.jit.is_tracing()  # which checks what it traced under no_grad, and wants the same
    wanted = any(t.requires_grad for group in groups for t in group) and (tracing or torch.is_grad_enabled())
    # before torch 2.7 an exported program keeps a tape that nobody reads
    exporting = getattr(torch.compiler, "is_exporting", lambda: False)()
    if torch.onnx.is_in_onnx_export():
        raise UnsupportedError(ONNX)
    if not wanted or ((exporting or tracing) and not training):
        return torch.ops.rnnspec.infer
    return torch.ops.rnnspec.forward


# --- tensors in


def _states(config: Config, hx: Any, single: bool) -> dict[str, Tensor]:
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


class Recurrent(Names):
    """Layers of a cell, as torch.nn.LSTM is for one: the same arguments, parameters
    (`weight_ih_l0`, ...) and results, so that state_dicts go both ways.

    cell: a name, a path to a YAML file, a Spec, or a list of these, one for each layer. merge,
    share_directions, residual, go_backwards, learn_initial, return_all_states, sizes, memory, and
    the cell's choices and constants: as for rnnspec.Recurrent; nonlinearity ("tanh", "relu"): the
    choice of a cell that makes it that torch.nn.RNN, by position before bias too. A cell without a
    torch layout has its own parameters, with the same endings (`W_i_l0`); fixed ones are buffers.
    device, dtype: of the parameters (torch.float32, torch.float64); threads: None for
    torch.get_num_threads().

    layer(input, hx, lengths, resets) -> y, state: see `recurrent`. The Config is `layer.config`.
    """

    @in_torchs_order
    def __init__(
        self,
        cell: Cell | Sequence[Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str | None = None,
        merge: str = "concat",
        share_directions: bool = False,
        residual: bool = False,
        go_backwards: bool = False,
        learn_initial: bool = False,
        return_all_states: bool | Sequence[str] = False,
        backend: str = "cpu",
        threads: int | None = None,
        memory: str = "full",
        sizes: Mapping[str, int] | None = None,
        **settings: object,
    ):
        super().__init__()
        if not isinstance(batch_first, bool):
            raise TypeError(f"batch_first must be True or False, got {batch_first!r}.")
        kind = torch.get_default_dtype() if dtype is None else dtype
        given: dict[str, Any] = {
            "input_size": input_size,
            "hidden_size": hidden_size,
            "bias": bias,
            "dropout": dropout,
            "bidirectional": bidirectional,
            "proj_size": proj_size,
        }
        check_backend(backend)
        more: dict[str, Any] = {"merge": merge, "share_directions": share_directions, "residual": residual}
        more |= {"go_backwards": go_backwards, "learn_initial": learn_initial, "return_all_states": return_all_states}
        more |= {"memory": memory, "sizes": sizes}
        chosen = {"dtype": dtype_name(kind), "threads": threads, **with_nonlinearity(cell, settings, nonlinearity)}
        layers = Stack(cell, num_layers=num_layers, **given, **more, **chosen).description
        self.config = config_of(layers, given, more)
        self.batch_first, self.threads = batch_first, threads
        self._settings = settings_of(layers, given)
        self._register(device, kind)
        self.reset_parameters()

    def _register(self, device: Any, dtype: torch.dtype) -> None:
        """Makes the weights, without values."""
        for name, shape in self.config.weights:
            empty = torch.empty(shape, device=device, dtype=dtype)
            if name in self.config.fixed:
                self.register_buffer(name, empty)
            else:
                self.register_parameter(name, torch.nn.Parameter(empty))

    def reset_parameters(self) -> None:
        """Draws the weights anew, by torch's generator: where all cells have a torch layout and say
        nothing else under `init`, the numbers that torch.nn.LSTM draws, in its order; elsewhere as
        `init` says."""
        if self._settings["plain"]:
            bound = 1 / math.sqrt(self.hidden_size)
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter, -bound, bound)
            return
        tensors = {n: getattr(self, n) for n, _ in self.config.weights}
        if any(t.is_meta or isinstance(t, FakeTensor) for t in tensors.values()):
            return
        first = next(iter(tensors.values()), None)
        values = {} if first is None else self.config.init(int(torch.randint(2**63 - 1, ())), first.dtype)
        with torch.no_grad():
            for name, tensor in tensors.items():
                if name in self._parameters or name in self._buffers:
                    tensor.copy_(values[name])
                else:  # parametrized: what it is made of is set
                    setattr(self, name, values[name])

    def forward(self, input: Any, hx: Any = None, lengths: Any = None, resets: Any = None) -> Any:
        if isinstance(input, torch.fx.Proxy):
            return call_in(input.tracer, self, (input, hx, lengths, resets))
        weights = {n: getattr(self, n) for n, _ in self.config.weights}
        return recurrent(
            self.config,
            weights,
            input,
            hx,
            lengths,
            resets=resets,
            training=self.training,
            batch_first=self.batch_first,
            threads=self.threads,
        )
