"""Haiku's cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "dm-haiku"
NEEDS = ("jax", "haiku")
ENVIRONMENT: Mapping[str, str] = {"JAX_ENABLE_X64": "1"}

RNN = {"vanilla_rnn/linear.w": "W.T", "vanilla_rnn/linear.b": "b"}
RNN |= {"vanilla_rnn/linear_1.w": "U.T", "vanilla_rnn/linear_1.b": "0"}
LSTM = {"lstm/linear.w": "(W_i+U_i W_g+U_g W_f+U_f W_o+U_o).T", "lstm/linear.b": "b_i b_g b_f b_o"}
CONCAT = LSTM | {"lstm/linear.w": "(W_i W_g W_f W_o).T"}
GRU = {"gru.w_i": "(W_z W_r W_n).T", "gru.w_h": "(U_z U_r U_n).T", "gru.b": "b_z b_r b_n"}
ADDED = "adds 1 to the forget gate at run time"


def comparisons() -> list[Comparison]:
    import haiku

    return [
        _core("rnn", haiku.VanillaRNN, RNN, options={"phi": "relu"}),
        _core("irnn", haiku.VanillaRNN, RNN),
        _core("lstm_tf", haiku.LSTM, LSTM, ("h", "c"), with_what="no clip reached"),
        _core("lstm", haiku.LSTM, LSTM, ("h", "c"), differs=ADDED),
        _core("lstm_concat", haiku.LSTM, CONCAT, ("h", "c"), differs=ADDED),
        _core("gru_reset_before_other_polarity", haiku.GRU, GRU),
    ]


def _core(name: str, kind: Any, weights: Mapping[str, str], states: Sequence[str] = ("h",), **more: Any) -> Comparison:
    import haiku
    import jax

    from bench.drift.jax_side import over_time, tree

    def run(given: Given) -> Found:
        x, first = given.inputs["x"], tuple(given.states[n] for n in states)
        state = first[0] if len(first) == 1 else haiku.LSTMState(*first)
        core = haiku.without_apply_rng(haiku.transform(lambda now, before: kind(given.sizes["H"])(now, before)))
        shapes = jax.eval_shape(core.init, jax.random.PRNGKey(0), x[0], state)
        params = tree(weights, given.params, shapes)
        y, last = over_time(lambda now, before: core.apply(params, now, before), state, x)
        final = (last,) if len(states) == 1 else (last.hidden, last.cell)
        return Found({"h": y}, dict(zip(states, final)))

    return Comparison(name, kind.__name__, run, "jax", **more)
