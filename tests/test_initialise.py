"""Initial values, and which parameters are biases: both follow from the spec."""
from __future__ import annotations

import numpy as np
import pytest
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.initialise import initialise
from rnnspec.language.biases import bias_names
from rnnspec.language.load import load, loads

SIZES = {"D": 5, "H": 7}
FLOAT64 = np.dtype("float64")


def drawn(shape: str, init: str, seed: int = 0) -> np.ndarray:
    """The values of a parameter of this shape, one matrix or one for each round of a loop."""
    *stack, rows, columns = shape.split()
    equations = "for k in 1..3:\n  a[t, k] = W[k] @ x[t]\nn[t] = a[t, 3]" if stack else "n[t] = W @ x[t]"
    spec = loads(cell(f"{equations}\nh[t] = n[t]", inputs=f"{{x: {columns}}}", states=f"{{h: {rows}}}", parameters=f"{{W: [{', '.join(shape.split())}]}}",
                      init=f"{{W: {init!r}}}"))
    return initialise(spec, SIZES, seed, FLOAT64)["W"]


@pytest.mark.parametrize("shape, gain", [("H H", 1.0), ("H D", 1.0), ("D H", 0.9), ("3 H H", 0.5), ("3 D H", 1.0)])
def test_orthogonal_matrices(shape, gain):
    """The shorter side is orthonormal, times the gain; of three axes each matrix by itself."""
    found = drawn(shape, "orthogonal" if gain == 1 else f"orthogonal({gain})")
    matrices = found.reshape(-1, *found.shape[-2:])
    for m in matrices:
        small = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
        np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-14)
    assert len({m.tobytes() for m in matrices}) == len(matrices)


def test_orthogonal_matrices_are_drawn_from_all():
    """QR alone gives columns that favour one side of each axis: of 200 matrices half of all first entries are positive."""
    signs = [drawn("H H", "orthogonal", seed)[0, 0] > 0 for seed in range(200)]
    assert 70 < sum(signs) < 130  # 4 deviations of a fair coin


def test_identity_matrices():
    np.testing.assert_array_equal(drawn("H H", "identity"), np.eye(7))
    np.testing.assert_array_equal(drawn("3 H D", "identity(0.05)"), np.stack([0.05 * np.eye(7, 5)] * 3))


def test_glorot_counts_one_matrix_of_a_loop():
    found = drawn("3 H D", "glorot_uniform")
    bound = np.sqrt(6 / 12)
    assert 0.9 * bound < np.abs(found).max() <= bound


@pytest.mark.parametrize("init", ["orthogonal", "identity(2)"])
def test_a_vector_is_no_matrix(init):
    with pytest.raises(SpecError, match="is for matrices, and 'b' has the shape"):
        loads(cell("h[t] = b + x[t]", inputs="{x: H}", states="{h: H}", parameters="{b: H}", init=f"{{b: {init}}}"))


def test_gains_are_one_number():
    with pytest.raises(SpecError, match=r"unknown initialiser 'identity\(1, 2\)'"):
        loads(cell("h[t] = W @ x[t]", inputs="{x: H}", states="{h: H}", parameters="{W: [H, H]}", init='{W: "identity(1, 2)"}'))


@pytest.mark.parametrize("name, biases", [
    ("lstm", ("b_i", "b_f", "b_g", "b_o")), ("gru", ("b_r", "b_z", "b_n", "c_n")), ("rhn", ("b_h", "b_t")), ("mgu3", ("b_n",)),
    ("lstm_peephole", ("b_i", "b_f", "b_g", "b_o")),
    ("irnn", ("b",)), ("indrnn", ("b",)), ("fastgrnn", ("b_z", "b_h")),
])
def test_biases_are_vectors_that_are_only_added(name, biases):
    assert set(bias_names(load(name))) == set(biases)
