"""memory="low": the same results from a small tape."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cells import CORE, case, kernel
from forms import FORMS
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends.cpu.launch import segments


def low(name, **settings):
    """The low-memory kernel of a cell that shares the compiled code."""
    return kernel(name).like(memory="low", **settings)


@pytest.mark.parametrize("name", [*CORE, *FORMS.values()], ids=lambda n: n if "\n" not in n else "form")
def test_the_same_values_and_gradients(name):
    full, small = kernel(name), low(name)
    for steps, count, lengths in ((0, 2, None), (1, 1, None), (7, 3, None), (11, 3, [11, 0, 4]), (10, 1, [3])):
        c = case(full, steps, count, lengths=lengths)
        runs = [own.forward(c.params, c.inputs, c.states, c.lengths) for own in (full, small)]
        for what in ("outputs", "final", "states"):
            for n, a in getattr(runs[0], what).items():
                np.testing.assert_array_equal(getattr(runs[1], what)[n], a)
        one = full.backward(runs[0], c.dy, final=c.dfinal)
        for _ in range(2):
            other = small.backward(runs[1], c.dy, final=c.dfinal)
            for what in ("params", "inputs", "states"):
                for n, a in getattr(one, what).items():
                    assert_close(getattr(other, what)[n], a, REFERENCE["float64"])


def test_the_tape_is_small_and_threads_share_the_work():
    full, small = rnnspec.compile("lstm", threads=1), low("lstm", threads=2)
    p = full.init(D=8, H=8)
    x = np.random.default_rng(0).standard_normal((400, 4, 8)).astype("f")
    tapes = [
        own.forward({n: a.astype(own.dtype) for n, a in p.items()}, {"x": x.astype(own.dtype)}).tape_bytes
        for own in (full, small)
    ]
    assert tapes[1] < tapes[0] / 4  # although float64


def test_an_input_that_was_changed_is_noticed():
    own = low("gru")
    c = case(own, 9, 2)
    run = own.forward(c.params, c.inputs)
    c.inputs["x"][4, 1, 0] += 1
    with pytest.raises(ValueError, match="input 'x' was changed after forward"):
        own.backward(run, c.dy)
    with pytest.raises(ValueError, match="memory='full'"):
        run.states["h"]
    c.inputs["x"][4, 1, 0] -= 1
    own.backward(run, c.dy)


def test_inputs_are_summed_only_where_a_change_can_be_found(monkeypatch):
    passes, made = [], segments.checksums
    monkeypatch.setattr(segments, "checksums", lambda arrays: passes.append(1) or made(arrays))
    own = low("gru")
    c = case(own, 9, 2)
    tape = own.record(c.params, c.inputs).tape
    own.backward(own.resume(c.params, c.inputs, tape), c.dy)
    assert not passes
    own.backward(own.forward(c.params, c.inputs), c.dy)
    assert len(passes) == 2


def test_the_setting():
    with pytest.raises(ValueError, match="memory must be 'full' or 'low'"):
        rnnspec.compile("lstm", memory="lean")
    assert pickle.loads(pickle.dumps(low("lstm"))).memory == "low"
    layer = rnnspec.Recurrent("lstm", 3, 4, memory="low")
    y, _ = layer(np.ones((20, 2, 3), np.float32))
    wanted = rnnspec.Recurrent("lstm", 3, 4)
    wanted(np.ones((20, 2, 3), np.float32))
    for dx in zip(layer.backward(y)[0], wanted.backward(y)[0]):
        np.testing.assert_array_equal(*dx)
