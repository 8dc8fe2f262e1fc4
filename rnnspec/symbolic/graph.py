"""Graph: the mathematics of one time step, as named values that are each made by one node.

The forward step, its adjoint and its tangent are all Graphs, so printing, checking, scheduling and
emitting serve every one of them. Shapes are tuples of size expressions; a value has no batch axis
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rnnspec.language.sizes import canonical_size
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Shape
from rnnspec.language.views import InNotebooks
from rnnspec.symbolic.expressions import names, rename
from rnnspec.symbolic.operations import Value
from rnnspec.symbolic.writing import write


@dataclass(frozen=True)
class Read:
    """What comes from outside the step. `state` is a state's value before the step; `history`, in
    an adjoint, the value that a forward state had before the step; `tape` a value that the forward
    program saved; `step` the step's number; `size` the number that the size expression `source`
    stands for.

    columned: whether there are several of it at once, one for each column: the directions of a
    tangent. A value has no axis of columns here, as it has none of the batch."""

    kind: Literal["input", "state", "parameter", "history", "tape", "step", "size"]
    source: str
    columned: bool = False


@dataclass(frozen=True)
class Pointwise:
    """An expression over nodes, element by element; scalars broadcast."""

    expr: Value


@dataclass(frozen=True)
class Product:
    """matrix @ vector, or matrix.T @ vector. `vector` may be a matrix too: then so is the
    product."""

    matrix: str
    vector: str
    transposed: bool = False


@dataclass(frozen=True)
class Reduce:
    """Sum or largest value over all elements of a vector or matrix."""

    op: Literal["sum", "max"]
    arg: str


@dataclass(frozen=True)
class CumSum:
    """Running sum along a vector; `reverse` runs from the end, which is the transposed map."""

    arg: str
    reverse: bool = False


@dataclass(frozen=True)
class Concat:
    args: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """`length` elements of a vector from `first` on (both size expressions)."""

    arg: str
    first: str
    length: str


@dataclass(frozen=True)
class Outer:
    """left right^T, a matrix."""

    left: str
    right: str


@dataclass(frozen=True)
class Transpose:
    """A matrix with its axes exchanged."""

    arg: str


@dataclass(frozen=True)
class Diag:
    """The square matrix with a vector on its diagonal. The identity is that of a vector of ones."""

    arg: str


Node = Read | Pointwise | Product | Reduce | CumSum | Concat | Part | Outer | Transpose | Diag


def operands(node: Node) -> tuple[str, ...]:
    """The nodes that a node reads."""
    match node:
        case Read():
            return ()
        case Pointwise(expr):
            return names(expr)
        case Product(matrix, vector):
            return (matrix, vector)
        case Reduce(_, arg) | CumSum(arg) | Part(arg) | Transpose(arg) | Diag(arg):
            return (arg,)
        case Concat(args):
            return args
        case Outer(left, right):
            return (left, right)
    raise TypeError(f"not a node: {node!r}")


def renamed(node: Node, new: Mapping[str, str]) -> Node:
    """A node that does the same with other operands. new: of those that change, old name -> new
    name."""

    def to(name: str) -> str:
        return new.get(name, name)

    match node:
        case Read():
            return node
        case Pointwise(expr):
            return Pointwise(rename(expr, new))
        case Product(matrix, vector, transposed):
            return Product(to(matrix), to(vector), transposed)
        case Reduce(op, arg):
            return Reduce(op, to(arg))
        case CumSum(arg, reverse):
            return CumSum(to(arg), reverse)
        case Part(arg, first, length):
            return Part(to(arg), first, length)
        case Concat(args):
            return Concat(tuple(to(a) for a in args))
        case Outer(left, right):
            return Outer(to(left), to(right))
        case Transpose(arg):
            return Transpose(to(arg))
        case Diag(arg):
            return Diag(to(arg))
    raise TypeError(f"not a node: {node!r}")


@dataclass(frozen=True)
class Graph(InNotebooks):
    """One step. `nodes` stand in an order in which each reads only what is above it.

    states: state name -> the node that is its value after the step. outputs: name -> node, emitted
    at every step. sums: name -> nodes whose values are summed, all of them, over batch and time
    (gradients of parameters). pieces: the parameters among those read and summed that are pieces of
    another: their gradients are added into its gradient.
    """

    name: str
    nodes: Mapping[str, Node]
    shapes: Mapping[str, Shape]
    states: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pieces: Mapping[str, Piece] = field(default_factory=dict)

    def reads(self, kind: str) -> dict[str, str]:
        """source -> node, of all reads of one kind."""
        return {n.source: name for name, n in self.nodes.items() if isinstance(n, Read) and n.kind == kind}

    def results(self) -> Iterator[str]:
        """The nodes whose values leave the step."""
        yield from self.states.values()
        yield from self.outputs.values()
        for group in self.sums.values():
            yield from group

    def uses(self) -> dict[str, list[str]]:
        """node -> the nodes that read it, in order."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            for operand in operands(node):
                found[operand].append(name)
        return found

    def columned(self) -> frozenset[str]:
        """The nodes that have a value for each column: those that depend on a read which has."""
        found: set[str] = set()
        for name, node in self.nodes.items():
            if node.columned if isinstance(node, Read) else any(o in found for o in operands(node)):
                found.add(name)
        return frozenset(found)

    def verify(self) -> None:
        """Raises AssertionError where the graph is malformed: order, shapes, results."""
        seen: set[str] = set()
        for name, node in self.nodes.items():
            for operand in operands(node):
                assert operand in seen, f"{self.name}: {name} reads {operand!r}, which is not above it"
            assert name in self.shapes, f"{self.name}: {name} has no shape"
            _verify_shape(self, name, node)
            seen.add(name)
        for result in self.results():
            assert result in seen, f"{self.name}: result {result!r} is no node"
        for state, node_name in self.states.items():
            read = self.reads("state").get(state)
            assert read is None or self.shapes[read] == self.shapes[node_name], (
                f"{self.name}: state {state} changes its shape"
            )

    def to_text(self) -> str:
        """The graph as a listing: one node a line, then the results."""
        lines = [f"graph {self.name}"]
        lines += [f"  piece {name} = {piece.to_text()}" for name, piece in self.pieces.items()]
        for name, node in self.nodes.items():
            shape = "[" + ", ".join(self.shapes[name]) + "]"
            lines.append(f"  {name:<12} {shape:<10} = {node_text(node)}")
        lines += [f"  state {name} = {node}" for name, node in self.states.items()]
        lines += [f"  output {name} = {node}" for name, node in self.outputs.items()]
        lines += [f"  sum over batch and time {name} = {' + '.join(group)}" for name, group in self.sums.items()]
        return "\n".join(lines)


