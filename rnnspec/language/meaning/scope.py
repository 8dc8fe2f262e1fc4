"""What each name of a file is, and how messages call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from rnnspec.language.meaning.unroll import Unrolled
from rnnspec.language.reading.document import Definition

_ARTICLES = {"input": "an input", "intermediate": "an intermediate value", "once": "a value computed once per sequence"}
TIMED = ("input", "state", "intermediate")


@dataclass(frozen=True)
class Scope:
    """What names mean. `kinds`: input, state, parameter, intermediate, once (an equation without
    [t]), constant, choice, function, size. `unrolled`: the equations, their loops unrolled."""

    kinds: Mapping[str, str]
    constants: Mapping[str, Fraction]
    chosen: Mapping[str, str]
    functions: Mapping[str, Definition]
    broken: frozenset[str]
    unrolled: Unrolled = field(default_factory=Unrolled)

    def named(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind in kinds]


def with_article(kind: str) -> str:
    """'an input', 'a state'."""
    return _ARTICLES.get(kind, f"a {kind}")
