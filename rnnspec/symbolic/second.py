"""Two Graphs -> two Graphs: forward mode through reverse mode.

In: a step and its adjoint. Out: the step with its directions, and the adjoint with the directions
of all that it gives, which reads the first one's values by their names, as an adjoint reads those
of its step: the second derivatives along the directions are those of the gradients. The second is
run from the last step to the first, after the first. It is cut at a tape, scheduled and emitted
like any adjoint.

Where the adjoint keeps a term 0 because nothing flows (derive.py), what flows in its direction
still does. Functions whose derivatives are meant to be others than those of their values
(straight_through, steps with a surrogate) are differentiated by those once more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnspec.language.spec import tangent_of
from rnnspec.symbolic.derive import varying
from rnnspec.symbolic.graph import Graph, Node, Outer, Read
from rnnspec.symbolic.left_out import flowing, is_upstream
from rnnspec.symbolic.simplify import split_sums
from rnnspec.symbolic.tangent import Moving, settled, with_directions


def second(
    step: Graph, adjoint: Graph, constants: Collection[str] = (), still: Collection[str] = (), *, alone: bool = False
) -> tuple[Graph, Graph]:
    """The step with its directions, and the adjoint with its own, ready to be scheduled.

    constants, still: as for `tangent`; what flows into the adjoint always has directions. alone:
    whether of the adjoint only the directions are results.
    """
    whole = _joined(step, adjoint)
    flows = flowing(whole)
    work = Moving(whole, flows)
    active = varying(whole, {*constants, *_still(whole, still)}, {"history"} & set(still))
    work.move(step_nodes := {n: whole.nodes[n] for n in step.nodes}, active)
    states, outputs = work.both(step.states), work.both(step.outputs)
    made = {n: node for n, node in work.draft.nodes.items() if n not in adjoint.nodes or n in step.nodes}
    ahead = settled(
        Graph(
            f"{step.name} tangent",
            {n: step.nodes.get(n, _as_state(node)) for n, node in made.items()},
            work.draft.shapes,
            states,
            outputs,
            {},
            with_directions(step.pieces),
        )
    )
    ahead = split_sums(ahead)
    work.draft.taken.update(ahead.shapes)
    work.move({n: node for n, node in whole.nodes.items() if n not in step_nodes}, active)
    return ahead, _reverse(ahead, adjoint, work, alone)


def _joined(step: Graph, adjoint: Graph) -> Graph:
    """The adjoint with every node of the step before its own."""
    nodes = {n: _as_history(node) for n, node in step.nodes.items()}
    nodes |= {n: node for n, node in adjoint.nodes.items() if n not in step.nodes}
    return replace(adjoint, nodes=nodes, shapes={**step.shapes, **adjoint.shapes})


def _reverse(ahead: Graph, adjoint: Graph, work: Moving, alone: bool) -> Graph:
    """The adjoint with its directions; what the step with its directions computes is as it is
    there."""
    sums = dict[str, tuple[str, ...]]() if alone else dict(adjoint.sums)
    for parameter, group in adjoint.sums.items():
        terms = [term for name in group for term in _summed(work, name)]
        sums |= {tangent_of(parameter): tuple(terms)} if terms else {}
    states, outputs = work.both(adjoint.states), work.both(adjoint.outputs)
    nodes = {n: _as_history(node) for n, node in ahead.nodes.items()}
    nodes |= {n: node for n, node in work.draft.nodes.items() if n not in ahead.nodes}
    graph = Graph(
        f"{adjoint.name} tangent",
        nodes,
        {**ahead.shapes, **work.draft.shapes},
        {s: n for s, n in states.items() if not alone or s not in adjoint.states},
        {o: n for o, n in outputs.items() if not alone or o not in adjoint.outputs},
        sums,
        with_directions(adjoint.pieces),
    )
    return split_sums(settled(graph, ahead.nodes))


def _summed(work: Moving, name: str) -> tuple[str, ...]:
    """The nodes whose sums are the direction of a sum."""
    node = work.draft.nodes[name]
    if isinstance(node, Outer):
        return work.parts(name, node)
    return (work.dots[name],) if name in work.dots else ()


def _still(graph: Graph, kinds: Collection[str]) -> set[str]:
    """The inputs and parameters of these kinds, but for what flows into an adjoint."""
    return {source for kind in kinds for source in graph.reads(kind) if not is_upstream(source)} | {
        piece.parameter for piece in graph.pieces.values() if "parameter" in kinds
    }


def _as_history(node: Node) -> Node:
    return replace(node, kind="history") if isinstance(node, Read) and node.kind == "state" else node


def _as_state(node: Node) -> Node:
    return replace(node, kind="state") if isinstance(node, Read) and node.kind == "history" else node