def _verify_shape(graph: Graph, name: str, node: Node) -> None:
    shapes = graph.shapes
    own = shapes[name]
    match node:
        case Pointwise():
            for operand in operands(node):
                assert shapes[operand] in ((), own), f"{graph.name}: {name} {own} reads {operand} {shapes[operand]}"
        case Product(matrix, vector, transposed):
            out, inner = reversed(shapes[matrix]) if transposed else shapes[matrix]
            right = shapes[vector]
            assert own == (out, *right[1:]) and right[:1] == (inner,) and len(right) < 3, (
                f"{graph.name}: shapes of {name} = {node_text(node)}"
            )
        case Reduce(_, arg):
            assert own == () and len(shapes[arg]) > 0, f"{graph.name}: shapes of {name}"
        case CumSum(arg):
            assert own == shapes[arg] and len(own) == 1, f"{graph.name}: shapes of {name}"
        case Outer(left, right):
            assert own == shapes[left] + shapes[right], f"{graph.name}: shapes of {name}"
        case Part(arg, _, length):
            assert own == (length,) and len(shapes[arg]) == 1, f"{graph.name}: shapes of {name}"
        case Concat(args):
            assert len(own) == 1 and all(len(shapes[a]) == 1 for a in args), f"{graph.name}: shapes of {name}"
            assert own[0] == canonical_size(" + ".join(shapes[a][0] for a in args)), f"{graph.name}: sizes of {name}"
        case Transpose(arg):
            assert len(own) == 2 and own == shapes[arg][::-1], f"{graph.name}: shapes of {name}"
        case Diag(arg):
            assert own == 2 * shapes[arg] and len(own) == 2, f"{graph.name}: shapes of {name}"
        case Read():
            pass
        case _:
            raise TypeError(f"not a node: {node!r}")


def node_text(node: Node) -> str:
    """One node as the language would write it."""
    match node:
        case Read(kind, source):
            return {
                "input": f"{source}[t]",
                "state": f"{source}[t-1]",
                "history": f"{source}[t-1]",
                "parameter": source,
                "tape": f"{source}[t], saved",
                "step": "t",
                "size": source,
            }[kind]
        case Pointwise(expr):
            return write(expr)
        case Product(matrix, vector, transposed):
            return f"{matrix}{'.T' if transposed else ''} @ {vector}"
        case Reduce(op, arg):
            return f"{op}({arg})"
        case CumSum(arg, reverse):
            return f"cumsum({arg}{', from the end' if reverse else ''})"
        case Concat(args):
            return f"concat({', '.join(args)})"
        case Part(arg, first, length):
            return f"part({arg}, {first}, {length})"
        case Outer(left, right):
            return f"outer({left}, {right})"
        case Transpose(arg):
            return f"{arg}.T"
        case Diag(arg):
            return f"diag({arg})"
    raise TypeError(f"not a node: {node!r}")


def size_of(graph: Graph, name: str) -> str:
    """The size of a value's rows; a single number is a row of size 1, a matrix lies row after
    row."""
    return flat_size(graph.shapes[name])


def flat_size(shape: Shape) -> str:
    """How many numbers a shape has, as a size expression."""
    return canonical_size(" * ".join(f"({s})" for s in shape)) if len(shape) > 1 else shape[0] if shape else "1"
