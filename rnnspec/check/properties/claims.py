"""The property that a cell is what its `same_as` says: compared with the layers of the libraries
that are installed."""

from __future__ import annotations

from rnnspec.check.outcome import Outcome, largest
from rnnspec.check.peers import compare
from rnnspec.check.subject import Subject


def same_as(known: Subject) -> Outcome:
    """Every claim that can be run here; the detail names those that could not, and why."""
    found = compare(known.spec, known.dtype, known.seed, known.compiled())
    if not found:
        return Outcome(skipped="the spec claims no library's layer")
    unrun = [f"{c.claim} not run: {c.reason}" for c in found if c.difference is None]
    ran = [c for c in found if c.difference is not None]
    if not ran:
        return Outcome(skipped="; ".join(unrun))
    worst = largest([Outcome(c.difference, c.tolerance, f"{c.claim}, {c.detail}") for c in ran])
    detail = worst.detail if not worst.passed else f"{', '.join(c.claim for c in ran)}; largest in {worst.detail}"
    return Outcome(worst.measured, worst.tolerance, "; ".join([detail, *unrun]))
