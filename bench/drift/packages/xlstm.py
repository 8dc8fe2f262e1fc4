"""xlstm, of the xLSTM's authors: its cells' functions of one step, without the blocks around."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "xlstm"
NEEDS = ("torch", "xlstm")
ENVIRONMENT: Mapping[str, str] = {}

# not of the states: at n = 0 the floor acts on the gradient of n
NOT_N = ["x", *(f"{kind}_{gate}" for kind in "WRb" for gate in "zifo")]
EPS = "adds eps = 1e-6 to the denominator"


def comparisons() -> list[Comparison]:
    import_module("xlstm.blocks.mlstm.backends")
    import_module("xlstm.blocks.slstm.src.vanilla.slstm")
    name = "recurrent_step_stabilized_simple"
    return [
        Comparison("slstm", "slstm_forward_pointwise", _scalar, "torch", bounds={"n": (0.5, 2.0)}),
        Comparison("slstm", "slstm_forward_pointwise, from zero", _scalar, "torch", zero_start=True),
        Comparison(
            "slstm_floored", "slstm_forward_pointwise, from zero", _scalar, "torch", zero_start=True, gradients=NOT_N
        ),
        Comparison("mlstm_matrix", name, lambda g: _matrix(g, 0.0), "torch", with_what="eps = 0"),
        Comparison("mlstm_matrix", name, lambda g: _matrix(g, 1e-6), "torch", differs=EPS),
    ]


def _scalar(given: Given) -> Found:
    import torch

    step = import_module("xlstm.blocks.slstm.src.vanilla.slstm").slstm_forward_pointwise
    weights, recurrent, bias = (torch.cat([given.params[f"{n}_{g}"] for g in "ifzo"]) for n in "WRb")
    states = torch.stack([given.states[n] for n in "hcnm"])
    ys = []
    for x in given.inputs["x"]:
        states, _ = step(x @ weights.T, states[0] @ recurrent.T, bias, states, {})
        ys.append(states[0])
    return Found({"h": torch.stack(ys)}, dict(zip("hcnm", states)))


def _matrix(given: Given, eps: float) -> Found:
    import torch

    step = import_module("xlstm.blocks.mlstm.backends").recurrent_step_stabilized_simple
    p, size = given.params, given.sizes["H"]
    state = (
        given.states["C"].transpose(1, 2)[:, None],
        given.states["n"][:, None, :, None],
        given.states["m"][:, None, None, None],
    )
    ys = []
    for x in given.inputs["x"]:
        q, k, v = (x @ p[f"W_{n}"].T + p[f"b_{n}"] * scale for n, scale in (("q", 1.0), ("k", size**0.5), ("v", 1.0)))
        gates = [(x @ p[f"w_{g}"] + p[f"b_{g}"])[:, None, None, None] for g in "if"]
        heads = [a[:, None, None, :].clone() for a in (q, k, v)]
        y, state = step(*state, *heads, *gates, eps=eps)
        ys.append(torch.sigmoid(x @ p["W_o"].T + p["b_o"]) * y.reshape(len(x), size))
    C, n, m = state
    final = {"C": C[:, 0].transpose(1, 2), "n": n[:, 0, :, 0], "m": m[:, 0, 0, 0]}
    return Found({"h": torch.stack(ys)}, final)
