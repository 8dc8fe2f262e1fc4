"""Graph -> Program: what runs before, inside and after the time loop, in which stages, and what is
stored.

Nothing about a cell is declared: a node is *loop* if it lies on a path from a state's old value to
its new one, *before* if it depends on no state, *after* if no state depends on it. A cell whose
recurrence is elementwise has no product left in the loop because none of its products lies on such
a path.
"""

from __future__ import annotations

from dataclasses import replace

from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.phases import PHASES, Phases, phases_of, read_whole
from rnnspec.lowering.places import Layout
from rnnspec.lowering.program import OuterSum, Program
from rnnspec.lowering.stages import draft_stages, stage_order
from rnnspec.symbolic.graph import Graph, Node, Outer, Pointwise, Read
from rnnspec.symbolic.operations import symbol


def schedule(
    graph: Graph, *, saved: frozenset[str] | None = None, tape: Program | None = None, fused: bool = False
) -> Program:
    """The program of a forward graph (`saved`: values to keep for the adjoint beside the states;
    None keeps no tape) or of an adjoint cut at its tape (`tape`: the forward program that wrote
    it), which runs backwards. fused: whether the backend computes pairs where they are summed
    (pairs.py); else every matrix has a buffer."""
    phases = phases_of(_with_copies(graph) if tape else graph, saved or frozenset(), saved is not None, fused)
    program = _assemble(phases, tape)
    program.verify()
    return program


def _with_copies(graph: Graph) -> Graph:
    """The adjoint with copies of states for the sums that read all rows of a chunk, which no
    state's history may hold (see `read_whole`)."""
    read = read_whole(graph)
    nodes: dict[str, Node] = {}
    shapes, copies = dict(graph.shapes), dict[str, str]()
    for name, node in graph.nodes.items():
        nodes[name] = (
            Outer(copies.get(node.left, node.left), copies.get(node.right, node.right))
            if isinstance(node, Outer)
            else node
        )
        if name in read and isinstance(node, Read) and node.kind == "state":
            copies[name] = fresh(f"{name}_copy", shapes)
            nodes[copies[name]], shapes[copies[name]] = Pointwise(symbol(name)), shapes[name]
    return replace(graph, nodes=nodes, shapes=shapes) if copies else graph


def _assemble(phases: Phases, tape: Program | None) -> Program:
    graph = phases.graph
    drafts = draft_stages(phases)
    layout = Layout(phases, tape)
    layout.place_reads()
    layout.place_values(drafts)
    stages = {
        phase: tuple(layout.finished(key, drafts[key]) for key in sorted(drafts, key=stage_order) if key[0] == phase)
        for phase in PHASES
    }
    outers = tuple(
        OuterSum(parameter, node.left, node.right)
        for parameter, group in graph.sums.items()
        for node in (graph.nodes[n] for n in group)
        if isinstance(node, Outer)
    )
    return Program(
        name=graph.name,
        graph=graph,
        reverse=tape is not None,
        buffers=layout.buffers,
        places=layout.places,
        inputs=layout.inputs,
        states=tuple(layout.states),
        outputs=dict(graph.outputs),
        before=stages["before"],
        loop=stages["loop"],
        after=stages["after"],
        outers=outers,
    )
