"""Buffers and places of the values that outlive their stage: the last half of scheduling."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Literal

from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.phases import Phases, read_whole
from rnnspec.lowering.program import Accumulation, Buffer, BufferPlace, CarriedState, Panel, Program, Stage
from rnnspec.lowering.stages import ROWWISE, Key, StageDraft
from rnnspec.symbolic.graph import Outer, Read, flat_size, operands


class Layout:
    """Where a program's values lie. First `place_reads`, then `place_values`; then every draft of a
    stage can be `finished`. tape: the program that wrote the tape, of an adjoint's."""

    def __init__(self, phases: Phases, tape: Program | None):
        self.phases, self.graph, self.tape = phases, phases.graph, tape
        self.buffers: dict[str, Buffer] = {}
        self.places: dict[str, BufferPlace] = {}
        self.inputs: dict[str, str] = {}
        self.states: list[CarriedState] = []

    def new_buffer(
        self,
        wanted: str,
        size: str,
        kind: Literal["rows", "history"] = "rows",
        *,
        saved: bool = False,
        columned: bool = False,
    ) -> str:
        """The name of a new buffer: the wanted one, or the nearest to it that neither this program
        nor the tape has."""
        taken = {**self.buffers, **(self.tape.buffers if self.tape else {})}
        name = fresh(wanted, taken)
        self.buffers[name] = Buffer(name, size, kind, saved, columned=columned)
        return name

    def place_reads(self) -> None:
        """Places of inputs, states, and of what lies on the tape."""
        self._place_states()
        histories = {s.name: s.buffer for s in self.states}
        for name, node in self.graph.nodes.items():
            if not isinstance(node, Read) or node.kind in ("parameter", "step", "size"):
                continue
            if node.kind == "state":
                self.places[name] = BufferPlace(histories[node.source], 0)
            elif node.kind == "input":
                self.inputs[node.source] = self._buffer_of(name)
                self.places[name] = BufferPlace(self.inputs[node.source])
            else:
                self.places[name] = self._taped(node)

    def _place_states(self) -> None:
        """A history for every state, in which its next value lies too: unless it lies in another
        one's, or is only read, or has to be zero where rows have ended."""
        phases, reads = self.phases, self.graph.reads("state")
        prefix, apart = ("d_", read_whole(self.graph)) if self.tape else ("", set())
        for state, value in self.graph.states.items():
            size, columned = phases.size(value), reads.get(state, value) in phases.columned
            name = self.new_buffer(
                f"{prefix}{state}_history", size, "history", saved=phases.keeps_tape, columned=columned
            )
            self.states.append(CarriedState(state, name, size))
            fits = (value in phases.columned) == columned  # a direction that is always 0 has no columns
            if value not in self.places and not phases.is_read(value) and value not in apart and fits:
                self.places[value] = BufferPlace(name, 1)

    def _taped(self, node: Read) -> BufferPlace:
        """Where a value of the forward program lies on the tape."""
        assert self.tape is not None
        histories = {s.name: s.buffer for s in self.tape.states}
        states = [state for state, value in self.tape.graph.states.items() if value == node.source]
        if node.kind == "history":
            place = BufferPlace(histories[node.source], 0)
        elif states:
            place = BufferPlace(histories[states[0]], 1)
        else:
            place = self.tape.places[node.source]
        source = self.tape.buffers[place.buffer]
        self.buffers[place.buffer] = replace(source, saved=False, taped=True)
        return place

    def place_values(self, drafts: dict[Key, StageDraft]) -> None:
        """A buffer for every computed value that is read outside the stage that computes it."""
        phases, graph = self.phases, self.graph
        made: dict[str, Key] = {
            n: key for key, draft in drafts.items() for n in (*draft.nodes, *draft.rowwise) if n not in phases.sunk
        }
        wanted = {*phases.accumulations, *phases.saved, *phases.rowwise}
        wanted |= {*graph.outputs.values(), *graph.states.values()}
        for key, draft in drafts.items():
            wanted |= {t.operand for part in draft.accumulations for t in part.terms}
            wanted |= {o for n in draft.rowwise for o in operands(graph.nodes[n])}
            summed = {value for _, value in draft.sums}
            read = {o for n in draft.nodes for o in operands(graph.nodes[n])} | summed
            wanted |= {name for name in read if made.get(name, key) != key}
            wanted |= summed & phases.columned  # summed column after column, once all are there
        for node in graph.nodes.values():
            if isinstance(node, Outer):
                wanted |= {node.left, node.right}
        for name in graph.nodes:
            if name in wanted and name not in self.places and not phases.is_read(name) and name not in phases.sunk:
                self.places[name] = BufferPlace(self._buffer_of(name))

    def _buffer_of(self, value: str) -> str:
        """The name of a new buffer with a value's rows."""
        phases = self.phases
        return self.new_buffer(
            value, phases.size(value), saved=value in phases.saved, columned=value in phases.columned
        )

    def finished(self, key: Key, draft: StageDraft) -> Stage:
        """The stage of a draft: with its panels, and with the places where it leaves its values."""
        panels: dict[tuple[bool, tuple[str, ...]], list[Accumulation]] = defaultdict(list)
        for part in draft.accumulations:
            columned = any(t.matrix in self.phases.columned for t in part.terms)
            panels[columned, tuple(t.operand for t in part.terms)].append(part)
        ordered = sorted(panels, key=lambda key: key[0])  # they go on with what the others begin
        size = "1" if key[2] == ROWWISE else key[2] if draft.pairs is None else flat_size(draft.pairs)
        return Stage(
            size,
            tuple(Panel(tuple(panels[key])) for key in ordered),
            tuple(draft.nodes),
            tuple(self._stores(key, draft)),
            tuple(draft.sums),
            tuple(draft.rowwise),
            draft.pairs,
        )

    def _stores(self, key: Key, draft: StageDraft) -> list[tuple[str, BufferPlace]]:
        """The values of a stage and their places, in the graph's order: their own, and the history
        of every state whose next value they are. Products are left in their own place by their
        panel."""
        phases, stores = self.phases, list[tuple[str, BufferPlace]]()
        computed = {n for n in (*draft.nodes, *draft.rowwise) if n not in phases.sunk}
        finished = {
            part.value
            for part in draft.accumulations
            if (phases.phase[part.value], phases.level[part.value]) == key[:2]
        }
        for value in self.graph.nodes:
            if value in computed and value in self.places and value not in draft.copies:
                stores.append((value, self.places[value]))
            if value in computed | finished or value in draft.copies:
                there = self.places.get(value) if value in phases.accumulations or value in draft.copies else None
                stores += [
                    (value, place)
                    for place in self._histories_after(value)
                    if (value, place) not in stores and place != there
                ]
        return stores

    def _histories_after(self, value: str) -> list[BufferPlace]:
        """The histories of the states whose next value this is, one step on."""
        return [BufferPlace(s.buffer, 1) for s in self.states if self.graph.states[s.name] == value]
