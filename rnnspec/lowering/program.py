"""Program: how a Graph is executed. Every backend emits from it.

A program works through a sequence chunk by chunk. Of each chunk it runs the *before* stages over
all its rows at once (a row is one step of one batch entry), then the *loop* stages step by step,
then the *after* stages and the outer products over all its rows again. A stage is a set of packed
panel products and the pointwise work that follows at once. A reversed program (an adjoint) runs the
chunks, and the steps of each, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rnnspec.language.spec import Shape
from rnnspec.language.views import InNotebooks
from rnnspec.storage.locks import once_only
from rnnspec.symbolic.graph import Graph, Outer, Product, Read, node_text, operands
from rnnspec.symbolic.left_out import Side, left_out


@dataclass(frozen=True)
class Buffer:
    """Values that outlive a stage: `rows` one for each row of a chunk, `history` (a state) one more
    step of rows.

    saved: kept for the adjoint (the tape); otherwise scratch of the thread, used again by the next
    chunk. taped: read from the tape of the forward program; never written. columned: a row has a
    value for each column, one after another.
    """

    name: str
    size: str
    kind: Literal["rows", "history"] = "rows"
    saved: bool = False
    taped: bool = False
    columned: bool = False


@dataclass(frozen=True)
class BufferPlace:
    """Where a value lies: a buffer and, in a history, how many steps after its start."""

    buffer: str
    shift: int = 0


@dataclass(frozen=True)
class Term:
    """matrix @ operand (transposed: matrix.T @ operand)."""

    matrix: str
    operand: str
    transposed: bool = False


@dataclass(frozen=True)
class Accumulation:
    """value (+)= the terms. `first`: starts from `biases` (parameter vectors, summed); otherwise
    continues on what stands there."""

    value: str
    terms: tuple[Term, ...]
    biases: tuple[str, ...] = ()
    first: bool = True


@dataclass(frozen=True)
class Panel:
    """Accumulations of one size over the same operands, packed side by side and computed in one
    pass."""

    accumulations: tuple[Accumulation, ...]

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(t.operand for t in self.accumulations[0].terms)


@dataclass(frozen=True)
class Stage:
    """Panels, then pointwise nodes block by block. `stores`: value -> places; `sums`: parameter ->
    value, summed over rows; `rowwise`: nodes that need whole rows at once, such as a sum along the
    features (a stage that has nothing else).

    pairs: rows and columns of the matrices that the stage's nodes are, element by element; then
    `rowwise` are sums of such matrices, or `sums` are, and a matrix that is not stored is never
    whole in memory."""

    size: str
    panels: tuple[Panel, ...] = ()
    nodes: tuple[str, ...] = ()
    stores: tuple[tuple[str, BufferPlace], ...] = ()
    sums: tuple[tuple[str, str], ...] = ()
    rowwise: tuple[str, ...] = ()
    pairs: Shape | None = None

    def reads(self, graph: Graph) -> list[str]:
        """The values that the stage's nodes, stores and sums take and that it does not compute, in
        the graph's order. What its panels multiply is not among them."""
        made = {*self.nodes, *self.rowwise}
        taken = {o for n in made for o in operands(graph.nodes[n])}
        taken |= {value for value, _ in self.stores} | {value for _, value in self.sums}
        return [n for n in graph.nodes if n in taken and n not in made]


@dataclass(frozen=True)
class OuterSum:
    """parameter += sum over rows of left right^T."""

    parameter: str
    left: str
    right: str


@dataclass(frozen=True)
class RowSum:
    """gradient of a row += sum over its steps of left value^T; without left, of value. kept: which
    factor's zeros leave the other out."""

    gradient: str
    value: str
    left: str | None = None
    kept: Side | None = None


@dataclass(frozen=True)
class CarriedState:
    """A state of the cell, or of an adjoint the gradient that flows to it, and its history."""

    name: str
    buffer: str
    size: str


