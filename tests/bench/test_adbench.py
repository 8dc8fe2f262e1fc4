"""ADBench's LSTM as a cell: its objective and its Jacobian, against the same written out in NumPy
and a complex step along each parameter."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tolerances import HAND, assert_close

import rnnspec

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import adbench


def objective(layers, main, extra, state, sequence):
    """One number after another, as the definition has it."""
    bits, total = sequence.shape[1], 0
    main, state = main.reshape(layers, 2, 4, bits), np.array(state, main.dtype).reshape(layers, 2, bits)
    for now, following in pairwise(sequence):
        v = now * extra[:bits]
        for n in range(layers):
            (forget, into, out, change), bias = main[n]
            hidden, cell = state[n]
            f, o = (1 / (1 + np.exp(-(v * w + b))) for w, b in ((forget, bias[0]), (out, bias[2])))
            i, g = 1 / (1 + np.exp(-(hidden * into + bias[1]))), np.tanh(hidden * change + bias[3])
            state[n, 1] = cell * f + i * g
            state[n, 0] = v = o * np.tanh(state[n, 1])
        y = v * extra[bits : 2 * bits] + extra[2 * bits :]
        total = total + (following * (y - np.log(np.exp(y).sum() + 2))).sum()
    return -total / ((len(sequence) - 1) * bits)


@pytest.mark.parametrize("layers", [1, 2])
def test_objective_and_jacobian(layers):
    main, extra, state, sequence = adbench.data(layers, 9, 5)
    kernel = rnnspec.compile(rnnspec.loads(adbench.cell(layers)), dtype="float64", threads=1)
    loss, found = adbench.jacobian(kernel, layers, main, extra, state, sequence)
    assert_close(loss, objective(layers, main, extra, state, sequence), HAND["float64"])
    whole, right = np.concatenate([main, extra]).astype(complex), []
    for place in range(len(whole)):
        moved = whole.copy()
        moved[place] += 1e-30j
        right.append(objective(layers, moved[: len(main)], moved[len(main) :], state, sequence).imag / 1e-30)
    assert_close(found, np.array(right), HAND["float64"])


@pytest.mark.parametrize("other, package", [("in_torch", "torch"), ("in_jax", "jax")])
def test_what_it_is_measured_beside_gives_the_same(other, package):
    pytest.importorskip(package)
    arrays = adbench.data(2, 6, 5)
    loss, found = getattr(adbench, other)(2, arrays)()
    assert_close(loss, objective(2, *arrays), HAND["float64"])
    kernel = rnnspec.compile(rnnspec.loads(adbench.cell(2)), dtype="float64", threads=1)
    assert_close(found, adbench.jacobian(kernel, 2, *arrays)[1], HAND["float64"])
