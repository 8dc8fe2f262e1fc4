"""Sums over pairs of units in CPU kernels: along either axis, with other factors than ones, of
matrices of matrices, in every mode, and LTC beside a plain version of its source."""

from __future__ import annotations

import numpy as np
import pytest
from cells import DTYPES, case, expected, kernel
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.cpu import CpuKernel

PAIRS = """rnnspec: 1
name: pairs
inputs: {x: D, m: []}
states: {h: H}
parameters: {s: [D, H], mu: [D, H], E: [D, H], b: [H], c: []}
equations: |
  A[t] = sigmoid(s * (outer(x[t], h[t-1]) - mu) + c / H + t / 20)
  u[t] = (A[t] * E) @ h[t-1]
  B[t] = c * tanh(outer(u[t], b) + m[t] * A[t])
  n[t] = x[t] @ A[t] / D + ones(D) @ (B[t] - A[t])
  h[t] = where(m[t] > -0.5, tanh(n[t]), h[t-1])
outputs: [h, u]
"""
SIZES = [{"D": 3, "H": 17}, {"D": 16, "H": 7}, {"D": 1, "H": 1}, {"D": 5, "H": 15}]


def same(found, right, dtype):
    for group in ("params", "inputs", "states"):
        for name, array in getattr(found, group).items():
            assert_close(array, getattr(right, group)[name], REFERENCE[dtype], f"gradient of {name}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_the_reference(dtype):
    k = kernel(PAIRS, dtype)
    assert "horizontal_sum" in k.source("infer") and "A_rows" not in k.source("forward")
    for sizes, lengths in zip(SIZES, (None, [0, 4, 2], None, [4, 1, 3])):
        c = case(k, 4, 3, lengths=lengths, **sizes)
        right = expected(c, PAIRS)
        run = c.forward()
        for name, array in right.outputs.items():
            assert_close(run.outputs[name], array, REFERENCE[dtype], name)
        same(c.backward(run), right, dtype)
        inferred = k.infer(c.params, c.inputs, c.states, c.lengths)
        assert_close(inferred.outputs["h"], right.outputs["h"], REFERENCE[dtype], "h")


def test_threads_and_memory(monkeypatch):
    """The same bits for every number of threads; with less memory, other pieces are summed."""
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1, flops_per_barrier=1, cache_bytes=1 << 12))
    for rows, lengths in (1, None), (5, [9, 1, 3, 9, 0]):
        found = []
        for threads, memory in (1, "full"), (2, "full"), (3, "full"), (2, "low"):
            k = rnnspec.compile(rnnspec.loads(PAIRS), dtype="float32", threads=threads, memory=memory)
            c = case(k, 9, rows, lengths=lengths, D=4, H=37)
            g = c.backward()
            found.append({**g.params, **g.inputs, **g.states})
        for name, array in found[0].items():
            for other in found[1:3]:
                np.testing.assert_array_equal(other[name], array, name)
            assert_close(found[3][name], array, REFERENCE["float32"], name)
