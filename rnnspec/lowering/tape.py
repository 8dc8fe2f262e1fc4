"""What the forward program saves for the adjoint, and the adjoint cut at what was saved.

Saved: outputs of transcendental functions, what needs a product to rebuild, and inputs. States are
in their history anyway. What a few multiplications or selects rebuild from those is computed again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnspec.lowering.pairs import pairs_of
from rnnspec.symbolic.expressions import is_cheap
from rnnspec.symbolic.graph import Concat, Graph, Node, Outer, Part, Pointwise, Read, operands
from rnnspec.symbolic.simplify import drop_dead


def cut(forward: Graph, adjoint: Graph, *, fused: bool = False) -> tuple[frozenset[str], Graph]:
    """The forward values to save, and the adjoint reading them from the tape. fused: whether pairs
    are rebuilt from what they are made of, whatever that costs (pairs.py)."""
    needed = {o for n, node in adjoint.nodes.items() if n not in forward.nodes for o in operands(node)} | set(
        adjoint.results()
    )
    after_step = set(forward.states.values())
    saved: set[str] = set()
    free: set[str] = set()  # can be had in the adjoint without saving anything more
    pairs = pairs_of(forward) if fused else frozenset[str]()
    for name in reversed(list(forward.nodes)):
        if name in needed and name in pairs:
            needed.update(operands(forward.nodes[name]))
    wanted = [n for n in forward.nodes if n in needed]
    for name in forward.nodes:
        node = forward.nodes[name]
        rebuilt = name in pairs and all(o in free or o in saved for o in operands(node))
        if name in after_step or (isinstance(node, Read) and node.kind != "input") or rebuilt:
            free.add(name)
        elif name in wanted and not _can_rebuild(node, free | saved):
            saved.add(name)
        elif _can_rebuild(node, free | saved):
            free.add(name)
    graph = cut_at(forward, adjoint, saved)
    taped = {node.source for node in graph.nodes.values() if isinstance(node, Read) and node.kind == "tape"}
    return frozenset(taped - after_step), graph


def cut_at(forward: Graph, adjoint: Graph, saved: Collection[str]) -> Graph:
    """The adjoint that reads from the tape what was saved, and the states after a step."""
    after_step, columned = set(forward.states.values()), forward.columned()
    nodes = {n: _cut_node(n, node, forward, saved, after_step, n in columned) for n, node in adjoint.nodes.items()}
    graph = drop_dead(replace(adjoint, nodes=nodes))
    graph.verify()
    return graph


def _can_rebuild(node: Node, available: set[str]) -> bool:
    moves = isinstance(
        node, Concat | Part | Outer
    )  # no arithmetic, or one product an element, and larger than what it is made of
    return (moves or (isinstance(node, Pointwise) and is_cheap(node.expr))) and all(
        o in available for o in operands(node)
    )


def _cut_node(
    name: str, node: Node, forward: Graph, saved: Collection[str], after_step: set[str], columned: bool
) -> Node:
    in_forward = name in forward.nodes
    if in_forward and (name in saved or (name in after_step and not _is_state_read(forward.nodes[name]))):
        return Read("tape", name, columned)
    return node


def _is_state_read(node: Node) -> bool:
    return isinstance(node, Read) and node.kind in ("state", "parameter", "step")
