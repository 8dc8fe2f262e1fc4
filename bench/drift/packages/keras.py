"""Keras' recurrent cells, JAX behind them. In float32: told to use float64 they are 1e-7 off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "keras"
NEEDS = ("jax", "keras")
ENVIRONMENT: Mapping[str, str] = {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1"}

RNN = ("W.T", "U.T", "b")
LSTM = ("(W_i W_f W_g W_o).T", "(U_i U_f U_g U_o).T", "b_i b_f b_g b_o")
BEFORE = ("(W_z W_r W_n).T", "(U_z U_r U_n).T", "b_z b_r b_n")
AFTER = (*BEFORE[:2], "b_z b_r b_n 0 0 c_n")


def comparisons() -> list[Comparison]:
    return [
        _cell("rnn", "SimpleRNNCell", RNN),
        _cell("irnn", "SimpleRNNCell", RNN, activation="relu"),
        _cell("lstm", "LSTMCell", LSTM, "h c"),
        _cell("gru", "GRUCell", AFTER),
        _cell("gru_reset_before", "GRUCell", BEFORE, reset_after=False),
    ]


def _cell(name: str, kind: str, weights: tuple[str, ...], states: str = "h", **arguments: Any) -> Comparison:
    """weights: kernel, recurrent_kernel and bias."""
    import jax.numpy as jnp
    import keras

    from bench.drift.jax_side import array, over_time

    order = states.split()

    def run(given: Given) -> Found:
        cell = getattr(keras.layers, kind)(given.sizes["H"], dtype="float32", **arguments)
        cell.build((None, given.sizes["D"]))
        params = {"0": jnp.zeros(given.sizes["H"], "float32")} | dict(given.params)
        variables = [array(text, params, v.value) for text, v in zip(weights, cell.trainable_variables, strict=True)]

        def step(now: Any, before: Any) -> tuple[Any, Any]:
            return cell.stateless_call(variables, [v.value for v in cell.non_trainable_variables], now, before)[0]

        y, last = over_time(step, [given.states[n] for n in order], given.inputs["x"])
        return Found({"h": y}, dict(zip(order, last if isinstance(last, list | tuple) else [last])))

    told = ", ".join(f"{n}={v}" for n, v in arguments.items())
    return Comparison(name, kind, run, "jax", dtype="float32", with_what=told)
