"""The structure of a step's Jacobian, from the Graph alone: of d state'[i] / d state[j], which
elements are 0 whatever the numbers are, and what its rank can be at most.

In: the forward Graph of a cell. Out: for each pair of a state after the step and one before it, a
Structure. What is said holds for every value of every parameter; a particular one may have more
zeros.

Each node's derivative by a state is a sum of two parts. The first has only elements whose indices
are equal along some axes: along all of them it is a diagonal. The second goes through some nodes,
in whose place it would be a product of two thin matrices: its rank is at most their sizes together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rnnspec.language.sizes import canonical_size, evaluate_size, sizes_in
from rnnspec.language.spec import Shape
from rnnspec.symbolic.derive import partial
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import (
    Concat,
    Diag,
    Graph,
    Node,
    Outer,
    Part,
    Pointwise,
    Product,
    Read,
    Transpose,
    operands,
    size_of,
)

Axes = frozenset[tuple[int, int]]  # axes of a value and of a state along which indices have to be equal


@dataclass(frozen=True)
class Structure:
    """What a Jacobian can be that has a value of shape `rows` after the step, and a state of shape
    `columns` before it.

    axes: pairs of axes of rows and columns: an element is 0, outside of what `rank` is of, where
    the indices along any of them differ; None where all are 0. rank: what a second part of any
    elements has at most, as an expression of sizes; "" where there is none, and "full" where it is
    anything.
    """

    rows: Shape
    columns: Shape
    axes: Axes | None
    rank: str = ""

    @property
    def kind(self) -> str:
        """One of "zero", "diagonal", "blocks", "low rank", "full", and of the two parts together
        "diagonal + low rank", "blocks + low rank"."""
        local = self.local
        if self.rank == "full":
            return "full"
        return " + ".join(part for part in (local, "low rank" if self.rank else "") if part) or "zero"

    @property
    def local(self) -> str:
        """What the first part is: "diagonal", "blocks", or "" where it is 0."""
        if self.axes is None:
            return ""
        whole = {a for a, _ in self.axes} == set(range(len(self.rows)))
        return "diagonal" if whole and len(self.axes) == len(self.columns) == len(self.rows) else "blocks"

    @property
    def unit(self) -> tuple[int, ...]:
        """The axes of the state along which one direction of ones serves for all elements, since no
        two of them meet in a result: of a diagonal all."""
        if self.rank:
            return ()
        return tuple(range(len(self.columns)) if self.axes is None else sorted({b for _, b in self.axes}))

    def to_text(self) -> str:
        """As it is shown: "diagonal", "blocks (one for each row)", "rank at most P"."""
        if self.kind in ("zero", "full"):
            return self.kind
        along = tuple(sorted({a for a, _ in self.axes or ()}))
        words: Mapping[tuple[int, ...], str] = {(0,): "one for each row", (1,): "one for each column"}
        local = self.local
        if local == "blocks":
            local += f" ({words.get(along, 'along some axes')})"
        return " + ".join(part for part in (local, self.rank and f"rank at most {self.rank}") if part)


Jacobian = Mapping[str, Mapping[str, Structure]]  # state after the step -> state before it


def structure(graph: Graph) -> Jacobian:
    """The structure of a step's Jacobian, for each pair of its states."""
    read = graph.reads("state")
    found: dict[str, dict[str, Structure]] = {state: {} for state in graph.states}
    for before, value in graph.states.items():
        start = read.get(before)
        parts = _parts(graph, start) if start is not None else {}
        for after, node in graph.states.items():
            columns = graph.shapes[value]
            found[after][before] = _told(graph, node, columns, parts.get(node, NOTHING))
    return found


@dataclass(frozen=True)
class _Parts:
    """The derivative of a node by a state. axes: of the first part, None where there is none;
    through: the nodes that the second part goes through."""

    axes: Axes | None = None
    through: frozenset[str] = frozenset()

    @property
    def is_zero(self) -> bool:
        return self.axes is None and not self.through


NOTHING = _Parts()


def by_parameters(graph: Graph) -> Jacobian:
    """The structure of what parameters do to the states in a step: state after it -> parameter, as
    the step reads it."""
    found: dict[str, dict[str, Structure]] = {state: {} for state in graph.states}
    for source, read in graph.reads("parameter").items():
        parts = _parts(graph, read)
        for state, node in graph.states.items():
            found[state][source] = _told(graph, node, graph.shapes[read], parts.get(node, NOTHING))
    return found


def meets_own(graph: Graph, start: str) -> dict[str, bool]:
    """The nodes that depend on a node, and whether each element of them does on the one of equal
    indices alone."""
    own = graph.shapes[start]
    return {
        name: graph.shapes[name] == own and _told(graph, name, own, parts).kind == "diagonal"
        for name, parts in _parts(graph, start).items()
    }


