"""Objects whose attributes are read: what would be assigned and never looked at is refused.

In: the names that a class has. Out: AttributeError for others. Nothing here knows a layer.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rnnspec.language.syntax.faults import did_you_mean


class Attributes:
    """Takes assignments to what the class has (methods, properties with a setter), to the names of
    `assigned`, and to those with a leading underscore. Raises AttributeError for others."""

    assigned: ClassVar[tuple[str, ...]] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] == "_" or name in self.assigned:  # every call makes some of these
            super().__setattr__(name, value)
            return
        kind, known = type(self), getattr(type(self), name, None)
        fixed = isinstance(known, property) and known.fset is None
        if fixed or known is None:
            own = [n for n in dir(kind) if isinstance(p := getattr(kind, n), property) and p.fset is not None]
            can = sorted({*own, *self.assigned})
            raise AttributeError(
                f"{name!r} of a {kind.__name__} can't be assigned: {'it is settled' if fixed else 'nothing reads it'}"
                f" once the {kind.__name__} is made. Make another one with what is wanted."
                f"{'' if fixed else did_you_mean(name, can)} What can be assigned: {', '.join(can)}."
            )
        super().__setattr__(name, value)
