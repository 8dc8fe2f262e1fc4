"""Machine code in memory: what is there can be seen, and is freed when nobody runs it."""

from __future__ import annotations

import gc
import weakref

import numpy as np

import rnnspec


def test_code_leaves_memory_with_the_last_kernel_that_runs_it():
    kernel = rnnspec.compile("rnn", threads=1)
    params, x = kernel.init(D=2, H=3, seed=0), np.ones((2, 1, 2), np.float32)
    wanted = kernel.infer(params, {"x": x}).outputs["h"]
    (code,) = [c for c in rnnspec.loaded() if c.name == "rnn_infer_float32"]
    assert code.size > 1000 and "rnn_infer_float32" in repr(code)
    held = weakref.ref(code)
    del code
    rnnspec.unload()
    assert not rnnspec.loaded() and held() is not None
    np.testing.assert_array_equal(kernel.infer(params, {"x": x}).outputs["h"], wanted)  # a kernel holds its own
    again = rnnspec.compile("rnn", threads=1)
    np.testing.assert_array_equal(again.infer(params, {"x": x}).outputs["h"], wanted)
    assert held() is not None and len(rnnspec.loaded()) == 1
    rnnspec.unload()  # what the last calls left for the next ones, too
    del kernel
    gc.collect()
    assert held() is None
