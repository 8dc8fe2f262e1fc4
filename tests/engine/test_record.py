"""record and resume: the tape as an array that the caller keeps, from which another kernel runs
backward; outputs in arrays of the caller's."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from cells import case, kernel
from tolerances import assert_same

import rnnspec
from rnnspec import ShapeError
from rnnspec.backends.cpu.launch.memory import POOL

KINDS = ("params", "inputs", "states")


@pytest.mark.parametrize("memory", ["full", "low"])
@pytest.mark.parametrize("lengths", [None, [6, 2, 0]])
def test_another_kernel_resumes_from_the_bytes_of_a_tape(memory, lengths):
    one = case(kernel("lstm"), 6, 3, 1, lengths, D=3, H=5)
    first, second = (rnnspec.compile("lstm", dtype="float64", memory=memory) for _ in range(2))
    whole = first.forward(one.params, one.inputs, one.states, lengths)
    right = first.backward(whole, one.dy, final=one.dfinal)
    taped = first.record(one.params, one.inputs, one.states, lengths)
    assert_same(taped.outputs, whole.outputs)
    assert_same(taped.final, whole.final)
    shifted = np.empty(taped.tape.size + 1, np.uint8)[1:]  # not at a cache line
    shifted[:] = taped.tape
    for tape in (taped.tape, taped.tape.copy(), shifted):
        run = second.resume(one.params, one.inputs, tape, lengths)
        for _ in range(2):  # the tape is read, not consumed
            back = second.backward(run, one.dy, final=one.dfinal)
            for kind in KINDS:
                assert_same(getattr(back, kind), getattr(right, kind), kind)
        assert_same(run.states, whole.states)
    with pytest.raises(ShapeError, match="is not of these arguments"):
        second.resume(one.params, one.inputs, taped.tape[:-1], lengths)
    for wrong in (taped.tape.astype(np.int32), taped.tape.view(np.int8), taped.tape.tolist(), None):
        with pytest.raises(ShapeError, match="array of bytes"):  # it would be read past its end, or as other numbers
            second.resume(one.params, one.inputs, wrong, lengths)


def test_the_memory_of_a_tape_lives_as_long_as_its_array():
    one = case(kernel("lstm"), 50, 3, D=3, H=64)
    tape = one.kernel.record(one.params, one.inputs).tape
    part, before = tape[1000:], tape.copy()
    del tape
    gc.collect()
    for _ in range(3):  # would be given the same memory, were it free
        one.kernel.record(one.params, one.changed(lambda a: a + 1).inputs)
    assert_same(part, before[1000:])
    where = part.__array_interface__["data"][0]
    del part
    gc.collect()
    assert any(
        p.__array_interface__["data"][0] <= where < p.__array_interface__["data"][0] + p.size
        for p in POOL.idle.values()
    )


@pytest.mark.parametrize("lengths", [None, [4, 0, 2]])
def test_outputs_go_into_arrays_of_the_callers(lengths):
    one = case(kernel("lstm"), 4, 3, 2, lengths, D=3, H=5)
    whole = one.forward()
    wide = np.full((4, 3, 11), 7.0)
    for call in (one.kernel.record, one.kernel.infer):
        wide[...] = 7
        run = call(one.params, one.inputs, one.states, lengths, out={"h": wide[:, :, 3:8]})
        assert_same(wide[:, :, 3:8], whole.outputs["h"])
        assert (wide[:, :, :3] == 7).all() and (wide[:, :, 8:] == 7).all()
        assert run.outputs["h"].base is wide
    for out, words in (
        ({"y": wide}, "'y'.*there are h"),
        ({"h": wide}, r"shape \(4, 3, 5\)"),
        ({"h": wide[:, :, :5].astype("float32")}, "float64"),
    ):
        with pytest.raises(ShapeError, match=words):
            one.kernel.infer(one.params, one.inputs, out=out)
    wide.setflags(write=False)
    with pytest.raises(ShapeError, match="writable"):
        one.kernel.infer(one.params, one.inputs, out={"h": wide[:, :, :5]})
