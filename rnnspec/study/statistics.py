"""Numbers of several runs, and whether two cells differ: paired tests, corrected for how many there
are.

In: scores. Out: plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from rnnspec.storage.locks import numpy_part
from rnnspec.study.errors import StudyError
from rnnspec.study.needed import needed

EXACT, DRAWS = 14, 20_000  # pairs up to which every change of signs is gone through, and draws above that
TESTS = ("permutation", "wilcoxon")


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of what the values were drawn from (n - 1), None of fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def permutation_test(differences: Sequence[float]) -> float:
    """How probable a mean as far from 0 is, were the sign of each difference a coin's (Fisher
    1935): two-sided, exact up to 14 pairs, else by 20,000 draws, the same each time."""
    d = np.asarray(differences, np.float64)
    if len(d) <= EXACT:
        signs = np.array(list(product((1.0, -1.0), repeat=len(d))))
        as_far, count = np.abs(signs @ d) >= abs(d.sum()) * (1 - 1e-12), len(signs)
        return float(as_far.sum() / count)
    draws = numpy_part("random").default_rng(0).integers(0, 2, (DRAWS, len(d))) * 2.0 - 1
    as_far = np.abs(draws @ d) >= abs(d.sum()) * (1 - 1e-12)
    return float((as_far.sum() + 1) / (DRAWS + 1))


def paired_test(differences: Sequence[float], test: str) -> float | None:
    """The p of a test of TESTS; None for fewer than two pairs. wilcoxon: signed ranks, SciPy's."""
    if len(differences) < 2:
        return None
    if test == "permutation":
        return permutation_test(differences)
    if test != "wilcoxon":
        raise StudyError(f"the tests are {' and '.join(TESTS)}, not {test!r}")
    stats = needed("scipy.stats", "the test wilcoxon")
    return float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0


def holm(values: Sequence[float | None]) -> list[float | None]:
    """The p of several tests, corrected so that the chance of even one false finding among them
    stays below the level (Holm 1979): the k-th smallest of m times m - k + 1, never falling, at
    most 1. None stays None, and is no test."""
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (p, i) in enumerate(order):
        least = max(least, min(1.0, p * (len(order) - rank)))
        found[i] = least
    return found
