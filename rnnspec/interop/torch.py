"""Cells as PyTorch modules: what torch.nn.LSTM does, for any cell.

    from rnnspec.interop.torch import Recurrent

    # in place of torch.nn.LSTM(16, 32, num_layers=2, bidirectional=True)
    layer = Recurrent("lstm", 16, 32, num_layers=2, bidirectional=True)
    y, (h, c) = layer(x)  # x [T, B, 16], y [T, B, 64], h and c [4, B, 32]

`describe` and `recurrent` are the same without a module. Both run on operators of torch.library
(see torch_ops.py), so that autograd, torch.compile, torch.export and torch.func.functional_call
know them; calls that nothing follows run the same functions past the dispatcher. CPU, float32 and
float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from rnnspec.interop.torch_calls import recurrent
from rnnspec.interop.torch_cell import Cell
from rnnspec.interop.torch_config import Config, check_backend, describe, with_nonlinearity
from rnnspec.interop.torch_names import Names, call_in, in_torchs_order
from rnnspec.interop.torch_stream import Stream, windows
from rnnspec.layers.description import Cell as AnyCell
from rnnspec.layers.runs import Window

__all__ = ["Cell", "Config", "Recurrent", "describe", "recurrent"]


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
        cell: AnyCell | Sequence[AnyCell],
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
        given: dict[str, Any] = {
            "input_size": input_size,
            "hidden_size": hidden_size,
            "bias": bias,
            "dropout": dropout,
            "bidirectional": bidirectional,
            "proj_size": proj_size,
        }
        self.batch_first, self.threads = batch_first, threads
        check_backend(backend)
        more: dict[str, Any] = {"merge": merge, "share_directions": share_directions, "residual": residual}
        more |= {"go_backwards": go_backwards, "learn_initial": learn_initial, "return_all_states": return_all_states}
        more |= {"memory": memory, "sizes": sizes}
        self._make(cell, given, more, with_nonlinearity(cell, settings, nonlinearity), num_layers, device, dtype)

    def forward(self, input: Any, hx: Any = None, lengths: Any = None, resets: Any = None) -> Any:
        if type(input) is not torch.Tensor and isinstance(input, torch.fx.Proxy):
            return call_in(input.tracer, self, (input, hx, lengths, resets))
        return recurrent(
            self.config,
            self.weights(),
            input,
            hx,
            lengths,
            resets=resets,
            training=self.training,
            batch_first=self.batch_first,
            threads=self.threads,
        )

    def windows(
        self, input: Any, steps: int, hx: Any = None, lengths: Any = None, resets: Any = None
    ) -> Iterator[Window]:
        """Runs a long sequence window by window, carrying the state: truncated backpropagation
        through time.

        Each Window (steps, a slice; y, state, recorded, as of a call) comes after a call on its
        `steps`, so a backward pass and an update of the weights may follow; the state goes on
        without its gradient, so none crosses from one window to the one before. For layers that run
        forwards only. steps: of a window, the last may be shorter; the other arguments: of the
        whole sequence, as of a call. Noise that is drawn once a sequence is so here. Raises
        ValueError, ShapeError, and UnsupportedError for a PackedSequence.
        """
        return windows(self, self.batch_first, input, steps, hx, lengths, resets)

    def stream(self, hx: Any = None, *, rows: int = 1) -> Stream:
        """A sequence that arrives step by step: `stream.step(x)` for each, x [B, D], through all
        layers, without a gradient; in evaluation, and for layers that run forwards only.

        The weights are read and packed here: later changes, as of an optimiser, are not seen until
        `stream.refresh()`. hx: the state before the first step, as of a call; rows: of the batch.
        Raises ValueError for layers with a direction that runs from the end, and in training mode
        where dropout or noise would act.
        """
        return Stream(self, hx, rows)
