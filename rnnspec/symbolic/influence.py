"""The influence of parameters on states, where it stays with single units: of a step, a Graph that
gives beside its results all that an update of the influence needs.

In: the forward Graph of a cell. Out: an Influence, or why there is none. The influence is P = d
state / d parameter through all steps so far. One more step makes of it J P + M: J is the Jacobian
of the step, M what the parameters do in it. Where J is diagonal and a parameter's element (i, j)
acts on unit i alone, P has one number for each state's unit i and each such element, J and the
slopes in M are vectors of units, and M is an outer product of a slope and of what the parameter
multiplies: nothing else is needed, and the step's own kernel computes it.

Products that lead from unit to unit are what stands in the way. `paths` says what is done with
them: "every" allows none, "own" keeps of a product the weight of a unit to itself, "none" leaves
them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import sympy

from rnnspec.errors import UnsupportedError
from rnnspec.symbolic.adjoint import Reverse
from rnnspec.symbolic.derive import whole
from rnnspec.symbolic.draft import Draft
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Product, Read, Reduce, node_text, operands
from rnnspec.symbolic.operations import symbol
from rnnspec.symbolic.simplify import drop_dead, tidy
from rnnspec.symbolic.structure import meets_own


@dataclass(frozen=True, eq=False)
class Term:
    """Where a parameter acts. slopes: state -> d state / d the value that the parameter makes, an
    output of the graph [H]. operand: the output that it multiplies, "" where it is read element by
    element. transposed: whether it is [D, H] and not [H, D]."""

    parameter: str
    slopes: Mapping[str, str]
    operand: str = ""
    transposed: bool = False


@dataclass(frozen=True)
class Own:
    """A product of which the weights of units to themselves are kept. slopes: as of a Term;
    operands: state -> d operand / d state before the step, an output [H]."""

    matrix: str
    slopes: Mapping[str, str]
    operands: Mapping[str, str]


@dataclass(frozen=True)
class Influence:
    """graph: the step with outputs for all that is named here. states: those that parameters reach.
    jacobian: state after the step -> state before it -> an output [H], the diagonal; left out where
    it is 0. own: what is to be added to it. varying: of the outputs in `jacobian`, those that
    differ from step to step."""

    graph: Graph
    states: tuple[str, ...]
    jacobian: Mapping[str, Mapping[str, str]]
    terms: tuple[Term, ...]
    own: tuple[Own, ...]
    varying: tuple[str, ...]

    def extras(self) -> tuple[str, ...]:
        """The outputs of the graph that the cell has not."""
        slopes = [s for group in [t.slopes for t in self.terms] + [o.slopes for o in self.own] for s in group.values()]
        found = [*(o for row in self.jacobian.values() for o in row.values()), *slopes]
        found += [t.operand for t in self.terms if t.operand]
        return tuple(dict.fromkeys([*found, *(o for own in self.own for o in own.operands.values())]))


class NotLocal(UnsupportedError):
    """Why the influence does not stay with single units."""


def influence(step: Graph, constants: Collection[str], paths: str) -> Influence:
    """The Influence of a step. constants: the parameters that have none. Raises NotLocal."""
    states, moved = influenced(step, constants)
    inner = drop_dead(replace(step, states={s: step.states[s] for s in states}, outputs={}, sums={}))
    work = _Local(step, inner, states, moved, constants, paths)
    work.find_sources()
    work.require_units()
    return work.made()


def influenced(step: Graph, constants: Collection[str]) -> tuple[tuple[str, ...], set[str]]:
    """The states that trained parameters reach, and the nodes that depend on these or on them."""
    states: set[str] = set()
    while True:
        nodes: set[str] = set()
        for name, node in step.nodes.items():
            if isinstance(node, Read):
                trained = node.kind == "parameter" and whole(step, node.source) not in constants
                if trained or (node.kind == "state" and node.source in states):
                    nodes.add(name)
            elif any(o in nodes for o in operands(node)):
                nodes.add(name)
        found = {s for s, n in step.states.items() if n in nodes}
        if found == states:
            return tuple(s for s in step.states if s in states), nodes
        states = found


class _Slopes(Reverse):
    """A sweep from one value: the slope of each of its elements by that of equal index of other
    nodes. It ends at the products in `ends`."""

    def __init__(self, forward: Graph, ends: Collection[str]):
        super().__init__(forward, set())
        self.draft, self.ends = Draft.of(forward), ends

    def backward(self, name: str, active: set[str]) -> None:
        if name not in self.ends:
            super().backward(name, active)


@dataclass
class _Local:
    """An Influence in the making. step: with all results; inner: what leads to influenced states.
    ends: the products at which slopes end; pointwise: trained parameter -> the nodes that slopes
    are taken by, in place of it. loops: products with what a state makes, for "own"."""

    step: Graph
    inner: Graph
    states: tuple[str, ...]
    moved: set[str]
    constants: Collection[str]
    paths: str
    ends: dict[str, Product] = field(default_factory=dict)
    pointwise: dict[str, tuple[str, ...]] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)

    # --- where parameters act

    def find_sources(self) -> None:
        from_parameters = self.after(self.trained())
        for name, node in self.inner.nodes.items():
            if not isinstance(node, Product) or name not in self.moved or not self.is_matrix(node.matrix):
                continue
            if len(self.inner.shapes[node.vector]) > 1:
                continue
            if node.vector in self.moved:
                self.loop(name, node, from_parameters)
            self.ends[name] = node
        for name in self.trained():
            if readers := self.read_by_element(name):
                self.pointwise[name] = readers

    def trained(self) -> list[str]:
        """The nodes that read trained parameters."""
        reads = self.inner.reads("parameter").items()
        return [name for source, name in reads if whole(self.inner, source) not in self.constants]

    def is_matrix(self, name: str) -> bool:
        node = self.inner.nodes[name]
        return isinstance(node, Read) and node.kind == "parameter"

    def after(self, starts: Collection[str]) -> set[str]:
        """The nodes that depend on some within the step."""
        found = set(starts)
        for name, node in self.inner.nodes.items():
            if any(o in found for o in operands(node)):
                found.add(name)
        return found

    def loop(self, name: str, node: Product, from_parameters: set[str]) -> None:
        """A product with a value that states or parameters make."""
        text = f"{name} = {node_text(node)}"
        if self.paths == "every":
            raise NotLocal(f"{text} leads from each unit to all others")
        if node.vector in from_parameters:
            raise NotLocal(f"{text} takes what parameters do to one unit to all others within the step")
        square = len(set(self.inner.shapes[node.matrix])) == 1
        if self.paths == "own" and square:
            self.loops.append(name)

    def read_by_element(self, name: str) -> tuple[str, ...]:
        """The nodes in whose slopes those by a parameter are taken: itself, or of a single number
        what it is spread over; none where products alone read it."""
        readers = [n for n, node in self.inner.nodes.items() if name in operands(node)]
        others = [n for n in readers if not (n in self.ends and self.ends[n].matrix == name)]
        if not others:
            return ()
        if len(self.inner.shapes[name]) > 1:
            raise NotLocal(f"{name} is read otherwise than as the matrix of a product: {others[0]}")
        return (name,) if self.inner.shapes[name] else tuple(self.spread(name))

    def spread(self, name: str) -> Iterator[str]:
        """The vectors that read a single number, or single numbers made of it."""
        numbers = {name}
        for other, node in self.inner.nodes.items():
            if not any(o in numbers for o in operands(node)):
                continue
            if self.inner.shapes[other] == () and isinstance(node, Pointwise):
                numbers.add(other)
            else:
                yield other
        yield from (n for n in self.inner.states.values() if n in numbers)

    # --- whether it stays with single units

    def require_units(self) -> None:
        """Raises NotLocal unless every state's unit depends on one unit of each source alone."""
        cut = {n: Read("state", n) if n in self.ends else node for n, node in self.inner.nodes.items()}
        graph = replace(self.inner, nodes=cut)
        reads = self.inner.reads("state")
        starts = [*self.ends, *(r for group in self.pointwise.values() for r in group)]
        for state, value in self.inner.states.items():
            if len(graph.shapes[value]) > 1:
                raise NotLocal(f"state {state} is a matrix")
        for start in dict.fromkeys([*starts, *(reads[s] for s in self.states if s in reads)]):
            known = meets_own(graph, start)
            for state, value in self.inner.states.items():
                if not known.get(value, True):
                    raise NotLocal(f"a unit of {state} depends on several of {start}")
            for loop in self.loops:
                vector = self.ends[loop].vector
                if start in self.ends and vector in known:
                    raise NotLocal(f"{loop} follows {start} within the step")
                if not known.get(vector, True):
                    raise NotLocal(f"what {loop} multiplies depends on several units of {start}")

    # --- the graph

    def made(self) -> Influence:
        graph, slopes = self.step, dict[str, dict[str, str]]()
        active = self.after([*self.ends, *self.trained(), *self.inner.reads("state").values()])
        for state, value in self.inner.states.items():
            graph, slopes[state] = self.sweep(graph, value, active)
        along = {loop: self.ends[loop].vector for loop in self.loops}
        of_operands = {}
        for loop, value in along.items():
            graph, of_operands[loop] = self.sweep(graph, value, active)
        graph = _spread_sums(graph, set(self.step.nodes))
        wanted = dict.fromkeys(n for found in (*slopes.values(), *of_operands.values()) for n in found.values())
        wanted |= dict.fromkeys(node.vector for node in self.ends.values() if self.is_trained(node.matrix))
        marked = {f"slope {n}": n for n in wanted}
        graph = tidy(replace(graph, outputs={**graph.outputs, **marked}))
        name_of = {node: f"slope {node}" for node in dict.fromkeys(graph.outputs[m] for m in marked)}
        outputs = {o: graph.outputs[o] for o in self.step.outputs} | {text: node for node, text in name_of.items()}
        names = {n: name_of[graph.outputs[f"slope {n}"]] for n in wanted}
        graph = replace(graph, outputs=outputs)
        graph.verify()
        slopes = {s: {n: names[d] for n, d in found.items()} for s, found in slopes.items()}
        of_operands = {loop: {n: names[d] for n, d in found.items()} for loop, found in of_operands.items()}
        return self.told(graph, slopes, of_operands, names)

    def is_trained(self, name: str) -> bool:
        return name in self.trained()

    def sweep(self, graph: Graph, value: str, active: set[str]) -> tuple[Graph, dict[str, str]]:
        """The graph with the slopes of a value by all sources: source -> the node of its slope."""
        work = _Slopes(graph, self.ends)
        work.flow(value, sympy.S.One)
        for name in reversed([n for n in self.inner.nodes if n in active]):
            work.backward(name, active)
        starts = [*self.ends, *(r for group in self.pointwise.values() for r in group)]
        starts += [n for s, n in self.inner.reads("state").items() if s in self.states]
        found = {n: work.total(n) for n in dict.fromkeys(starts) if work.flowing_to(n)}
        return replace(graph, nodes=work.draft.nodes, shapes=work.draft.shapes), found

    def told(
        self,
        graph: Graph,
        slopes: Mapping[str, Mapping[str, str]],
        of_operands: Mapping[str, Mapping[str, str]],
        names: Mapping[str, str],
    ) -> Influence:
        reads = {n: s for s, n in self.inner.reads("state").items() if s in self.states}
        jacobian = {s: {reads[n]: d for n, d in found.items() if n in reads} for s, found in slopes.items()}

        def by(source: str) -> dict[str, str]:
            return {s: found[source] for s, found in slopes.items() if source in found}

        terms = [
            Term(self.source(node.matrix), by(name), names[node.vector], node.transposed)
            for name, node in self.ends.items()
            if self.is_trained(node.matrix)
        ]
        for name, nodes in self.pointwise.items():
            terms += [Term(self.source(name), by(node)) for node in nodes]
        own = [
            Own(self.source(self.ends[n].matrix), by(n), {reads[r]: d for r, d in of_operands[n].items() if r in reads})
            for n in self.loops
        ]
        changing = _changing(graph)
        varying = {o for row in jacobian.values() for o in row.values() if graph.outputs[o] in changing}
        return Influence(graph, self.states, jacobian, tuple(terms), tuple(own), tuple(sorted(varying)))

    def source(self, name: str) -> str:
        node = self.inner.nodes[name]
        assert isinstance(node, Read)
        return node.source


def _spread_sums(graph: Graph, before: set[str]) -> Graph:
    """The graph in which a slope by a single number is that of each unit: what a sweep summed over
    units, it is in place of the sum. before: the nodes that were there before."""
    nodes: dict[str, Node] = {}
    shapes = dict(graph.shapes)
    for name, node in graph.nodes.items():
        nodes[name] = node
        if name in before:
            continue
        if isinstance(node, Reduce) and node.op == "sum" and len(shapes[node.arg]) == 1:
            nodes[name] = node = Pointwise(symbol(node.arg))
        if isinstance(node, Pointwise) and shapes[name] == ():
            shapes[name] = max((shapes[o] for o in operands(node)), key=len, default=())
    return replace(graph, nodes=nodes, shapes=shapes)


def _changing(graph: Graph) -> set[str]:
    """The nodes that depend on more than parameters and sizes."""
    found: set[str] = set()
    for name, node in graph.nodes.items():
        lasting = isinstance(node, Read) and node.kind in ("parameter", "size")
        if (isinstance(node, Read) and not lasting) or any(o in found for o in operands(node)):
            found.add(name)
    return found
