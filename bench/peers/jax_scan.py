"""jax.jit of lax.scan, the input product before the loop; in training jax.jit of the whole with
jax.vjp. Arrays are on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.case import CHECKED_STEPS, Array, Case, Data
from bench.peers import Prepared
from bench.peers.equations import CELLS, Equations, Operations

OPERATIONS = Operations(
    jax.nn.sigmoid, jnp.tanh, jax.nn.relu, lambda a, h, U: a + h @ U, lambda a, n: jnp.split(a, n, -1)
)


def supports(case: Case) -> bool:
    return case.cell in CELLS


def prepare(case: Case, data: Data, threads: int) -> Prepared:
    """The threads are the process's: XLA_FLAGS and its processors (see bench/spawn.py)."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", case.dtype == "float64")
    cell = CELLS[case.cell]
    weights = {n: jnp.asarray(a) for n, a in cell.weights(data.params).items()}
    zeros = (jnp.zeros((case.B, case.H), case.dtype),) * cell.states
    if case.mode == "step":
        return _step(cell, weights, zeros, data)
    forward = scan_forward(cell, zeros)
    return (_inference if case.mode == "inference" else _training)(cell, forward, weights, data)


def scan_forward(cell: Equations, zeros: tuple[Any, ...]) -> Callable[[dict[str, Any], Any], Any]:
    def forward(weights: dict[str, Any], x: Any) -> Any:
        def step(states, a):
            states = cell.step(OPERATIONS, weights, tuple(states), a)
            return states, states[0]

        return jax.lax.scan(step, zeros, x @ weights["W"] + weights["b"])[1]

    return forward


def _inference(cell: Equations, forward: Callable[..., Any], weights: dict[str, Any], data: Data) -> Prepared:
    compiled, x = jax.jit(forward), jnp.asarray(data.x)

    def call() -> Any:
        return compiled(weights, x).block_until_ready()

    return Prepared(call, lambda: {"h": np.asarray(call())})


def _training(cell: Equations, forward: Callable[..., Any], weights: dict[str, Any], data: Data) -> Prepared:
    x, dy = jnp.asarray(data.x), jnp.asarray(data.dy)

    @jax.jit
    def train(weights, x, dy):
        y, back = jax.vjp(forward, weights, x)
        return y, *back(dy)

    def call() -> Any:
        return jax.block_until_ready(train(weights, x, dy))

    def values() -> dict[str, Array]:
        y, dw, dx = call()
        return {"h": np.asarray(y), "x": np.asarray(dx)} | cell.gradients({n: np.asarray(a) for n, a in dw.items()})

    return Prepared(call, values)


def _step(cell: Equations, weights: dict[str, Any], states: tuple[Any, ...], data: Data) -> Prepared:
    x = jnp.asarray(data.x[0])

    @jax.jit
    def step(weights, states, x):
        return cell.step(OPERATIONS, weights, states, x @ weights["W"] + weights["b"])

    def call() -> Any:
        nonlocal states
        states = step(weights, states, x)
        return states[0].block_until_ready()

    return Prepared(call, lambda: {"h": np.asarray([call() for _ in range(CHECKED_STEPS)][-1])})
