"""The derived backward pass of a step, as equations that a person reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnspec.language.spec import Spec

if TYPE_CHECKING:
    from rnnspec.symbolic.graph import Graph


# --- the backward equations
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backward:
    """The adjoint for reading. where: lines for forward values that have no equation of their own;
    steps: one line for each gradient, in order; sums: the gradients of parameters."""

    where: tuple[str, ...]
    steps: tuple[str, ...]
    sums: tuple[str, ...]


def backward_equations(spec: Spec, graph: Graph, reverse: Graph) -> Backward:
    """The adjoint's own nodes, products that are read once written inline: `d_h_prev = U_f.T @
    d_a_f + ...`."""
    from rnnspec.symbolic.graph import Outer, Read

    text = Text(graph, reverse)
    uses = reverse.uses()
    own = [
        n
        for n, node in reverse.nodes.items()
        if n not in graph.nodes
        and n not in text.inline
        and not isinstance(node, Read)
        and (uses[n] or not isinstance(node, Outer))
    ]
    steps = [f"{text.name(n)}{'[t]' * (text.own_sum(n))} = {text.node(n)}" for n in own]
    for source, node in [*((f"{s}_prev", n) for s, n in reverse.states.items()), *reverse.outputs.items()]:
        if f"d_{source}" != text.name(node):
            steps.append(f"d_{source} = {text.inline.get(node, text.name(node))}")
    sums = [
        f"d_{p} = sum over t, b of {' + '.join(text.term(n) + '[t]' * text.own_sum(n) for n in group) or '0'}"
        for p, group in reverse.sums.items()
    ]
    return Backward(tuple(text.where(spec)), tuple(steps), tuple(sums))


class Text:
    """Texts of an adjoint's nodes. `inline`: products that are read once, as text; `alias`: a
    product that is all of a forward value's gradient bears that gradient's name."""

    def __init__(self, graph: Graph, reverse: Graph):
        from rnnspec.symbolic.expressions import Writer
        from rnnspec.symbolic.graph import Pointwise, Product

        self.graph, self.reverse = graph, reverse
        uses, nodes = reverse.uses(), reverse.nodes
        self.alias = self._aliases()
        products = {n: node for n, node in nodes.items() if n not in graph.nodes and isinstance(node, Product)}
        self.inline = {
            n: f"{p.matrix}{'.T' * p.transposed} @ {self.name(p.vector)}"
            for n, p in products.items()
            if not uses[n] or (len(uses[n]) == 1 and isinstance(nodes[uses[n][0]], Pointwise) and n not in self.alias)
        }
        self.products = set(products)
        outer = self

        class Inline(Writer):
            def _write(self, expr: Any) -> tuple[str, int]:
                if expr.is_Symbol:
                    return (outer.inline[expr.name], 2) if expr.name in outer.inline else (outer.name(expr.name), 3)
                return super()._write(expr)

        self.write = Inline()

    def _aliases(self) -> dict[str, str]:
        from rnnspec.symbolic.graph import Product

        found = {}
        uses, results = self.graph.uses(), set(self.graph.results())
        for name, node in self.graph.nodes.items():
            if isinstance(node, Product):
                made, gradient = f"{node.matrix}_d_{name}", f"d_{node.vector}"
                whole = uses[node.vector] == [name] and node.vector not in results
                if (
                    whole
                    and made in self.reverse.nodes
                    and gradient not in self.reverse.nodes
                    and self.reverse.uses()[made]
                ):
                    found[made] = gradient
        return found

    def name(self, node: str) -> str:
        return self.alias.get(node, node)

    def own_sum(self, name: str) -> bool:
        """Whether a value of every step has the name of the parameter's gradient, which is its
        sum."""
        return self.term(name) == name and any(
            name in group and name == f"d_{p}" for p, group in self.reverse.sums.items()
        )

    def node(self, name: str) -> str:
        from rnnspec.symbolic.graph import Outer, Pointwise, node_text, renamed

        node = self.reverse.nodes[name]
        if isinstance(node, Outer):
            return self.term(name)
        return self.write(node.expr) if isinstance(node, Pointwise) else node_text(renamed(node, self.alias))

    def term(self, name: str) -> str:
        from rnnspec.symbolic.graph import Outer

        node = self.reverse.nodes[name]
        return (
            f"{self.name(node.left)} {self.name(node.right)}^T"
            if isinstance(node, Outer)
            else self.inline.get(name, self.name(name))
        )

    def where(self, spec: Spec) -> Iterator[str]:
        """Forward values that the gradients read and the equations do not name; products in them
        written inline."""
        from rnnspec.symbolic.graph import Pointwise, Product, Read, node_text, operands

        forward = self.graph.nodes
        wanted = {o for n, node in self.reverse.nodes.items() if n not in forward for o in operands(node)}
        inner: dict[str, str] = {}
        for name, node in reversed(list(forward.items())):  # what those values read in turn
            if name in wanted and name not in spec.shapes:
                products = {
                    o: p for o in operands(node) if isinstance(node, Pointwise) and isinstance(p := forward[o], Product)
                }
                inner |= {o: f"{p.matrix}{'.T' * p.transposed} @ {p.vector}" for o, p in products.items()}
                wanted |= {o for n in operands(node) for o in (operands(products[n]) if n in products else (n,))}
        self.inline |= inner
        for name, node in forward.items():
            if name in wanted and name not in spec.shapes:
                if isinstance(node, Pointwise):
                    yield f"{name} = {self.write(node.expr)}"
                elif isinstance(node, Read) and node.source in self.graph.pieces:
                    yield f"{name} = {self.graph.pieces[node.source].to_text()}"
                elif not isinstance(node, Read) or (node.kind != "step" and name != node.source):
                    yield f"{name} = {node_text(node)}"
