"""PyTorch's own layers and cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "torch"
NEEDS = ("torch",)
ENVIRONMENT: Mapping[str, str] = {}

RNN = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "0"}
LSTM = {"weight_ih": "W_i W_f W_g W_o", "weight_hh": "U_i U_f U_g U_o", "bias_ih": "b_i b_f b_g b_o", "bias_hh": "0"}
TWO = LSTM | {"bias_hh": "d_i d_f d_g d_o"}
GRU = {"weight_ih": "W_r W_z W_n", "weight_hh": "U_r U_z U_n", "bias_ih": "b_r b_z b_n", "bias_hh": "0 0 c_n"}
BEFORE = GRU | {"bias_hh": "0"}
AFTER = "resets behind the recurrent product"


def comparisons() -> list[Comparison]:
    from torch import nn

    from bench.drift.torch_side import Cell

    def cell(name: str, theirs: str, make: Any, weights: Mapping[str, str], states: str = "h", **more: Any) -> Any:
        return Comparison(name, theirs, Cell(make, weights, states.split()), "torch", **more)

    def rnn(kind: Any, phi: str = "tanh") -> Any:
        return lambda s: kind(s["D"], s["H"], nonlinearity=phi)

    def plain(kind: Any) -> Any:
        return lambda s: kind(s["D"], s["H"])

    return [
        _layer("rnn", "nn.RNN", rnn(nn.RNN), RNN),
        _layer("rnn", "nn.RNN, relu", rnn(nn.RNN, "relu"), RNN, options={"phi": "relu"}),
        cell("rnn", "nn.RNNCell", rnn(nn.RNNCell), RNN),
        cell("irnn", "nn.RNNCell, relu", rnn(nn.RNNCell, "relu"), RNN),
        _layer("lstm", "nn.LSTM", plain(nn.LSTM), LSTM, "h c"),
        cell("lstm", "nn.LSTMCell", plain(nn.LSTMCell), LSTM, "h c"),
        cell("lstm_two_biases", "nn.LSTMCell", plain(nn.LSTMCell), TWO, "h c"),
        _layer(
            "lstm_projected",
            "nn.LSTM, proj_size",
            lambda s: nn.LSTM(s["D"], s["H"], proj_size=s["P"]),
            LSTM | {"weight_hr": "W_hr"},
            "h c",
            sizes={"P": 2},
        ),
        _layer("gru", "nn.GRU", plain(nn.GRU), GRU),
        cell("gru", "nn.GRUCell", plain(nn.GRUCell), GRU),
        cell("gru_reset_before", "nn.GRUCell", plain(nn.GRUCell), BEFORE, differs=AFTER),
    ]


def _layer(
    name: str,
    theirs: str,
    make: Callable[[Mapping[str, int]], Any],
    weights: Mapping[str, str],
    states: str = "h",
    **more: Any,
) -> Comparison:
    """A layer of one direction, whose parameters end in _l0."""
    from bench.drift.torch_side import bound

    order = states.split()

    def run(given: Given) -> Found:
        layer = bound(make(given.sizes), {f"{n}_l0": text for n, text in weights.items()}, given)
        first = [given.states[n][None] for n in order]
        y, last = layer(given.inputs["x"], first[0] if len(first) == 1 else tuple(first))
        finals = [last] if len(order) == 1 else list(last)
        return Found({"h": y}, {n: a[0] for n, a in zip(order, finals)})

    return Comparison(name, theirs, run, "torch", **more)
