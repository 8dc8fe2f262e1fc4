"""How the arrays of two runs are compared."""

from __future__ import annotations

import numpy as np
import pytest

from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, Key


@pytest.mark.parametrize(
    "found, expected, error",
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.2], [1.0, 2.0], 0.1),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([0.0, 1.0], [np.nan, 1.0], np.inf),
        ([np.inf], [np.inf], 0.0),
        ([-np.inf], [np.inf], np.inf),
        ([np.inf], [1.0], np.inf),
        ([1e-30], [0.0], np.inf),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], np.inf),
    ],
)
def test_difference_of_arrays(found, expected, error):
    gap = worst({ArrayKind.OUTPUT: {"h": np.array(found)}}, {ArrayKind.OUTPUT: {"h": np.array(expected)}})
    assert gap.error == pytest.approx(error)


def test_worst_names_the_array():
    one, two = np.ones(2), np.full(2, 1.5)

    def states(found, expected):
        return worst({ArrayKind.STATE: found}, {ArrayKind.STATE: expected})

    assert states({"a": one, "b": two}, {"a": one, "b": one}) == (0.5, "b", Key(ArrayKind.STATE, "b"))
    assert states({"a": one}, {"a": one}) == (0.0, "all arrays", None)
    assert states({"a": one}, {"a": one, "b": one}) == (np.inf, "these are not in both: b", None)
    assert states({"a": np.array([[1, np.nan]])}, {"a": one[None]}).text == "a[0, 1] is nan, expected 1"
    assert states({"a": np.array(np.inf)}, {"a": np.array(-np.inf)}).text == "a is inf, expected -inf"
    assert states({"a": one}, {"a": np.ones(3)}).text == "a has shape (2,), expected (3,)"
    assert states({"a": np.array([0, 1e-30])}, {"a": np.zeros(2)}).text == "a[1] is 1e-30, expected 0"


def test_values_and_gradients_have_their_own_scale():
    one, two = np.ones(2), np.full(2, 1.5)
    found = {ArrayKind.PARAM_GRADIENT: {"a": two}, ArrayKind.FINAL: {"a": two}}
    gap = worst(found, {ArrayKind.PARAM_GRADIENT: {"a": one}, ArrayKind.FINAL: {"a": 10 * one}})
    assert (gap.error, gap.text) == (0.85, "final a")
    gap = worst(found, {ArrayKind.PARAM_GRADIENT: {"a": one}, ArrayKind.FINAL: {"a": two}})
    assert (gap.error, gap.text) == (0.5, "gradient of a")
