"""mogrifier: the rounds of the mogrifier LSTM; the LSTM behind them is PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "mogrifier"
NEEDS = ("torch", "mogrifier")
ENVIRONMENT: Mapping[str, str] = {}


def comparisons() -> list[Comparison]:
    own = "each round with a matrix of its own and no bias (it shares two)"
    return [Comparison("mogrifier_lstm", "Mogrifier", _run, "torch", with_what=own)]


def _run(given: Given) -> Found:
    import torch
    from mogrifier import Mogrifier

    from bench.drift.packages.torch import LSTM
    from bench.drift.torch_side import bound

    D, H = given.sizes["D"], given.sizes["H"]

    def gated(value: Any, by: Any, matrix: Any) -> Any:
        """One round, 2 * sigmoid(matrix by) * value: forward takes `iters` and does not read it."""
        weights = {"Q.0.weight": "M", "Q.0.bias": "0", "R.0.weight": "0", "R.0.bias": "0"}
        rounds = Mogrifier(value.shape[-1], dim_hidden=by.shape[-1])
        rounds.iters = 1
        return bound(rounds, weights, given._replace(params={"M": matrix}))(value, by)[0]

    cell = bound(torch.nn.LSTMCell(D, H), LSTM, given)
    Q, R = given.params["Q"], given.params["R"]
    h, c, ys = given.states["h"], given.states["c"], []
    for x in given.inputs["x"]:
        for k in range(len(R)):
            x = gated(x, h, Q[k])
            h = gated(h, x, R[k])
        h, c = cell(gated(x, h, Q[-1]), (h, c))
        ys.append(h)
    return Found({"h": torch.stack(ys)}, {"h": h, "c": c})
