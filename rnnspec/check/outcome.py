"""What one property returns."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """passed if measured <= tolerance (None: a yes); skipped: why the property does not apply."""

    measured: float | None = None
    tolerance: float | None = None
    detail: str = ""
    skipped: str = ""

    @property
    def passed(self) -> bool:
        if self.measured is None or self.tolerance is None:
            return True
        return self.measured <= self.tolerance


def largest(outcomes: list[Outcome]) -> Outcome:
    """The outcome that is furthest above its tolerance."""
    return max(outcomes, key=lambda o: (not o.passed, o.measured or 0.0), default=Outcome(detail="nothing to check"))