@dataclass(frozen=True)
class Program(InNotebooks):
    """A Graph with the order in which it is executed and the buffers that it is executed in.

    inputs: source -> buffer, filled at the start of a chunk; outputs: name -> value, taken at its
    end; places: value -> where it lies. Parameters that are read as vectors or numbers are read
    where they lie. row_sums: what the gradients of each row are, in a program that sums nothing
    itself (by_row.py): its output "row VALUE" is what they name VALUE."""

    name: str
    graph: Graph
    reverse: bool
    buffers: Mapping[str, Buffer]
    places: Mapping[str, BufferPlace]
    inputs: Mapping[str, str]
    states: tuple[CarriedState, ...]
    outputs: Mapping[str, str]
    before: tuple[Stage, ...]
    loop: tuple[Stage, ...]
    after: tuple[Stage, ...]
    outers: tuple[OuterSum, ...]
    row_sums: tuple[RowSum, ...] = ()

    def stages(self) -> Iterator[Stage]:
        yield from self.before
        yield from self.loop
        yield from self.after

    def is_read(self, name: str, *kinds: str) -> bool:
        """Whether a value comes from outside the step, and is of one of these kinds."""
        node = self.graph.nodes[name]
        return isinstance(node, Read) and node.kind in kinds

    def source_of(self, name: str) -> str:
        """What a value that comes from outside is outside: of a parameter its name, or that of a
        piece of one."""
        node = self.graph.nodes[name]
        assert isinstance(node, Read)
        return node.source

    @once_only
    def columned(self) -> frozenset[str]:
        """The values that there are of for each column."""
        return self.graph.columned()

    def is_columned(self, place: BufferPlace) -> bool:
        return self.buffers[place.buffer].columned

    def is_columned_sum(self, outer: OuterSum) -> bool:
        return outer.left in self.columned or outer.right in self.columned

    def has_matrices_by_column(self, panel: Panel) -> bool:
        """Whether a panel's matrices are others for each column; else columns are as many rows."""
        return any(t.matrix in self.columned for a in panel.accumulations for t in a.terms)

    def after_step(self, place: BufferPlace) -> bool:
        """Whether a place holds what a history has after each step, as time goes; else a history's
        place holds what it has before the step. A history that a reversed program writes is filled
        from its end."""
        buffer = self.buffers[place.buffer]
        backwards = self.reverse and not buffer.taped
        return buffer.kind == "history" and (place.shift == 1) != backwards

    @once_only
    def left(self) -> Mapping[str, Side]:
        """The products and outer products of an adjoint, and which factor's zeros leave the other
        out (left_out.py)."""
        return left_out(self.graph) if self.reverse else {}

    def kept(self, outer: OuterSum) -> Side | None:
        """Which factor's zeros leave the other out of a sum."""
        nodes = self.graph.nodes
        return next((side for n, side in self.left.items() if nodes[n] == Outer(outer.left, outer.right)), None)

    def is_kept(self, panel: Panel) -> bool:
        """Whether zeros of a panel's operands leave weights out."""
        left = [n for n in (self.graph.nodes[name] for name in self.left) if isinstance(n, Product)]
        return any(
            n.matrix == t.matrix and n.vector == t.operand for n in left for a in panel.accumulations for t in a.terms
        )

    def sizes(self) -> tuple[str, ...]:
        """The size expressions of all buffers, in order of appearance."""
        return tuple(dict.fromkeys([b.size for b in self.buffers.values()] + [s.size for s in self.stages()]))

    def recurrent_stages(self) -> int:
        """How many products with parameters wait for one another in a step, the longest chain of
        them: 0 for a recurrence that is elementwise."""
        looped = {
            (t.matrix, t.operand, t.transposed)
            for stage in self.loop
            for panel in stage.panels
            for a in panel.accumulations
            for t in a.terms
        }
        depth: dict[str, int] = {}
        for name, node in self.graph.nodes.items():
            own = isinstance(node, Product) and (node.matrix, node.vector, node.transposed) in looped
            depth[name] = max((depth[o] for o in operands(node)), default=0) + own
        return max(depth.values(), default=0)

    def summed(self) -> tuple[str, ...]:
        """The parameters whose gradients the program makes."""
        found = [o.parameter for o in self.outers] + [p for stage in self.after for p, _ in stage.sums]
        return tuple(dict.fromkeys(found))

    def verify(self) -> None:
        """Raises AssertionError where a stage reads what is not there yet."""
        available = {n for n, node in self.graph.nodes.items() if isinstance(node, Read)}
        for stage in self.stages():
            for panel in stage.panels:
                for acc in panel.accumulations:
                    assert set(panel.operands) <= available, (
                        f"{self.name}: {acc.value} reads {panel.operands} too early"
                    )
                    assert tuple(t.operand for t in acc.terms) == panel.operands, (
                        f"{self.name}: {acc.value} is in the wrong panel"
                    )
                    assert acc.first or acc.value in available or acc.value in self.places, (
                        f"{self.name}: {acc.value} has no start"
                    )
                available.update(acc.value for acc in panel.accumulations)
            for name in (*stage.nodes, *stage.rowwise):
                missing = set(operands(self.graph.nodes[name])) - available
                assert not missing, f"{self.name}: {name} reads {missing} too early"
                available.add(name)
            for value, place in stage.stores:
                assert value in available and place.buffer in self.buffers, f"{self.name}: {value} can't be stored"
        for outer in self.outers:
            assert outer.left in self.places and outer.right in self.places, f"{self.name}: {outer} has no operands"
            read = {self.places[outer.left].buffer, self.places[outer.right].buffer}
            assert not (self.reverse and read & {s.buffer for s in self.states}), (
                f"{self.name}: {outer} reads a state where rows that ended hold gradients"
            )

    def to_text(self) -> str:
        """The program as a listing, phase by phase."""
        order = "from the last step to the first" if self.reverse else "from the first step to the last"
        lines = [f"program {self.name}, {order}"]
        lines += [
            f"  buffer {b.name:<12} [{b.size}] {b.kind}{' saved' * b.saved}{' from the tape' * b.taped}"
            f"{' for each column' * b.columned}"
            for b in self.buffers.values()
        ]
        for title, stages in (
            ("before the loop, over the rows of a chunk", self.before),
            ("loop, at every step", self.loop),
            ("after the loop, over the rows of a chunk", self.after),
        ):
            lines.append(f"  {title}:")
            for number, stage in enumerate(stages):
                pairs = f", pairs {' x '.join(stage.pairs)}" if stage.pairs else ""
                lines.append(f"    stage {number} of size {stage.size}{pairs}")
                lines += [f"      {line}" for line in self._stage_lines(stage)]
        lines += [f"    d {o.parameter} += {o.left} {o.right}^T" for o in self.outers]
        for s in self.row_sums:
            lines.append(f"    d {s.gradient} of a row += {s.value if s.left is None else f'{s.left} {s.value}^T'}")
        return "\n".join(lines)

    def _stage_lines(self, stage: Stage) -> Iterator[str]:
        for panel in stage.panels:
            by_column = ", matrices for each column" * self.has_matrices_by_column(panel)
            yield f"panel over {', '.join(dict.fromkeys(panel.operands))}{by_column}"
            for acc in panel.accumulations:
                terms = [f"{t.matrix}{'.T' * t.transposed} @ {t.operand}" for t in acc.terms]
                yield f"  {acc.value} {'=' if acc.first else '+='} {' + '.join([*terms, *acc.biases])}"
        for name in (*stage.nodes, *stage.rowwise):
            yield f"{name} = {node_text(self.graph.nodes[name])}"
        for value, place in stage.stores:
            yield f"store {value} in {place.buffer}{'[next]' if place.shift else ''}"
        for parameter, value in stage.sums:
            yield f"d {parameter} += {value}"
