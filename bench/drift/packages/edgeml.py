"""EdgeML: FastRNN and FastGRNN of their authors, and the cells beside them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bench.drift.comparison import Comparison

DISTRIBUTION = "edgeml-pytorch"
NEEDS = ("torch", "edgeml_pytorch")
ENVIRONMENT: Mapping[str, str] = {}

FASTGRNN = {"bias_gate": "b_z", "bias_update": "b_h", "zeta": "zeta", "nu": "nu"}
FULL = FASTGRNN | {"W": "W", "U": "U"}
LOW_RANK = FASTGRNN | {"W1": "W_2", "W2": "W_1", "U1": "U_2", "U2": "U_1"}
FASTRNN = {"W": "W.T", "U": "U.T", "bias_update": "b", "alpha": "alpha", "beta": "beta"}
LSTM = {f"{kind}{k}": f"{kind}_{g}.T" for k, g in enumerate("ifgo", 1) for kind in "WU"}
LSTM |= {"bias_i": "b_i", "bias_f": "b_f", "bias_c": "b_g", "bias_o": "b_o"}
GRU = {f"{kind}{k}": f"{kind}_{g}.T" for k, g in enumerate("rzn", 1) for kind in "WU"}
GRU |= {"bias_r": "b_r", "bias_gate": "b_z", "bias_update": "b_n"}
UGRNN = {f"{kind}{k}": f"{kind}_{g}.T" for k, g in enumerate("gc", 1) for kind in "WU"}
UGRNN |= {"bias_gate": "b_g", "bias_update": "b_c"}


def comparisons() -> list[Comparison]:
    sys.modules.setdefault("fastgrnn_cuda", ModuleType("fastgrnn_cuda"))  # imported, and not called on a CPU
    from edgeml_pytorch.graph import rnn

    from bench.drift.torch_side import Cell

    def plain(kind: Any) -> Any:
        return lambda s: kind(s["D"], s["H"])

    def low_rank(s: Mapping[str, int]) -> Any:
        return rnn.FastGRNNCell(s["D"], s["H"], wRank=s["P"], uRank=s["Q"])

    def row(name: str, kind: Any, weights: Mapping[str, str], states: str = "h") -> Comparison:
        return Comparison(name, kind.__name__, Cell(plain(kind), weights, states.split()), "torch")

    return [
        row("fast_rnn", rnn.FastRNNCell, FASTRNN),
        row("fastgrnn", rnn.FastGRNNCell, FULL),
        Comparison("fastgrnn_lowrank", "FastGRNNCell, wRank, uRank", Cell(low_rank, LOW_RANK), "torch"),
        row("lstm", rnn.LSTMLRCell, LSTM, "h c"),
        row("gru_reset_before", rnn.GRULRCell, GRU),
        row("ugrnn", rnn.UGRNNLRCell, UGRNN),
    ]
