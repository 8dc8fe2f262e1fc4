"""Equinox's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "equinox"
NEEDS = ("jax", "equinox")
ENVIRONMENT: Mapping[str, str] = {"JAX_ENABLE_X64": "1"}

LSTM = {"weight_ih": "W_i W_f W_g W_o", "weight_hh": "U_i U_f U_g U_o", "bias": "b_i b_f b_g b_o"}
GRU = {"weight_ih": "W_r W_z W_n", "weight_hh": "U_r U_z U_n", "bias": "b_r b_z b_n", "bias_n": "c_n"}


def comparisons() -> list[Comparison]:
    from equinox import nn

    return [_cell("lstm", nn.LSTMCell, LSTM, ("h", "c")), _cell("gru", nn.GRUCell, GRU)]


def _cell(name: str, kind: Any, weights: Mapping[str, str], states: Sequence[str] = ("h",)) -> Comparison:
    import jax

    from bench.drift.jax_side import over_time, replaced

    def run(given: Given) -> Found:
        cell = kind(given.sizes["D"], given.sizes["H"], key=jax.random.PRNGKey(0))
        one = jax.vmap(replaced(cell, weights, given.params))
        first = tuple(given.states[n] for n in states)

        def step(now: Any, before: Any) -> tuple[Any, Any]:
            after = one(now, before)
            return after if len(states) == 1 else after[0], after

        y, last = over_time(step, first[0] if len(first) == 1 else first, given.inputs["x"])
        return Found({"h": y}, dict(zip(states, (last,) if len(states) == 1 else last)))

    return Comparison(name, kind.__name__, run, "jax")
