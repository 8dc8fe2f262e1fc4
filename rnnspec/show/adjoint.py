"""The derived backward pass of a step, as equations that a person reads.

In: a Reading. Out: lines of text. What is written by name, and where, is `reading.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rnnspec.show.reading import Reading
from rnnspec.symbolic.graph import Outer, Pointwise, Product, Read, Transpose, node_text, operands, renamed
from rnnspec.symbolic.operations import Value, add, subtract
from rnnspec.symbolic.writing import Writer


@dataclass(frozen=True)
class Backward:
    """The adjoint for reading.

    lines: gradients in the order in which they are computed, each a text, and whether it is a
    forward value without an equation instead, which stands directly above the first that needs it.
    sums: the gradients of parameters.
    """

    lines: tuple[tuple[str, bool], ...]
    sums: tuple[str, ...]

    @property
    def where(self) -> tuple[str, ...]:
        """The forward values alone."""
        return tuple(text for text, explains in self.lines if explains)

    @property
    def steps(self) -> tuple[str, ...]:
        """The gradients alone."""
        return tuple(text for text, explains in self.lines if not explains)


def backward_equations(known: Reading) -> Backward:
    """The gradients of a step: `d_c_prev = d_c * f`."""
    text = _Text(known)
    return Backward((*text.lines(), *text.results()), tuple(text.sums()))


class _Text(Writer):
    """Texts of nodes, each with how tightly it binds: 2 as a product does, 3 as a name."""

    def __init__(self, known: Reading):
        self.known = known
        self.nodes = {**known.reverse.nodes, **known.graph.nodes}
        self.steps = {n: f"d_{s}_prev" for s, n in known.reverse.states.items()}
        taken = set(known.reverse.nodes)
        self.names = {g: f"d_{v}" for g, v in known.gradients.items() if f"d_{v}" not in taken}

    def name(self, node: str) -> str:
        return self.names.get(node, node)

    def value(self, node: str) -> tuple[str, int]:
        """What stands where a node is read."""
        return (self.name(node), 3) if node in self.known.shown else self.node(node)

    def node(self, node: str) -> tuple[str, int]:
        """What a node is."""
        made = self.nodes[node]
        match made:
            case Pointwise(expr):
                return super()._write(expr) if not expr.is_Symbol else self.value(expr.name)
            case Product(matrix, vector, transposed):
                return f"{self.tight(matrix)}{'.T' * transposed} @ {self.tight(vector)}", 2
            case Outer(left, right):
                return f"{self.tight(left)} {self.tight(right)}^T", 2
            case Transpose(arg):
                return f"{self.tight(arg)}.T", 3
        return node_text(renamed(made, {o: self.whole(o)[0] for o in operands(made)})), 3

    def whole(self, node: str) -> tuple[str, int]:
        """A node where its shape matters: a number for every element is a vector of its own."""
        made, shape = self.nodes[node], self.known.shape(node)
        if not isinstance(made, Pointwise) or not made.expr.is_Number or not shape:
            return self.value(node)
        of = f"({', '.join(shape)})"
        if made.expr in (0, 1):
            return f"{'ones' if made.expr else 'zeros'}{of}", 3
        return f"{self(made.expr)} * ones{of}", 2

    def tight(self, node: str) -> str:
        text, binding = self.whole(node)
        return text if binding > 2 else f"({text})"

    def _write(self, expr: Value) -> tuple[str, int]:
        if expr.is_Symbol:
            return self.value(expr.name)
        if isinstance(expr, add) and expr.args[1].is_Number and expr.args[1] < 0:
            return super()._write(subtract(expr.args[0], -expr.args[1]))
        return super()._write(expr)

    def lines(self) -> Iterator[tuple[str, bool]]:
        known = self.known
        for name in known.lines:
            made = self.nodes[name]
            if not isinstance(made, Read):
                yield f"{self.name(name)}{self.time(name)} = {self.node(name)[0]}", known.is_forward(name)
            elif made.source in known.graph.pieces:
                yield f"{name} = {known.graph.pieces[made.source].to_text()}", True
            elif made.kind != "step" and name != made.source:
                yield f"{name} = {node_text(made)}", True

    def results(self) -> Iterator[tuple[str, bool]]:
        """The gradients of states before the step, and those of inputs that bear another name."""
        reverse = self.known.reverse
        for source, node in [*((f"{s}_prev", n) for s, n in reverse.states.items()), *reverse.outputs.items()]:
            if f"d_{source}" != self.name(node) or node not in self.known.shown:
                yield f"d_{source} = {self.value(node)[0]}", False

    def sums(self) -> Iterator[str]:
        for parameter, group in self.known.sums():
            terms = " + ".join(self.value(n)[0] + self.time(n) for n in group) or "0"
            yield f"d_{parameter} = sum over t, b of {terms}"

    def time(self, node: str) -> str:
        """[t] behind a value of every step that has the name of a parameter's gradient, its sum."""
        known = self.known
        is_sum = any(node in group and self.name(node) == f"d_{p}" for p, group in known.sums())
        return "[t]" if is_sum and node in known.shown else ""
