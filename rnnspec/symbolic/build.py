"""Spec -> Graph: the forward step.

Products become nodes, so does every application of a function (its derivative is written with its
value), and `v[t-1]` of an input or intermediate becomes a state that carries it. `W[k]` is read as
a parameter of its own, which is a piece of W; so are the columns of W that W @ concat(a, b)
multiplies by a and by b, so that they are products of their own. Values computed once per sequence
are nodes like others: that they depend on parameters alone can be seen (`once.py`).
"""

from __future__ import annotations

from functools import partial

from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.features import FEATURES
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.sizes import canonical_size, size_of
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref, Unary, fresh
from rnnspec.symbolic.draft import Draft
from rnnspec.symbolic.expressions import binary, from_tree, negate
from rnnspec.symbolic.features import Arguments, feature
from rnnspec.symbolic.graph import Concat, Diag, Graph, Outer, Pointwise, Product, Read, Transpose
from rnnspec.symbolic.operations import Value, multiply, negative, select, symbol, total
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
    outputs = {name: name for name in spec.outputs}
    draft = builder.draft
    graph = Graph(spec.name, draft.nodes, draft.shapes, states, outputs, {}, builder.pieces)
    graph = tidy(split_sums(tidy(graph)))
    graph.verify()
    return graph


class Builder:
    """Turns one equation after another into nodes of a draft. carried: the inputs and intermediates
    that are read at t-1; pieces: the parameters of the graph that are pieces of the spec's."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.draft = Draft(spec.shapes)
        self.carried: list[str] = []
        self.pieces: dict[str, Piece] = {}
        for name, shape in spec.inputs.items():
            self.draft.put(name, Read("input", name), shape)
        for name, shape in spec.parameters.items():
            self.draft.put(name, Read("parameter", name), shape)

    def equation(self, equation: Equation) -> None:
        target, nodes, shapes = equation.target, self.draft.nodes, self.draft.shapes
        expr, shape = self.value(equation.value, target), self.spec.shapes[target]
        made = str(expr.name) if expr.is_Symbol else ""
        if made and made == next(reversed(nodes)) and made not in self.spec.shapes and shapes[made] == shape:
            node = nodes.pop(made)  # the equation is this very node: it bears the equation's name
            if not isinstance(node, Read):
                self.draft.put(target, node, shape)
                return
            nodes[made] = node
        self.draft.put(target, Pointwise(expr), shape)

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
                return self.draft.operation(negate if op == "not" else negative, [self.value(arg, target)], target)
            case Binary("@", left, right):
                return self.product(left, right, target)
            case Binary(op, left, right):
                sides = [self.value(left, target), self.value(right, target)]
                return self.draft.operation(partial(binary, op), sides, target)
            case Call("where", args):
                return self.draft.operation(select, [self.value(a, target) for a in args], target)
            case Call(function, args) if function in FEATURES:
                return feature(self.draft, function, self.arguments(function, args, target), target)
            case Call(function, args):
                return self.draft.application(function, [self.value(a, target) for a in args], target)
        raise TypeError(f"not an expression: {tree!r}")

    def arguments(self, function: str, args: tuple[Expr, ...], target: str) -> Arguments:
        """The arguments of a function along features: its row says which are sizes and numbers."""
        row = FEATURES[function]
        nodes: list[str] = []
        numbers: list[Value] = []
        sizes: list[str] = []
        for position, arg in enumerate(args):
            match row.kind(position):
                case "size":
                    sizes.append(size_of(arg))
                case "number":
                    numbers.append(self.value(arg, target))
                case _:
                    nodes.append(self.node(arg, target))
        return Arguments(tuple(nodes), tuple(numbers), tuple(sizes))

    def read(self, name: str, time: int | None) -> Value:
        if name == "t" and time is None:
            return symbol(name if name in self.draft.nodes else self.draft.put("t", Read("step", "t"), ()))
        if time is None and name not in self.spec.shapes:
            return self.draft.size(name)
        if time in (None, 0):
            return symbol(name)
        before = Read("state", name)
        if (known := self.draft.known(before)) is not None:
            return symbol(known)
        if name not in self.spec.states:
            self.carried.append(name)
        return symbol(self.draft.new(f"{name}_prev", before, self.spec.shapes[name]))

    def piece(self, wanted: str, piece: Piece) -> Value:
        known = next((name for name, other in self.pieces.items() if other == piece), None)
        if known is not None:
            return symbol(known)
        name = fresh(wanted, self.draft.taken)
        self.pieces[name] = piece
        shape = piece.shape(self.spec.parameters[piece.parameter])
        return symbol(self.draft.put(name, Read("parameter", name), shape))

    def node(self, tree: Expr, target: str) -> str:
        """The node that holds the value of a tree, in its own shape: that of `2 * 3` is ()."""
        expr, shape = self.value(tree, target), shape_of(tree, self.spec.shapes, self.spec.sizes)
        known = str(expr.name) if expr.is_Symbol else ""
        if known and self.draft.shapes[known] == shape:
            return known
        return self.draft.new(f"{target}_arg", Pointwise(expr), shape)

    def transpose(self, matrix: str) -> Value:
        node = self.draft.nodes[matrix]
        if isinstance(node, Transpose | Diag):
            return symbol(node.arg if isinstance(node, Transpose) else matrix)
        return symbol(self.draft.new(f"{matrix}_T", Transpose(matrix), self.draft.shapes[matrix][::-1]))

    def product(self, left: Expr, right: Expr, target: str) -> Value:
        a, b = self.node(left, target), self.node(right, target)
        if len(self.draft.shapes[a]) == 2:
            return self.times(a, b)
        return self.times(b, a, transposed=True)

    def times(self, matrix: str, other: str, transposed: bool = False) -> Value:
        """matrix @ other, or matrix.T @ other, in its cheapest form."""
        nodes, shapes = self.draft.nodes, self.draft.shapes
        node, right, vector = nodes[matrix], nodes[other], len(shapes[other]) == 1
        match node:
            case Transpose(arg):
                return self.times(arg, other, not transposed)
            case Diag(arg):
                return multiply(symbol(arg), symbol(other)) if vector else self.scaled(other, arg, rows=True)
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
            return self.scaled(matrix, right.arg, rows=False)
        shape = (shapes[matrix][1 if transposed else 0], *shapes[other][1:])
        return symbol(self.draft.new(f"{matrix}_{other}", Product(matrix, other, transposed), shape))

    def scaled(self, matrix: str, vector: str, *, rows: bool) -> Value:
        """diag(vector) @ matrix, or matrix @ diag(vector), element by element."""
        shape = self.draft.shapes[matrix]
        ones = self.draft.ones(shape[1 if rows else 0])
        pair = (vector, ones) if rows else (ones, vector)
        return multiply(symbol(matrix), symbol(self.draft.new(f"outer_{vector}", Outer(*pair), shape)))

    def flat(self, concat: Concat) -> list[str]:
        """The parts of a concatenation, those of concatenations in it too; no more than is worth
        knowing, since they can double and double."""
        found: list[str] = []
        waiting = list(concat.args)
        while waiting and len(found) <= MAX_PARTS:
            part = waiting.pop(0)
            node = self.draft.nodes[part]
            if isinstance(node, Concat):
                waiting = [*node.args, *waiting]
            else:
                found.append(part)
        return found

    def split(self, matrix: str, parts: list[str], transposed: bool) -> Value:
        """The product with a concatenation, as a sum of products with its parts."""
        whole, first, terms = self.pieces.get(matrix, Piece(matrix)), "0", []
        for part in parts:
            length = self.draft.shapes[part][0]
            piece = self.piece(
                f"{matrix}_{part}", Piece(whole.parameter, whole.index, 0 if transposed else 1, first, length)
            )
            terms.append(self.times(str(piece.name), part, transposed))
            first = canonical_size(f"{first} + {length}")
        return total(*terms)
