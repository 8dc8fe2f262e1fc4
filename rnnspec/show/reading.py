"""A step and its adjoint as a person reads them: which values have a line of their own, and where.

In: a Spec. Out: a Reading, of which text (`adjoint.py`) and LaTeX (`tex/`) are written. A gradient
has a line if it is that of an equation, or is read more than once, or would be too long where it is
read; all else is written where it is read. A forward value without an equation has a line if its
gradient has one, or for its length, directly above the first line that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import sympy

from rnnspec.language.spec import Shape, Spec
from rnnspec.lowering.pipeline import graphs
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.graph import Graph, Node, Outer, Pointwise, Product, Read, operands
from rnnspec.symbolic.plain import plain, plain_adjoint

LONGEST, SHORT = 14, 2  # names in a line, beyond which parts of it have lines; in what is written at every reader
# what nodes of an adjoint may be called that are no whole gradient: d_ v, and one of these
PARTIAL = ("_part", "_each", "_before", "_behind", "_ones", "_eye", "_masked", "_sum", "_T")


@dataclass(frozen=True)
class Reading:
    """graph, reverse: the step and its adjoint without what only keeps numbers in range. gradients:
    node of the adjoint -> the forward node whose whole gradient it is. shown: the nodes of both
    that are written by name. lines: those of them that have a line, in order; a forward value
    stands directly above the first gradient that needs it. own: the forward node -> the equation
    that it is part of.
    """

    spec: Spec
    graph: Graph
    reverse: Graph
    gradients: Mapping[str, str]
    shown: frozenset[str]
    lines: tuple[str, ...]
    owner: Mapping[str, str]

    def is_forward(self, name: str) -> bool:
        return name in self.graph.nodes

    def shape(self, name: str) -> Shape:
        """Of a node of either graph."""
        return self.graph.shapes[name] if name in self.graph.nodes else self.reverse.shapes[name]

    def sums(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """parameter -> nodes whose sum over batch and time is its gradient."""
        yield from self.reverse.sums.items()


def reading(spec: Spec) -> Reading:
    """How the backward pass of a cell is best read."""
    built, reverse = graphs(spec)
    graph = plain(built)
    if graph.nodes != built.nodes:
        reverse = adjoint(graph, spec.no_gradient)
    return reading_of(spec, graph, plain_adjoint(reverse, graph))


def reading_of(spec: Spec, graph: Graph, reverse: Graph) -> Reading:
    """The same of a step and an adjoint as they are."""
    gradients = _gradients(graph, reverse)
    work = _Lines(spec, graph, reverse, gradients)
    work.choose()
    return Reading(spec, graph, reverse, gradients, frozenset(work.shown), tuple(work.ordered()), _owners(spec, graph))


def _gradients(graph: Graph, reverse: Graph) -> dict[str, str]:
    """node of the adjoint -> forward node, by the name d_ v where no other can be meant; and a
    product that is all of a gradient, since the only reader of a value multiplies it."""
    found: dict[str, str] = {}
    uses, results = graph.uses(), set(graph.results())
    for name in reverse.nodes:
        value = name.removeprefix("d_")
        doubtful = any(value.endswith(end) and value.removesuffix(end) in graph.nodes for end in PARTIAL)
        if name not in graph.nodes and name != value and value in graph.nodes and not doubtful:
            found[name] = value
    for name, node in graph.nodes.items():
        flows: tuple[tuple[str, str], ...] = ()
        if isinstance(node, Product):
            flows = ((node.vector, f"{node.matrix}_d_{name}"),)
        elif isinstance(node, Outer):
            flows = ((node.left, f"d_{name}_{node.right}"), (node.right, f"d_{name}_{node.left}"))
        for value, part in flows:
            whole = uses[value] == [name] and value not in results and f"d_{value}" not in reverse.nodes
            if whole and part in reverse.nodes and part not in graph.nodes:
                found[part] = value
    return found


def _owners(spec: Spec, graph: Graph) -> dict[str, str]:
    """Forward node -> the equation below it that it is part of."""
    targets, owner, found = {e.target for e in spec.equations}, "", {}
    for name in reversed(list(graph.nodes)):
        owner = name if name in targets else owner
        found[name] = owner or name
    return found


def names_read(node: Node) -> list[str]:
    """What a node reads, as often as it does."""
    if not isinstance(node, Pointwise):
        return list(operands(node))
    return [s.name for s in sympy.preorder_traversal(node.expr) if s.is_Symbol]


@dataclass
class _Lines:
    spec: Spec
    graph: Graph
    reverse: Graph
    gradients: Mapping[str, str]
    shown: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # names in a value where it is written out

    def choose(self) -> None:
        """Which values are written by name."""
        self.nodes = {**self.reverse.nodes, **self.graph.nodes}
        self.reads = {name: names_read(node) for name, node in self.nodes.items()}
        uses = self._uses()
        summed = {n for group in self.reverse.sums.values() for n in group}
        for name, node in self.nodes.items():
            if self._has_a_name(name, node, uses) and not (name in summed and uses[name] == 1):
                self.shown.add(name)
        self.shown |= {v for g, v in self.gradients.items() if g in self.shown}
        for name in [*self.graph.nodes, *(n for n in self.reverse.nodes if n not in self.graph.nodes)]:
            self._measure(name)
            if name in self.graph.nodes and uses[name] > 1 and self.sizes[name] > SHORT:
                self.shown.add(name)
        self.shown |= {v for g, v in self.gradients.items() if g in self.shown}

    def _uses(self) -> dict[str, int]:
        """How often a node is read in the backward pass, by forward values without an equation
        too."""
        uses = dict.fromkeys(self.nodes, 0)
        for result in self.reverse.results():
            uses[result] += 1
        for name in reversed(list(self.reverse.nodes)):
            if name not in self.graph.nodes or (name not in self.spec.shapes and uses[name]):
                for operand in self.reads[name]:
                    uses[operand] += 1
        return uses

    def _has_a_name(self, name: str, node: Node, uses: Mapping[str, int]) -> bool:
        if isinstance(node, Read) or name in self.spec.shapes:
            return True
        if name in self.graph.nodes:
            return False
        if isinstance(node, Pointwise) and not self.reads[name]:
            return False  # a number
        return uses[name] > 1 or self.gradients.get(name) in self.spec.shapes

    def _measure(self, name: str) -> None:
        """Gives lines to the longest parts of what is too long."""

        def length(operand: str) -> int:
            return 1 if operand in self.shown else self.sizes.get(operand, 1)

        reads = self.reads[name]
        parts = sorted({r for r in reads if r not in self.shown}, key=lambda r: self.sizes.get(r, 1))
        while sum(map(length, reads)) > LONGEST and parts and self.sizes.get(parts[-1], 1) > SHORT:
            self.shown.add(parts.pop())
        self.sizes[name] = max(1, sum(map(length, reads)))

    def ordered(self) -> Iterator[str]:
        """The lines of the backward pass."""
        done: set[str] = set()
        for name in self.reverse.nodes:
            if name in self.graph.nodes or name not in self.shown or isinstance(self.nodes[name], Read):
                continue
            value = self.gradients.get(name)
            yield from self._needed([*self.reads[name], *([value] if value else [])], done)
            yield name
        yield from self._needed(self.reverse.results(), done)

    def _needed(self, wanted: Iterable[str], done: set[str]) -> Iterator[str]:
        """The forward values that are to be explained before what reads `wanted`."""
        waiting = [(name, False) for name in reversed(list(wanted))]
        while waiting:
            name, ready = waiting.pop()
            if ready:
                yield name
            elif name not in done and not (name in self.shown and name not in self.graph.nodes):
                done.add(name)
                if name in self.spec.shapes:
                    continue
                if name in self.shown:
                    waiting.append((name, True))
                waiting += [(operand, False) for operand in reversed(self.reads[name])]
