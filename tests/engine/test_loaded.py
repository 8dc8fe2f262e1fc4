"""Machine code in memory: what is there can be seen, and is freed when nobody runs it."""

from __future__ import annotations

import gc
import weakref

import numpy as np

import rnnspec

# A cell of this test alone: kernels of other tests in the process hold the code of theirs.
CELL = """\
rnnspec: 1
name: held_rnn
inputs: {x: D}
states: {h: H}
parameters: {W: [H, D], U: [H, H], b: [H]}
equations: |
  h[t] = 0.75 * tanh(W @ x[t] + U @ h[t-1] + b)
outputs: [h]
"""


def test_code_leaves_memory_with_the_last_kernel_that_runs_it():
    kernel = rnnspec.compile(rnnspec.loads(CELL), threads=1)
    params, x = kernel.init(D=2, H=3, seed=0), np.ones((2, 1, 2), np.float32)
    wanted = kernel.infer(params, {"x": x}).outputs["h"]
    (code,) = [c for c in rnnspec.loaded() if c.name == "held_rnn_infer_float32"]
    assert code.size > 1000 and "held_rnn_infer_float32" in repr(code)
    held = weakref.ref(code)
    del code
    rnnspec.unload()
    assert not rnnspec.loaded() and held() is not None
    np.testing.assert_array_equal(kernel.infer(params, {"x": x}).outputs["h"], wanted)  # a kernel holds its own
    again = rnnspec.compile(rnnspec.loads(CELL), threads=1)
    np.testing.assert_array_equal(again.infer(params, {"x": x}).outputs["h"], wanted)
    assert held() is not None and len(rnnspec.loaded()) == 1
    rnnspec.unload()  # what the last calls left for the next ones, too
    del kernel
    gc.collect()
    assert held() is None
