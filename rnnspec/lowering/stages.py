"""Which nodes run together: the stages of a program, as drafts whose values have no places yet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rnnspec.language.spec import Shape
from rnnspec.lowering.phases import PHASES, Phases
from rnnspec.lowering.program import Accumulation, Term
from rnnspec.symbolic.graph import Outer, Product, Read, operands

Key = tuple[str, int, str]  # phase, level, size of a stage
ROWWISE = "rowwise"  # in place of a size


def stage_order(key: Key) -> tuple[int, int, str]:
    return PHASES.index(key[0]), key[1], key[2]


@dataclass
class StageDraft:
    """A stage while it is put together. copies: values that it only reads, to be stored in the
    history of a state. pairs: rows and columns of the matrices that it computes and sums."""

    accumulations: list[Accumulation] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    rowwise: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    sums: list[tuple[str, str]] = field(default_factory=list)
    pairs: Shape | None = None


def draft_stages(phases: Phases) -> dict[Key, StageDraft]:
    """The stages of a program: a node runs with those of its phase, level and size."""
    drafts: dict[Key, StageDraft] = defaultdict(StageDraft)
    for value in phases.accumulations:
        for key, part in _parts(phases, value):
            drafts[key].accumulations.append(part)
    for name, level in phases.level.items():
        if name in phases.rowwise:
            _row_draft(phases, drafts, name, level).rowwise.append(name)
        elif name not in phases.accumulations:
            drafts[phases.phase[name], level, phases.size(name)].nodes.append(name)
    _draft_copies(phases, drafts)
    _draft_sums(phases, drafts)
    for draft in drafts.values():
        draft.nodes = _with_sunk(phases, draft)
    return dict(drafts)


def _row_draft(phases: Phases, drafts: dict[Key, StageDraft], name: str, level: int) -> StageDraft:
    """The draft of a node that needs whole rows: sums of pairs of one shape have their own."""
    phase, found = phases.phase[name], [o for o in operands(phases.graph.nodes[name]) if o in phases.pairs]
    return _pair_draft(phases, drafts, phase, level, found[0]) if found else drafts[phase, level, ROWWISE]


def _pair_draft(
    phases: Phases, drafts: dict[Key, StageDraft], phase: str, level: int, pair: str, of: str = ""
) -> StageDraft:
    shape = phases.graph.shapes[pair]
    draft = drafts[phase, level, f"pairs {' x '.join(shape)}{of}"]
    draft.pairs = shape
    return draft


def _draft_copies(phases: Phases, drafts: dict[Key, StageDraft]) -> None:
    """States whose next value is only read: a stage copies it into their history."""
    for state, value in phases.graph.states.items():
        if isinstance(phases.graph.nodes[value], Read):
            phase = phases.taps.phase(state)
            level = phases.written_level(state) if phase else 0
            drafts[phase or "loop", level, phases.size(value)].copies.append(value)


def _draft_sums(phases: Phases, drafts: dict[Key, StageDraft]) -> None:
    """Values that are summed over all rows, and are no outer products: with the stage that computes
    them, if it runs after the loop."""
    graph = phases.graph
    for parameter, group in graph.sums.items():
        for name in group:
            if not isinstance(graph.nodes[name], Outer):
                level = phases.summed_level(name)
                if name in phases.pairs:
                    draft = _pair_draft(phases, drafts, "after", level, name, " summed")
                else:
                    draft = drafts["after", level, phases.size(name)]
                draft.sums.append((parameter, name))


def _with_sunk(phases: Phases, draft: StageDraft) -> list[str]:
    """The nodes of a stage in the graph's order, with the sunk nodes they read."""
    read = {*draft.copies, *(value for _, value in draft.sums)}
    read |= {o for name in draft.rowwise for o in operands(phases.graph.nodes[name])}
    wanted = {*draft.nodes, *(read & phases.sunk)}
    open_nodes = list(wanted)
    while open_nodes:
        for operand in operands(phases.graph.nodes[open_nodes.pop()]):
            if operand in phases.sunk and operand not in wanted:
                wanted.add(operand)
                open_nodes.append(operand)
    return [n for n in phases.graph.nodes if n in wanted]


def _parts(phases: Phases, value: str) -> list[tuple[Key, Accumulation]]:
    """An accumulation, split by the stages in which its products can run; within a stage, products
    with a matrix for each column come after those with one for all."""
    products, biases = phases.accumulations[value]
    groups: dict[tuple[str, int, bool], list[Term]] = defaultdict(list)
    for product in products:
        node = phases.graph.nodes[product]
        assert isinstance(node, Product)
        phase = phases.term_phase(product, phases.phase[value])
        key = phase, phases.term_level(product, phase), node.matrix in phases.columned
        groups[key].append(Term(node.matrix, node.vector, node.transposed))
    parts = []
    for number, key in enumerate(sorted(groups, key=lambda g: (PHASES.index(g[0]), *g[1:]))):
        (phase, level, _), first, terms = key, number == 0, tuple(groups[key])
        part = Accumulation(value, terms, biases if first else (), first)
        parts.append(((phase, level, phases.size(value)), part))
    return parts
