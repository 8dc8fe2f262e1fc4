"""Spec -> Graph: the forward step.

Products become nodes, so does every application of a function (its derivative is written with its
value), and `v[t-1]` of an input or intermediate becomes a state that carries it. `W[k]` is read as
a parameter of its own, which is a piece of W; so are the columns of W that W @ concat(a, b)
multiplies by a and by b, so that they are products of their own. Values computed once per sequence
are nodes like others: that they depend on parameters alone can be seen (`once.py`).
"""

from __future__ import annotations

from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.functions import FEATURES
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.sizes import canonical_size
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref, Unary
from rnnspec.symbolic.expressions import Value, apply, binary, constant, from_tree, names, negate, symbol
from rnnspec.symbolic.features import feature, read_size, scaled
from rnnspec.symbolic.graph import Concat, Diag, Graph, Node, Pointwise, Product, Read, Transpose, fresh
from rnnspec.symbolic.simplify import split_sums, tidy

MAX_PARTS = 64  # of a concatenation, for its product with a matrix to be taken apart


def build(spec: Spec) -> Graph:
    """The Graph of one step of a cell. States of the graph: the spec's, and every input or
    intermediate that is read at t-1."""
    builder = Builder(spec)
    for equation in spec.equations:
        try:
            builder.equation(equation)
        except RnnspecError as error:
            at = equation.at
            raise SpecError(
                Problem(str(error), at.line, at.column, at.file or spec.file, equation.text, at.width)
            ) from error
    states = {name: name for name in [*spec.states, *builder.carried]}
    graph = Graph(
        spec.name, builder.nodes, builder.shapes, states, {name: name for name in spec.outputs}, {}, builder.pieces
    )
    graph = tidy(split_sums(tidy(graph)))
    graph.verify()
    return graph


