"""ncps: the closed-form continuous-time cells of their authors."""

from __future__ import annotations

from collections.abc import Mapping

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "ncps"
NEEDS = ("torch", "ncps")
ENVIRONMENT: Mapping[str, str] = {}

BACKBONE = {"backbone.0.weight": "W+U", "backbone.0.bias": "b", "ff1.weight": "A_1", "ff1.bias": "b_1"}
GATED = BACKBONE | {"ff2.weight": "A_2", "ff2.bias": "b_2", "time_a.weight": "A_a", "time_a.bias": "b_a"}
GATED |= {"time_b.weight": "A_b", "time_b.bias": "b_b"}
PURE = BACKBONE | {"w_tau": "w", "A": "a"}


def comparisons() -> list[Comparison]:
    return [_cell("cfc", "default", GATED), _cell("cfc_no_gate", "no_gate", GATED), _cell("cfc_pure", "pure", PURE)]


def _cell(name: str, mode: str, weights: Mapping[str, str]) -> Comparison:
    import torch
    from ncps.torch import CfCCell

    from bench.drift.torch_side import bound

    def run(given: Given) -> Found:
        sizes = given.sizes
        step = bound(CfCCell(sizes["D"], sizes["H"], mode, backbone_units=sizes["K"]), weights, given)
        h, ys = given.states["h"], []
        for x, dt in zip(given.inputs["x"], given.inputs["dt"]):
            _, h = step(x, h, dt[:, None])
            ys.append(h)
        return Found({"h": torch.stack(ys)}, {"h": h})

    return Comparison(name, f"CfCCell, {mode}", run, "torch")
