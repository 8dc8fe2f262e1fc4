"""The derived backward pass of a step, as equations that a person reads.

In: a Spec, its Graph and its adjoint. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rnnspec.language.spec import Spec
from rnnspec.symbolic.graph import Graph, Outer, Pointwise, Product, Read, node_text, operands, renamed
from rnnspec.symbolic.operations import Value
from rnnspec.symbolic.writing import Writer


@dataclass(frozen=True)
class Backward:
    """The adjoint for reading.

    where: lines for forward values that have no equation of their own. steps: one line for each
    gradient, in order. sums: the gradients of parameters.
    """

    where: tuple[str, ...]
    steps: tuple[str, ...]
    sums: tuple[str, ...]


def backward_equations(spec: Spec, graph: Graph, reverse: Graph) -> Backward:
    """The adjoint's own nodes, products that are read once written inline: `d_h_prev = U_f.T @
    d_a_f + ...`."""
    alias = _aliases(graph, reverse)
    text = _AdjointText(reverse, alias, _inline_products(graph, reverse, alias))
    return Backward(
        tuple(_forward_lines(spec, graph, text)), tuple(_gradient_lines(graph, text)), tuple(_sum_lines(text))
    )


class _SubstitutingWriter(Writer):
    """Writes expressions of the language with texts in place of some names, each with how tightly
    it binds: 2 as a product does, 3 as a name."""

    def __init__(self, texts: Mapping[str, tuple[str, int]]):
        self.texts = texts

    def _write(self, expr: Value) -> tuple[str, int]:
        return self.texts.get(expr.name, (expr.name, 3)) if expr.is_Symbol else super()._write(expr)


@dataclass(frozen=True)
class _AdjointText:
    """Texts of an adjoint's nodes.

    alias: a product that is all of a forward value's gradient bears that gradient's name. inline:
    products that are read once, as text.
    """

    reverse: Graph
    alias: Mapping[str, str]
    inline: Mapping[str, str]

    def name(self, node: str) -> str:
        return self.alias.get(node, node)

    def writer(self, further: Mapping[str, str] = {}) -> Writer:
        """Writes expressions over nodes. further: more products that are written inline."""
        products = {**self.inline, **further}
        return _SubstitutingWriter(
            {n: (t, 3) for n, t in self.alias.items()} | {n: (t, 2) for n, t in products.items()}
        )

    def equation(self, name: str) -> str:
        """What a node's value is."""
        node = self.reverse.nodes[name]
        if isinstance(node, Outer):
            return self.term(name)
        return self.writer()(node.expr) if isinstance(node, Pointwise) else node_text(renamed(node, self.alias))

    def term(self, name: str) -> str:
        """A node where it is read."""
        node = self.reverse.nodes[name]
        if isinstance(node, Outer):
            return f"{self.name(node.left)} {self.name(node.right)}^T"
        return self.inline.get(name, self.name(name))

    def time(self, name: str) -> str:
        """[t] behind a value of every step that has the name of a parameter's gradient, its sum."""
        is_sum = any(name in group and name == f"d_{p}" for p, group in self.reverse.sums.items())
        return "[t]" if is_sum and self.term(name) == name else ""


def _aliases(graph: Graph, reverse: Graph) -> dict[str, str]:
    aliases = {}
    uses, read, results = graph.uses(), reverse.uses(), set(graph.results())
    for name, node in graph.nodes.items():
        if isinstance(node, Product) and uses[node.vector] == [name] and node.vector not in results:
            product, gradient = f"{node.matrix}_d_{name}", f"d_{node.vector}"
            own = product in reverse.nodes and product not in graph.nodes  # an equation may be called so
            if own and gradient not in reverse.nodes and read[product]:
                aliases[product] = gradient
    return aliases


def _inline_products(graph: Graph, reverse: Graph, alias: Mapping[str, str]) -> dict[str, str]:
    uses, nodes = reverse.uses(), reverse.nodes
    return {
        n: _product(node, alias.get(node.vector, node.vector))
        for n, node in nodes.items()
        if isinstance(node, Product) and n not in graph.nodes
        if not uses[n] or (len(uses[n]) == 1 and isinstance(nodes[uses[n][0]], Pointwise) and n not in alias)
    }


def _product(node: Product, vector: str) -> str:
    return f"{node.matrix}{'.T' * node.transposed} @ {vector}"


def _gradient_lines(graph: Graph, text: _AdjointText) -> Iterator[str]:
    """The gradients of a step in the order in which they are computed, those of states last."""
    reverse = text.reverse
    uses = reverse.uses()
    for name, node in reverse.nodes.items():
        if name in graph.nodes or name in text.inline or isinstance(node, Read):
            continue
        if uses[name] or not isinstance(node, Outer):
            yield f"{text.name(name)}{text.time(name)} = {text.equation(name)}"
    for source, value in [*((f"{s}_prev", n) for s, n in reverse.states.items()), *reverse.outputs.items()]:
        if f"d_{source}" != text.name(value):
            yield f"d_{source} = {text.inline.get(value, text.name(value))}"


def _sum_lines(text: _AdjointText) -> Iterator[str]:
    for parameter, group in text.reverse.sums.items():
        terms = " + ".join(text.term(n) + text.time(n) for n in group) or "0"
        yield f"d_{parameter} = sum over t, b of {terms}"


def _forward_lines(spec: Spec, graph: Graph, text: _AdjointText) -> Iterator[str]:
    """Forward values that the gradients read and the equations do not name; products in them
    written inline."""
    wanted, products = _unnamed(spec, graph, text.reverse)
    write = text.writer({n: _product(node, node.vector) for n, node in products.items()})
    for name, node in graph.nodes.items():
        if name not in wanted or name in spec.shapes:
            continue
        if isinstance(node, Pointwise):
            yield f"{name} = {write(node.expr)}"
        elif isinstance(node, Read) and node.source in graph.pieces:
            yield f"{name} = {graph.pieces[node.source].to_text()}"
        elif not isinstance(node, Read) or (node.kind != "step" and name != node.source):
            yield f"{name} = {node_text(node)}"


def _unnamed(spec: Spec, graph: Graph, reverse: Graph) -> tuple[set[str], dict[str, Product]]:
    """The forward values that gradients read, or that such values without an equation read in turn,
    and the products among the latter."""
    nodes = graph.nodes
    wanted = {o for n, node in reverse.nodes.items() if n not in nodes for o in operands(node)}
    products: dict[str, Product] = {}
    for name, node in reversed(list(nodes.items())):
        if name not in wanted or name in spec.shapes:
            continue
        for operand in operands(node):
            if isinstance(node, Pointwise) and isinstance(product := nodes[operand], Product):
                products[operand] = product
                wanted |= set(operands(product))
            else:
                wanted.add(operand)
    return wanted, products
