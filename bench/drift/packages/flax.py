"""Flax's cells (linen)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "flax"
NEEDS = ("jax", "flax")
ENVIRONMENT: Mapping[str, str] = {"JAX_ENABLE_X64": "1"}

LSTM = {f"i{g}.kernel": f"W_{g}.T" for g in "ifgo"} | {f"h{g}.kernel": f"U_{g}.T" for g in "ifgo"}
LSTM |= {f"h{g}.bias": f"b_{g}" for g in "ifgo"}
GRU = {f"i{g}.kernel": f"W_{g}.T" for g in "rzn"} | {f"h{g}.kernel": f"U_{g}.T" for g in "rzn"}
GRU |= {f"i{g}.bias": f"b_{g}" for g in "rzn"} | {"hn.bias": "c_n"}
MGU = {f"i{g}.kernel": f"W_{g}.T" for g in "fn"} | {f"h{g}.kernel": f"U_{g}.T" for g in "fn"}
MGU |= {"if.bias": "b_f", "in.bias": "b_n", "hn.bias": "0"}
RNN = {"i.kernel": "W.T", "h.kernel": "U.T", "i.bias": "b"}


def comparisons() -> list[Comparison]:
    from flax import linen

    return [
        _cell("rnn", linen.SimpleCell, RNN),
        _cell("lstm", linen.LSTMCell, LSTM, ("c", "h")),
        _cell("lstm", linen.OptimizedLSTMCell, LSTM, ("c", "h")),
        _cell("gru", linen.GRUCell, GRU),
        _cell("mgu", linen.MGUCell, MGU, differs="gates behind the recurrent product, and the gate keeps h"),
    ]


def _cell(name: str, kind: Any, weights: Mapping[str, str], states: Sequence[str] = ("h",), **more: Any) -> Comparison:
    import jax

    from bench.drift.jax_side import over_time, tree

    def run(given: Given) -> Found:
        x, module = given.inputs["x"], kind(given.sizes["H"], param_dtype=given.inputs["x"].dtype)
        first = tuple(given.states[n] for n in states)
        state = first[0] if len(first) == 1 else first
        shapes = jax.eval_shape(module.init, jax.random.PRNGKey(0), state, x[0])["params"]
        params = {"params": tree(weights, given.params, shapes)}

        def step(now: Any, before: Any) -> tuple[Any, Any]:
            after, y = module.apply(params, before, now)
            return y, after

        y, last = over_time(step, state, x)
        return Found({"h": y}, dict(zip(states, (last,) if len(states) == 1 else last)))

    return Comparison(name, kind.__name__, run, "jax", **more)
