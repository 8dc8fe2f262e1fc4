"""What one property returns, and properties that are checked at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rnnspec.check.tolerances import REDRAWS

if TYPE_CHECKING:
    from rnnspec.check.sampling import Shapes
    from rnnspec.check.subject import Subject


@dataclass(frozen=True)
class Outcome:
    """What a property came to; it has passed if measured <= tolerance (None: a yes).

    skipped: why the property does not apply. shapes: where it was measured. error: what the check
    raised, if it did, which is a failure.
    """

    measured: float | None = None
    tolerance: float | None = None
    detail: str = ""
    skipped: str = ""
    shapes: Shapes | None = None
    error: type[Exception] | None = None

    @property
    def passed(self) -> bool:
        if self.measured is None or self.tolerance is None:
            return True
        return self.measured <= self.tolerance


def largest(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome that is furthest above its tolerance."""
    return max(outcomes, key=lambda o: (not o.passed, o.measured or 0.0), default=Outcome(detail="nothing to check"))


@dataclass(frozen=True)
class Sized:
    """A property that can be checked at any sizes, and the sizes at which it is: what fails at
    those is shrunk to a small case."""

    check: Callable[[Subject, Shapes], Outcome]
    shapes: Callable[[Subject], Sequence[Shapes]]

    def __call__(self, known: Subject) -> Outcome:
        return largest([self.at(known, replace(s, number=n)) for n, s in enumerate(self.shapes(known))])

    def at(self, known: Subject, shapes: Shapes) -> Outcome:
        """The outcome at these sizes: of the first draw that rounding alone does not explain, out
        of REDRAWS. Raises UndecidedError if there is none."""
        from rnnspec.check.sampling import UndecidedError

        for again in range(REDRAWS):
            try:
                return replace(self.check(known, replace(shapes, again=again)), shapes=shapes)
            except UndecidedError as error:
                undecided = error
        raise undecided


def at_sizes(shapes: Callable[[Subject], Sequence[Shapes]]) -> Callable[[Callable[[Subject, Shapes], Outcome]], Sized]:
    """Makes a Sized property of a function of one cell and one set of sizes."""
    return lambda check: Sized(check, shapes)
