"""What a loop kernel (kernel.py) keeps where: read off the Program, and, for given sizes, laid out
in shared memory.

A *tile* holds a value of every row of the block: the states, of the step before and of this one,
and what one stage of the loop computes and another reads. Buffers that anything outside the loop
reads also lie in global memory.

Where several blocks share a tile of rows, each has a part of every size's units: it computes those,
and keeps them alone of a tile that is only read unit by unit. Of a *whole* tile every block keeps
all units; what the blocks write of it goes through an exchange in global memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rnnspec.backends.cuda.emit.rowwise import waiting
from rnnspec.language.sizes import evaluate_size
from rnnspec.lowering.program import BufferPlace, CarriedState, Panel, Program, Stage
from rnnspec.storage.locks import once_only
from rnnspec.symbolic.graph import operands, size_of

WARP = 32
MOST_THREADS = 512
WANTED_THREADS = 256  # of a block: where columns are fewer, their terms are shared out
LEAST_TERMS = 8  # of a share
CUTS = (64, 32, 16, 8, 4, 2, 1)  # into how many shares an operand may be cut
MOST_GROUP = 32  # threads that share a row where whole rows are needed: their parts are added one after another
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Tile:
    """A value of every row of a block. copies: 2 of a state, for the step before and this one;
    whole: whether something reads other units than its own."""

    size: str
    copies: int
    whole: bool


@dataclass(frozen=True)
class Facts:
    """What stages of a program's loop hand on to each other, and to what runs outside it."""

    program: Program

    @once_only
    def states(self) -> Mapping[str, CarriedState]:
        """The states by the buffers of their histories."""
        return {s.buffer: s for s in self.program.states}

    @once_only
    def parts(self) -> Mapping[str, tuple[int, ...]]:
        """Accumulation -> the stages of the loop that add to it."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, stage in enumerate(self.program.loop):
            for panel in stage.panels:
                for acc in panel.accumulations:
                    found[acc.value].append(number)
        return {v: tuple(dict.fromkeys(stages)) for v, stages in found.items()}

    @once_only
    def made(self) -> frozenset[str]:
        """What the loop computes."""
        return frozenset(self.parts) | {n for stage in self.program.loop for n in (*stage.nodes, *stage.rowwise)}

    def state_of(self, name: str) -> tuple[CarriedState, Literal["now", "then"]] | None:
        """The state that a value is, before the step ("now") or after it ("then")."""
        place = self.program.places.get(name)
        state = self.states.get(place.buffer) if place else None
        if state is None or place is None or (place.shift and name not in self.made):
            return None
        return state, "then" if place.shift else "now"

    @once_only
    def tiles(self) -> Mapping[str, Tile]:
        """ "state <name>" and "value <name>" -> its tile."""
        tiles = {f"state {s.name}": (s.size, 2) for s in self.inside}
        for number, stage in enumerate(self.program.loop):
            for name in sorted(self._read(stage)):
                own = number in self.parts.get(name, ()) or name in stage.nodes
                if name in self.made and not own and not self.state_of(name):
                    tiles[f"value {name}"] = (size_of(self.program.graph, name), 1)
        for value, stages in self.parts.items():
            if len(stages) > 1 and not self.state_of(value):
                tiles[f"value {value}"] = (size_of(self.program.graph, value), 1)
        return {key: Tile(*tile, key in self._whole) for key, tile in tiles.items()}

    def key(self, value: str, place: BufferPlace | None = None) -> str:
        """The tile of a value, or of one of the places where it is stored."""
        if place is None:
            found = self.state_of(value)
            return f"state {found[0].name}" if found else f"value {value}"
        return f"state {self.states[place.buffer].name}" if place.buffer in self.states else f"value {value}"

    @once_only
    def _whole(self) -> frozenset[str]:
        graph, found = self.program.graph, set[str]()
        for stage in self.program.loop:
            found |= {self.key(o) for panel in stage.panels for o in panel.operands}
            found |= {self.key(o) for n in stage.rowwise for o in operands(graph.nodes[n])}
            found |= {self.key(n) for n in self._read(stage) if size_of(graph, n) != stage.size}
            found |= {self.key(n, place) for n in stage.rowwise for place in self.left(stage, n)}
        return frozenset(found)

    def left(self, stage: Stage, name: str) -> list[BufferPlace]:
        """Where a node of a stage that works row by row is left."""
        return list(dict.fromkeys([self.program.places[name], *(p for v, p in stage.stores if v == name)]))

    def unfinished(self, value: str, number: int) -> bool:
        """Whether a stage leaves a sum to which a later one adds."""
        return number in self.parts.get(value, ()) and self.parts[value][-1] != number

    def published(self, number: int) -> list[str]:
        """The whole tiles to which a stage adds its units."""
        stage = self.program.loop[number]
        keys = (
            []
            if stage.rowwise
            else [self.key(v, place) for v, place in self.stored(stage) if not self.unfinished(v, number)]
        )
        return [key for key in dict.fromkeys(keys) if key in self.tiles and self.tiles[key].whole]

    def _read(self, stage: Stage) -> set[str]:
        """What a stage reads or leaves, but for what it computes of whole rows."""
        read = {o for panel in stage.panels for o in panel.operands} | set(stage.reads(self.program.graph))
        return read | {v for v, _ in stage.stores if v not in stage.rowwise}

    @once_only
    def outside(self) -> frozenset[str]:
        """The buffers that something else than the loop reads."""
        program = self.program
        read = set(program.outputs.values()) | {v for o in program.outers for v in (o.left, o.right)}
        for stage in (*program.before, *program.after):
            read |= self._read(stage)
        return frozenset(
            {program.places[v].buffer for v in read if v in program.places}
            | {b.name for b in program.buffers.values() if b.saved}
        )

    def stored(self, stage: Stage) -> Iterator[tuple[str, BufferPlace]]:
        """The values that a stage leaves, and where, those of its products included."""
        for panel in stage.panels:
            for acc in panel.accumulations:
                yield acc.value, self.program.places[acc.value]
        yield from dict.fromkeys([*stage.stores, *self.carried(stage)])

    @once_only
    def inside(self) -> tuple[CarriedState, ...]:
        """The states that the loop computes or reads. The others are computed of all steps at once,
        and their history holds them."""
        read = {self.key(n) for stage in self.program.loop for n in self._read(stage)}
        return tuple(
            s
            for s in self.program.states
            if self.program.graph.states[s.name] in self.made or f"state {s.name}" in read
        )

    @once_only
    def ready(self) -> tuple[CarriedState, ...]:
        """The states that the loop does not compute."""
        return tuple(s for s in self.program.states if self.program.graph.states[s.name] not in self.made)

    def carried(self, stage: Stage) -> list[tuple[str, BufferPlace]]:
        """States that the loop reads and does not compute: the first stage of their size takes them
        from global memory."""
        program, found = self.program, []
        for state in self.inside:
            value, place = program.graph.states[state.name], BufferPlace(state.buffer, 1)
            first = next((s for s in program.loop if s.size == state.size and not s.rowwise), None)
            if state in self.ready and program.places.get(value) == place and first is stage:
                found.append((value, place))
        return found

    def waiting(self, stage: Stage) -> int:
        """How many nodes of a stage need memory for the parts of their threads."""
        return len(waiting(stage, self.program.graph))


@dataclass(frozen=True)
class Shape:
    """A loop kernel for given sizes. Offsets and `shared` are in numbers from the start of the
    block's shared memory."""

    rows: int
    blocks: int  # that share the units of a tile of rows
    threads: int
    weights: Literal["registers", "shared"]
    tiles: Mapping[str, int]
    strides: Mapping[str, int]  # distance of a tile's rows
    products: Mapping[tuple[int, int], int]  # stage, panel -> where its sums are put
    shares: Mapping[tuple[int, int], int]  # and by how many threads the terms of a sum are shared
    matrices: Mapping[tuple[int, int], int]  # and where its weights lie, if in shared memory
    parts: int
    shared: int
    exchanged: Mapping[str, int]  # whole tile -> its place in the exchange
    exchange: int  # numbers of that, for one step


