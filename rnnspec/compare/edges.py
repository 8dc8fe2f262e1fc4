"""The conditions of a cell: which of their sides points lie on, and points on the others.

In: a graph, points. Out: points on both sides of each comparison, next to where it changes sides
and, where that can be solved, exactly there. Comparisons are those of `where` and of functions with
kinks; each is the sign of a gap, the difference of what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.numbers import FLOAT64
from rnnspec.check.sampling import gaps
from rnnspec.compare.points import Points, by_rows, joined, reads_step, run
from rnnspec.compare.reals import BeyondError, Reals
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.graph import Graph, Node, Pointwise
from rnnspec.symbolic.operations import subtract
from rnnspec.symbolic.writing import write

FACTORS = tuple(sign * 10.0**k for k in (0, 1, 2, 3, 5, 8, 12, 20, 30, 60, 100, -3, -8, -30) for sign in (1, -1))
HALVINGS = 120  # of a line between two sides: to 1e-36 of it
PAIRS = 3  # of points on two sides, of each condition
BESIDE = (1e-9, 1e-6, 1e-3)  # parts of the line at which points lie beside the edge
SOLVED = 16  # numbers of a point that are tried to solve a gap by
SIMPLE = 10**12  # the largest denominator of a number by which a gap becomes exactly 0
LAST_STEP = 2**40  # of the steps tried for conditions on t


@dataclass(frozen=True)
class Conditions:
    """The gaps of one graph: nodes of `graph`, which reads its parameters row by row. own: the
    points as the graph's cell names them."""

    source: Graph
    graph: Graph
    gaps: dict[str, tuple[str, str]]  # node -> the texts of what it compares
    own: Callable[[Points], Points]

    def at(self, points: Points, numbers: Any = FLOAT64) -> dict[str, Array]:
        """The gaps [B, elements]; no number where they can't be worked out."""
        try:
            values = run(self.source, self.graph, self.own(points), numbers)
        except BeyondError:
            return {name: np.full((len(points), 1), np.nan) for name in self.gaps}
        return {name: _flat(values[name], len(points)) for name in self.gaps}


def conditions(graph: Graph, own: Callable[[Points], Points]) -> Conditions:
    """The conditions of a graph, at points that `own` turns into those of its cell."""
    nodes: dict[str, Node] = dict(graph.nodes)
    shapes, found = dict(graph.shapes), dict[str, tuple[str, str]]()
    for name, node in graph.nodes.items():
        for gap in gaps(node):
            texts = (write(gap.args[0]), write(gap.args[1])) if isinstance(gap, subtract) else (write(gap), "0")
            if gap.free_symbols and texts not in found.values():
                made = fresh("gap", nodes)
                nodes[made], shapes[made], found[made] = Pointwise(gap), shapes[name], texts
    return Conditions(graph, by_rows(replace(graph, nodes=nodes, shapes=shapes)), found, own)


def _flat(value: Array, rows: int) -> Array:
    return np.broadcast_to(value, (rows, *value.shape[1:])).reshape(rows, -1)


def sides(known: Conditions, points: Points, numbers: Reals) -> set[tuple[str, int]]:
    """The sides that some element of some point lies on: (gap, -1, 0 or 1)."""
    found = set()
    values = known.at(points)
    for name, gap in values.items():
        found |= {(name, side) for side in (-1, 1) if (np.sign(gap) == side).any()}
    seem = [(gap == 0).any(axis=1) for gap in values.values()]
    if seem and np.any(seem):  # in float64, where 3 * 0.1 is not 0.3
        exact = known.at(points.take(np.flatnonzero(np.any(seem, axis=0))), numbers)
        found |= {(name, 0) for name, gap in exact.items() if (gap == 0).any()}
    return found


# --- points on the sides that are left


def search(known: Conditions, points: Points, simple: Points, numbers: Reals) -> list[Points]:
    """More points, found from those that are there: on sides that none lies on yet, beside every
    edge and, from a few `simple` ones, on it."""
    if not known.gaps:
        return []
    wider = [points, *_scaled(known, points, numbers)]
    everywhere = joined(wider)
    values = known.at(everywhere)
    lines = [_pairs(values[name][:, 0]) for name in known.gaps]
    names = [name for name, (low, _) in zip(known.gaps, lines) for _ in low]
    low, high = (np.concatenate([line[end] for line in lines]).astype(int) for end in (0, 1))
    found = wider[1:]
    if len(low):
        found += _edges(known, names, everywhere.take(low), everywhere.take(high))
    return found + _solved(known, simple, numbers)


