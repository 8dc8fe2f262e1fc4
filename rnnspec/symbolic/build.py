"""Spec -> Graph: the forward step.

Products become nodes, so does every application of a function (its derivative is written with its value), and
`v[t-1]` of an input or intermediate becomes a state that carries it.
"""
from __future__ import annotations

from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.equations import Binary, Call, Equation, Expr, Number, Ref, Unary
from rnnspec.language.spec import Shape, Spec
from rnnspec.symbolic.expressions import Value, apply, binary, constant, from_tree, names, negate, symbol
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Product, Read, fresh
from rnnspec.symbolic.simplify import split_sums, tidy


def build(spec: Spec) -> Graph:
    """The Graph of one step of a cell. States of the graph: the spec's, and every input or intermediate that is read at t-1."""
    builder = _Builder(spec)
    for equation in spec.equations:
        try:
            builder.equation(equation)
        except RnnspecError as error:
            at = equation.at
            raise SpecError(Problem(str(error), at.line, at.column, at.file or spec.file, equation.text, at.width)) from error
    states = {name: name for name in [*spec.states, *builder.carried]}
    graph = Graph(spec.name, builder.nodes, builder.shapes, states, {name: name for name in spec.outputs})
    graph = tidy(split_sums(tidy(graph)))
    graph.verify()
    return graph


class _Builder:
    """Collects the nodes of one step, in order."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.nodes: dict[str, Node] = {}
        self.shapes: dict[str, Shape] = {}
        self.carried: list[str] = []
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
            case Ref(name, time):
                return self.read(name, time)
            case Unary(op, arg):
                inner = self.value(arg, target)
                return negate(inner) if op == "not" else -inner
            case Binary("@", left, right):
                return self.product(left, right, target)
            case Binary(op, left, right):
                return binary(op, self.value(left, target), self.value(right, target))
            case Call("where", args):
                return apply("where", [self.value(a, target) for a in args])
            case Call(function, args):
                return self.application(function, [self.value(a, target) for a in args], target)
        raise TypeError(f"not an expression: {tree!r}")

    def read(self, name: str, time: int | None) -> Value:
        if name == "t" and time is None:
            return symbol(name) if name in self.nodes else self.put("t", Read("step", "t"), ())
        if time in (None, 0):
            return symbol(name)
        before = Read("state", name)
        for known, node in self.nodes.items():
            if node == before:
                return symbol(known)
        if name not in self.spec.states:
            self.carried.append(name)
        return self.new(f"{name}_prev", before, self.spec.shapes[name])

    def product(self, left: Expr, right: Expr, target: str) -> Value:
        a, b = self.operand(self.value(left, target), target), self.operand(self.value(right, target), target)
        if len(self.shapes[a]) == 2:
            return self.new(f"{a}_{b}", Product(a, b), self.shapes[a][:1])
        return self.new(f"{a}_{b}", Product(b, a, transposed=True), self.shapes[b][1:])

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
