"""Branches of fixed points against those that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from cells import kernel
from maps import LOGISTIC, TANH_OF_ONE
from tiny import cell

from rnnspec.dynamics import continue_fixed_point
from rnnspec.errors import RnnspecError, ShapeError

# Maynard Smith 1968: a population that is held back by that of the year before
DELAYED = cell(
    "x[t] = r * x[t-1] * (1 - y[t-1])\ny[t] = x[t-1]",
    name="delayed",
    inputs="{}",
    states="{x: [], y: []}",
    outputs="[x]",
    parameters="{r: []}",
)
DRIVEN = cell("h[t] = tanh(w * h[t-1] + x[t])", name="driven", inputs="{x: H}", states="{h: H}", parameters="{w: []}")


def test_the_folds_of_one_unit():
    """h' = tanh(w h + b) turns where w (1 - h^2) = 1: h = +-sqrt(1 - 1/w), b = atanh(h) - w h. The
    branch is an S: it is passed from end to end, though b goes back on its way."""
    w = 2.0
    found = continue_fixed_point(
        kernel(TANH_OF_ONE), {"w": np.array(w), "b": np.array(0.0)}, {}, {"h": np.array(0.0)}, "b", (-1.5, 1.5)
    )
    h = np.sqrt(1 - 1 / w)
    assert [s.kind for s in found.special] == ["fold", "fold"] and found.ends == ("range", "range")
    assert sorted(s.value for s in found.special) == pytest.approx(
        sorted([np.arctanh(h) - w * h, w * h - np.arctanh(h)]), abs=1e-13
    )
    assert sorted(s.states["h"].item() for s in found.special) == pytest.approx([-h, h], abs=1e-7)
    assert all(s.eigenvalue == pytest.approx(1, abs=1e-6) for s in found.special)
    ends = sorted(found.values[[0, -1]].tolist())
    assert ends == [-1.5, 1.5] and set(found.unstable.tolist()) == {0, 1}
    moved = np.tanh(w * found.states["h"] + found.values)
    np.testing.assert_allclose(moved, found.states["h"], atol=1e-11)


def test_the_flip_of_the_logistic_map():
    found = continue_fixed_point(kernel(LOGISTIC), {"r": np.array(2.0)}, {}, {"x": np.array(0.5)}, "r", (1.5, 3.9))
    assert [s.kind for s in found.special] == ["flip"]
    assert found.special[0].value == pytest.approx(3, abs=1e-12)
    assert found.special[0].eigenvalue == pytest.approx(-1, abs=1e-12)
    np.testing.assert_allclose(found.states["x"], 1 - 1 / found.values, atol=1e-11)
    at_zero = continue_fixed_point(kernel(LOGISTIC), {"r": np.array(0.5)}, {}, {"x": np.array(0.0)}, "r", (0.0, 1.7))
    assert [s.kind for s in at_zero.special] == ["branch"]  # the two branches cross at r = 1
    assert at_zero.special[0].value == pytest.approx(1, abs=1e-6)


def test_a_pair_passes_the_circle():
    """x = y = 1 - 1/r, whose eigenvalues have |e|^2 = r - 1, and are e^(+-i pi / 3) at r = 2."""
    found = continue_fixed_point(
        kernel(DELAYED), {"r": np.array(1.7)}, {}, {"x": np.array(0.4), "y": np.array(0.4)}, "r", (1.1, 2.5)
    )
    assert [s.kind for s in found.special] == ["neimark-sacker"]
    (there,) = found.special
    assert there.value == pytest.approx(2, abs=1e-12)
    assert there.eigenvalue == pytest.approx(np.exp(1j * np.pi / 3), abs=1e-10)


def test_an_input_that_moves_and_a_direction():
    driven, w = kernel(DRIVEN), 2.0
    start, at = {"h": np.array([0.9, 0.95])}, {"x": np.zeros(2)}
    h = np.sqrt(1 - 1 / w)
    fold = np.arctanh(h) - w * h
    one = continue_fixed_point(driven, {"w": np.array(w)}, at, start, "x[1]", (-1.0, 1.0))
    assert [s.value for s in one.special] == pytest.approx([-fold, fold], abs=1e-12) or [
        s.value for s in one.special
    ] == pytest.approx([fold, -fold], abs=1e-12)
    both = continue_fixed_point(driven, {"w": np.array(w)}, at, start, {"x": np.array([0.0, 2.0])}, (-0.5, 0.5))
    assert sorted(s.value for s in both.special) == pytest.approx(sorted([-fold / 2, fold / 2]), abs=1e-12)


def test_what_is_refused():
    logistic, start = kernel(LOGISTIC), {"x": np.array(0.5)}
    for along, over, why in (
        ("q", (0, 1), "has no 'q' to move"),
        ("r[0]", (0, 1), "must be one number"),
        ("r", (3, 1), "low < high"),
        ("r", (3, 4), "not within the range"),
        ({"r": np.zeros(2)}, (0, 1), "expected \\(\\)"),
    ):
        with pytest.raises(ShapeError, match=why):
            continue_fixed_point(logistic, {"r": np.array(2.0)}, {}, start, along, over)
    nowhere = kernel(
        cell("x[t] = x[t-1] + r", name="on", inputs="{}", states="{x: []}", outputs="[x]", parameters="{r: []}")
    )
    with pytest.raises(RnnspecError, match="no fixed point was found"):
        continue_fixed_point(nowhere, {"r": np.array(1.0)}, {}, start, "r", (0.5, 2))