def _scaled(known: Conditions, points: Points, numbers: Reals) -> list[Points]:
    """For each side that no point lies on, points that do: with one array of a point scaled, or at
    a later step."""
    reached = sides(known, points, numbers)
    wanted = {(name, side) for name in known.gaps for side in (-1, 1)} - reached
    if not wanted:
        return []
    tried = [
        _times(points.take(np.full(len(FACTORS), row)), leaf)
        for leaf in points.leaves
        for row in range(min(4, len(points)))
    ]
    if reads_step(known.source):
        steps = np.unique([s for k in range(41) for s in (2**k - 1, 2**k, 3 * 2**k) if s < LAST_STEP])
        tried.append(replace(points.take(np.zeros(len(steps), int)), steps=steps))
    found = []
    for some in tried:
        at = known.at(some)
        rows = {int(r) for n, s in wanted for r in np.flatnonzero((np.sign(at[n]) == s).any(axis=1))[:2]}
        if rows:
            found.append(some.take(sorted(rows)))
    return found


def _times(points: Points, leaf: tuple[str, str]) -> Points:
    group, name = leaf
    array = np.asarray(points.groups[group][name], np.float64)
    return points.with_leaf(leaf, array * np.asarray(FACTORS).reshape(-1, *(1,) * (array.ndim - 1)))


def _pairs(gap: Array) -> tuple[Array, Array]:
    """Rows below and above 0, nearest to it first."""
    below, above = np.flatnonzero(gap < 0), np.flatnonzero(gap > 0)
    count = min(PAIRS, len(below), len(above))
    nearest = (below[np.argsort(-gap[below])], above[np.argsort(gap[above])])
    return nearest[0][:count], nearest[1][:count]


def _edges(known: Conditions, names: Sequence[str], low: Points, high: Points) -> list[Points]:
    """Points next to where the gap of each row changes sides, on the line between two points."""
    left, right = np.zeros(len(low)), np.ones(len(low))
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        gap = known.at(_between(low, high, middle))
        above = np.array([gap[name][row, 0] > 0 for row, name in enumerate(names)])
        left, right = np.where(above, left, middle), np.where(above, middle, right)
    width = [left, right]
    for part in BESIDE:
        width += [left * (1 - part), right + part * (1 - right)]
    return [_between(low, high, place) for place in width]


def _between(low: Points, high: Points, place: Array) -> Points:
    """The points at `place` (0 to 1) of each row's line."""

    def mixed(a: Array, b: Array) -> Array:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        part = place.reshape(-1, *(1,) * (a.ndim - 1))
        return a * (1 - part) + b * part

    changed: dict[str, Any] = {
        g: {n: mixed(a, high.groups[g][n]) for n, a in arrays.items()} for g, arrays in low.groups.items()
    }
    return replace(low, steps=np.round(mixed(low.steps, high.steps)).astype(np.int64), **changed)


# --- exactly on an edge


def _solved(known: Conditions, points: Points, numbers: Reals) -> list[Points]:
    """Points at which gaps are exactly 0, where a gap is linear in one number of a point."""
    found: list[Points] = []
    left = dict.fromkeys(known.gaps)
    for row in range(len(points)):
        start = points.take([row])
        places = [(leaf, i) for leaf in start.leaves for i in range(start.groups[leaf[0]][leaf[1]].size)][:SOLVED]
        for leaf, i in places:
            at = [known.at(_moved(start, leaf, i, Fraction(step)), numbers) for step in (0, 1, 2)] if left else ()
            for name in [n for n in left if _is_linear([values[n][0, 0] for values in at])]:
                first, second = (values[name][0, 0] for values in at[:2])
                there = _moved(start, leaf, i, _fraction(first / (first - second)))
                if known.at(there, numbers)[name][0, 0] == 0:
                    found.append(there)
                    del left[name]
    return found


def _fraction(value: Any) -> Fraction:
    """The simple fraction that a number of the reals is next to."""
    return Fraction(str(value)).limit_denominator(SIMPLE)


def _is_linear(values: Sequence[Any]) -> bool:
    """Whether a function that has these values at 0, 1 and 2 seems to be linear, and no
    constant."""
    slope = values[1] - values[0]
    return bool(slope) and slope - slope == 0 and abs(values[2] - values[1] - slope) < abs(slope) * 1e-30


def _moved(points: Points, leaf: tuple[str, str], place: int, by: Fraction) -> Points:
    array = points.groups[leaf[0]][leaf[1]]
    flat = array.astype(object).reshape(-1)
    flat[place] = Fraction(flat[place]) + by
    return points.with_leaf(leaf, flat.reshape(array.shape))
