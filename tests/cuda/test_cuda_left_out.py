"""On a GPU too: a branch that `where` does not take leaves no trace, and sums of many parts are
added up in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import gpu, needs_compiler

import rnnspec
from rnnspec.backends.cuda.launch import execution

needs_compiler()

TEXT = """rnnspec: 1
name: c
inputs: {x: D, m: []}
states: {h: H, M: [H, D]}
parameters: {W: [H, D], U: [H, H], b: [H]}
equations: |
  n[t] = tanh(W @ x[t] + U @ h[t-1] + b)
  k[t] = n[t] * (M[t-1] @ x[t])
  M[t] = where(m[t] > 0.5, M[t-1] + outer(n[t], x[t]), M[t-1])
  h[t] = where(m[t] > 0.5, n[t] + k[t], h[t-1])
outputs: [h]
"""
T, B, D, H = 4, 3, 2, 3


def gradients(bad, **options):
    rng = np.random.default_rng(0)
    k = rnnspec.compile(rnnspec.loads(TEXT), backend="cuda", **options)
    params = {n: rng.standard_normal(s).astype(np.float32) / 2 for n, s in (("W", (H, D)), ("U", (H, H)), ("b", (H,)))}
    x, m = rng.standard_normal((T, B, D)).astype(np.float32), np.ones((T, B), np.float32)
    m[1, 0] = m[2, 0] = m[2, 1] = 0
    x[m == 0] = bad
    run = k.forward(params, {"x": x, "m": m})
    found = k.backward(run, {"h": np.ones((T, B, H), np.float32)})
    return {n: np.asarray(a) for n, a in {**found.params, **found.inputs, **found.states}.items()}


@pytest.mark.parametrize("tier", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_steps_that_are_left_out_leave_no_trace(tier):
    with gpu():
        plain, other = gradients(0.0, tier=tier), gradients(np.nan, tier=tier)
    for name, array in other.items():
        np.testing.assert_array_equal(array, plain[name], name)


@pytest.mark.slow
def test_many_parts_are_added_up_in_pieces(monkeypatch):
    with gpu():
        plain = gradients(0.0, tier=3)
        monkeypatch.setattr(execution, "LEAF", 2)
        other = gradients(0.0, tier=3)
    for name, array in other.items():
        np.testing.assert_allclose(array, plain[name], rtol=1e-5, atol=1e-6, err_msg=name)
