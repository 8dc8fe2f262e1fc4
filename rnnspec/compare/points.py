"""Points at which two cells are tried, and one step of a cell at many of them at once.

In: a cell's shapes and constants. Out: `Points`, rows of inputs, states, parameters and step
numbers of their own, in families: moderate numbers, all orders of magnitude, whole numbers, the
constants of the equations, many steps. One step from any states is enough: cells that agree in
every step agree in every sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.numbers import Numbers
from rnnspec.backends.reference import Step, evaluate
from rnnspec.language.sizes import full_shape
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import Number, walk
from rnnspec.symbolic.graph import Graph, Node, Read

SIZES = ((1, 1, 1), (2, 2, 2), (2, 3, 1), (3, 2, 4))  # the sizes of a cell, in turn
EXPONENTS = (-30, -16, -8, -6, -4, -2, 1, 2, 4, 8, 16, 30)  # powers of 10, of the tails
ALONE = (-16, -6, -3, 2, 4, 16)  # of one array while the others are moderate
STEPS = 512  # each of which is tried, where a cell reads the step's number
LATE = (999, 1000, 4095, 4096, 9999, 10**4, 65536, 99999, 10**5, 10**6)  # steps beyond those
CONSTANTS = 6  # of the equations, that are put in place of each array
GROUPS = ("inputs", "states", "params")


@dataclass(frozen=True)
class Points:
    """Rows, one point each: sizes, which all have; steps [B]; inputs, states and params by name,
    each [B, ...]: float64, or objects where some
    are Fractions."""

    sizes: Mapping[str, int]
    steps: Array
    inputs: dict[str, Array]
    states: dict[str, Array]
    params: dict[str, Array]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def groups(self) -> dict[str, dict[str, Array]]:
        return {group: getattr(self, group) for group in GROUPS}

    @property
    def leaves(self) -> list[tuple[str, str]]:
        """The arrays: of which group, by which name."""
        return [(group, name) for group, arrays in self.groups.items() for name in arrays]

    def take(self, rows: Any) -> Points:
        """Some of the rows."""
        changed: dict[str, Any] = {g: {n: a[rows] for n, a in arrays.items()} for g, arrays in self.groups.items()}
        return replace(self, steps=self.steps[rows], **changed)

    def with_leaf(self, leaf: tuple[str, str], value: Array) -> Points:
        group, name = leaf
        changed: dict[str, Any] = {group: {**getattr(self, group), name: value}}
        return replace(self, **changed)

    def magnitudes(self) -> tuple[Array, Array]:
        """For each row its smallest number but 0, at most 1, and its largest: [B] each."""
        smallest, largest = np.ones(len(self)), np.zeros(len(self))
        for group, name in self.leaves:
            flat = np.abs(np.asarray(self.groups[group][name], np.float64).reshape(len(self), -1))
            smallest = np.minimum(smallest, np.where(flat > 0, flat, 1.0).min(axis=1, initial=1.0))
            largest = np.maximum(largest, flat.max(axis=1, initial=0.0))
        return smallest, largest


def joined(points: Sequence[Points]) -> Points:
    """All rows, of points of the same sizes."""
    first = points[0]
    changed: dict[str, Any] = {
        g: {n: np.concatenate([p.groups[g][n] for p in points]) for n in arrays} for g, arrays in first.groups.items()
    }
    return replace(first, steps=np.concatenate([p.steps for p in points]), **changed)


# --- one step at many points


def by_rows(graph: Graph) -> Graph:
    """The graph with every parameter and the step's number read as inputs, so that each row has its
    own."""

    def changed(node: Node) -> Node:
        if isinstance(node, Read) and node.kind in ("parameter", "step"):
            return Read("input", f"{node.kind} {node.source}" if node.kind == "parameter" else "step")
        return node

    return replace(graph, nodes={name: changed(node) for name, node in graph.nodes.items()})


def run(graph: Graph, rows: Graph, points: Points, numbers: Numbers) -> dict[str, Array]:
    """The value [B or 1, ...] of every node of `rows`, which `by_rows` made of the graph."""
    inputs: dict[str, Any] = {**points.inputs, "step": points.steps}
    for source in graph.reads("parameter").values():
        piece = graph.pieces.get(source)
        whole = points.params[piece.parameter if piece else source]
        inputs[f"parameter {source}"] = np.moveaxis(_piece(np.moveaxis(whole, 0, -1), piece, points.sizes), -1, 0)
    return evaluate(rows, Step(inputs, points.states, {}, {}, 0), numbers, points.sizes)


def _piece(whole: Array, piece: Piece | None, sizes: Mapping[str, int]) -> Array:
    return whole if piece is None else piece.of(whole, sizes)


def reads_step(graph: Graph) -> bool:
    return bool(graph.reads("step"))


# --- families of points


@dataclass(frozen=True)
class Family:
    """Draws points of one cell at some sizes. shapes: of its inputs, states and parameters by
    group and name; counts: whether either cell reads the step's number."""

    shapes: Mapping[str, Mapping[str, Shape]]
    sizes: Mapping[str, int]
    counts: bool
    seed: int

    def points(self, rows: int, value: Any, steps: Iterable[int] | None = None) -> Points:
        """Rows whose arrays are `value(shape, leaf number)`."""
        made: dict[str, dict[str, Array]] = {g: {} for g in GROUPS}
        for number, (group, name, shape) in enumerate(self.leaves()):
            made[group][name] = np.asarray(value((rows, *full_shape(shape, self.sizes)), number))
        if steps is None:
            steps = np.arange(rows) % 7 if self.counts else np.zeros(rows, np.int64)
        return Points(self.sizes, np.asarray(steps, np.int64), **made)

    def leaves(self) -> list[tuple[str, str, Shape]]:
        return [(g, n, s) for g, shapes in self.shapes.items() for n, s in shapes.items()]

    def _generator(self, family: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, family])

    def moderate(self, rows: int = 24, family: int = 0) -> Points:
        """Numbers of two digits between -1 and 1; every fourth row four times as large, every
        eighth positive."""
        rng, row = self._generator(family), np.arange(rows)
        scale = np.where(row % 4 == 3, 4.0, 1.0)

        def value(shape: tuple[int, ...], number: int) -> Array:
            drawn = np.round(rng.uniform(-1, 1, shape), 2)
            drawn = np.where(_beside(row % 8 == 6, drawn), np.abs(drawn) + 0.01, drawn)
            return drawn * _beside(scale, drawn)

        return self.points(rows, value)

    def tails(self, each: int = 2) -> Points:
        """All numbers large or tiny together; each array alone; all of any magnitude."""
        rng, count, mixed = self._generator(1), len(self.leaves()), 24
        together, alone = len(EXPONENTS) * each, count * len(ALONE)
        rows = together + alone + mixed
        powers = np.zeros((rows, count))
        powers[:together] = np.repeat(EXPONENTS, each)[:, None]
        powers[together + np.arange(alone), np.repeat(np.arange(count), len(ALONE))] = np.tile(ALONE, count)
        powers[together + alone :] = rng.integers(-8, 9, (mixed, count))

        def value(shape: tuple[int, ...], number: int) -> Array:
            drawn = np.round(rng.uniform(-1, 1, shape), 2)
            return drawn * 10.0 ** _beside(powers[:, number], drawn)

        return self.points(rows, value)

    def whole_numbers(self, rows: int = 16) -> Points:
        """All 0, all 1, and whole numbers between -2 and 2."""
        rng = self._generator(2)

        def value(shape: tuple[int, ...], number: int) -> Array:
            drawn = rng.integers(-2, 3, shape).astype(np.float64)
            drawn[0], drawn[1] = 0.0, 1.0
            return drawn

        return self.points(rows, value)

    def constants(self, constants: Sequence[Fraction]) -> Points | None:
        """Each array alone filled with each constant, exactly, and with its negative; the others
        with 0, with 1, or with either."""
        chosen = [sign * c for c in constants[:CONSTANTS] for sign in (1, -1)]
        count = len(self.leaves())
        if not chosen or not count:
            return None
        place = [(leaf, c, others) for leaf in range(count) for c in chosen for others in range(3)]
        bits = self._generator(4).integers(0, 2, (len(place), count))

        def value(shape: tuple[int, ...], number: int) -> Array:
            made = np.zeros(shape, object)
            for row, (leaf, c, others) in enumerate(place):
                made[row] = c if leaf == number else int(bits[row, number]) if others == 2 else others
            return made

        return self.points(len(place), value)

    def steps(self) -> Points:
        """Many steps, at moderate numbers."""
        steps = [*range(STEPS), *LATE]
        return replace(self.moderate(len(steps), 3), steps=np.asarray(steps))


def _beside(values: Array, array: Array) -> Array:
    """[B] as [B, 1, ...], beside an array."""
    return values.reshape(len(values), *(1,) * (array.ndim - 1))


def constants(specs: Iterable[Spec]) -> list[Fraction]:
    """The numbers that stand in the equations of some cells, each once."""
    found = (n.value for spec in specs for e in spec.equations for n in walk(e.value) if isinstance(n, Number))
    return list(dict.fromkeys(abs(Fraction(v)) for v in found if v not in (0, 1)))


def families(family: Family, first: bool, known: Sequence[Fraction]) -> Iterator[Points]:
    """The families at some sizes, those that tell most first. first: whether these sizes are the
    first, where constants and steps are tried too."""
    yield family.moderate()
    yield family.whole_numbers()
    yield family.tails()
    if first:
        yield from filter(None, [family.constants(known)])
        if family.counts:
            yield family.steps()
