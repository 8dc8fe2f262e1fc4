"""torch.nn.LSTM, GRU and RNN (inference_mode, or autograd in training), and their Cell classes for
single steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from bench.case import CHECKED_STEPS, Array, Case, Data
from bench.peers import Prepared, named
from rnnspec.language.layouts import pack

LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
CELLS = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell, "rnn": torch.nn.RNNCell}
LAYOUTS = {"lstm": "torch.LSTM", "gru": "torch.GRU", "rnn": "torch.RNN"}


def supports(case: Case) -> bool:
    return case.cell in LAYERS


def prepare(case: Case, data: Data, threads: int) -> Prepared:
    torch.set_num_threads(threads)
    blocks = {n: torch.tensor(a) for n, a in pack(data.spec, LAYOUTS[case.cell], data.params).items()}
    dtype = getattr(torch, case.dtype)
    if case.mode == "step":
        cell = CELLS[case.cell](case.D, case.H, dtype=dtype)
        cell.load_state_dict(blocks)
        return _step(cell, data)
    layer = LAYERS[case.cell](case.D, case.H, dtype=dtype)
    layer.load_state_dict({f"{n}_l0": a for n, a in blocks.items()})
    layer.flatten_parameters()
    if case.mode == "inference":
        layer.eval()
    made = passes(layer, data.x, data.dy if case.mode == "training" else None)
    return Prepared(made.call, lambda: _named(made.values(), data, LAYOUTS[case.cell]))


def passes(layer: torch.nn.Module, x: Array, dy: Array | None) -> Prepared:
    """Inference without gradients, or with dy forward and backward, for gradients of all weights
    and of x.

    x [T, B, D], dy as the output. Values: "y", and with dy the gradients by names, "x" and the
    layer's own.
    """
    inputs, d_outputs = torch.tensor(x, requires_grad=dy is not None), None if dy is None else torch.tensor(dy)

    def infer() -> torch.Tensor:
        with torch.inference_mode():
            return layer(inputs)[0]

    def train() -> torch.Tensor:
        layer.zero_grad()
        inputs.grad = None
        y = layer(inputs)[0]
        y.backward(d_outputs)
        return y

    def gradients() -> dict[str, Array]:
        y = train().detach().numpy()
        return {"y": y, "x": inputs.grad.numpy()} | {n: p.grad.numpy() for n, p in layer.named_parameters()}

    return Prepared(infer, lambda: {"y": infer().numpy()}) if dy is None else Prepared(train, gradients)


def _named(values: Mapping[str, Array], data: Data, layout: str) -> dict[str, Array]:
    """By the spec's names, from those of a layer of torch.nn."""
    found = {"h": values["y"]}
    if len(values) == 1:
        return found
    blocks = {n.removesuffix("_l0"): a for n, a in values.items() if n.endswith("_l0")}
    return found | {"x": values["x"]} | named(data.spec.layouts[layout], blocks)


def _step(cell: torch.nn.Module, data: Data) -> Prepared:
    x, lstm = torch.tensor(data.x[0]), data.case.cell == "lstm"
    state = None

    def call() -> torch.Tensor:
        nonlocal state
        with torch.inference_mode():
            state = cell(x, state)
        return state[0] if lstm else state

    def values() -> dict[str, Array]:
        return {"h": [call() for _ in range(CHECKED_STEPS)][-1].numpy()}

    return Prepared(call, values)
