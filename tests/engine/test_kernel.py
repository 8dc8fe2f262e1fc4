"""Kernels of either backend beside each other; calls that are checked once and run often; the same
kernel with other threads or memory."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cells import case, kernel
from tolerances import assert_same

import rnnspec
from rnnspec.backends.cpu.launch import pool, rows
from rnnspec.engine.cpu import CpuKernel
from rnnspec.engine.cuda import CudaKernel

KINDS = ("params", "inputs", "states")


def test_the_backends_are_siblings():
    assert CpuKernel.__mro__[1] is CudaKernel.__mro__[1] is rnnspec.Kernel
    own = kernel("lstm")
    assert isinstance(own, rnnspec.Kernel) and repr(own).startswith("Kernel(lstm, float64, threads=")
    for other in (pickle.loads(pickle.dumps(own)), copy.deepcopy(own)):
        assert type(other) is CpuKernel and repr(other) == repr(own)
    with pytest.raises(TypeError, match="abstract"):
        rnnspec.Kernel(own.spec, own.dtype)


@pytest.mark.parametrize("lengths", [None, [6, 2, 0]])
def test_a_call_that_is_checked_once_runs_as_often_as_one_likes(lengths):
    one = case(kernel("lstm"), 6, 3, 1, lengths, D=3, H=5)
    own, arguments = one.kernel, (one.params, one.inputs, one.states, lengths)
    right, inferred = own.forward(*arguments), own.infer(*arguments)
    grad = own.backward(right, one.dy, final=one.dfinal)
    call = own.call(*arguments)
    for _ in range(2):
        run, taped = own.run_forward(call), own.run_record(call)
        for found in (run, taped, own.run_infer(call)):
            assert_same(found.outputs, inferred.outputs)
            assert_same(found.final, inferred.final)
        for found in (run, own.run_resume(call, taped.tape)):
            again = own.backward(found, one.dy, final=one.dfinal)
            for kind in KINDS:
                assert_same(getattr(again, kind), getattr(grad, kind), kind)
    out = {"h": np.empty((6, 3, 5))}
    assert own.run_infer(call, out).outputs["h"] is out["h"]
    assert_same(out, inferred.outputs)
    with pytest.raises(rnnspec.ShapeError, match="input 'x' has shape"):
        own.call(one.params, {"x": one.inputs["x"][0]})


def test_the_same_kernel_with_other_threads_or_memory_is_not_made_again(monkeypatch):
    own = kernel("gru")
    one = case(own, 5, 2)
    right = one.backward()
    monkeypatch.setattr("rnnspec.engine.cpu.load_text", lambda *args: pytest.fail("made again"))
    low = own.like(memory="low", threads=3)
    assert (low.memory, low.threads) == ("low", 3) and low.like().threads == 3 and low.like().memory == "low"
    assert own.like().threads == own.threads and own.memory == "full"
    again = low.backward(low.forward(one.params, one.inputs, one.states), one.dy, final=one.dfinal)
    assert_same(again.inputs, right.inputs)
    with pytest.raises(ValueError, match="threads must be a whole number"):
        own.like(threads=0)
    with pytest.raises(ValueError, match="memory must be 'full' or 'low'"):
        own.like(memory="lean")


def test_a_step_uses_no_more_threads_than_its_kernel_has(monkeypatch):
    """Kernels with the same Weights borrowed each other's steps, planned for other threads."""
    monkeypatch.setattr(rows, "FLOPS_PER_THREAD", 1)
    monkeypatch.setattr(rows, "FLOPS_PER_BARRIER", 1)
    several = kernel("lstm").like(threads=3)
    one = case(several, 1, 3, H=40)
    weights, x = several.pack(one.params), {"x": one.inputs["x"][0]}
    counts, plain = [], pool.run_blocks

    def counted(function, tables, *rest):
        counts.append(len(tables))
        plain(function, tables, *rest)

    monkeypatch.setattr("rnnspec.backends.cpu.launch.execute.run_blocks", counted)
    right = several.step(weights, x, one.states)
    assert_same(several.like(threads=1).step(weights, x, one.states), right)
    assert counts == [3, 1]
