"""A Graph under construction: nodes with their shapes, in an order in which each reads only what is
above it.

Who builds one (`build.py`, `features.py`, `adjoint.py`, `tangent.py`) says what a node would like
to be called; the draft finds it a name that nothing else has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import sympy

from rnnspec.language.sizes import canonical_size
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.expressions import apply, constant, names
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read
from rnnspec.symbolic.operations import Condition, Value, select, symbol, unequal

# Of one expression. Its derivative by one value can have as many operations as their square, and a
# product of selects as many branches as the product of theirs.
MAX_OPERATIONS, MAX_BRANCHES = 16, 4


class Draft:
    """`nodes` and `shapes` by name; `taken` are the names that no new node may have."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.nodes: dict[str, Node] = {}
        self.shapes: dict[str, Shape] = {}
        self.taken = set(taken)
        self.weights: dict[Value, tuple[int, int]] = {}

    @classmethod
    def of(cls, graph: Graph) -> Draft:
        """A draft that begins with the nodes of a graph."""
        draft = cls(graph.shapes)
        draft.nodes.update(graph.nodes)
        draft.shapes.update(graph.shapes)
        return draft

    def put(self, name: str, node: Node, shape: Shape) -> str:
        """Adds a node under this very name, which it returns."""
        self.nodes[name], self.shapes[name] = node, shape
        self.taken.add(name)
        return name

    def new(self, wanted: str, node: Node, shape: Shape) -> str:
        """Adds a node and returns its name: `wanted`, or one like it where that is taken."""
        return self.put(fresh(wanted, self.taken), node, shape)

    def known(self, node: Node) -> str | None:
        """The first node that is equal to this one, if there is any."""
        return next((name for name, other in self.nodes.items() if other == node), None)

    def operand(self, expr: Value, target: str, wanted: str | None = None) -> str:
        """The node that holds `expr`; a new one is called after the equation it is for."""
        if expr.is_Symbol:
            return str(expr.name)
        return self.new(wanted or f"{target}_arg", Pointwise(expr), self.shape_of(expr))

    def operation(self, make: Callable[..., Value], args: Sequence[Value], target: str) -> Value:
        """make(*args), with the largest arguments as nodes of their own where it would be too large
        an expression: the operations stay what they are and in their order."""
        ready = list(args)
        made = make(*ready)
        while self.is_large(made) and (at := self.largest(ready)) is not None:
            part, wanted = ready[at], f"{target}_part"
            if isinstance(part, Condition):
                hit = self.operand(select(part, sympy.S.One, sympy.S.Zero), target, wanted)
                ready[at] = unequal(symbol(hit), sympy.S.Zero)
            else:
                ready[at] = symbol(self.operand(part, target, wanted))
            made = make(*ready)
        return made

    def is_large(self, expr: Value) -> bool:
        operations, branches = self.weight(expr)
        return operations > MAX_OPERATIONS or branches > MAX_BRANCHES

    def largest(self, args: Sequence[Value]) -> int | None:
        """The place of the argument with the most branches and operations, if any has more than
        one."""
        weights = [(branches, operations) for operations, branches in map(self.weight, args)]
        at = max(range(len(args)), key=weights.__getitem__)
        return at if weights[at] > (1, 1) else None

    def weight(self, expr: Value) -> tuple[int, int]:
        """How many operations an expression has, and how many branches its derivative can have."""
        if expr.is_Atom:
            return 0, 1
        known = self.weights.get(expr)
        if known is None:
            inner = [self.weight(a) for a in expr.args]
            sides = inner[1:] if isinstance(expr, select) else inner
            branches = [b for _, b in sides]
            operations = 1 + sum(n for n, _ in inner)
            known = operations, sum(branches) if isinstance(expr, select) else math.prod(branches)
            self.weights[expr] = known
        return known

    def application(self, function: str, args: Sequence[Value], target: str) -> Value:
        """A function's value, as a node; its arguments are nodes or numbers."""
        ready = [a if a.is_Number else symbol(self.operand(a, target, f"a_{target}")) for a in args]
        expr = apply(function, ready)
        if not expr.free_symbols:
            return constant(function, tuple(ready))
        return symbol(self.new(f"{function}_{names(expr)[0]}", Pointwise(expr), self.shape_of(expr)))

    def size(self, text: str) -> Value:
        """The number that a size expression stands for."""
        text = canonical_size(text)
        if text.isdigit():
            return sympy.Integer(text)
        read = Read("size", text)
        return symbol(self.known(read) or self.new(text if text.isidentifier() else "size", read, ()))

    def ones(self, size: str) -> str:
        """A vector of ones."""
        return self.new("ones", Pointwise(sympy.S.One), (size,))

    def shape_of(self, expr: Value) -> Shape:
        """The shape of an expression over nodes: numbers go with any shape."""
        return max((self.shapes[n] for n in names(expr)), key=len, default=())
