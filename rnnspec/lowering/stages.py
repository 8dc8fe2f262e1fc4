"""Which nodes run together: the stages of a program, as drafts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rnnspec.lowering.phases import PHASES, Phases
from rnnspec.lowering.program import Accumulation, Term
from rnnspec.symbolic.graph import Outer, Product, Read, operands

Key = tuple[str, int, str]  # phase, level, size of a stage
ROWWISE = "rowwise"  # in place of a size


def stage_order(key: Key) -> tuple[int, int, str]:
    return PHASES.index(key[0]), key[1], key[2]


@dataclass
class StageDraft:
    """A stage while it is put together."""

    parts: list[Accumulation] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    rowwise: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)  # values that are only read here, to be stored elsewhere
    sums: list[tuple[str, str]] = field(default_factory=list)


def draft_stages(work: Phases) -> dict[Key, StageDraft]:
    graph = work.graph
    stages: dict[Key, StageDraft] = defaultdict(StageDraft)
    for value in work.accumulations:
        for key, part in _parts(work, value):
            stages[key].parts.append(part)
    for name in work.level:
        key = (work.phase[name], work.level[name], work.size(name))
        if name in work.rowwise:
            stages[(key[0], key[1], ROWWISE)].rowwise.append(name)
        elif name not in work.accumulations:
            stages[key].nodes.append(name)
    for state, node_name in graph.states.items():
        if isinstance(graph.nodes[node_name], Read):
            phase, level = (work.taps.phase(state), work.written(state)) if work.taps.phase(state) else ("loop", 0)
            stages[(phase, level, work.size(node_name))].copies.append(node_name)
    for parameter, group in graph.sums.items():
        for node_name in group:
            if not isinstance(graph.nodes[node_name], Outer):
                own = work.phase.get(node_name) == "after" and node_name in work.level
                level = work.level[node_name] + (node_name in work.rowwise) if own else 0
                stages[("after", level, work.size(node_name))].sums.append((parameter, node_name))
    for draft in stages.values():
        draft.nodes = _with_sunk(work, draft)
    return dict(stages)


def _with_sunk(work: Phases, draft: StageDraft) -> list[str]:
    """The nodes of a stage in the graph's order, with the sunk nodes they read."""
    wanted = {*draft.nodes, *(v for v in draft.copies if v in work.sunk), *(v for _, v in draft.sums if v in work.sunk)}
    open_nodes = list(wanted)
    while open_nodes:
        for operand in operands(work.graph.nodes[open_nodes.pop()]):
            if operand in work.sunk and operand not in wanted:
                wanted.add(operand)
                open_nodes.append(operand)
    return [n for n in work.graph.nodes if n in wanted]


def _parts(work: Phases, value: str) -> list[tuple[Key, Accumulation]]:
    """An accumulation, split by the stages in which its products can run."""
    products, biases = work.accumulations[value]
    own = work.phase[value]
    groups: dict[tuple[str, int], list[Term]] = defaultdict(list)
    for product in products:
        node = work.graph.nodes[product]
        assert isinstance(node, Product)
        phase = work.term_phase(product, own)
        groups[(phase, work.term_level(product, phase))].append(Term(node.matrix, node.vector, node.transposed))
    parts = []
    for number, (phase, level) in enumerate(sorted(groups, key=lambda g: (PHASES.index(g[0]), g[1]))):
        terms = tuple(groups[(phase, level)])
        parts.append(
            ((phase, level, work.size(value)), Accumulation(value, terms, biases if number == 0 else (), number == 0))
        )
    return parts
