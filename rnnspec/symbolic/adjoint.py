"""Graph -> Graph: reverse mode.

The adjoint of a step takes what the step took, the gradients of its outputs and, as its own states,
the gradients of the forward states after the step; it gives the gradients of the inputs, of the
states before the step, and of the parameters (summed over batch and time). It is run from the last
step to the first. It contains the forward nodes it needs: which of them are saved and which are
computed again is the scheduler's choice, not a matter of mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from rnnspec.language.sizes import canonical_size, remainder
from rnnspec.language.spec import Shape
from rnnspec.symbolic.derive import backward_term, partial, varying, whole
from rnnspec.symbolic.draft import Draft
from rnnspec.symbolic.expressions import names
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
)
from rnnspec.symbolic.operations import Value, divide, equal, multiply, select, symbol, total
from rnnspec.symbolic.simplify import tidy


def gradient_of(output: str) -> str:
    """The name of the adjoint's input that carries the gradient of a forward output."""
    return f"gradient of {output}"


def adjoint(forward: Graph, constants: tuple[str, ...] = ()) -> Graph:
    """The adjoint of one step. Gradient names: `d_` and the forward name; states and sums keep the
    forward names. constants: inputs and parameters that get no gradient."""
    active = varying(forward, constants)
    work, states = _reversed(forward, active)
    results = {source: work.total(node) for source, node in forward.reads("state").items()}
    inputs = {s: work.total(n) for s, n in forward.reads("input").items() if s not in constants}
    sums = {
        source: work.terms(node)
        for source, node in forward.reads("parameter").items()
        if whole(forward, source) not in constants
    }
    new_states = {s: results.get(s) or work.zero(forward.shapes[states[s]], s) for s in states}
    graph = Graph(
        f"{forward.name} adjoint", work.draft.nodes, work.draft.shapes, new_states, inputs, sums, forward.pieces
    )
    graph = tidy(graph)
    graph.verify()
    return graph


def _reversed(forward: Graph, active: set[str]) -> tuple[Reverse, dict[str, str]]:
    """All nodes visited, and the states' next values. What a select may leave out of a step's first
    states, it leaves out of the states after the step before."""
    left: set[str] = set()
    while True:
        work = Reverse(forward, left)
        states = work.seed()
        for name in reversed(list(forward.nodes)):
            if name in active:
                work.backward(name, active)
        found = {forward.states[s] for s, read in forward.reads("state").items() if read in work.selected}
        if found <= left:
            return work, states
        left |= found


@dataclass(frozen=True)
class Cut:
    """`length` elements of a value from `first` on (size expressions), and the node with their
    adjoint."""

    first: str
    length: str
    adjoint: str

    @property
    def end(self) -> str:
        return canonical_size(f"{self.first} + {self.length}")


def in_rows(cuts: list[Cut]) -> list[list[Cut]]:
    """Cuts in rows, in each of which one begins where the one before ends: gates that are cut from
    one vector are one row, and need no zeros between them."""
    left, rows = list(cuts), list[list[Cut]]()
    while left:
        ends = {cut.end for cut in left}
        cut: Cut | None = next((c for c in left if c.first not in ends or c.length == "0"), left[0])
        rows.append([])
        while cut is not None:
            left.remove(cut)
            rows[-1].append(cut)
            end = cut.end
            cut = next((c for c in left if c.first == end), None)
    return rows


