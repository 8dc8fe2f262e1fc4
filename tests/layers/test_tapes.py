"""Stack.run_record and run_resume: another Stack of the same layers runs backwards from bytes, to
the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import assert_same

from rnnspec import ShapeError
from rnnspec.layers.stack import Stack

OPTIONS = {
    "full": {},
    "low": {"memory": "low"},
    "dropout": {"dropout": 0.4},
    "dropout low": {"dropout": 0.4, "memory": "low"},
    "product": {"merge": "product"},
    "residual": {"merge": "sum", "residual": True, "learn_initial": True},
    "everything": {
        "merge": "product",
        "residual": True,
        "dropout": 0.3,
        "memory": "low",
        "return_all_states": ["c", "f"],
        "learn_initial": True,
    },
}
RAGGED = {"whole": (None, None), "ragged": ([5, 0, 3], None), "resets": ([5, 1, 4], (0, 2))}


@pytest.mark.parametrize("which", RAGGED)
@pytest.mark.parametrize("option", OPTIONS)
def test_another_stack_resumes(option, which):
    first, second = (
        Stack("lstm", 3, 4, num_layers=2, bidirectional=True, dtype="float64", **OPTIONS[option]) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    lengths, where = RAGGED[which]
    resets = None if where is None else np.isin(np.arange(15).reshape(5, 3), where)
    params = {n: a + 0.1 * rng.normal(size=a.shape) for n, a in first.init(1).items()}
    x, state = rng.normal(size=(5, 3, 3)), [rng.normal(size=(s[0], 3, *s[1:])) for s in first.states.values()]
    state[1] = None
    run = first.forward(params, x, state, lengths, resets=resets, seed=7)
    call = first.call(params, x, state, lengths, resets=resets, seed=7)
    taped, tapes = first.run_record(call)
    assert_same(taped.outputs, run.outputs)
    assert_same(taped.steps, run.steps)
    dy = rng.normal(size=next(iter(run.outputs.values())).shape)
    dstate, dsteps = (
        [rng.normal(size=a.shape) for a in run.final],
        {n: rng.normal(size=a.shape) for n, a in run.steps.items()},
    )
    right = first.backward(run, dy, dstate, dsteps)
    assert all(a.dtype == np.uint8 and a.ndim == 1 for a in tapes)
    call = second.call(params, x, state, lengths, resets=resets, seed=7)
    again = second.run_resume(call, [a.copy() for a in tapes])
    found = second.backward(again, dy, dstate, dsteps)
    assert_same(found.params, right.params)
    assert_same(found.inputs, right.inputs)
    for mine, other in zip(found.states, right.states):
        assert_same(mine, other)
    with pytest.raises(ShapeError, match="were kept"):
        second.run_resume(call, tapes[1:])
