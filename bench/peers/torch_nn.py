"""torch.nn.LSTM, GRU and RNN (inference_mode, or autograd in training), and their Cell classes for single steps."""
from __future__ import annotations

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
    return _inference(layer, data) if case.mode == "inference" else _training(layer, data)


def _inference(layer: torch.nn.Module, data: Data) -> Prepared:
    layer.eval()
    x = torch.tensor(data.x)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return layer(x)[0]

    return Prepared(call, lambda: {"h": call().numpy()})


def _training(layer: torch.nn.Module, data: Data) -> Prepared:
    x, dy = torch.tensor(data.x, requires_grad=True), torch.tensor(data.dy)

    def call() -> torch.Tensor:
        layer.zero_grad()
        x.grad = None
        y = layer(x)[0]
        y.backward(dy)
        return y

    def values() -> dict[str, Array]:
        y = call().detach().numpy()
        gradients = {n.removesuffix("_l0"): p.grad.numpy() for n, p in layer.named_parameters()}
        return {"h": y, "x": x.grad.numpy()} | named(data.spec.layouts[LAYOUTS[data.case.cell]], gradients)

    return Prepared(call, values)


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
