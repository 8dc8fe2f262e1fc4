"""Faults planted in the generator (tests/helpers/mutations.py): each is caught by `rnnspec check`,
by the property that is meant to catch it."""

from __future__ import annotations

import pytest
from mutations import MUTANTS, QUICK, Mutant, right, right_kernel

from rnnspec.check.run import PROPERTIES, run_property


@pytest.mark.parametrize(
    "mutant", [m if m.what in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in MUTANTS], ids=lambda m: m.what
)
def test_a_planted_fault_is_caught(mutant: Mutant) -> None:
    assert mutant.caught in mutant.failures(first_only=True)


def test_there_are_enough_of_them_and_each_is_another() -> None:
    assert len({m.what for m in MUTANTS}) == len(MUTANTS) >= 25 and set(QUICK) <= {m.what for m in MUTANTS}


@pytest.mark.parametrize(
    "name",
    ["rnn", pytest.param("gru_reset_before", marks=pytest.mark.slow), pytest.param("lstm", marks=pytest.mark.slow)],
)
def test_what_is_right_passes_where_mutants_fail(name: str) -> None:
    for known in (right(name), right_kernel(name)):
        for row in PROPERTIES:
            if row.needs_kernel == (known.kernel is not None):
                result = run_property(row, lambda known=known: known, known.dtype)  # type: ignore[misc]
                assert result.passed, result
