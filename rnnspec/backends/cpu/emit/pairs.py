"""The text of matrices that are computed pair by pair, element by element, where they are summed.

In: a stage with `pairs` (lowering/pairs.py). Out: for each way in which it sums one nest of loops,
over rows of the chunk, rows (`unit`) and vectors of columns (`p`) of the matrices. Every load and
every equation stands in the outermost loop of which it depends on nothing further in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from rnnspec.backends.cpu.emit.emission import Emission
from rnnspec.backends.cpu.emit.rowwise import term
from rnnspec.backends.cpu.emit.sums import summed
from rnnspec.lowering.program import BufferPlace, Stage
from rnnspec.lowering.signature import gradient_sums
from rnnspec.symbolic.graph import Node, Outer, Pointwise, Product, operands, size_of

LEFT, RIGHT = "left", "right"  # a vector along the rows of the matrices, and one along their columns
ALONG = {LEFT: "unit", RIGHT: "p"}


def pairs(work: Emission, stage: Stage) -> None:
    """All that a stage sums or stores of its matrices."""
    nodes = {name: work.graph.nodes[name] for name in stage.rowwise}
    down = [n for n, node in nodes.items() if isinstance(node, Product) and node.transposed]
    across = [n for n in nodes if n not in down]
    matrices = [(value, place) for value, place in stage.stores if value not in nodes]
    if down:
        _down(work, stage, down)
    if across:
        _across(work, stage, across)
    if matrices:
        _stored(work, stage, matrices)
    if stage.sums:
        _summed(work, stage)


def _down(work: Emission, stage: Stage, names: list[str]) -> None:
    """Sums over the rows of matrices: vectors of columns side by side, row after row."""
    nest = _Nest(work, stage, set(), names)
    height, width = _extents(work, stage)
    with work.block("for row in range(first, first + count):"):
        nest.enter("row")
        with work.block(f"for p in {work.units(_columns(stage))}:"):
            nest.enter("p")
            for name in names:
                work.line(f"{work.value(name)} = number(0.0)")
            with work.block(f"for unit in range({height}):"):
                work.line(f"offset = unit * {width} + p")
                nest.enter("unit")
                for name in names:
                    work.line(f"{work.value(name)} = {work.value(name)} + {nest.product(name)}")
            for name, place in _places(work, stage, names):
                padded = work.pad(work.program.buffers[place.buffer].size)
                work.line(f"store({work.rows(place)}, row * {padded} + p, {work.value(name)})")


def _across(work: Emission, stage: Stage, names: list[str]) -> None:
    """Sums over the columns of matrices: one row after the other."""
    nest = _Nest(work, stage, set(), names)
    height, width = _extents(work, stage)
    with work.block("for row in range(first, first + count):"):
        nest.enter("row")
        with work.block(f"for unit in range({height} * own // owners, {height} * (own + 1) // owners):"):
            nest.enter("unit")
            for name in names:
                work.line(f"{work.value(name)} = number(0.0)")
            with work.block(f"for p in range(0, {width}, lanes):"):
                work.line(f"offset = unit * {width} + p")
                nest.enter("p")
                for name in names:
                    work.line(f"piece = {nest.product(name)}")
                    own = f"select(first_lanes({width} - p, piece), piece, number(0.0))"
                    work.line(f"{work.value(name)} = {work.value(name)} + {own}")
            for name, place in _places(work, stage, names):
                padded = work.pad(work.program.buffers[place.buffer].size)
                work.line(f"store_one({work.rows(place)}, row * {padded} + unit, horizontal_sum({work.value(name)}))")


def _stored(work: Emission, stage: Stage, stores: list[tuple[str, BufferPlace]]) -> None:
    """Matrices that are wanted whole: by who sums the gradients of each row apart."""
    nest = _Nest(work, stage, {value for value, _ in stores})
    height, width = _extents(work, stage)
    with work.block("for row in range(first, first + count):"):
        nest.enter("row")
        with work.block(f"for unit in range({height} * own // owners, {height} * (own + 1) // owners):"):
            nest.enter("unit")
            with work.block(f"for p in range(0, {width}, lanes):"):
                work.line(f"offset = unit * {width} + p")
                nest.enter("p")
                for value, place in stores:
                    at = f"row * {work.pad(stage.size)} + offset"
                    work.line(f"store_first({work.rows(place)}, {at}, {work.value(value)}, {width} - p)")


def _summed(work: Emission, stage: Stage) -> None:
    """Matrices added to gradients, element by element, over all rows."""
    sums = gradient_sums(work.graph, stage)
    nest = _Nest(work, stage, {value for _, value in sums})
    height, width = _extents(work, stage)
    with work.block(f"for unit in range({height} * part // parts, {height} * (part + 1) // parts):"):
        nest.enter("unit")
        with work.block(f"for p in range(0, {width}, lanes):"):
            work.line(f"offset = unit * {width} + p")
            nest.enter("p")
            summed(work, sums, "offset", partial(nest.enter, "row"), f"{width} - p")


def _columns(stage: Stage) -> str:
    assert stage.pairs is not None
    return stage.pairs[1]


def _places(work: Emission, stage: Stage, names: list[str]) -> list[tuple[str, BufferPlace]]:
    """Sums and where they lie, in their own place and in others."""
    own = [(name, work.program.places[name]) for name in names]
    return list(dict.fromkeys([*own, *(s for s in stage.stores if s[0] in names)]))


def _extents(work: Emission, stage: Stage) -> tuple[str, str]:
    """How many rows and columns the matrices have."""
    assert stage.pairs is not None
    height, width = stage.pairs
    return work.extent(height), work.extent(width)


@dataclass
class _Step:
    """Lines of a nest, and the loops that they depend on. node: instead, what is computed."""

    along: frozenset[str]
    text: str = ""
    node: str = ""


@dataclass
class _Nest:
    """What is loaded and computed for some of a stage's matrices, loop by loop as they are entered.
    values: the matrices; products: sums of matrices, whose other factors are read as well."""

    work: Emission
    stage: Stage
    values: set[str]
    products: list[str] = field(default_factory=list)
    entered: set[str] = field(default_factory=set, init=False)
    steps: list[_Step] = field(default_factory=list, init=False)
    along: dict[str, frozenset[str]] = field(default_factory=dict, init=False)  # identifier -> loops

    def __post_init__(self) -> None:
        nodes = self.work.graph.nodes
        wanted = self.values | {operands(nodes[name])[0] for name in self.products}
        for name in reversed(self.stage.nodes):
            if name in wanted or self._is_factor(name):
                wanted.update(operands(nodes[name]))
        for name in self.stage.nodes:
            if name in wanted or self._is_factor(name):
                self._compute(name, nodes[name])
        for name in self.products:
            self._factor(name)

    def enter(self, loop: str) -> None:
        """Writes what can be had in this loop and the ones around it."""
        self.entered.add(loop)
        for step in [s for s in self.steps if s.along <= self.entered]:
            self.steps.remove(step)
            if step.node:
                self.work.compute([step.node])
            else:
                self.work.line(step.text)

    def product(self, name: str) -> str:
        """The text of one term of a sum."""
        matrix, _ = operands(self.work.graph.nodes[name])
        return self._times(name, self.work.value(matrix), self._factor(name))

    def _is_factor(self, name: str) -> bool:
        return any(name == operands(self.work.graph.nodes[p])[1] for p in self.products)

    def _factor(self, name: str) -> str:
        node = self.work.graph.nodes[name]
        assert isinstance(node, Product)
        return self._vector(node.vector, LEFT if node.transposed else RIGHT)

    def _times(self, name: str, first: str, second: str) -> str:
        """The text of a product of a matrix's elements; a factor of 1 is left out."""
        one = {self.work.value(n) for n in self.stage.nodes if _is_one(self.work.graph.nodes[n])}
        if first in one or second in one:
            return second if first in one else first
        return term(self.work, name, first, second)

    def _compute(self, name: str, node: Node) -> None:
        identifier = self.work.value(name)
        if isinstance(node, Outer):
            factors = [self._vector(node.left, LEFT), self._vector(node.right, RIGHT)]
            text = f"{identifier} = {self._times(name, *factors)}  # outer({node.left}, {node.right})"
            step = _Step(self._union(factors), text)
        else:
            read = [self._element(o) for o in operands(node)]
            step = _Step(self._union(read), node=name)
        self.along[identifier] = step.along
        self.steps.append(step)

    def _union(self, identifiers: list[str]) -> frozenset[str]:
        return frozenset().union(*(self.along[i] for i in identifiers))

    def _vector(self, name: str, side: str) -> str:
        """The identifier of the elements of a vector that meet a matrix's, which this loads."""
        work = self.work
        if name in self.stage.nodes:
            return work.value(name)
        function = "load_splat" if side == LEFT else "load"
        return self._load(name, work.value(name, side), function, ALONG[side], {ALONG[side]})

    def _element(self, name: str) -> str:
        """The identifier of what an equation reads: of a matrix, or a number."""
        work, program = self.work, self.work.program
        identifier = work.value(name)
        if name in self.stage.nodes:
            return identifier
        if work.graph.shapes[name] == self.stage.pairs:
            return self._load(name, identifier, "load", "offset", {"unit", "p"})
        if program.is_read(name, "step"):
            return self._add(identifier, "from_int(t + get(counts, row - first))", {"row"})
        if program.is_read(name, "size"):
            return self._add(identifier, f"from_int({work.get(f'size {program.source_of(name)}')})", set())
        return self._load(name, identifier, "load_splat", "0", set())

    def _load(self, name: str, identifier: str, function: str, place: str, along: set[str]) -> str:
        """Loads what a parameter or a row of a buffer has at a place."""
        work, program = self.work, self.work.program
        if program.is_read(name, "parameter"):
            vector = work.name(f"vector {program.source_of(name)}")
            return self._add(identifier, f"{function}({vector}, {place})", along)
        start = f"row * {work.pad(size_of(work.graph, name))}"
        at = start if place == "0" else f"{start} + {place}"
        return self._add(identifier, f"{function}({work.rows(program.places[name])}, {at})", {*along, "row"})

    def _add(self, identifier: str, text: str, along: set[str]) -> str:
        if identifier not in self.along:
            self.along[identifier] = frozenset(along)
            self.steps.append(_Step(frozenset(along), f"{identifier} = {text}"))
        return identifier


def _is_one(node: Node) -> bool:
    return isinstance(node, Pointwise) and bool(node.expr == 1)
