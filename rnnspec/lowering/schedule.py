"""Graph -> Program: what runs before, inside and after the time loop, in which stages, and what is stored.

Nothing about a cell is declared: a node is *loop* if it lies on a path from a state's old value to its new one,
*before* if it depends on no state, *after* if no state depends on it. A cell whose recurrence is elementwise has no
product left in the loop because none of its products lies on such a path.
"""
from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import canonical_size
from rnnspec.lowering.program import Accumulation, Buffer, OuterSum, Panel, Place, Program, Stage, State, Term
from rnnspec.lowering.taps import Taps, taps_of
from rnnspec.symbolic.expressions import Value, is_cheap, symbol
from rnnspec.symbolic.graph import Concat, CumSum, Diag, Graph, Node, Outer, Part, Pointwise, Product, Read, Reduce, Transpose, fresh, node_text, operands

Key = tuple[str, int, str]  # phase, level, size of a stage
PHASES = ("before", "loop", "after")
ROWWISE = "rowwise"  # in place of a size


def schedule(graph: Graph, *, saved: frozenset[str] | None = None, tape: Program | None = None) -> Program:
    """The program of a forward graph (`saved`: values to keep for the adjoint beside the states; None keeps no tape) or of
    an adjoint cut at its tape (`tape`: the forward program that wrote it), which runs backwards."""
    work = _Work(_with_copies(graph) if tape else graph, saved or frozenset(), saved is not None)
    work.check()
    work.classify()
    work.find_accumulations()
    work.place_nodes()
    program = _assemble(work, tape)
    program.verify()
    return program


def _with_copies(graph: Graph) -> Graph:
    """An adjoint in which what sums read whole is no state, but a copy of it; see `_read_whole`."""
    read = _read_whole(graph)
    nodes: dict[str, Node] = {}
    shapes, copies = dict(graph.shapes), dict[str, str]()
    for name, node in graph.nodes.items():
        nodes[name] = Outer(copies.get(node.left, node.left), copies.get(node.right, node.right)) if isinstance(node, Outer) else node
        if name in read and isinstance(node, Read) and node.kind == "state":
            copies[name] = fresh(f"{name}_copy", shapes)
            nodes[copies[name]], shapes[copies[name]] = Pointwise(symbol(name)), shapes[name]
    return replace(graph, nodes=nodes, shapes=shapes) if copies else graph


def _read_whole(graph: Graph) -> set[str]:
    """The operands of outer products that are summed, which read all rows of a chunk: those that have ended must be zero there. Backwards, a
    row that has ended holds in a state's history the gradient that it starts from; so none of these may lie in one."""
    summed = [graph.nodes[name] for group in graph.sums.values() for name in group]
    return {o for node in summed if isinstance(node, Outer) for o in (node.left, node.right)}


