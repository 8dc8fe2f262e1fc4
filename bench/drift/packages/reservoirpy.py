"""ReservoirPy's reservoir: values only."""

from __future__ import annotations

from collections.abc import Mapping

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "reservoirpy"
NEEDS = ("reservoirpy",)
ENVIRONMENT: Mapping[str, str] = {}


def comparisons() -> list[Comparison]:
    import numpy as np
    from reservoirpy.nodes import Reservoir

    def run(given: Given) -> Found:
        rows = []
        for row in range(given.inputs["x"].shape[1]):
            node = Reservoir(given.sizes["H"], lr=0.3, Win=given.params["W"], W=given.params["R"], bias=0.0)
            rows.append(node.run(given.inputs["x"][:, row]))
        return Found({"h": np.stack(rows, axis=1)}, {"h": np.stack(rows, axis=1)[-1]})

    return [Comparison("leaky_esn", "Reservoir", run, "numpy", zero_start=True)]
