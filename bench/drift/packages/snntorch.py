"""snnTorch's recurrent leaky integrate-and-fire neuron, whose spikes are float32."""

from __future__ import annotations

from collections.abc import Mapping

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "snntorch"
NEEDS = ("torch", "snntorch")
ENVIRONMENT: Mapping[str, str] = {}


def comparisons() -> list[Comparison]:
    detached = "its reset is detached, and its surrogate is another"
    spiking = {"W": (0.0, 1.5), "x": (0.0, 1.0)}
    return [
        Comparison(
            "lif",
            "RLeaky",
            _run,
            "torch",
            bounds=spiking,
            zero_start=True,
            dtype="float32",
            differs=detached,
            only_gradients=True,
        )
    ]


def _run(given: Given) -> Found:
    import snntorch
    import torch

    from bench.drift.torch_side import bound

    neuron = snntorch.RLeaky(beta=0.95, linear_features=given.sizes["H"])
    step = bound(neuron, {"recurrent.weight": "R", "recurrent.bias": "0"}, given)
    v, s, ys = given.states["v"], given.states["s"], []
    for x in given.inputs["x"]:
        s, v = step(x @ given.params["W"].T, s, v)
        ys.append(s)
    return Found({"s": torch.stack(ys)}, {"v": v, "s": s})
