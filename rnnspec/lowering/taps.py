"""States that are no recurrence: what an earlier step read or computed, kept for a later one.

x[t-1] is a state whose next value, x[t], depends on no state. So it is known for every step of a
chunk before the time loop begins, and a product with it is hoisted like one with x[t]: QRNN has no
product in its loop. Backwards the same state is the mirror image: the gradient that x[t-1] passes
on to the step before is read by nothing that the loop needs, so it is computed after the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from rnnspec.symbolic.graph import Graph, Read, operands


@dataclass(frozen=True)
class Taps:
    """early: states that depend on no recurrence; late: states on which none depends. order: the
    graph's nodes, each after what it reads, and a read of such a state after the value that is kept
    in it."""

    early: frozenset[str]
    late: frozenset[str]
    order: tuple[str, ...]

    def phase(self, state: str) -> str:
        """Where a state is written: "before", "after", or "" for the loop."""
        return "before" if state in self.early else "after" if state in self.late else ""


def taps_of(graph: Graph) -> Taps:
    reads: dict[str, frozenset[str]] = {}  # node -> the states that it depends on within a step
    for name, node in graph.nodes.items():
        own = {node.source} if isinstance(node, Read) and node.kind == "state" else set()
        reads[name] = frozenset(own).union(*(reads[o] for o in operands(node)))
    reach = _closure({state: reads[value] for state, value in graph.states.items()})
    recurrent = {state for state, others in reach.items() if state in others}
    early = frozenset(s for s in reach if s not in recurrent and not reach[s] & recurrent)
    late = frozenset(
        s for s in reach if s not in recurrent and s not in early and not any(s in reach[r] for r in recurrent)
    )
    if not early and not late:
        return Taps(early, late, tuple(graph.nodes))
    wanted = {name: list(operands(node)) for name, node in graph.nodes.items()}
    for name, node in graph.nodes.items():
        if isinstance(node, Read) and node.kind == "state" and node.source in early | late:
            wanted[name].append(graph.states[node.source])
    return Taps(early, late, tuple(TopologicalSorter(wanted).static_order()))


def _closure(direct: Mapping[str, frozenset[str]]) -> dict[str, set[str]]:
    """What each state depends on over any number of steps."""
    reach = {state: set(others) for state, others in direct.items()}
    for through in direct:
        for others in reach.values():
            if through in others:
                others |= reach[through]
    return reach
