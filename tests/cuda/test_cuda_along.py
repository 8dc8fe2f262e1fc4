"""Derivatives along directions on the CUDA backend: PTX of the programs with directions, run in the
interpreter, against the same programs on the CPU; and what is refused, by name.

Compiled and interpreted, not run on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cells import Case, case
from emulated import assert_clean, gpu, needs_compiler
from tolerances import CUDA, assert_close

import rnnspec
from rnnspec.engine.spans import cut
from rnnspec.errors import UnsupportedError

needs_compiler()
QUICK = ["rnn"]
TEN = [
    "lstm",
    "gru",
    "gru_reset_before",
    "ln_gru",
    "lstm_peephole",
    "lstm_projected",
    "lif",
    "rhn",
    "dend_plrnn_clipped",
    "zoneout_lstm",
    "phased_lstm",
    "deltanet",
]
CELLS = [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in TEN)]


def along(one: Case, columns: int | None) -> dict[str, dict[str, Any]]:
    """Directions of all that `hvp` takes."""
    rng, still, lead = np.random.default_rng(1), one.kernel.spec.no_gradient, () if columns is None else (columns,)
    groups = {"params": one.params, "inputs": one.inputs, "states": one.states, "outputs": one.dy, "final": one.dfinal}
    return {
        f"tangent_{group}": {
            n: rng.uniform(-1, 1, (*lead, *a.shape)).astype(a.dtype) for n, a in arrays.items() if n not in still
        }
        for group, arrays in groups.items()
    }


def assert_alike(found: Any, right: Any, tolerance: float, what: str) -> None:
    for name, array in vars(right).items():
        mine = getattr(found, name)
        if isinstance(array, dict):
            assert mine.keys() == array.keys()
            assert_close(mine, array, tolerance, f"{what}: {name}")
        else:
            assert_alike(mine, array, tolerance, f"{what}: {name}")


def check(name: str, tier: int, columns: int | None, lengths: tuple[int, ...] | None, **sizes: int) -> None:
    cpu = rnnspec.compile(name, dtype="float64", threads=1)
    with gpu(seed=tier) as library:
        own = rnnspec.compile(name, dtype="float64", backend="cuda", tier=tier)
        one = case(own, max(lengths or (3,)), 3, lengths=lengths, **sizes)
        given = along(one, columns)
        moved = {n: a for n, a in given.items() if n not in ("tangent_outputs", "tangent_final")}
        args, back = (one.params, one.inputs, one.states, one.lengths), {"outputs": one.dy, "final": one.dfinal}
        curvature = {"curvature": {n: np.ones_like(a) for n, a in one.dy.items()}}
        for call, more in (("jvp", moved), ("hvp", given | back), ("ggn", moved | curvature)):
            found, right = (getattr(kernel, call)(*args, **more) for kernel in (own, cpu))
            assert_alike(found, right, CUDA["float64"], f"{name}: {call}")
        assert_clean(library)


@pytest.mark.parametrize("name", CELLS)
def test_directions_are_those_of_the_cpu(name):
    check(name, 1, None, (1, 3, 2))


@pytest.mark.parametrize("name", CELLS)
def test_directions_stage_by_stage(name):
    check(name, 3, 2, None)


def test_some_directions_and_none_of_them():
    cpu = rnnspec.compile("rnn", dtype="float64", threads=1)
    with gpu():
        own = rnnspec.compile("rnn", dtype="float64", backend="cuda")
        one = case(own, 3, 2)
        for group in ("params", "inputs", "states"):
            for columns in (0, 1, 3):
                some = {f"tangent_{group}": along(one, columns)[f"tangent_{group}"]}
                args = (one.params, one.inputs, one.states)
                found, right = (kernel.jvp(*args, **some) for kernel in (own, cpu))
                assert_alike(found, right, CUDA["float64"], f"{columns} of {group}")
        found, right = (kernel.jacobian(one.params, one.inputs, one.states) for kernel in (own, cpu))
        assert_close(found["h"]["h"], right["h"]["h"], CUDA["float64"])


def test_pieces_and_arrays_on_the_device():
    cpu = rnnspec.compile("rnn", dtype="float64", threads=1)
    with gpu():
        own = rnnspec.compile("rnn", dtype="float64", backend="cuda")
        one = case(own, 4, 3)
        parts = cut(4, 3, np.array([3, 1, 4]), None, reverse=True)
        given = along(one, None)
        args, told = (one.params, one.inputs, one.states), {"outputs": one.dy, "final": one.dfinal, "pieces": parts}
        found, right = (kernel.hvp(*args, **given, **told) for kernel in (own, cpu))
        assert_alike(found, right, CUDA["float64"], "pieces")
        put = own.launcher.upload
        on_gpu = [{n: put(a) for n, a in group.items()} for group in args]
        moved = {group: {n: put(a) for n, a in arrays.items()} for group, arrays in given.items()}
        more = {"outputs": {n: put(a) for n, a in one.dy.items()}, "final": {n: put(a) for n, a in one.dfinal.items()}}
        found, right = own.hvp(*on_gpu, **moved, **more), cpu.hvp(*args, **given, outputs=one.dy, final=one.dfinal)
        assert_alike(found, right, CUDA["float64"], "on the device")


@pytest.mark.parametrize("name", ["rnn", *(pytest.param(n, marks=pytest.mark.slow) for n in TEN)])
def test_gradients_and_weights_by_row_are_refused_by_name(name):
    with gpu():
        own = rnnspec.compile(name, backend="cuda")
        one = case(own, 1, 2)
        run = one.forward()
        for call in (lambda: own.backward(run, per_row=True), lambda: own.row_norms(run)):
            with pytest.raises(UnsupportedError, match="no gradients by row: compile the cell with backend='cpu'"):
                call()
        with pytest.raises(UnsupportedError, match="weights by row"):
            own.forward({n: np.stack([a, a]) for n, a in one.params.items()}, one.inputs)
        with pytest.raises(ValueError, match="mode must be one of"):
            own.source("backward_rows")