@dataclass
class Reverse:
    """Adjoint contributions while the forward nodes are visited from last to first."""

    forward: Graph
    left: set[str]  # values after the step whose adjoint the step after it may leave out
    draft: Draft = field(init=False)
    flowing: dict[str, list[Value]] = field(default_factory=dict)  # forward node -> terms of its adjoint
    parts: dict[str, list[Cut]] = field(default_factory=dict)  # forward node -> adjoints of what is cut from it
    outers: dict[str, list[str]] = field(default_factory=dict)  # parameter -> outer products whose sum is its adjoint
    selected: set[str] = field(default_factory=set)  # forward nodes whose adjoint a select may make exactly 0

    def __post_init__(self) -> None:
        self.draft = Draft.of(self.forward)
        self.selected.update(self.left)
        for name, node in self.forward.nodes.items():
            if isinstance(node, Read) and node.kind == "state":
                self.draft.nodes[name] = Read("history", node.source)

    def seed(self) -> dict[str, str]:
        """Reads of what comes from later steps and from the outputs; state -> the node of its value
        after the step."""
        for state, node in self.forward.states.items():
            read = self.draft.new(f"d_{state}_next", Read("state", state), self.forward.shapes[node])
            self.flow(node, symbol(read))
        for output, node in self.forward.outputs.items():
            read = self.draft.new(f"d_{output}_out", Read("input", gradient_of(output)), self.forward.shapes[node])
            self.flow(node, symbol(read))
        return dict(self.forward.states)

    def flow(self, node: str, term: Value) -> None:
        if term != 0:
            self.flowing.setdefault(node, []).append(term)

    def zero(self, shape: Shape, state: str) -> str:
        return self.draft.new(f"d_{state}", Pointwise(sympy.S.Zero), shape)

    def flowing_to(self, name: str) -> list[Value]:
        """The terms of a forward node's adjoint; what was cut from it side by side is one."""
        for cuts in in_rows(self.parts.pop(name, [])):
            self.flow(name, symbol(self.joined(name, cuts)))
        return self.flowing.get(name, [])

    def joined(self, name: str, cuts: list[Cut]) -> str:
        """The adjoint of a node by what was cut from it, piece behind piece; zeros around."""
        shape, own = self.forward.shapes[name], cuts[0].adjoint
        sizes = {"before": cuts[0].first, "behind": remainder(shape[0], cuts[-1].end)}
        zeros = {
            side: self.draft.new(f"{own}_{side}", Pointwise(sympy.S.Zero), (size,))
            for side, size in sizes.items()
            if size != "0"
        }
        pieces = (zeros.get("before"), *(cut.adjoint for cut in cuts), zeros.get("behind"))
        return self.draft.new(f"d_{name}_part", Concat(tuple(p for p in pieces if p)), shape)

    def total(self, name: str) -> str:
        """The node that holds the adjoint of a forward node."""
        return self.draft.new(f"d_{name}", Pointwise(total(*self.flowing_to(name))), self.forward.shapes[name])

    def terms(self, name: str) -> tuple[str, ...]:
        """The nodes whose sum is the adjoint of a parameter."""
        whole = (self.total(name),) if self.flowing_to(name) else ()
        return whole + tuple(self.outers.get(name, ()))

    def backward(self, name: str, active: set[str]) -> None:
        node = self.forward.nodes[name]
        if isinstance(node, Read) or not self.flowing_to(name):
            return
        own = self.total(name)
        match node:
            case Pointwise(expr):
                self.pointwise(name, expr, own, active)
            case Product():
                self.product(node, own, active)
            case Outer(left, right):
                if left in active:
                    self.flow(
                        left, symbol(self.draft.new(f"{own}_{right}", Product(own, right), self.forward.shapes[left]))
                    )
                if right in active:
                    self.flow(
                        right,
                        symbol(self.draft.new(f"{own}_{left}", Product(own, left, True), self.forward.shapes[right])),
                    )
            case _:
                self.along_features(name, node, own)
        if name in self.selected:
            self.selected.update(self._readers_below(node))

    @staticmethod
    def _readers_below(node: Node) -> tuple[str, ...]:
        match node:
            case Product(first, second) | Outer(first, second):
                return (first, second)
            case Reduce(_, arg) | CumSum(arg) | Part(arg) | Transpose(arg) | Diag(arg):
                return (arg,)
            case Concat(args):
                return args
        return ()

    def product(self, node: Product, own: str, active: set[str]) -> None:
        matrix, vector, transposed, shapes = node.matrix, node.vector, node.transposed, self.forward.shapes
        if vector in active:
            self.flow(
                vector, symbol(self.draft.new(f"{matrix}_{own}", Product(matrix, own, not transposed), shapes[vector]))
            )
        if matrix not in active:
            return
        pair = (vector, own) if transposed else (own, vector)
        if len(shapes[vector]) == 2:
            other = self.draft.new(f"{pair[1]}_T", Transpose(pair[1]), self.draft.shapes[pair[1]][::-1])
            self.flow(matrix, symbol(self.draft.new(f"d_{matrix}_part", Product(pair[0], other), shapes[matrix])))
            return
        read = self.forward.nodes[matrix]
        if isinstance(read, Read) and read.kind == "parameter":
            self.outers.setdefault(matrix, []).append(self.draft.new(f"d_{matrix}", Outer(*pair), shapes[matrix]))
        else:
            self.flow(matrix, symbol(self.draft.new(f"d_{matrix}_part", Outer(*pair), shapes[matrix])))

    def pointwise(self, name: str, expr: Value, own: str, active: set[str]) -> None:
        for arg in names(expr):
            if arg not in active:
                continue
            derivative = partial(expr, name, arg)
            if derivative == 0:
                continue
            term = backward_term(symbol(own), expr, derivative, left_out=name in self.selected)
            if derivative.has(select) or name in self.selected:
                self.selected.add(arg)
            if self.forward.shapes[arg] == () and self.forward.shapes[name] != ():
                spread = self.draft.new(f"d_{arg}_each", Pointwise(term), self.forward.shapes[name])
                term = symbol(self.draft.new(f"d_{arg}_part", Reduce("sum", spread), ()))
            self.flow(arg, term)

    def along_features(self, name: str, node: Node, own: str) -> None:
        shapes = self.forward.shapes
        match node:
            case Reduce("sum", arg):
                self.flow(arg, symbol(own))
            case Reduce("max", arg):  # a tie shares the gradient evenly, as torch.amax does
                hit = self.draft.new(
                    f"{name}_hit",
                    Pointwise(select(equal(symbol(arg), symbol(name)), sympy.S.One, sympy.S.Zero)),
                    shapes[arg],
                )
                count = self.draft.new(f"{name}_count", Reduce("sum", hit), ())
                share = divide(multiply(symbol(hit), symbol(own)), symbol(count))
                zero = name in self.selected  # then count may be one of no numbers
                self.flow(arg, select(equal(symbol(own), 0), sympy.S.Zero, share) if zero else share)
            case CumSum(arg, reverse):
                self.flow(arg, symbol(self.draft.new(f"d_{arg}_part", CumSum(own, not reverse), shapes[arg])))
            case Concat(args):
                first = "0"
                for arg in args:
                    length = shapes[arg][0]
                    self.flow(arg, symbol(self.draft.new(f"d_{arg}_part", Part(own, first, length), shapes[arg])))
                    first = canonical_size(f"{first} + {length}")
            case Part(arg, first, length):
                self.parts.setdefault(arg, []).append(Cut(first, length, own))
            case Transpose(arg):
                self.flow(arg, symbol(self.draft.new(f"d_{arg}_part", Transpose(own), shapes[arg])))
            case Diag(arg):  # the diagonal of a matrix: the sums of its rows, all else masked
                ones = self.draft.new(f"{own}_ones", Pointwise(sympy.S.One), shapes[arg])
                eye = self.draft.new(f"{own}_eye", Diag(ones), 2 * shapes[arg])
                masked = self.draft.new(
                    f"{own}_masked",
                    Pointwise(select(equal(symbol(eye), 0), sympy.S.Zero, symbol(own))),
                    2 * shapes[arg],
                )
                self.flow(arg, symbol(self.draft.new(f"d_{arg}_part", Product(masked, ones), shapes[arg])))
            case _:
                raise TypeError(f"not a node: {node!r}")
