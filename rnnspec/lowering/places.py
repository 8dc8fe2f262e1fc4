"""Buffers and places of the values that outlive their stage."""

from __future__ import annotations

from collections import defaultdict

from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.phases import Phases, read_whole
from rnnspec.lowering.program import Accumulation, Buffer, Panel, Place, Program, Stage, State
from rnnspec.lowering.stages import ROWWISE, Key, StageDraft
from rnnspec.symbolic.graph import Outer, Read, operands


class Layout:
    """Buffers and places of the values that outlive their stage."""

    def __init__(self, work: Phases, tape: Program | None):
        self.work, self.tape = work, tape
        self.buffers: dict[str, Buffer] = {}
        self.places: dict[str, Place] = {}
        self.inputs: dict[str, str] = {}
        self.states: list[State] = []

    def add(self, wanted: str, size: str, kind: str = "rows", saved: bool = False, taped: bool = False) -> str:
        name = wanted if taped else fresh(wanted, {**self.buffers, **(self.tape.buffers if self.tape else {})})
        self.buffers[name] = Buffer(name, size, "history" if kind == "history" else "rows", saved, taped)
        return name

    def reads(self) -> None:
        """Places of inputs, states, and of what lies on the tape."""
        work, graph = self.work, self.work.graph
        prefix = "d_" if self.tape else ""
        apart = read_whole(graph) if self.tape else set()
        for state, value in graph.states.items():
            name = self.add(f"{prefix}{state}_history", work.size(value), "history", saved=work.keeps_tape)
            self.states.append(State(state, name, work.size(value)))
            if not (self.places.get(value) or self._is_read(value) or value in apart):
                self.places[value] = Place(name, 1)
        histories = {s.name: s.buffer for s in self.states}
        for name, node in graph.nodes.items():
            if not isinstance(node, Read) or node.kind in ("parameter", "step", "size"):
                continue
            if node.kind == "state":
                self.places[name] = Place(histories[node.source], 0)
            elif node.kind == "input":
                self.inputs[node.source] = self.add(name, work.size(name), saved=name in work.saved)
                self.places[name] = Place(self.inputs[node.source])
            else:
                self.places[name] = self._taped(node, name)

    def _is_read(self, value: str) -> bool:
        return isinstance(self.work.graph.nodes[value], Read)

    def _taped(self, node: Read, name: str) -> Place:
        assert self.tape is not None
        if node.kind == "history":
            place = Place(next(s.buffer for s in self.tape.states if s.name == node.source), 0)
        elif node.source in self.tape.graph.states.values():
            state = next(s for s, value in self.tape.graph.states.items() if value == node.source)
            place = Place(next(s.buffer for s in self.tape.states if s.name == state), 1)
        else:
            place = self.tape.places[node.source]
        source = self.tape.buffers[place.buffer]
        self.add(place.buffer, source.size, source.kind, taped=True)
        return place

    def values(self, stages: dict[Key, StageDraft]) -> None:
        """A buffer for every computed value that is read outside the stage that computes it."""
        work, graph = self.work, self.work.graph
        made: dict[str, Key] = {
            n: key for key, draft in stages.items() for n in (*draft.nodes, *draft.rowwise) if n not in work.sunk
        }
        wanted = set(work.accumulations) | work.saved | set(graph.outputs.values()) | set(graph.states.values())
        wanted |= work.rowwise
        for key, draft in stages.items():
            for part in draft.parts:
                wanted.update(t.operand for t in part.terms)
            for name in (*draft.nodes, *draft.rowwise):
                wanted.update(
                    o for o in operands(graph.nodes[name]) if made.get(o, key) != key or name in draft.rowwise
                )
            wanted.update(v for _, v in draft.sums if made.get(v, key) != key)
        for node in graph.nodes.values():
            if isinstance(node, Outer):
                wanted |= {node.left, node.right}
        for name in graph.nodes:
            if name in wanted and name not in self.places and not self._is_read(name):
                self.places[name] = Place(self.add(name, work.size(name), saved=name in work.saved))

    def stage(self, key: Key, draft: StageDraft) -> Stage:
        panels: dict[tuple[str, ...], list[Accumulation]] = defaultdict(list)
        for part in draft.parts:
            panels[tuple(t.operand for t in part.terms)].append(part)
        stores: list[tuple[str, Place]] = []
        own = {n for n in (*draft.nodes, *draft.rowwise, *draft.copies) if n not in self.work.sunk or n in draft.copies}
        finished = {
            p.value for p in draft.parts if self.work.phase[p.value] == key[0] and self.work.level[p.value] == key[1]
        }
        for value in self.work.graph.nodes:
            if value in own and value in self.places and value not in draft.copies:
                stores.append((value, self.places[value]))
            if value in own | finished:
                lies = self.places.get(value) if value in self.work.accumulations or value in draft.copies else None
                stores += [
                    (value, place)
                    for place in self.state_places(value)
                    if (value, place) not in stores and place != lies
                ]
        size = "1" if key[2] == ROWWISE else key[2]
        ready = tuple(Panel(tuple(parts)) for parts in panels.values())
        return Stage(size, ready, tuple(draft.nodes), tuple(stores), tuple(draft.sums), tuple(draft.rowwise))

    def state_places(self, value: str) -> list[Place]:
        return [Place(s.buffer, 1) for s in self.states if self.work.graph.states[s.name] == value]