@dataclass
class _Work:
    graph: Graph
    saved: frozenset[str]
    keeps_tape: bool
    phase: dict[str, str] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)  # product -> the accumulation it is a term of
    accumulations: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)  # value -> products, biases
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
                raise UnsupportedError(f"{self.graph.name}: {name} = {node_text(node)} is not supported yet by the kernels ({why}); "
                                       "rnnspec.backends.reference runs it")

    def unsupported(self, name: str, node: Node) -> str:
        """Which construct of the language a node comes from, if the kernels can't run it."""
        match node:
            case Product(matrix, vector) if self.per_sequence(vector) and self.is_parameter(matrix):
                return "products computed once per sequence"
            case Concat(args) if any(isinstance(n, Read) and n.kind in ("step", "size") for n in (self.graph.nodes[a] for a in args)):
                return "concat of the step's number or of a size"
        return ""

    def is_rowwise(self, name: str) -> bool:
        """Whether a node needs whole rows, and so a stage of its own."""
        node = self.graph.nodes[name]
        match node:
            case Reduce() | CumSum() | Concat() | Part() | Transpose() | Diag():
                return True
            case Outer():  # else only summed: an OuterSum
                return bool(self.uses[name]) or name in self.graph.states.values() or name in self.graph.outputs.values()
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
        recurrent = {n for n, node in nodes.items() if isinstance(node, Read) and node.kind == "state" and node.source not in self.taps.early}
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
        """Sums of products (and biases) that a panel computes in one pass; a product that is in no such sum stands alone."""
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
        return isinstance(node, Read) and node.kind == "parameter" and self.graph.shapes[term] == self.graph.shapes[target]

    def place_nodes(self) -> None:
        """Levels: 0 until a product has to wait for something computed in the same phase."""
        self.sink()
        for name in self.taps.order:
            node = self.graph.nodes[name]
            if isinstance(node, Read) or (isinstance(node, Outer) and name not in self.rowwise) or name in self.absorbed or name in self.sunk:
                continue
            if name in self.accumulations:
                phase = self.phase[name]
                self.level[name] = max(self.term_level(p, self.term_phase(p, phase)) for p in self.accumulations[name][0]
                                       if self.term_phase(p, phase) == phase)
            else:
                self.level[name] = max((self.wait(name, o) for o in self.resolved_operands(name)), default=0)
        self.level = {name: self.level[name] for name in self.graph.nodes if name in self.level}  # in the graph's order again: so kernels are emitted

    def arrival(self, name: str, phase: str) -> int:
        """The level of a phase at which an earlier step's value is there for all rows of a chunk: a tap's, one after it was written."""
        node = self.graph.nodes[name]
        if not (isinstance(node, Read) and node.kind == "state" and phase == self.taps.phase(node.source)):
            return 0
        value = self.graph.states[node.source]
        return self.written(node.source) + 1 if isinstance(self.graph.nodes[value], Read) or self.phase[value] == phase else 0

    def written(self, state: str) -> int:
        """The level at which a tap is written: that of its value, or of a copy of what it reads."""
        value = self.graph.states[state]
        return self.arrival(value, self.taps.phase(state)) if isinstance(self.graph.nodes[value], Read) else self.level[value]

    def term_phase(self, product: str, phase: str) -> str:
        """A product inside a loop accumulation may be hoisted; in the other phases it runs with its sum."""
        return self.phase[product] if phase == "loop" else phase

    def term_level(self, product: str, phase: str) -> int:
        node = self.graph.nodes[product]
        assert isinstance(node, Product)
        operand = node.vector
        return self.level[operand] + 1 if self.phase.get(operand) == phase and operand not in self.sunk else self.arrival(operand, phase)

    def wait(self, name: str, operand: str) -> int:
        """The level at which `name` can read `operand`: one later if the operand has another size, or one of them needs whole rows."""
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
        """A pointwise node of the before phase that only pointwise nodes of one other place read is computed there;
        one that only outer products read is computed after the loop."""
        uses = self.uses
        results = set(self.graph.results()) | self.saved
        for name in reversed(list(self.graph.nodes)):
            node = self.graph.nodes[name]
            if not isinstance(node, Pointwise) or self.phase[name] != "before" or name in self.accumulations or name in results:
                continue
            readers = uses[name]
            if readers and all(isinstance(self.graph.nodes[r], Outer) and r not in self.rowwise for r in readers):
                self.phase[name] = "after"
            elif readers and all(isinstance(self.graph.nodes[r], Pointwise) and r not in self.accumulations
                                 and self.size(r) == self.size(name) for r in readers) and (is_cheap(node.expr) or len(readers) == 1):
                self.sunk.add(name)


def size_of(graph: Graph, name: str) -> str:
    """The size of a value's rows; a single number is a row of size 1, a matrix lies row after row."""
    shape = graph.shapes[name]
    return canonical_size(" * ".join(f"({s})" for s in shape)) if len(shape) > 1 else shape[0] if shape else "1"


def _sum_terms(node: Node) -> list[str]:
    """The names added up by a node that is a plain sum; empty for any other."""
    if not isinstance(node, Pointwise):
        return []
    terms: tuple[Value, ...] = node.expr.args if node.expr.is_Add else (node.expr,)
    return [t.name for t in terms] if all(t.is_Symbol for t in terms) else []


