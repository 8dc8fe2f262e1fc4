"""ONNX Runtime's LSTM, GRU and RNN: float32, values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drift.comparison import Comparison, Found, Given
from bench.drift.packing import packed

DISTRIBUTION = "onnxruntime"
NEEDS = ("onnx", "onnxruntime")
ENVIRONMENT: Mapping[str, str] = {}

LSTM = {"W": "W_i W_o W_f W_g", "R": "U_i U_o U_f U_g", "B": "b_i b_o b_f b_g 0 0 0 0"}
CIFG = {"W": "W_i W_o W_i W_g", "R": "U_i U_o U_i U_g", "B": "b_i b_o b_i b_g 0 0 0 0"}  # f = 1 - i: not read
GRU = {"W": "W_z W_r W_n", "R": "U_z U_r U_n", "B": "b_z b_r b_n 0 0 0"}
AFTER = GRU | {"B": "b_z b_r b_n 0 0 c_n"}
RNN = {"W": "W", "R": "U", "B": "b 0"}


def comparisons() -> list[Comparison]:
    return [
        _node("rnn", "RNN", RNN),
        _node("rnn", "RNN", RNN, options={"phi": "relu"}, activations=["Relu"]),
        _node("irnn", "RNN", RNN, activations=["Relu"]),
        _node("lstm", "LSTM", LSTM, "h c"),
        _node("lstm_cifg", "LSTM", CIFG, "h c", input_forget=1),
        _node("lstm_peephole", "LSTM", LSTM | {"P": "p_i p_o p_f"}, "h c"),
        _node("gru", "GRU", AFTER, linear_before_reset=1),
        _node("gru_reset_before", "GRU", GRU),
    ]


def _node(
    name: str,
    kind: str,
    weights: Mapping[str, str],
    states: str = "h",
    options: Mapping[str, object] = {},
    **attributes: Any,
) -> Comparison:
    import numpy as np
    from onnx import helper

    from rnnspec.check.peers import onnx_runtime

    def run(given: Given) -> Found:
        H, order = given.sizes["H"], states.split()
        params = {"0": np.zeros(H, np.float32)} | dict(given.params)
        arrays = {n: packed(text, params, np.concatenate)[None] for n, text in weights.items()}
        arrays |= {"X": given.inputs["x"]} | {f"initial_{n}": given.states[n][None] for n in order}
        inputs = ["X", "W", "R", "B", "", *(f"initial_{n}" for n in order), *(["P"] if "P" in weights else [])]
        outputs = ["Y", *(f"Y_{n}" for n in order)]
        found = onnx_runtime(helper.make_node(kind, inputs, outputs, hidden_size=H, **attributes), arrays)
        return Found({"h": found["Y"][:, 0]}, {n: found[f"Y_{n}"][0] for n in order})

    told = ", ".join(f"{n}={v}" for n, v in attributes.items())
    return Comparison(name, kind, run, "numpy", options, dtype="float32", with_what=told)
