"""How differential equations are made into steps: one row a method, and nothing else says anything
of them.

A row is an explicit Runge-Kutta method as its tableau (Butcher 1963): the slopes
k_i = f(v + h * sum_j stages[i][j] * k_j), then v + h * gain * sum_i weights[i] * k_i. `gain` is a
text in the spec language over z = h * c, where c is the derivative of f by the unit's own v: 1 for
methods that need no c. A method of this form is one row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

HALF, SIXTH, THIRD = Fraction(1, 2), Fraction(1, 6), Fraction(1, 3)
ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class Method:
    """One row. order: the error after a given time goes with h to this power. stages: of each
    slope, the weights of those before it; weights: of all slopes in the step; gain: "" for 1."""

    name: str
    order: int
    stages: tuple[tuple[Fraction, ...], ...]
    weights: tuple[Fraction, ...]
    gain: str = ""
    about: str = ""


_ROWS = (
    Method("euler", 1, ((),), (ONE,), about="v + h f(v)"),
    Method("midpoint", 2, ((), (HALF,)), (ZERO, ONE), about="the slope in the middle of the step"),
    Method(
        "rk4",
        4,
        ((), (HALF,), (ZERO, HALF), (ZERO, ZERO, ONE)),
        (SIXTH, THIRD, THIRD, SIXTH),
        about="the classical method of fourth order (Kutta 1901)",
    ),
    Method(
        "exponential_euler",
        1,
        ((),),
        (ONE,),
        "exprel(z)",
        about="v + h exprel(h c) f(v): exact where f is c v + a constant",
    ),
    Method(
        "implicit",
        1,
        ((),),
        (ONE,),
        "1 / (1 - z)",
        about="v + h f(v) / (1 - h c): implicit in the unit's own v; the fused solver of LTC networks",
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})
