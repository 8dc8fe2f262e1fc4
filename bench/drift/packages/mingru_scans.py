"""mingru-scans: minGRU over whole sequences, in logarithms."""

from __future__ import annotations

from collections.abc import Mapping

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "mingru-scans"
NEEDS = ("torch", "mingru")
ENVIRONMENT: Mapping[str, str] = {}

WEIGHTS = {"linear_z.weight": "W_z", "linear_z.bias": "0", "linear_h.weight": "W_n", "linear_h.bias": "0"}


def comparisons() -> list[Comparison]:
    from mingru import MinGRU

    from bench.drift.torch_side import bound

    def run(given: Given, start: bool = True) -> Found:
        layer = bound(MinGRU(given.sizes["D"], given.sizes["H"]), WEIGHTS, given)
        y = layer(given.inputs["x"].transpose(0, 1), given.states["h"][:, None] if start else None)
        y = y.transpose(0, 1)
        y = y[len(y) - len(given.inputs["x"]) :]
        return Found({"h": y}, {"h": y[-1]})

    half = "without a given state it starts at g(0) = 1/2"
    return [
        Comparison("mingru", "MinGRU", run, "torch", bounds={"h": (0.1, 1.0)}),
        Comparison("mingru", "MinGRU, no state", lambda g: run(g, False), "torch", zero_start=True, differs=half),
    ]
