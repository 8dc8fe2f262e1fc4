"""On a GPU each row counts its own steps, in all tiers, as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from cells import case, kernel
from counting import BOTH
from emulated import gpu, needs_compiler
from tolerances import CUDA, assert_close, assert_same

import rnnspec
from rnnspec import UnsupportedError
from rnnspec.engine.spans import cut

needs_compiler()

COUNTS = np.array([3, 0, 40])


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_each_row_counts_for_itself(tier):
    own = kernel(BOTH, "float32")
    c = case(own, 4, 3, lengths=[4, 0, 3], H=5)
    x, begin = {"x": c.inputs["x"]}, c.states | {"t": COUNTS}
    want = own.forward(c.params, x, begin, c.lengths)
    right = own.backward(want, c.dy, final=c.dfinal)
    with gpu(processors=4):
        device = rnnspec.compile(rnnspec.loads(BOTH), backend="cuda", tier=tier)
        run = device.forward(c.params, x, begin, c.lengths)
        back = device.backward(run, c.dy, final=c.dfinal)
        first = device.infer(c.params, {"x": x["x"][:2]}, begin)
        rest = device.infer(c.params, {"x": x["x"][2:]}, first.final)
    whole = own.infer(c.params, x, begin)
    for found, expected in (
        (run.outputs, want.outputs),
        (run.final, want.final),
        (back.states, right.states),
        ({"x": back.inputs["x"]}, {"x": right.inputs["x"]}),
        (rest.outputs, {"h": whole.outputs["h"][2:]}),
        (rest.final, whole.final),
    ):
        assert_close(found, expected, CUDA["float32"])


def test_streams_steps_and_pieces_count_on_a_device():
    own, rng = kernel(BOTH, "float32"), np.random.default_rng(0)
    x = rng.standard_normal((4, 2, 3)).astype(np.float32)
    resets = np.zeros((4, 2), bool)
    resets[2, 1] = True
    pieces = cut(4, 2, None, resets, False)
    with gpu():
        device = rnnspec.compile(rnnspec.loads(BOTH), backend="cuda", tier=3)
        streams, states = [k.stream({}, {"t": np.array([5, 0])}, rows=2, H=3) for k in (device, own)], {"t": 5}
        for t in range(4):
            if t == 2:
                for stream in streams:
                    stream.reset(rows=[1])
            found, right = ({"h": s.step({"x": x[t]})["h"].copy()} for s in streams)
            assert_close(found, right, CUDA["float32"])
            states = device.step({}, {"x": x[t]}, states)
        assert_close(streams[0].states, streams[1].states, CUDA["float32"])
        assert_same(states["t"], np.array([9, 9]))
        cuts = [k.infer({}, {"x": x}, {"t": np.array([5, 0, 7])}, pieces=pieces) for k in (device, own)]
        assert_close(cuts[0].outputs, cuts[1].outputs, CUDA["float32"])
        assert_close(cuts[0].final, cuts[1].final, CUDA["float32"])
        with pytest.raises(UnsupportedError, match="'t' is read on the host"):
            device.infer({}, {"x": x}, {"t": device.launcher.indices([0, 0])})
