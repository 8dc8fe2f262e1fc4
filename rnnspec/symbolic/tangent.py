"""Graph -> Graph: forward mode. The directional derivative of a step, with the step itself beside
it.

Its states, inputs and parameters are the forward's and their directions, named `tangent of ...`: d
(W @ x) is W @ dx + dW @ x. So a tangent is a forward graph with more states, inputs and parameters,
and is scheduled, emitted and run like one. Directions are columned: a kernel takes any number of
them at once, each a column, beside one run of the step itself. Here, and in the reference, a graph
is that of a single column.

At a kink, and at 0 * infinity, a direction is what the first derivative is (derive.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import sympy

from rnnspec.language.slices import Piece
from rnnspec.language.spec import tangent_of
from rnnspec.symbolic.derive import backward_term, partial, varying
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
    operands,
)
from rnnspec.symbolic.operations import Value, divide, equal, select, symbol, total
from rnnspec.symbolic.simplify import joined_sums, tidy


def tangent(forward: Graph, constants: Collection[str] = (), still: Collection[str] = ()) -> Graph:
    """The step and its derivative along the directions of everything that can vary.

    constants: inputs and parameters that have no direction. still: the kinds of reads, "input" and
    "parameter", none of which has one.
    """
    work = Moving(forward)
    work.move(forward.nodes, varying(forward, constants, still))
    states, outputs = work.both(forward.states), work.both(forward.outputs)
    return settled(
        Graph(
            f"{forward.name} tangent",
            work.draft.nodes,
            work.draft.shapes,
            states,
            outputs,
            {},
            with_directions(forward.pieces),
        )
    )


def settled(graph: Graph, but: Collection[str] = ()) -> Graph:
    """A tangent without what is not needed, sums of sums of directions made one. but: the nodes
    that stay as they are."""
    graph = tidy(graph)
    graph = tidy(joined_sums(graph, graph.columned().difference(but)))
    graph.verify()
    return graph


def with_directions(pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    """Pieces of parameters, and those of their directions."""
    moving = {tangent_of(name): replace(piece, parameter=tangent_of(piece.parameter)) for name, piece in pieces.items()}
    return {**pieces, **moving}


class Moving:
    """A graph to which the directions of its nodes are added; `dots`: node -> the node of its
    direction, of those that have one that is not 0. linear: the nodes in which all is linear, those
    that flow in an adjoint."""

    def __init__(self, graph: Graph, linear: Collection[str] = ()):
        self.draft = Draft.of(graph)
        self.dots: dict[str, str] = {}
        self.linear = linear

    def move(self, nodes: Mapping[str, Node], active: Collection[str]) -> None:
        """Adds the directions of nodes, of which `active` can vary."""
        for name, node in nodes.items():
            moves = isinstance(node, Read) or any(o in self.dots for o in operands(node))
            if name in active and moves and (direction := self.direction(name, node)):
                self.dots[name] = direction

    def both(self, results: Mapping[str, str]) -> dict[str, str]:
        """Results by name, and their directions."""
        return dict(results) | {tangent_of(s): self.dot(n) for s, n in results.items()}

    def total(self, name: str, terms: list[Value]) -> str:
        return self.draft.new(f"dot_{name}", Pointwise(total(*terms)), self.draft.shapes[name])

    def dot(self, name: str) -> str:
        """The direction of a node; zero for what can't vary."""
        return self.dots.get(name) or self.draft.new(f"dot_{name}", Pointwise(sympy.S.Zero), self.draft.shapes[name])

    def direction(self, name: str, node: Node) -> str | None:
        """The node with a node's direction; None where its slopes are all 0."""
        shapes, dots = self.draft.shapes, self.dots
        match node:
            case Read(kind, source):
                return self.draft.new(f"dot_{name}", Read(kind, tangent_of(source), True), shapes[name])
            case Pointwise(expr):
                moving = [a for a in names(expr) if a in dots]
                terms = [self.term(name, expr, a) for a in moving]
                return self.total(name, terms) if total(*terms) != 0 else None
            case Product() | Outer():
                return self.total(name, [symbol(p) for p in self.parts(name, node)])
            case Reduce("max", arg):
                return self.largest(name, arg)
            case Reduce(op, arg):
                return self.draft.new(f"dot_{name}", Reduce(op, dots[arg]), shapes[name])
            case CumSum(arg, reverse):
                return self.draft.new(f"dot_{name}", CumSum(dots[arg], reverse), shapes[name])
            case Part(arg, first, length):
                return self.draft.new(f"dot_{name}", Part(dots[arg], first, length), shapes[name])
            case Transpose(arg) | Diag(arg):
                return self.draft.new(f"dot_{name}", type(node)(dots[arg]), shapes[name])
            case Concat(args):
                return self.draft.new(f"dot_{name}", Concat(tuple(self.dot(a) for a in args)), shapes[name])
        raise TypeError(f"not a node: {node!r}")

    def parts(self, name: str, node: Product | Outer) -> tuple[str, ...]:
        """The nodes whose sum is the direction of a product: one for each factor that has one."""
        first, second = operands(node)
        pairs = [(first, self.dots.get(second)), (self.dots.get(first), second)]
        made = [
            replace(node, matrix=a, vector=b) if isinstance(node, Product) else Outer(a, b) for a, b in pairs if a and b
        ]
        return tuple(self.draft.new(f"{name}_part", part, self.draft.shapes[name]) for part in made)

    def term(self, name: str, expr: Value, arg: str) -> Value:
        """What the direction of an operand adds to that of a node."""
        linear = arg in self.linear
        slope = partial(expr, name, arg, linear=linear)
        return backward_term(symbol(self.dots[arg]), expr, slope, left_out=linear and expr.has(select))

    def largest(self, name: str, arg: str) -> str:
        """The direction of max(arg): the mean of the directions of those that attain it."""
        hit = self.draft.new(
            f"{name}_hit",
            Pointwise(select(equal(symbol(arg), symbol(name)), sympy.S.One, sympy.S.Zero)),
            self.draft.shapes[arg],
        )
        count = self.draft.new(f"{name}_count", Reduce("sum", hit), ())
        each = self.draft.new(
            f"{name}_each",
            Pointwise(select(equal(symbol(arg), symbol(name)), symbol(self.dots[arg]), sympy.S.Zero)),
            self.draft.shapes[arg],
        )
        summed = self.draft.new(f"{name}_total", Reduce("sum", each), ())
        return self.total(name, [divide(symbol(summed), symbol(count))])
