"""Which nodes of a graph run before, inside and after the time loop, and at which level of their
phase."""

from __future__ import annotations

from dataclasses import dataclass, field

from rnnspec.errors import UnsupportedError
from rnnspec.lowering.taps import Taps, taps_of
from rnnspec.symbolic.expressions import Value, is_cheap
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

PHASES = ("before", "loop", "after")


def read_whole(graph: Graph) -> set[str]:
    """The operands of outer products that are summed, which read all rows of a chunk: those that
    have ended must be zero there. Backwards, a row that has ended holds in a state's history the
    gradient that it starts from; so none of these may lie in one."""
    summed = [graph.nodes[name] for group in graph.sums.values() for name in group]
    return {o for node in summed if isinstance(node, Outer) for o in (node.left, node.right)}


@dataclass
class Phases:
    graph: Graph
    saved: frozenset[str]
    keeps_tape: bool
    phase: dict[str, str] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)  # product -> the accumulation it is a term of
    accumulations: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=dict
    )  # value -> products, biases
    sunk: set[str] = field(default_factory=set)  # before nodes that are computed where they are read
    uses: dict[str, list[str]] = field(default_factory=dict)
    rowwise: set[str] = field(default_factory=set)
    taps: Taps = field(init=False)

    def __post_init__(self) -> None:
        self.uses = self.graph.uses()
        self.taps = taps_of(self.graph)
        self.rowwise = {n for n in self.graph.nodes if self.is_rowwise(n)}

    def size(self, name: str) -> str:
        return size_of(self.graph, name)

    def check(self) -> None:
        """Refuses what the kernels can't do yet, by the name of the construct."""
        for name, node in self.graph.nodes.items():
            if why := self.unsupported(name, node):
                raise UnsupportedError(
                    f"{self.graph.name}: {name} = {node_text(node)} is not supported yet by the kernels ({why}); "
                    "rnnspec.backends.reference runs it"
                )

    def unsupported(self, name: str, node: Node) -> str:
        """Which construct of the language a node comes from, if the kernels can't run it."""
        match node:
            case Product(matrix, vector) if self.per_sequence(vector) and self.is_parameter(matrix):
                return "products computed once per sequence"
            case Concat(args) if any(
                isinstance(n, Read) and n.kind in ("step", "size") for n in (self.graph.nodes[a] for a in args)
            ):
                return "concat of the step's number or of a size"
        return ""

    def is_rowwise(self, name: str) -> bool:
        """Whether a node needs whole rows, and so a stage of its own."""
        node = self.graph.nodes[name]
        match node:
            case Reduce() | CumSum() | Concat() | Part() | Transpose() | Diag():
                return True
            case Outer():  # else only summed: an OuterSum
                return (
                    bool(self.uses[name]) or name in self.graph.states.values() or name in self.graph.outputs.values()
                )
            case Product(matrix, vector):
                return not self.is_parameter(matrix) or len(self.graph.shapes[vector]) > 1
        return False

    def is_parameter(self, name: str) -> bool:
        node = self.graph.nodes[name]
        return isinstance(node, Read) and node.kind == "parameter"

    def is_panel_product(self, name: str) -> bool:
        return isinstance(self.graph.nodes[name], Product) and name not in self.rowwise

    def per_sequence(self, name: str) -> bool:
        node = self.graph.nodes[name]
        if isinstance(node, Read):
            return node.kind == "parameter"
        return all(self.per_sequence(o) for o in operands(node))

    def classify(self) -> None:
        """The phase of every node that is no Read."""
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
            biases = [t for t in terms if self.is_bias(t, name)]
            if products and len(products) + len(biases) == len(terms):
                self.accumulations[name] = (tuple(products), tuple(biases))
                self.absorbed.update(dict.fromkeys(products, name))
        for name in self.graph.nodes:
            if self.is_panel_product(name) and name not in self.absorbed:
                self.accumulations[name] = ((name,), ())

    def is_bias(self, term: str, target: str) -> bool:
        node = self.graph.nodes[term]
        return (
            isinstance(node, Read) and node.kind == "parameter" and self.graph.shapes[term] == self.graph.shapes[target]
        )

    def place_nodes(self) -> None:
        """Levels: 0 until a product has to wait for something computed in the same phase."""
        self.sink()
        for name in self.taps.order:
            node = self.graph.nodes[name]
            if (
                isinstance(node, Read)
                or (isinstance(node, Outer) and name not in self.rowwise)
                or name in self.absorbed
                or name in self.sunk
            ):
                continue
            if name in self.accumulations:
                phase = self.phase[name]
                self.level[name] = max(
                    self.term_level(p, self.term_phase(p, phase))
                    for p in self.accumulations[name][0]
                    if self.term_phase(p, phase) == phase
                )
            else:
                self.level[name] = max((self.wait(name, o) for o in self.resolved_operands(name)), default=0)
        self.level = {
            name: self.level[name] for name in self.graph.nodes if name in self.level
        }  # in the graph's order again: so kernels are emitted

    def arrival(self, name: str, phase: str) -> int:
        """The level of a phase at which an earlier step's value is there for all rows of a chunk: a
        tap's, one after it was written."""
        node = self.graph.nodes[name]
        if not (isinstance(node, Read) and node.kind == "state" and phase == self.taps.phase(node.source)):
            return 0
        value = self.graph.states[node.source]
        return (
            self.written(node.source) + 1
            if isinstance(self.graph.nodes[value], Read) or self.phase[value] == phase
            else 0
        )

    def written(self, state: str) -> int:
        """The level at which a tap is written: that of its value, or of a copy of what it reads."""
        value = self.graph.states[state]
        return (
            self.arrival(value, self.taps.phase(state))
            if isinstance(self.graph.nodes[value], Read)
            else self.level[value]
        )

    def term_phase(self, product: str, phase: str) -> str:
        """A product inside a loop accumulation may be hoisted; in the other phases it runs with its
        sum."""
        return self.phase[product] if phase == "loop" else phase

    def term_level(self, product: str, phase: str) -> int:
        node = self.graph.nodes[product]
        assert isinstance(node, Product)
        operand = node.vector
        return (
            self.level[operand] + 1
            if self.phase.get(operand) == phase and operand not in self.sunk
            else self.arrival(operand, phase)
        )

    def wait(self, name: str, operand: str) -> int:
        """The level at which `name` can read `operand`: one later if the operand has another size,
        or one of them needs whole rows."""
        if self.phase.get(operand) != self.phase[name] or operand not in self.level:
            return self.arrival(operand, self.phase[name])
        apart = name in self.rowwise or operand in self.rowwise or self.size(operand) != self.size(name)
        return self.level[operand] + (1 if apart else 0)

    def resolved_operands(self, name: str) -> list[str]:
        """The operands of a node, those that are sunk replaced by theirs."""
        found: list[str] = []
        for operand in operands(self.graph.nodes[name]):
            found += self.resolved_operands(operand) if operand in self.sunk else [operand]
        return found

    def sink(self) -> None:
        """A pointwise node of the before phase that only pointwise nodes of one other place read is
        computed there; one that only outer products read is computed after the loop."""
        uses = self.uses
        results = set(self.graph.results()) | self.saved
        for name in reversed(list(self.graph.nodes)):
            node = self.graph.nodes[name]
            if (
                not isinstance(node, Pointwise)
                or self.phase[name] != "before"
                or name in self.accumulations
                or name in results
            ):
                continue
            readers = uses[name]
            if readers and all(isinstance(self.graph.nodes[r], Outer) and r not in self.rowwise for r in readers):
                self.phase[name] = "after"
            elif (
                readers
                and all(
                    isinstance(self.graph.nodes[r], Pointwise)
                    and r not in self.accumulations
                    and self.size(r) == self.size(name)
                    for r in readers
                )
                and (is_cheap(node.expr) or len(readers) == 1)
            ):
                self.sunk.add(name)


def _sum_terms(node: Node) -> list[str]:
    """The names added up by a node that is a plain sum; empty for any other."""
    if not isinstance(node, Pointwise):
        return []
    terms: tuple[Value, ...] = node.expr.args if node.expr.is_Add else (node.expr,)
    return [t.name for t in terms] if all(t.is_Symbol for t in terms) else []