def _parts(graph: Graph, start: str) -> dict[str, _Parts]:
    """The derivative of every node by `start`, such as what reads a state; those left out are
    zero."""
    work = _Walk(graph, start)
    for name, node in graph.nodes.items():
        made = work.node(name, node)
        if not made.is_zero:
            work.parts[name] = made
    return work.parts


@dataclass
class _Walk:
    graph: Graph
    start: str
    parts: dict[str, _Parts] = field(default_factory=dict)

    def of(self, name: str) -> _Parts:
        return self.parts.get(name, NOTHING)

    def node(self, name: str, node: Node) -> _Parts:
        shapes = self.graph.shapes
        if name == self.start:
            return _Parts(frozenset((i, i) for i in range(len(shapes[name]))))
        match node:
            case Read():
                return NOTHING
            case Pointwise(expr):
                flowing = [a for a in names(expr) if not self.of(a).is_zero and partial(expr, name, a) != 0]
                return self.sum(name, [self.broadcast(name, a) for a in flowing])
            case Product(matrix, vector, transposed):
                outer = 1 if transposed else 0
                kept = [self.moved(matrix, {outer: 0}), self.moved(vector, {1: 1})]
                return self.sum(name, kept)
            case Outer(left, right):
                return self.sum(name, [self.moved(left, {0: 0}), self.moved(right, {0: 1})])
            case Transpose(arg):
                return self.moved(arg, {0: 1, 1: 0})
            case Diag(arg):
                flat = self.of(arg)
                both = None if flat.axes is None else frozenset((a, b) for _, b in flat.axes for a in (0, 1))
                return _Parts(both, flat.through)
            case Part(arg, "0", _):
                return self.sum(name, [self.of(arg)])
            case Concat(args):
                return self.sum(name, [self.of(args[0]), *(self.moved(a, {}) for a in args[1:])])
        return self.sum(name, [self.moved(a, {}) for a in operands(node)])

    def broadcast(self, name: str, arg: str) -> _Parts:
        """What an operand of a pointwise node passes on: a single number goes to all elements."""
        same = self.graph.shapes[arg] == self.graph.shapes[name]
        return self.of(arg) if same else _Parts(None, frozenset({arg}))

    def moved(self, name: str, axes: Mapping[int, int]) -> _Parts:
        """The derivative of a node whose axes go to others, or nowhere where they are summed over;
        then its first part may have any element."""
        own = self.of(name)
        if own.axes is None:
            return own
        return _Parts(frozenset((axes[a], b) for a, b in own.axes if a in axes), own.through)

    def sum(self, name: str, parts: Collection[_Parts]) -> _Parts:
        """The derivative of a node that is a sum: what all first parts have in common, and where
        that is nothing, anything that goes through this node."""
        axes = [p.axes for p in parts if p.axes is not None]
        through = frozenset[str]().union(*(p.through for p in parts))
        common = frozenset.intersection(*axes) if axes else None
        if not common and axes and self.graph.shapes[name] + self.graph.shapes[self.start]:
            return _Parts(None, self.narrowest(through, name))
        if common is None and through:
            return _Parts(None, self.narrowest(through, name, also=False))
        return _Parts(common, through)

    def narrowest(self, through: frozenset[str], name: str, *, also: bool = True) -> frozenset[str]:
        """The nodes that a part goes through. Those it came through and, with `also`, its new part;
        or this one alone, where it is smaller than any of them."""
        both = through | {name} if also else through
        sizes = {size_of(self.graph, n) for n in both}
        own, whole = size_of(self.graph, name), size_of(self.graph, self.start)
        smaller = own != whole and (
            (own.isdigit() and all(not s.isdigit() or int(s) >= int(own) for s in sizes))
            or all(s == whole for s in sizes - {own})
        )
        return frozenset({name}) if smaller else both


def _told(graph: Graph, node: str, columns: Shape, parts: _Parts) -> Structure:
    rows, sizes = graph.shapes[node], [size_of(graph, n) for n in sorted(parts.through)]
    if not sizes:
        return Structure(rows, columns, parts.axes)
    rank = canonical_size(" + ".join(sizes))
    return Structure(
        rows, columns, parts.axes, rank if _says_something(rank, (*rows, "1"), (*columns, "1")) else "full"
    )


def _says_something(rank: str, rows: Shape, columns: Shape) -> bool:
    """Whether a bound can be smaller than both sides of a matrix, for some sizes."""
    sides = [canonical_size(" * ".join(f"({s})" for s in side)) for side in (rows, columns)]
    symbols = sizes_in([(rank,), *((s,) for s in sides)])
    for small in ("", *sorted(symbols)):
        sizes = {s: 1 if s == small else 10_000 for s in symbols}
        if evaluate_size(rank, sizes) < min(evaluate_size(s, sizes) for s in sides):
            return True
    return False