def _assemble(work: _Work, tape: Program | None) -> Program:
    graph = work.graph
    layout = _Layout(work, tape)
    stages = _stages(work)
    layout.reads()
    layout.values(stages)
    by_phase = {phase: tuple(layout.stage(key, stages[key]) for key in sorted(stages, key=_order) if key[0] == phase) for phase in PHASES}
    outers = tuple(OuterSum(p, node.left, node.right) for p, group in graph.sums.items()
                   for node in (graph.nodes[n] for n in group) if isinstance(node, Outer))
    return Program(graph.name, graph, tape is not None, layout.buffers, layout.places, layout.inputs, tuple(layout.states), dict(graph.outputs),
                   by_phase["before"], by_phase["loop"], by_phase["after"], outers)


def _order(key: Key) -> tuple[int, int, str]:
    return PHASES.index(key[0]), key[1], key[2]


@dataclass
class _Draft:
    """A stage while it is put together."""

    parts: list[Accumulation] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    rowwise: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)  # values that are only read here, to be stored elsewhere
    sums: list[tuple[str, str]] = field(default_factory=list)


def _stages(work: _Work) -> dict[Key, _Draft]:
    graph = work.graph
    stages: dict[Key, _Draft] = defaultdict(_Draft)
    for value in work.accumulations:
        for key, part in _parts(work, value):
            stages[key].parts.append(part)
    for name in work.level:
        key = (work.phase[name], work.level[name], work.size(name))
        if name in work.rowwise:
            stages[(key[0], key[1], ROWWISE)].rowwise.append(name)
        elif name not in work.accumulations:
            stages[key].nodes.append(name)
    for state, node_name in graph.states.items():
        if isinstance(graph.nodes[node_name], Read):
            phase, level = (work.taps.phase(state), work.written(state)) if work.taps.phase(state) else ("loop", 0)
            stages[(phase, level, work.size(node_name))].copies.append(node_name)
    for parameter, group in graph.sums.items():
        for node_name in group:
            if not isinstance(graph.nodes[node_name], Outer):
                own = work.phase.get(node_name) == "after" and node_name in work.level
                level = work.level[node_name] + (node_name in work.rowwise) if own else 0
                stages[("after", level, work.size(node_name))].sums.append((parameter, node_name))
    for draft in stages.values():
        draft.nodes = _with_sunk(work, draft)
    return dict(stages)


def _with_sunk(work: _Work, draft: _Draft) -> list[str]:
    """The nodes of a stage in the graph's order, with the sunk nodes they read."""
    wanted = {*draft.nodes, *(v for v in draft.copies if v in work.sunk), *(v for _, v in draft.sums if v in work.sunk)}
    open_nodes = list(wanted)
    while open_nodes:
        for operand in operands(work.graph.nodes[open_nodes.pop()]):
            if operand in work.sunk and operand not in wanted:
                wanted.add(operand)
                open_nodes.append(operand)
    return [n for n in work.graph.nodes if n in wanted]


def _parts(work: _Work, value: str) -> list[tuple[Key, Accumulation]]:
    """An accumulation, split by the stages in which its products can run."""
    products, biases = work.accumulations[value]
    own = work.phase[value]
    groups: dict[tuple[str, int], list[Term]] = defaultdict(list)
    for product in products:
        node = work.graph.nodes[product]
        assert isinstance(node, Product)
        phase = work.term_phase(product, own)
        groups[(phase, work.term_level(product, phase))].append(Term(node.matrix, node.vector, node.transposed))
    parts = []
    for number, (phase, level) in enumerate(sorted(groups, key=lambda g: (PHASES.index(g[0]), g[1]))):
        terms = tuple(groups[(phase, level)])
        parts.append(((phase, level, work.size(value)), Accumulation(value, terms, biases if number == 0 else (), number == 0)))
    return parts


