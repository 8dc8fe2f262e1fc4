"""What a stream that learns carries along where the influence is not kept by units.

In: a kernel and a rule. Out: the influence of its parameters on its states as a matrix, of which a
rule may keep a part, or as a product of two vectors.
"""

from __future__ import annotations

from typing import Protocol

from rnnspec.engine.dense import Dense, Flat, refuse_above
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.patterns import pattern
from rnnspec.engine.rank_one import RankOne, Tangents
from rnnspec.engine.rules import RULES
from rnnspec.language.lift import Lifted

Carried = Dense | RankOne


class Lifting(Tangents, Protocol):
    """A kernel that tells the cell it compiles."""

    lifted: Lifted


def as_matrix(
    kernel: Lifting, rule: str, states: tuple[str, ...], sizes: Sizes, rows: int, told: tuple[int, int, str]
) -> Carried:
    """What carries the influence where it is not kept by units. told: how many numbers it may hold,
    the seed of what is drawn, and why it is not kept by units."""
    limit, seed, why = told
    flat = Flat(kernel.cell, states, sizes)
    if not RULES[rule].mode:
        return RankOne(kernel, flat, rows, seed)
    refuse_above(limit, flat, rows, rule, why)
    reach = RULES[rule].reach
    return Dense(kernel, flat, rows, pattern(kernel.lifted.spec, flat, sizes, reach) if reach else None)
