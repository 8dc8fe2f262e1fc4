"""Which nodes of a graph run before, inside and after the time loop, and at which level of their
phase: the first half of scheduling.

In: a Graph, and the values that its program has to save. Out: `Phases`, from which stages are
drafted (stages.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rnnspec.errors import UnsupportedError
from rnnspec.lowering.pairs import numbers_of, pairs_of
from rnnspec.lowering.taps import Taps, taps_of
from rnnspec.symbolic.expressions import is_cheap
from rnnspec.symbolic.graph import (
    Concat,
    CumSum,
    Diag,
    Graph,
    Node,
    Outer,
    Part,
    Pointwise,
    Product,
    Read,
    Reduce,
    Transpose,
    node_text,
    operands,
    size_of,
)
from rnnspec.symbolic.operations import Value, total

PHASES = ("before", "loop", "after")


def phases_of(graph: Graph, saved: frozenset[str], keeps_tape: bool, fused: bool = False) -> Phases:
    """The phases of a graph. saved: values that the program keeps on its tape beside the states'
    histories; keeps_tape: whether it has one; fused: whether pairs have no memory (pairs.py).

    Raises UnsupportedError for what the kernels can't do.
    """
    phases = Phases(graph, saved, keeps_tape, pairs_of(graph, saved) if fused else frozenset())
    phases.refuse_unsupported()
    phases.assign_phases()
    phases.find_accumulations()
    phases.sink_cheap_nodes()
    phases.assign_levels()
    return phases


def read_whole(graph: Graph) -> set[str]:
    """The operands of outer products that are summed over all rows of a chunk. Rows that have ended
    must be zero there; in a reversed program a state's history holds the gradient that such a row
    starts from instead, so none of these may lie in one (schedule.py copies it)."""
    summed = [graph.nodes[name] for group in graph.sums.values() for name in group]
    return {o for node in summed if isinstance(node, Outer) for o in (node.left, node.right)}


@dataclass
class Phases:
    """Where the nodes of a graph run.

    phase: "before", "loop" or "after", of every node that is no Read. level: how often a node waits
    for others of its phase; nodes that run as part of another have none. absorbed: product -> the
    accumulation that it is a term of. accumulations: value -> the products and the biases of which
    it is the sum. sunk: nodes of the before phase that have no buffer, but are computed again where
    they are read. uses: node -> the nodes that read it. rowwise: nodes that need whole rows. taps:
    the states that only hold an earlier value (taps.py). fixed: nodes that depend on parameters
    alone. resolved: sunk node -> what it reads, sunk nodes replaced by what they read. columned:
    nodes with a value for each column. pairs: matrices that have no buffer either, but are computed
    where they are summed (pairs.py).
    """

    graph: Graph
    saved: frozenset[str]
    keeps_tape: bool
    pairs: frozenset[str] = frozenset()
    phase: dict[str, str] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)
    accumulations: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    sunk: set[str] = field(init=False)
    uses: dict[str, list[str]] = field(init=False)
    rowwise: set[str] = field(init=False)
    taps: Taps = field(init=False)
    fixed: set[str] = field(default_factory=set)
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    columned: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.uses = self.graph.uses()
        self.columned = self.graph.columned()
        self.taps = taps_of(self.graph)
        self.rowwise = {n for n in self.graph.nodes if n not in self.pairs and self.needs_whole_rows(n)}
        self.sunk = {*self.pairs, *numbers_of(self.graph, self.pairs)}
        for name, node in self.graph.nodes.items():
            if self.is_parameter(name) if isinstance(node, Read) else self.fixed.issuperset(operands(node)):
                self.fixed.add(name)

    # --- what a node is

    def size(self, name: str) -> str:
        return size_of(self.graph, name)

    def is_parameter(self, name: str) -> bool:
        node = self.graph.nodes[name]
        return isinstance(node, Read) and node.kind == "parameter"

    def is_read(self, name: str) -> bool:
        return isinstance(self.graph.nodes[name], Read)

    def is_bias(self, term: str, target: str) -> bool:
        fits = self.graph.shapes[term] == self.graph.shapes[target]
        return self.is_parameter(term) and term not in self.columned and fits

    def is_panel_product(self, name: str) -> bool:
        return isinstance(self.graph.nodes[name], Product) and name not in self.rowwise

    def is_summed_outer(self, name: str) -> bool:
        """Whether a node is an outer product that nothing reads but a sum over all rows."""
        return isinstance(self.graph.nodes[name], Outer) and name not in self.rowwise and name not in self.pairs

    def is_once_per_sequence(self, name: str) -> bool:
        """Whether a value depends on parameters alone."""
        return name in self.fixed

    def needs_whole_rows(self, name: str) -> bool:
        """Whether a node needs whole rows, and so a stage of its own."""
        node = self.graph.nodes[name]
        match node:
            case Reduce() | CumSum() | Concat() | Part() | Transpose() | Diag():
                return True
            case Outer():  # else only summed: an OuterSum
                kept = {*self.graph.states.values(), *self.graph.outputs.values()}
                return bool(self.uses[name]) or name in kept
            case Product(matrix, vector):
                return not self.is_parameter(matrix) or len(self.graph.shapes[vector]) > 1
        return False

    # --- the steps of `phases_of`

    def refuse_unsupported(self) -> None:
        """Refuses what the kernels can't do yet, by the name of the construct."""
        for name, node in self.graph.nodes.items():
            if why := self.unsupported(node):
                raise UnsupportedError(
                    f"{self.graph.name}: {name} = {node_text(node)} is not supported yet by the kernels ({why}); "
                    "rnnspec.backends.reference runs it"
                )

    def unsupported(self, node: Node) -> str:
        """Which construct of the language a node comes from, if the kernels can't run it."""
        match node:
            case Product(matrix, vector) if self.is_once_per_sequence(vector) and self.is_parameter(matrix):
                return "products computed once per sequence"
            case Concat(args) if any(
                isinstance(n, Read) and n.kind in ("step", "size") for n in (self.graph.nodes[a] for a in args)
            ):
                return "concat of the step's number or of a size"
        return ""

    def assign_phases(self) -> None:
        """The phase of every node that is no Read: a node is recurrent if it depends on a recurrent
        state, and needed if such a state depends on it."""
        nodes = self.graph.nodes
        recurrent = {
            n
            for n, node in nodes.items()
            if isinstance(node, Read) and node.kind == "state" and node.source not in self.taps.early
        }
        for name, node in nodes.items():
            if any(o in recurrent for o in operands(node)):
                recurrent.add(name)
        needed = {value for state, value in self.graph.states.items() if state not in self.taps.late}
        for name in reversed(list(nodes)):
            if name in needed:
                needed.update(operands(nodes[name]))
        for name, node in nodes.items():
            if not isinstance(node, Read):
                self.phase[name] = "before" if name not in recurrent else "loop" if name in needed else "after"

    def find_accumulations(self) -> None:
        """Sums of products (and biases) that a panel computes in one pass; a product that is in no
        such sum stands alone."""
        uses, results = self.uses, set(self.graph.results())
        for name, node in self.graph.nodes.items():
            terms = _sum_terms(node)
            products = [t for t in terms if self.is_panel_product(t) and len(uses[t]) == 1 and t not in results]
            products = [t for t in products if (t in self.columned) == (name in self.columned)]
            biases = [t for t in terms if self.is_bias(t, name)]
            if products and len(products) + len(biases) == len(terms):
                self.accumulations[name] = (tuple(products), tuple(biases))
                self.absorbed.update(dict.fromkeys(products, name))
        for name in self.graph.nodes:
            if self.is_panel_product(name) and name not in self.absorbed:
                self.accumulations[name] = ((name,), ())

    def sink_cheap_nodes(self) -> None:
        """A pointwise node of the before phase that only pointwise nodes of one other place read is
        computed there; one that only outer products read is computed after the loop."""
        results = set(self.graph.results()) | self.saved
        for name in reversed(list(self.graph.nodes)):
            node, readers = self.graph.nodes[name], self.uses[name]
            if not isinstance(node, Pointwise) or self.phase[name] != "before" or not readers or name in self.sunk:
                continue
            if name in self.accumulations or name in results:
                continue
            if all(self.is_summed_outer(r) for r in readers):
                self.phase[name] = "after"
            elif all(self.computes_beside(r, name) for r in readers) and (is_cheap(node.expr) or len(readers) == 1):
                self.sunk.add(name)

    def computes_beside(self, reader: str, name: str) -> bool:
        """Whether a node is pointwise work in which another of its size can be computed as well."""
        pointwise = isinstance(self.graph.nodes[reader], Pointwise) and reader not in self.accumulations
        return pointwise and self.size(reader) == self.size(name)

    def assign_levels(self) -> None:
        """Levels: 0 until a product has to wait for something computed in the same phase."""
        level = self.level
        for name in self.graph.nodes:
            if name in self.sunk:
                self.resolved[name] = self.resolved_operands(name)
        for name in self.taps.order:
            if self.is_read(name) or self.is_summed_outer(name) or name in self.absorbed or name in self.sunk:
                continue
            if name in self.accumulations:
                phase, (products, _) = self.phase[name], self.accumulations[name]
                own = [p for p in products if self.term_phase(p, phase) == phase]
                level[name] = max(self.term_level(p, phase) for p in own)
            else:
                level[name] = max((self.reading_level(name, o) for o in self.resolved_operands(name)), default=0)
        # in the graph's order again: so kernels are emitted
        self.level = {name: level[name] for name in self.graph.nodes if name in level}

    # --- levels

    def arrival_level(self, name: str, phase: str) -> int:
        """The first level of a phase at which an earlier step's value can be read: of a tap one
        above the level that writes it, else 0."""
        node = self.graph.nodes[name]
        if not (isinstance(node, Read) and node.kind == "state" and phase == self.taps.phase(node.source)):
            return 0
        value = self.graph.states[node.source]
        return self.written_level(node.source) + 1 if self.is_read(value) or self.phase[value] == phase else 0

    def written_level(self, state: str) -> int:
        """The level at which a tap is written: that of its value, or of a copy of what it reads."""
        value = self.graph.states[state]
        return self.arrival_level(value, self.taps.phase(state)) if self.is_read(value) else self.level[value]

    def term_phase(self, product: str, phase: str) -> str:
        """The phase in which a product runs that is a term of an accumulation: inside the loop it
        may be hoisted; in the other phases it runs with its sum."""
        return self.phase[product] if phase == "loop" else phase

    def term_level(self, product: str, phase: str) -> int:
        """The level of a phase at which a product can run: one after its operand."""
        node = self.graph.nodes[product]
        assert isinstance(node, Product)
        operand = node.vector
        computed = self.phase.get(operand) == phase and operand not in self.sunk
        return self.level[operand] + 1 if computed else self.arrival_level(operand, phase)

    def reading_level(self, name: str, operand: str) -> int:
        """The level at which `name` can read `operand`: one later if the operand has another size,
        or one of them needs whole rows."""
        if self.phase.get(operand) != self.phase[name] or operand not in self.level:
            return self.arrival_level(operand, self.phase[name])
        apart = name in self.rowwise or operand in self.rowwise or self.size(operand) != self.size(name)
        return self.level[operand] + (1 if apart else 0)

    def summed_level(self, name: str) -> int:
        """The level after the loop at which a value can be summed over rows."""
        if name in self.pairs:
            found = [
                self.level[o] + 1 if self.phase.get(o) == "after" else self.arrival_level(o, "after")
                for o in self.resolved[name]
            ]
            return max(found, default=0)
        computed_there = self.phase.get(name) == "after" and name in self.level
        return self.level[name] + (name in self.rowwise) if computed_there else 0

    def resolved_operands(self, name: str) -> tuple[str, ...]:
        """The operands of a node, those that are sunk replaced by theirs."""
        found: dict[str, None] = {}
        for operand in operands(self.graph.nodes[name]):
            found |= dict.fromkeys(self.resolved.get(operand, (operand,)))
        return tuple(found)


def _sum_terms(node: Node) -> list[str]:
    """The names added up by a node that is a plain sum; empty for any other."""
    if not isinstance(node, Pointwise):
        return []
    terms: tuple[Value, ...] = node.expr.args if isinstance(node.expr, total) else (node.expr,)
    return [t.name for t in terms] if all(t.is_Symbol for t in terms) else []
