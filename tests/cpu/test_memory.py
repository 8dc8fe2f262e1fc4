"""Memory: calls leave none behind, and specs that ask for too much are refused before they get
it."""

from __future__ import annotations

import gc
import resource
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from cells import case, kernel
from tiny import cell

import rnnspec
from rnnspec import Recurrent, RnnspecError
from rnnspec.backends.cpu.launch import memory

MB = 1 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("lengths", [None, [16, 3, 9, 1, 16, 2, 7, 4]])
def test_repeated_calls_do_not_grow(lengths):
    one = case(kernel("lstm", "float32"), 16, 8, lengths=lengths, D=32, H=64)
    infer = {"params": one.params, "inputs": one.inputs, "states": one.states, "lengths": one.lengths}

    def calls(n: int) -> int:
        for _ in range(n):
            one.backward(one.forward())
            one.kernel.infer(**infer)
        gc.collect()
        return resident()

    before = calls(30)
    assert calls(200) - before < 4 * MB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_calls_of_ever_other_shapes_do_not_grow():
    of = kernel("lstm", "float32")

    def calls(start: int, n: int) -> int:
        for k in range(start, start + n):
            one = case(of, 1 + k % 23, 1 + k % 19, D=32, H=64)
            one.backward()
        gc.collect()
        return resident()

    before = calls(0, 150)
    assert calls(150, 300) - before < 16 * MB


def test_a_run_frees_its_tape_and_is_in_no_cycle():
    one = case(kernel("lstm", "float32"), 16, 8, D=32, H=64)
    gc.disable()
    try:
        run = one.forward()
        tape = weakref.ref(run.saved.tape)
        one.backward(run)
        del run
        assert tape() is None
    finally:
        gc.enable()


def test_a_layer_keeps_one_tape():
    layer = Recurrent("lstm", 32, 64, 2)
    x = np.ones((16, 8, 32), np.float32)
    forward, tapes, before = layer.stack.run_forward, [], []

    def watched(call):
        gc.collect()
        before.append([tape() for tape in tapes])
        run = forward(call)
        tapes.append(weakref.ref(run.layers[0].runs[0].saved.tape))
        return run

    layer.stack.run_forward = watched
    layer(x)
    layer(x)
    assert before == [[], [None]]


def test_a_small_layer_keeps_what_one_call_works_in():
    layer = Recurrent("lstm", 32, 64, threads=1)
    x = np.ones((16, 8, 32), np.float32)
    works = []
    for _ in range(3):
        layer(x)
        works.append(layer._run[0].work)
    assert works[0] is works[1] is works[2]


def test_layers_keep_tapes_and_not_what_they_gave_one_another(monkeypatch):
    layer, given = Recurrent("lstm", 32, 64, 3), []
    of = layer.kernel  # that of all three

    def run_forward(self, call, out, _run=type(of).run_forward):
        given.append(weakref.ref(call.inputs["x"]))
        return _run(self, call, out)

    monkeypatch.setattr(type(of), "run_forward", run_forward)
    layer(np.ones((16, 8, 32), np.float32))
    gc.collect()
    assert len(given) == 3 and all(x() is None for x in given)


def test_idle_memory_has_a_limit():
    pool = memory.Pool(most_bytes=80 * MB, most_pieces=64)
    for _ in range(200):
        pool.give(np.empty(MB, np.uint8))
    assert len(pool.idle) == 64
    pool.most_bytes = 10 * MB
    pool.give(np.empty(MB, np.uint8))
    assert len(pool.idle) == 10
    assert pool.take(MB).size >= MB


def test_a_piece_of_the_size_that_was_given_last_is_taken_again():
    pool = memory.Pool()
    one, other = np.empty(64, np.uint8), np.empty(300, np.uint8)
    pool.give(one)
    pool.give(other)
    assert pool.take(300) is other and pool.take(64) is one and pool.take(64) is not one
    pool.last[64] = id(other)  # where a piece that is gone lay, there is another now
    pool.give(other)
    assert pool.take(64) is other and not pool.idle, "large enough, and not lost"


@pytest.mark.parametrize(
    "sections",
    [
        {"inputs": "{x: 9999999999999}"},
        {"inputs": "{x: H}", "states": "{h: H}", "sizes": "{H: 99999999999999999999}"},
        {"inputs": "{x: H * H * H * H}", "states": "{h: H * H * H * H}"},
        {"inputs": "{x: 0}", "states": "{h: 0}"},
        {"inputs": "{x: -1}", "states": "{h: -1}"},
        {"inputs": "{x: 1e9}", "states": "{h: 1e9}"},
    ],
)
def test_sizes_out_of_all_bounds_are_refused_cleanly(sections):
    """At load, or when the arrays that come do not have them, or for want of memory; quickly in any
    case."""
    start = time.process_time()
    with pytest.raises((RnnspecError, MemoryError, ValueError)):
        spec = rnnspec.loads(cell("h[t] = x[t] + h[t-1]", **sections))
        rnnspec.compile(spec).forward({}, {"x": np.zeros((2, 2), np.float32)})
    assert time.process_time() - start < 5


@pytest.mark.parametrize("size", [10**12, 2**62, 2**63, 10**30])
def test_sizes_out_of_all_bounds_at_run_time(size):
    with pytest.raises((RnnspecError, MemoryError, ValueError, OverflowError)):
        kernel("lstm").init(D=3, H=size)
    with pytest.raises((RnnspecError, MemoryError, ValueError, OverflowError)):
        Recurrent("lstm", 3, size)


def test_a_size_that_a_shape_fixes_is_checked():
    of = rnnspec.compile(rnnspec.loads(cell("h[t] = x[t] + h[t-1]", inputs="{x: 3}", states="{h: 3}")))
    with pytest.raises(rnnspec.ShapeError, match=r"\(2, 2, 4\).*3"):
        of.forward({}, {"x": np.zeros((2, 2, 4), np.float32)})
