"""Graph to Graph, same numbers: constants spread, equal nodes merged, sums of products made
visible, dead nodes dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import sympy

from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Product, Read, operands, renamed
from rnnspec.symbolic.operations import Value, add, symbol, total


def tidy(graph: Graph) -> Graph:
    """Merge, fold and drop until nothing changes; one pass is enough since nodes stand in order."""
    return drop_dead(merge_equal(graph))


def merge_equal(graph: Graph) -> Graph:
    """Each value is computed once: equal nodes become the first of them, a node that is a constant
    or a plain copy of another of its shape goes into its readers."""
    alias: dict[str, str] = {}
    constants: dict[Value, Value] = {}
    first: dict[tuple[Node, tuple[str, ...]], str] = {}
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        node = renamed(node, alias)
        shape = graph.shapes[name]
        if isinstance(node, Pointwise):
            node = Pointwise(_folded(node.expr, constants)) if constants else node
            if node.expr.is_Number:
                constants[symbol(name)] = node.expr
            elif (
                node.expr.is_Symbol
                and graph.shapes[node.expr.name] == shape
                and not _is_parameter(nodes[node.expr.name])
            ):
                alias[name] = node.expr.name
                continue
        elif isinstance(node, Read):
            first[node, shape] = name
        same = first.setdefault((node, shape), name)
        if same != name:
            alias[name] = same
        else:
            nodes[name] = node
    return replace(
        graph,
        nodes=nodes,
        states={s: alias.get(n, n) for s, n in graph.states.items()},
        outputs={s: alias.get(n, n) for s, n in graph.outputs.items()},
        sums={s: tuple(alias.get(n, n) for n in group) for s, group in graph.sums.items()},
    )


def _folded(expr: Value, constants: Mapping[Value, Value]) -> Value:
    """The expression with constants put in, unless that makes a number which no array could hold: a
    chain of squares has 2**64 digits."""
    result = expr.xreplace(constants)
    numbers = (
        [n for n in result.atoms(sympy.Rational) if max(abs(n.p), n.q).bit_length() > 1024]
        if result is not expr
        else []
    )
    return expr if numbers or result.has(sympy.zoo, sympy.nan, sympy.oo) else result


def _is_parameter(node: Node) -> bool:
    return isinstance(node, Read) and node.kind == "parameter"


def drop_dead(graph: Graph) -> Graph:
    """The graph without the nodes that no result depends on."""
    alive = set(graph.results())
    for name in reversed(list(graph.nodes)):
        if name in alive:
            alive.update(operands(graph.nodes[name]))
    kept = {n: node for n, node in graph.nodes.items() if n in alive}
    read = {node.source for node in kept.values() if isinstance(node, Read)} | set(graph.sums)
    return replace(graph, nodes=kept, pieces={n: piece for n, piece in graph.pieces.items() if n in read})


def joined_sums(graph: Graph, among: Collection[str]) -> Graph:
    """Sums of sums become one, where their terms may be added in any order: among these nodes, what
    nothing but one such sum reads goes into it."""
    uses = {name: len(readers) for name, readers in graph.uses().items()}
    for result in graph.results():
        uses[result] += 1
    nodes: dict[str, Node] = {}

    def terms(term: Value, target: str) -> tuple[Value, ...]:
        node = nodes.get(term.name) if term.is_Symbol else None
        if not isinstance(node, Pointwise) or not isinstance(node.expr, total) or term.name not in among:
            return (term,)
        alone = uses[term.name] == 1 and graph.shapes[term.name] == graph.shapes[target]
        return node.expr.args if alone else (term,)

    for name, node in graph.nodes.items():
        if isinstance(node, Pointwise) and isinstance(node.expr, total) and name in among:
            node = Pointwise(total(*(t for term in node.expr.args for t in terms(term, name))))
        nodes[name] = node
    return replace(graph, nodes=nodes)


def split_sums(graph: Graph) -> Graph:
    """Every sum of products and bias vectors becomes a node of its own, since that is what one pass
    of a product kernel computes.

    tanh(W @ x + b + r * (U @ h + c)) reads two of them: W @ x + b and U @ h + c. Only what is
    written as one sum is: in (W @ x + r) + b, r comes first. The terms of a gradient have no order.
    """
    uses = {name: len(readers) for name, readers in graph.uses().items()}
    for result in graph.results():
        uses[result] += 1
    nodes: dict[str, Node] = {}
    shapes = dict(graph.shapes)

    def is_product(term: Value) -> bool:
        return term.is_Symbol and isinstance(graph.nodes.get(term.name), Product) and uses[term.name] == 1

    def is_bias(term: Value, shape: tuple[str, ...]) -> bool:
        node = graph.nodes.get(term.name) if term.is_Symbol else None
        return isinstance(node, Read) and node.kind == "parameter" and not node.columned and shapes[term.name] == shape

    def terms(expr: Value, target: str) -> list[Value] | None:
        """The products and biases that an expression is nothing but the sum of, as they stand from
        left to right."""
        if isinstance(expr, add | total):
            left, *right = (terms(a, target) or [] for a in expr.args)
            return left + [t for (t,) in right] if left and all(len(t) == 1 for t in right) else None
        return [expr] if is_product(expr) or is_bias(expr, shapes[target]) else None

    def apart(linear: list[Value], target: str) -> Value:
        name = fresh(f"{target}_sum", shapes)
        nodes[name], shapes[name] = Pointwise(total(*linear)), shapes[target]
        return symbol(name)

    def split(expr: Value, target: str, root: bool) -> Value:
        if expr.is_Atom:
            return expr
        linear = terms(expr, target) or []
        if len(set(linear)) == len(linear) and any(map(is_product, linear)):
            return total(*linear) if root else apart(linear, target)
        if isinstance(expr, total):  # whose order is free: what is linear in it comes together
            linear = [t for t in expr.args if is_product(t) or is_bias(t, shapes[target])]
            rest = [split(t, target, False) for t in expr.args if t not in linear]
            if len(set(linear)) == len(linear) > 1 and any(map(is_product, linear)):
                return total(apart(linear, target), *rest)
        return expr.func(*(split(a, target, False) for a in expr.args))

    for name, node in graph.nodes.items():
        wide = isinstance(node, Pointwise) and len(shapes[name]) < 2
        nodes[name] = Pointwise(split(node.expr, name, True)) if isinstance(node, Pointwise) and wide else node
    return replace(graph, nodes=nodes, shapes=shapes)