class _Layout:
    """Buffers and places of the values that outlive their stage."""

    def __init__(self, work: _Work, tape: Program | None):
        self.work, self.tape = work, tape
        self.buffers: dict[str, Buffer] = {}
        self.places: dict[str, Place] = {}
        self.inputs: dict[str, str] = {}
        self.states: list[State] = []

    def add(self, wanted: str, size: str, kind: str = "rows", saved: bool = False, taped: bool = False) -> str:
        name = wanted if taped else fresh(wanted, {**self.buffers, **(self.tape.buffers if self.tape else {})})
        self.buffers[name] = Buffer(name, size, "history" if kind == "history" else "rows", saved, taped)
        return name

    def reads(self) -> None:
        """Places of inputs, states, and of what lies on the tape."""
        work, graph = self.work, self.work.graph
        prefix = "d_" if self.tape else ""
        apart = _read_whole(graph) if self.tape else set()
        for state, value in graph.states.items():
            name = self.add(f"{prefix}{state}_history", work.size(value), "history", saved=work.keeps_tape)
            self.states.append(State(state, name, work.size(value)))
            if not (self.places.get(value) or self._is_read(value) or value in apart):
                self.places[value] = Place(name, 1)
        histories = {s.name: s.buffer for s in self.states}
        for name, node in graph.nodes.items():
            if not isinstance(node, Read) or node.kind in ("parameter", "step", "size"):
                continue
            if node.kind == "state":
                self.places[name] = Place(histories[node.source], 0)
            elif node.kind == "input":
                self.inputs[node.source] = self.add(name, work.size(name), saved=name in work.saved)
                self.places[name] = Place(self.inputs[node.source])
            else:
                self.places[name] = self._taped(node, name)

    def _is_read(self, value: str) -> bool:
        return isinstance(self.work.graph.nodes[value], Read)

    def _taped(self, node: Read, name: str) -> Place:
        assert self.tape is not None
        if node.kind == "history":
            place = Place(next(s.buffer for s in self.tape.states if s.name == node.source), 0)
        elif node.source in self.tape.graph.states.values():
            state = next(s for s, value in self.tape.graph.states.items() if value == node.source)
            place = Place(next(s.buffer for s in self.tape.states if s.name == state), 1)
        else:
            place = self.tape.places[node.source]
        source = self.tape.buffers[place.buffer]
        self.add(place.buffer, source.size, source.kind, taped=True)
        return place

    def values(self, stages: dict[Key, _Draft]) -> None:
        """A buffer for every computed value that is read outside the stage that computes it."""
        work, graph = self.work, self.work.graph
        made: dict[str, Key] = {n: key for key, draft in stages.items() for n in (*draft.nodes, *draft.rowwise) if n not in work.sunk}
        wanted = set(work.accumulations) | work.saved | set(graph.outputs.values()) | set(graph.states.values())
        wanted |= work.rowwise
        for key, draft in stages.items():
            for part in draft.parts:
                wanted.update(t.operand for t in part.terms)
            for name in (*draft.nodes, *draft.rowwise):
                wanted.update(o for o in operands(graph.nodes[name]) if made.get(o, key) != key or name in draft.rowwise)
            wanted.update(v for _, v in draft.sums if made.get(v, key) != key)
        for node in graph.nodes.values():
            if isinstance(node, Outer):
                wanted |= {node.left, node.right}
        for name in graph.nodes:
            if name in wanted and name not in self.places and not self._is_read(name):
                self.places[name] = Place(self.add(name, work.size(name), saved=name in work.saved))

    def stage(self, key: Key, draft: _Draft) -> Stage:
        panels: dict[tuple[str, ...], list[Accumulation]] = defaultdict(list)
        for part in draft.parts:
            panels[tuple(t.operand for t in part.terms)].append(part)
        stores: list[tuple[str, Place]] = []
        own = {n for n in (*draft.nodes, *draft.rowwise, *draft.copies) if n not in self.work.sunk or n in draft.copies}
        finished = {p.value for p in draft.parts if self.work.phase[p.value] == key[0] and self.work.level[p.value] == key[1]}
        for value in self.work.graph.nodes:
            if value in own and value in self.places and value not in draft.copies:
                stores.append((value, self.places[value]))
            if value in own | finished:
                lies = self.places.get(value) if value in self.work.accumulations or value in draft.copies else None
                stores += [(value, place) for place in self.state_places(value) if (value, place) not in stores and place != lies]
        size = "1" if key[2] == ROWWISE else key[2]
        ready = tuple(Panel(tuple(parts)) for parts in panels.values())
        return Stage(size, ready, tuple(draft.nodes), tuple(stores), tuple(draft.sums), tuple(draft.rowwise))

    def state_places(self, value: str) -> list[Place]:
        return [Place(s.buffer, 1) for s in self.states if self.work.graph.states[s.name] == value]