def layout(
    facts: Facts,
    sizes: Mapping[str, int],
    item: int,
    rows: int,
    weights: Literal["registers", "shared"],
    blocks: int = 1,
    wanted: int = WANTED_THREADS,
) -> Shape:
    """The shape of the kernel with so many rows to a tile, and blocks that share its units.

    facts: of its program; sizes: the value of every size; item: bytes of a number; weights: where
    they are kept; wanted: threads of a block, if there are terms enough to share out."""
    program, vector = facts.program, VECTOR_BYTES // item

    def up(count: int) -> int:
        return -(-count // vector) * vector

    shares, threads = _shares(facts, sizes, vector, blocks, wanted)
    strides = {key: up(own_units(tile.size, sizes, 1 if tile.whole else blocks)) for key, tile in facts.tiles.items()}
    tiles, products, matrices, end = dict[str, int](), dict[tuple[int, int], int](), dict[tuple[int, int], int](), 0
    for key, tile in facts.tiles.items():
        tiles[key] = end
        end += tile.copies * rows * strides[key]
    used = end
    for number, stage in enumerate(program.loop):
        at = end
        for index, panel in enumerate(stage.panels):
            products[number, index] = at
            at += up(rows * columns(panel, stage, sizes, blocks) * shares[number, index])
        used = max(used, at, end + facts.waiting(stage) * threads)
    parts, end = end, up(used)
    if weights == "shared":
        for number, stage in enumerate(program.loop):
            for index, panel in enumerate(stage.panels):
                matrices[number, index] = end
                end += up(columns(panel, stage, sizes, blocks) * inner(facts, panel, sizes))
    exchanged, exchange = _exchange(facts, rows, strides) if blocks > 1 else ({}, 0)
    return Shape(
        rows, blocks, threads, weights, tiles, strides, products, shares, matrices, parts, end, exchanged, exchange
    )


def _exchange(facts: Facts, rows: int, strides: Mapping[str, int]) -> tuple[dict[str, int], int]:
    places, end = dict[str, int](), 0
    for number in range(len(facts.program.loop)):
        for key in facts.published(number):
            places[key] = end
            end += rows * strides[key]
    return places, end


def own_units(size: str, sizes: Mapping[str, int], blocks: int) -> int:
    """How many units of a size a block has, at most."""
    return -(-evaluate_size(size, sizes) // blocks)


def columns(panel: Panel, stage: Stage, sizes: Mapping[str, int], blocks: int) -> int:
    """How many sums one row of a panel has in a block: one for each unit of each accumulation."""
    return len(panel.accumulations) * own_units(stage.size, sizes, blocks)


def inner(facts: Facts, panel: Panel, sizes: Mapping[str, int]) -> int:
    """The terms of each of those sums."""
    return sum(evaluate_size(size_of(facts.program.graph, o), sizes) for o in panel.operands)


def weight_registers(facts: Facts, sizes: Mapping[str, int], shape: Shape) -> int:
    """Weights that each thread holds, where they lie in registers."""
    found = 0
    for number, stage in enumerate(facts.program.loop):
        for index, panel in enumerate(stage.panels):
            share = shape.shares[number, index]
            found += -(-columns(panel, stage, sizes, shape.blocks) * share // shape.threads) * (
                inner(facts, panel, sizes) // share
            )
    return found


def _shares(
    facts: Facts, sizes: Mapping[str, int], vector: int, blocks: int, wanted: int
) -> tuple[dict[tuple[int, int], int], int]:
    """How many threads share the terms of each panel's sums, and how many a block has."""
    program = facts.program
    panels = {
        (number, index): (stage, panel)
        for number, stage in enumerate(program.loop)
        for index, panel in enumerate(stage.panels)
    }
    widths = {key: columns(panel, stage, sizes, blocks) for key, (stage, panel) in panels.items()}
    least = max(
        [*widths.values(), *(own_units(s.size, sizes, blocks) for s in program.loop if not s.rowwise)], default=1
    )
    shares = {
        key: _share(facts, panel, sizes, vector, max(least, wanted) // widths[key])
        for key, (_, panel) in panels.items()
    }
    most = max([least, *(width * shares[key] for key, width in widths.items())])
    return shares, min(MOST_THREADS, -(-most // WARP) * WARP)


def _share(facts: Facts, panel: Panel, sizes: Mapping[str, int], vector: int, most: int) -> int:
    """Each share is a whole operand, or an equal part of one; 1 where that does not come out. most:
    threads for a column."""
    widths = {evaluate_size(size_of(facts.program.graph, o), sizes) for o in panel.operands}
    operands, width = len(panel.operands), min(widths)
    if len(widths) > 1 or (operands > 1 and any(facts.state_of(o) for o in panel.operands)):
        return 1
    for cut in CUTS:
        if width % (cut * vector) == 0 and width // cut >= LEAST_TERMS and operands * cut <= most:
            return operands * cut
    return 1