class Builder:
    """Collects the nodes of one step, in order."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.nodes: dict[str, Node] = {}
        self.shapes: dict[str, Shape] = {}
        self.carried: list[str] = []
        self.pieces: dict[str, Piece] = {}
        self.taken = set(spec.shapes)
        for name, shape in spec.inputs.items():
            self.put(name, Read("input", name), shape)
        for name, shape in spec.parameters.items():
            self.put(name, Read("parameter", name), shape)

    def put(self, name: str, node: Node, shape: Shape) -> Value:
        self.nodes[name], self.shapes[name] = node, shape
        self.taken.add(name)
        return symbol(name)

    def new(self, wanted: str, node: Node, shape: Shape) -> Value:
        return self.put(fresh(wanted, self.taken), node, shape)

    def equation(self, equation: Equation) -> None:
        target = equation.target
        expr, shape = self.value(equation.value, target), self.spec.shapes[target]
        made = str(expr.name) if expr.is_Symbol else ""
        if made and made == next(reversed(self.nodes)) and made not in self.spec.shapes and self.shapes[made] == shape:
            node = self.nodes.pop(made)  # the equation is this very node: it bears the equation's name
            if not isinstance(node, Read):
                self.put(target, node, shape)
                return
            self.nodes[made] = node
        self.put(target, Pointwise(expr), shape)

    def value(self, tree: Expr, target: str) -> Value:
        match tree:
            case Number():
                return from_tree(tree, symbol)
            case Ref(name, None) if tree.index is not None:
                assert isinstance(tree.index, Number)
                return self.piece(f"{name}_{tree.index.value}", Piece(name, int(tree.index.value) - 1))
            case Ref(name, time):
                return self.read(name, time)
            case Unary("T", arg):
                return self.transpose(self.node(arg, target))
            case Unary(op, arg):
                inner = self.value(arg, target)
                return negate(inner) if op == "not" else -inner
            case Binary("@", left, right):
                return self.product(left, right, target)
            case Binary(op, left, right):
                return binary(op, self.value(left, target), self.value(right, target))
            case Call("where", args):
                return apply("where", [self.value(a, target) for a in args])
            case Call(function, args) if function in FEATURES:
                return feature(self, function, args, target)
            case Call(function, args):
                return self.application(function, [self.value(a, target) for a in args], target)
        raise TypeError(f"not an expression: {tree!r}")

    def read(self, name: str, time: int | None) -> Value:
        if name == "t" and time is None:
            return symbol(name) if name in self.nodes else self.put("t", Read("step", "t"), ())
        if time is None and name not in self.spec.shapes:
            return self.size(name)
        if time in (None, 0):
            return symbol(name)
        before = Read("state", name)
        for known, node in self.nodes.items():
            if node == before:
                return symbol(known)
        if name not in self.spec.states:
            self.carried.append(name)
        return self.new(f"{name}_prev", before, self.spec.shapes[name])

    def size(self, text: str) -> Value:
        """The number that a size expression stands for."""
        return read_size(self, text)

    def piece(self, wanted: str, piece: Piece) -> Value:
        known = next((name for name, other in self.pieces.items() if other == piece), None)
        if known is not None:
            return symbol(known)
        name = fresh(wanted, self.taken)
        self.pieces[name] = piece
        return self.put(name, Read("parameter", name), piece.shape(self.spec.parameters[piece.parameter]))

    def node(self, tree: Expr, target: str) -> str:
        """The node that holds the value of a tree, in its own shape: SymPy makes the number 0 of h
        - h, the number q of q + 0 * h."""
        expr, shape = self.value(tree, target), shape_of(tree, self.spec.shapes, self.spec.sizes)
        known = str(expr.name) if expr.is_Symbol else ""
        return (
            known
            if known and self.shapes[known] == shape
            else str(self.new(f"{target}_arg", Pointwise(expr), shape).name)
        )

    def transpose(self, matrix: str) -> Value:
        node = self.nodes[matrix]
        if isinstance(node, Transpose | Diag):
            return symbol(node.arg if isinstance(node, Transpose) else matrix)
        return self.new(f"{matrix}_T", Transpose(matrix), self.shapes[matrix][::-1])

    def product(self, left: Expr, right: Expr, target: str) -> Value:
        a, b = self.node(left, target), self.node(right, target)
        if len(self.shapes[a]) == 2:
            return self.times(a, b)
        return self.times(b, a, transposed=True)

    def times(self, matrix: str, other: str, transposed: bool = False) -> Value:
        """matrix @ other, or matrix.T @ other, in its cheapest form."""
        node, right, vector = self.nodes[matrix], self.nodes[other], len(self.shapes[other]) == 1
        match node:
            case Transpose(arg):
                return self.times(arg, other, not transposed)
            case Diag(arg):
                return symbol(arg) * symbol(other) if vector else scaled(self, other, arg, rows=True)
            case Product(first, second, turned) if (
                vector and matrix not in self.spec.shapes
            ):  # (A @ B) @ v is A @ (B @ v)
                pair = ((first, not turned), (second, True)) if transposed else ((second, False), (first, turned))
                for factor, flag in pair:
                    other = str(self.times(factor, other, flag).name)
                return symbol(other)
            case Read("parameter") if (
                isinstance(right, Concat) and vector and len(parts := self.flat(right)) <= MAX_PARTS
            ):
                return self.split(matrix, parts, transposed)
        if isinstance(right, Diag) and not transposed:
            return scaled(self, matrix, right.arg, rows=False)
        out = self.shapes[matrix][1 if transposed else 0]
        return self.new(f"{matrix}_{other}", Product(matrix, other, transposed), (out, *self.shapes[other][1:]))

    def flat(self, concat: Concat) -> list[str]:
        """The parts of a concatenation, those of concatenations in it too; no more than is worth
        knowing, since they can double and double."""
        found: list[str] = []
        waiting = list(concat.args)
        while waiting and len(found) <= MAX_PARTS:
            part = waiting.pop(0)
            node = self.nodes[part]
            if isinstance(node, Concat):
                waiting = [*node.args, *waiting]
            else:
                found.append(part)
        return found

    def split(self, matrix: str, parts: list[str], transposed: bool) -> Value:
        """The product with a concatenation, as a sum of products with its parts."""
        whole, first, terms = self.pieces.get(matrix, Piece(matrix)), "0", []
        for part in parts:
            length = self.shapes[part][0]
            piece = self.piece(
                f"{matrix}_{part}", Piece(whole.parameter, whole.index, 0 if transposed else 1, first, length)
            )
            terms.append(self.times(str(piece.name), part, transposed))
            first = canonical_size(f"{first} + {length}")
        return sum(terms[1:], terms[0])

    def operand(self, expr: Value, target: str, wanted: str | None = None) -> str:
        """The node that holds `expr`."""
        if expr.is_Symbol:
            return str(expr.name)
        shape: Shape = max((self.shapes[n] for n in names(expr)), key=len, default=())
        return str(self.new(wanted or f"{target}_arg", Pointwise(expr), shape).name)

    def application(self, function: str, args: list[Value], target: str) -> Value:
        """A function's value, as a node; its arguments are nodes or numbers."""
        ready = [a if a.is_Number else symbol(self.operand(a, target, f"a_{target}")) for a in args]
        expr = apply(function, ready)
        if not expr.free_symbols:
            return constant(function, tuple(ready))
        shape: Shape = max((self.shapes[n] for n in names(expr)), key=len, default=())
        return self.new(f"{function}_{names(expr)[0]}", Pointwise(expr), shape)
