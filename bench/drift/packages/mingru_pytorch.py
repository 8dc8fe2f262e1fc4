"""minGRU-pytorch: minGRU and minLSTM over whole sequences, in logarithms."""

from __future__ import annotations

from collections.abc import Mapping

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "minGRU-pytorch"
NEEDS = ("torch", "minGRU_pytorch")
ENVIRONMENT: Mapping[str, str] = {}

SQUARE = {"D": 4, "H": 4}
POSITIVE = {"h": (0.1, 1.0)}  # the state is taken the logarithm of


def comparisons() -> list[Comparison]:
    from minGRU_pytorch.minGRU import minGRU
    from minGRU_pytorch.minLSTM import minLSTM

    from bench.drift.torch_side import bound

    def run(kind: type, weights: Mapping[str, str], start: bool) -> object:
        def sequence(given: Given) -> Found:
            layer = bound(kind(given.sizes["H"]), weights, given)
            first = given.states["h"][:, None] if start else None
            y, last = layer(given.inputs["x"].transpose(0, 1), first, return_next_prev_hidden=True)
            return Found({"h": y.transpose(0, 1)}, {"h": last[:, 0]})

        return sequence

    gru = {"to_hidden_and_gate.weight": "W_n W_z"}
    lstm = {"to_hidden_and_f_i_gate.weight": "W_n W_f W_i"}
    x = ["x", *(f"W_{g}" for g in "znfi")]  # no gradient of a state that is not given
    through_g = "a given state goes through g, as in the paper's listing"
    return [
        Comparison("mingru", "minGRU", run(minGRU, gru, True), "torch", {}, SQUARE, bounds=POSITIVE),
        Comparison(
            "mingru", "minGRU, from zero", run(minGRU, gru, False), "torch", {}, SQUARE, zero_start=True, gradients=x
        ),
        Comparison(
            "minlstm",
            "minLSTM, from zero",
            run(minLSTM, lstm, False),
            "torch",
            {},
            SQUARE,
            zero_start=True,
            gradients=x,
        ),
        Comparison(
            "minlstm", "minLSTM", run(minLSTM, lstm, True), "torch", {}, SQUARE, bounds=POSITIVE, differs=through_g
        ),
    ]
