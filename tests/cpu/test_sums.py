"""Sums of gradients over rows and steps: their errors don't grow with the number of terms, but with
its logarithm, and their bits are the same for every number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from cells import case, kernel

import rnnspec
from rnnspec.backends.cpu.launch.rows import FOLD, LEAF, MOST_ROWS, Limits
from rnnspec.engine.arrays import outer_sum, row_sum
from rnnspec.engine.cpu import CpuKernel
from rnnspec.train.compiled import MOST_TERMS
from rnnspec.train.heads import embed_backward, linear_backward

CELL = """rnnspec: 1
name: c
inputs: {x: [], z: D}
states: {h: H}
parameters: {a: [], b: [H], V: [H, D]}
equations: |
  h[t] = a * x[t] + V @ z[t] + b
outputs: [h]
"""
CLOSE = 4e-6  # in float32, of 256 equal terms added up one after another; a million so are off by 1e-2


def sums(T, B, threads, value, lengths=None, memory="full", dtype="float32"):
    k = rnnspec.compile(rnnspec.loads(CELL), dtype=dtype, threads=threads, memory=memory)
    params = {"a": np.ones((), dtype), "b": np.ones(1, dtype), "V": np.ones((1, 1), dtype)}
    x = np.ones((T, B), dtype)
    run = k.forward(params, {"x": x, "z": x[..., None]}, lengths=lengths)
    return k.backward(run, {"h": np.full((T, B, 1), value, dtype)}).params


@pytest.mark.parametrize(
    ("T", "B", "memory"), [(1000, 1000, "full"), (1, 500_000, "full"), (50_000, 20, "low")], ids=str
)
def test_millions_of_terms(T, B, memory):
    found = [sums(T, B, threads, 0.1, memory=memory) for threads in (1, 2, 3)]
    for name, array in found[0].items():
        np.testing.assert_allclose(array, 0.1 * T * B, rtol=CLOSE, err_msg=name)
        for other in found[1:]:
            np.testing.assert_array_equal(other[name], array, name)


def test_rows_that_end():
    """One row whose steps each are a span of their own, and many that end at different steps."""
    for lengths, steps in ([200_000], 200_001), (np.arange(1, 1001), 1000):
        for array in sums(steps, len(lengths), 1, 0.1, lengths=lengths).values():
            np.testing.assert_allclose(array, 0.1 * np.sum(lengths), rtol=CLOSE)


def test_the_same_bits_for_every_number_of_threads(monkeypatch):
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1, flops_per_barrier=1, cache_bytes=1 << 12))
    for rows, lengths in (37, None), (11, [9, 1, 3, 9, 0, 2, 4, 7, 7, 8, 5]):
        c = case(kernel("lstm"), 9, rows, lengths=lengths, H=13)
        found = []
        for threads in (1, 2, 3, 5, 8):
            own = kernel("lstm").like(threads=threads)
            run = own.forward(c.params, c.inputs, c.states, c.lengths)
            assert run.saved.plan.parts == threads and run.saved.plan.by_rows
            found.append(own.backward(run, c.dy, final=c.dfinal))
        for other in found[1:]:
            for kind in ("params", "inputs", "states"):
                for name, array in getattr(found[0], kind).items():
                    np.testing.assert_array_equal(getattr(other, kind)[name], array, f"{kind} {name}")


def test_a_level_takes_as_many_sums_as_the_next():
    k = rnnspec.compile(rnnspec.loads(CELL), threads=1)
    x = np.ones((LEAF * FOLD * FOLD // 64 + 1, 64), np.float32)
    run = k.forward(
        {"a": np.float32(1), "b": np.ones(1, np.float32), "V": np.ones((1, 1), np.float32)}, {"x": x, "z": x[..., None]}
    )
    chunks = run.saved.plan.blocks[0].chunks
    assert run.saved.plan.levels == 3 and (chunks[:, 5] == 2).sum() == 1
    assert 2 * LEAF * FOLD == MOST_ROWS


def test_sums_of_heads():
    n = 3_000_000
    for value in (1.0, 0.1):
        dy, y = np.full((n, 1), value, np.float32), np.ones((n, 1), np.float32)
        table = {"weight": np.zeros((1, 1), np.float32)}
        weight = embed_backward(table, np.zeros(n, np.int64), dy)["weight"]
        found = linear_backward({"weight": y[:1]}, y, dy)[1]
        for array in (weight, found["weight"], found["bias"]):
            np.testing.assert_allclose(array, n * value, rtol=CLOSE)


def test_an_infinite_row_of_an_embedding_stays_infinite():
    dy = np.ones((4 * MOST_TERMS, 11), np.float32)
    dy[5, :], dy[7, 3] = np.inf, np.nan
    found = embed_backward({"weight": np.zeros((1, 11), np.float32)}, np.zeros(len(dy), np.int64), dy)["weight"]
    assert np.isnan(found[0, 3]) and np.isposinf(np.delete(found[0], 3)).all()


def test_sums_in_pieces_are_the_sums():
    rng = np.random.default_rng(0)
    for n in (0, 1, 15, 16, 17, 300, 5000):
        a, b = rng.standard_normal((n, 3)), rng.standard_normal((n, 2))
        np.testing.assert_allclose(row_sum(a), a.sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(outer_sum(a, b, 100), a.T @ b, atol=1e-11)
