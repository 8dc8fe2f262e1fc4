"""brc: the bistable recurrent cells in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "brc"
NEEDS = ("torch", "brc_pytorch")
ENVIRONMENT: Mapping[str, str] = {"PYTORCH_JIT": "0"}  # a scripted module takes no other parameters

BRC = {"iw": "(W_a W_c W_h).T", "hw": "u_a u_c", "bias": "b_a b_c 0"}
NBRC = BRC | {"hw": "(U_a U_c).T"}


def comparisons() -> list[Comparison]:
    from brc_pytorch import modules

    return [_cell("brc", modules.BRC, BRC), _cell("nbrc", modules.NBRC, NBRC)]


def _cell(name: str, kind: Any, weights: Mapping[str, str]) -> Comparison:
    import torch

    from bench.drift.torch_side import tensors

    def run(given: Given) -> Found:
        step = kind(given.sizes["D"], given.sizes["H"]).double()
        zeros = {"0": torch.zeros(given.sizes["H"], dtype=torch.float64)}
        for parameter, value in tensors(step, weights, zeros | dict(given.params)).items():
            delattr(step, parameter)
            setattr(step, parameter, value)
        h, ys = given.states["h"], []
        for x in given.inputs["x"]:
            h, _ = step(x, [h])
            ys.append(h)
        return Found({"h": torch.stack(ys)}, {"h": h})

    return Comparison(name, kind.__name__, run, "torch")
