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

from collections.abc import Collection
from dataclasses import replace

import sympy

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
    work = _Tangent(forward)
    active = varying(forward, constants, still)
    for name, node in forward.nodes.items():
        moves = isinstance(node, Read) or any(o in work.dots for o in operands(node))
        if name in active and moves and (direction := work.direction(name, node)):
            work.dots[name] = direction
    states = dict(forward.states) | {tangent_of(s): work.dot(n) for s, n in forward.states.items()}
    outputs = dict(forward.outputs) | {tangent_of(o): work.dot(n) for o, n in forward.outputs.items()}
    pieces = {
        tangent_of(name): replace(piece, parameter=tangent_of(piece.parameter))
        for name, piece in forward.pieces.items()
    }
    graph = tidy(
        Graph(
            f"{forward.name} tangent",
            work.draft.nodes,
            work.draft.shapes,
            states,
            outputs,
            {},
            {**forward.pieces, **pieces},
        )
    )
    graph = tidy(joined_sums(graph, graph.columned()))
    graph.verify()
    return graph


class _Tangent:
    """A tangent while it is made; `dots`: forward node -> the node of its direction, of those that
    have one that is not 0."""

    def __init__(self, forward: Graph):
        self.draft = Draft.of(forward)
        self.dots: dict[str, str] = {}

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
                terms = [backward_term(symbol(dots[a]), expr, partial(expr, name, a)) for a in moving]
                return self.total(name, terms) if total(*terms) != 0 else None
            case Product(matrix, vector, transposed):
                pairs = [(matrix, dots.get(vector)), (dots.get(matrix), vector)]
                parts = [
                    self.draft.new(f"{name}_part", Product(a, b, transposed), shapes[name]) for a, b in pairs if a and b
                ]
                return self.total(name, [symbol(p) for p in parts])
            case Outer(left, right):
                pairs = [(left, dots.get(right)), (dots.get(left), right)]
                parts = [self.draft.new(f"{name}_part", Outer(a, b), shapes[name]) for a, b in pairs if a and b]
                return self.total(name, [symbol(p) for p in parts])
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
