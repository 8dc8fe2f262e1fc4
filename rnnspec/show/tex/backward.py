r"""The gradients of a step as formulas.

\bar v is the gradient of v; \bar h_t^{\leftarrow} is what comes from step t+1 into h_t, and
\bar h_t^{\downarrow} what comes from the output h. Parts of equations that have no name in the file
have a letter of their own, each in a line above the gradient that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rnnspec.show.reading import Reading
from rnnspec.show.tex.names import Names, symbol
from rnnspec.show.tex.pieces import (
    TRANSPOSED,
    TexPiece,
    call,
    cases,
    feature,
    fraction,
    inside,
    number,
    part,
    product,
    total,
    transposed,
)
from rnnspec.symbolic.adjoint import gradient_of
from rnnspec.symbolic.expressions import FUNCTION_CLASSES
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
from rnnspec.symbolic.operations import HALF, add, multiply, negative, power, select, subtract
from rnnspec.symbolic.operations import total as total_of

_CONDITIONS = {"less": "<", "less_equal": r"\le", "equal": "=", "unequal": r"\ne", "both": r"\land", "either": r"\lor"}


def backward(known: Reading, names: Names) -> list[tuple[str, str]]:
    """The left and the right sides of the gradients of a step, and of the forward values that they
    are named after or read."""
    write = _Backward(known, names)
    return [*write.lines(), *write.results(), *write.sums()]


def _once(graph: Graph) -> set[str]:
    """The nodes that depend on parameters and sizes alone."""
    found: set[str] = set()
    for node, own in graph.nodes.items():
        read = own.kind in ("parameter", "size") if isinstance(own, Read) else found.issuperset(operands(own))
        if read:
            found.add(node)
    return found


class _Backward:
    def __init__(self, known: Reading, names: Names):
        self.known, self.names = known, names
        self.nodes = {**known.reverse.nodes, **known.graph.nodes}
        self.once = _once(known.graph)
        self.outputs = {gradient_of(output): output for output in known.graph.outputs}
        self.results_of = {n: s for s, n in known.reverse.states.items()}
        self.numbers: dict[str, int] = {}  # of parts of equations, and of gradients of no value
        parts: dict[str, int] = {}
        for name in known.graph.nodes:
            if name in known.shown and name not in known.spec.shapes and not isinstance(self.nodes[name], Read):
                owner = known.owner[name]
                self.numbers[name] = parts[owner] = parts.get(owner, 0) + 1
        free = [n for n in known.lines if n not in known.graph.nodes and n not in known.gradients]
        self.numbers |= {name: n for n, name in enumerate(free, 1)}

    # --- what is written by name

    def forward_name(self, node: str, bar: bool = False) -> str:
        own, names = self.nodes[node], self.names
        time = "" if node in self.once and not bar else "t"
        if isinstance(own, Read) and node not in self.known.spec.shapes:
            return self.read(own, bar)
        if node in self.known.spec.parameters:
            return names.write(node, "t" if bar else "", bar)
        if node in self.known.spec.shapes:
            return names.write(node, time, bar)
        return names.of_part(self.known.owner[node], self.numbers[node], time, bar)

    def read(self, own: Read, bar: bool = False) -> str:
        match own.kind:
            case "size":
                return self.names.size(own.source)
            case "step":
                return "t"
            case "parameter":
                return self.source(own.source, bar, "t" if bar else "")
        return self.names.write(own.source, "t-1" if own.kind in ("state", "history") else "t", bar)

    def source(self, parameter: str, bar: bool = False, time: str = "") -> str:
        """A parameter, or a piece of one: its number, or its range of rows or columns, stands
        below."""
        piece = self.known.graph.pieces.get(parameter)
        if piece is None:
            return self.names.write(parameter, time, bar)
        index = [] if piece.index is None else [str(piece.index + 1)]
        cut = [*[":"] * piece.axis, self.names.span(piece.first, piece.length)] if piece.length else []
        return self.names.write(piece.parameter, time, bar, more=[*index, *cut])

    def name(self, node: str) -> str:
        """A node that is written by name."""
        if node in self.known.graph.nodes:
            return self.forward_name(node)
        own = self.nodes[node]
        if isinstance(own, Read):
            if own.kind == "state":
                return self.carried(own.source, "t")
            return self.names.write(self.outputs[own.source], "t", True, r"\downarrow")
        value = self.known.gradients.get(node)
        if value is not None:
            return self.forward_name(value, bar=True)
        return symbol(self.names.gradient, [str(self.numbers[node])], "t")

    def carried(self, state: str, time: str) -> str:
        return self.names.write(state, time, True, r"\leftarrow")

    # --- lines

    def lines(self) -> Iterator[tuple[str, str]]:
        for node in self.known.lines:
            if not isinstance(self.nodes[node], Read):
                yield self.name(node), self.node(self.nodes[node]).text

    def results(self) -> Iterator[tuple[str, str]]:
        reverse = self.known.reverse
        for state, node in reverse.states.items():
            yield self.carried(state, "t-1"), self.value(node).text
        for source, node in reverse.outputs.items():
            left = self.names.write(source, "t", True)
            if (right := self.value(node).text) != left:
                yield left, right

    def sums(self) -> Iterator[tuple[str, str]]:
        for parameter, group in self.known.sums():
            terms = total([(self.value(n), False) for n in group]) if group else TexPiece("0", 3, False)
            text = f"\\sum_{{t}} {inside(terms, 2 if len(group) > 1 else 1)}" if group else "0"
            yield self.source(parameter, True), text

    # --- what stands where a node is read

    def value(self, node: str) -> TexPiece:
        if node in self.known.shown:
            text = self.name(node)
            own = self.nodes[node]
            product_of = isinstance(own, Read) and own.kind == "size" and " " in text
            return TexPiece(text, 1 if " + " in text else 2 if product_of else 3, bool(self.known.shape(node)))
        return self.node(self.nodes[node])

    def whole(self, node: str) -> TexPiece:
        """A node where its shape matters: a number for every element is a vector of its own."""
        made, shape = self.nodes[node], self.known.shape(node)
        if not isinstance(made, Pointwise) or not made.expr.is_Number or not shape:
            return self.value(node)
        size = r" \times ".join(self.names.size(s) for s in shape)
        if made.expr in (0, 1):
            return TexPiece(f"\\mathbf{{{made.expr}}}_{{{size}}}", 3, True)
        return TexPiece(f"{self.expression(made.expr):2} \\, \\mathbf{{1}}_{{{size}}}", 2, True)

    def node(self, node: Node) -> TexPiece:
        match node:
            case Pointwise(expr):
                return self.expression(expr)
            case Product(matrix, vector, turned):
                left = transposed(self.whole(matrix)) if turned else self.whole(matrix)
                return TexPiece(f"{left:3} {self.whole(vector):3}", 2, True)
            case Reduce(op, arg):
                return feature(op, [self.whole(arg)], False, self.names)
            case Outer(left, right):
                return TexPiece(f"{self.whole(left):3} \\, {transposed(self.whole(right)):3}", 2, True)
            case Part(arg, first, length):
                return part(self.whole(arg), first, length, self.names)
            case CumSum(arg, reverse):
                text = r"\operatorname{cumsum}" + TRANSPOSED * reverse
                return TexPiece(f"{text}\\left({self.whole(arg)}\\right)", 3, True)
            case Diag(arg):
                return feature("diag", [self.whole(arg)], True, self.names)
            case Transpose(arg):
                return transposed(self.whole(arg))
            case Concat(args):
                return feature("concat", [self.whole(a) for a in args], True, self.names)
            case Read():
                return TexPiece(self.read(node), 3, True)
        raise TypeError(f"not a node: {node!r}")

    def expression(self, expr: Any) -> TexPiece:
        kind = type(expr).__name__
        if expr.is_Symbol:
            return self.value(expr.name)
        if expr.is_Number:
            value = Fraction(int(expr.p), int(expr.q))
            return number(value if value.denominator < 1000 else Fraction(repr(float(value))))
        if isinstance(expr, total_of | add | subtract):
            return self.sum(expr)
        if isinstance(expr, multiply):
            return self.product(expr)
        if isinstance(expr, power):
            return self.power(expr)
        if isinstance(expr, select):
            return self.select(expr)
        pieces = [self.expression(a) for a in expr.args]
        if kind in _CONDITIONS:
            a, b = pieces
            return TexPiece(f"{a:1} {_CONDITIONS[kind]} {b:1}", 0, a.wide or b.wide)
        if kind == "opposite":
            return TexPiece(rf"\lnot {pieces[0]:3}", 1, pieces[0].wide)
        if kind == "negative":
            return TexPiece(f"-{pieces[0]:2}", 1, pieces[0].wide)
        if kind == "divide":
            return fraction(*pieces)
        if kind in FUNCTION_CLASSES:
            return call(kind, pieces, self.names)
        raise TypeError(f"no LaTeX for {kind}")

    def select(self, expr: Any) -> TexPiece:
        branches = []
        while isinstance(expr, select):
            condition, value, expr = expr.args
            branches.append((self.expression(value), self.expression(condition).text))
        return cases(branches, self.expression(expr))

    def sum(self, expr: Any) -> TexPiece:
        """Terms as they stand; those of a `total`, whose order is free, with what is subtracted
        last."""
        if len(expr.args) == 2 and expr.args[0] == expr.args[1] and not isinstance(expr, subtract):
            return product([TexPiece("2", 3, False), self.expression(expr.args[0])])
        minus = isinstance(expr, subtract)
        terms = [(t, minus and n == 1) for n, t in enumerate(expr.args)]
        signed = [(t.args[0], not less) if isinstance(t, negative) else (t, less) for t, less in terms]
        signed = [(-t, not less) if n and t.is_Number and t < 0 else (t, less) for n, (t, less) in enumerate(signed)]
        if isinstance(expr, total_of):
            signed.sort(key=lambda term: term[1])
        return total([(self.expression(t), less) for t, less in signed])

    def product(self, expr: Any) -> TexPiece:
        """Factors, those of products in it too, since their order does not matter to a reader:
        numbers first, then what has no feature axis; the sign before them all."""
        found, minus, waiting = [], False, [expr]
        while waiting:
            factor = waiting.pop(0)
            if isinstance(factor, multiply):
                waiting = [*factor.args, *waiting]
            elif isinstance(factor, negative) or (factor.is_Number and factor < 0):
                minus, waiting = not minus, [factor.args[0] if isinstance(factor, negative) else -factor, *waiting]
            elif factor.is_Symbol and factor.name not in self.known.shown and self._is_product(factor.name):
                waiting = [self.nodes[factor.name].expr, *waiting]  # type: ignore[union-attr]
            elif factor != 1:
                found.append((factor, self.expression(factor)))
        found.sort(key=lambda pair: (not pair[0].is_Number, pair[1].wide))
        made = product([piece for _, piece in found] or [TexPiece("1", 3, False)])
        return TexPiece(f"-{made:2}", 1, made.wide) if minus else made

    def _is_product(self, node: str) -> bool:
        made = self.nodes[node]
        return isinstance(made, Pointwise) and isinstance(made.expr, multiply)

    def power(self, expr: Any) -> TexPiece:
        base, exponent = self.expression(expr.args[0]), expr.args[1]
        if exponent == HALF:
            return TexPiece(f"\\sqrt{{{base.text}}}", 3, base.wide)
        if exponent < 0:
            return fraction(TexPiece("1", 3, False), self.expression(power(expr.args[0], -exponent)))
        if exponent == 1:
            return base
        return TexPiece(f"{base:3}^{{{self.expression(exponent).text}}}", 2, base.wide)
