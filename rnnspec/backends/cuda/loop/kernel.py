"""Program -> text of the kernel that runs the whole time loop: one block for each tile of batch
rows (tier 1), or several, each with a part of the units (tier 2; grid.py has what that takes
beside).

Everything that lives from stage to stage lies in shared memory, recurrent weights in registers or
shared memory. A stage: each thread sums whole columns of its products (a unit of one accumulation,
for all rows of the tile), a barrier, then each thread does the pointwise work of its items (a unit
of one row), a barrier. What a later launch reads also goes to global memory. Sizes are constants of
the text.

A row that has ended, or that only fills up the tile, goes on computing on what lies in shared
memory: it reads and writes nothing in global memory, and its states stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.rowwise import Group, first_phase, second_phase, waiting
from rnnspec.backends.cuda.loop.facts import MOST_GROUP, Facts, Shape
from rnnspec.backends.cuda.loop.grid import enter_whole, exchange_line, exchanged, grid_header
from rnnspec.backends.cuda.loop.products import load_weights, product, product_sums
from rnnspec.backends.cuda.loop.text import LoopText
from rnnspec.lowering.program import Accumulation, BufferPlace, Program, Stage
from rnnspec.lowering.signature import barriers
from rnnspec.symbolic.graph import size_of

HOISTED = 16  # parameters that a thread reads once, before the first step, for each stage


def loop_source(
    program: Program, facts: Facts, shape: Shape, sizes: Mapping[str, int], dtype: str, digest: str = ""
) -> Source:
    """The module of a loop kernel. facts: of its program; shape: what `layout` made; sizes: of the
    spec, by name; dtype: "float32" or "float64"; digest: of the spec."""
    work = LoopText(program, dtype, facts=facts, shape=shape, sizes=sizes)
    work.header("n", "order", "tile_lengths")
    work.line("thread = uint64(cuda.threadIdx.x)")
    if work.alone:
        work.line(f"row0 = uint64(cuda.blockIdx.x) * {work.u(shape.rows)}")
    else:
        grid_header(work)
    work.line("sh = cuda.shared.array(0, real, alignment=16)")
    work.line("limit = tile_lengths[row0]  # rows lie in order of their lengths, the longest first")
    _items(work)
    _enter(work)
    for number, stage in enumerate(program.loop):
        for index, panel in enumerate(stage.panels):
            load_weights(work, stage, panel, (number, index))
        _hoist(work, stage)
    work.line("cuda.syncthreads()")
    _steps(work)
    _leave(work)
    title = f"{shape.rows} rows {'a block' if work.alone else f'to {shape.blocks} blocks'}, weights in {shape.weights}"
    return work.source(
        title, digest, shape.threads, shape.shared, sizes=dict(sizes), rows=shape.rows, blocks=shape.blocks
    )


def _sizes(work: LoopText) -> list[str]:
    """The sizes that items are counted by."""
    program = work.program
    return list(dict.fromkeys([s.size for s in program.loop if not s.rowwise] + [s.size for s in work.facts.inside]))


def _items(work: LoopText) -> None:
    """Which row and unit each item of a thread is. One that is none has no length and is never
    live."""
    for size in _sizes(work):
        for item in work.items(size):
            r, u, j, b, length, mine = (
                work.of_item(what, size, item) for what in ("r", "u", "j", "b", "length", "mine")
            )
            all_items, own = work.u(work.shape.rows * work.own(size)), work.u(work.own(size))
            work.line(f"e = thread + {work.u(item * work.shape.threads)}")
            if not work.whole(size, item):
                work.line(f"e = e if e < {all_items} else {work.u(0)}")
            work.line(f"{r}, {j} = e // {own}, e % {own}")
            if not work.alone:
                work.line(f"{u} = {work.first(size)} + {j}")
            if work.ragged(size):
                work.line(
                    f"{mine} = thread + {work.u(item * work.shape.threads)} < {all_items} and {u} < {work.size(size)}"
                )
                work.line(f"{u} = {u} if {u} < {work.size(size)} else {work.u(0)}")
            work.line(f"{b}, {length} = order[row0 + {r}], tile_lengths[row0 + {r}]")
            if not work.whole(size, item):
                there = mine if work.ragged(size) else f"thread + {work.u(item * work.shape.threads)} < {all_items}"
                work.line(f"{length} = {length} if {there} else {work.u(0)}")
    if any(stage.rowwise for stage in work.program.loop):
        group = work.u(_group(work))
        work.line(f"r = thread // {group}")
        work.line(f"r = r if r < {work.u(work.shape.rows)} else {work.u(0)}")
        work.line(f"lane = thread % {group}")
        work.line("b, length = order[row0 + r], tile_lengths[row0 + r]")


def _group(work: LoopText) -> int:
    """Threads that share a row where whole rows are needed."""
    return max(1, min(MOST_GROUP, work.shape.threads // work.shape.rows))


def _guarded(work: LoopText, size: str, item: int) -> AbstractContextManager[None]:
    """A block for the threads that have this item."""
    if work.whole(size, item):
        return work.block("")
    left = f"thread < {work.u(work.shape.rows * work.own(size) - item * work.shape.threads)}"
    return work.block(f"if {work.of_item('mine', size, item) if work.ragged(size) else left}:")


def _enter(work: LoopText) -> None:
    """The states before the first step."""
    for state in work.facts.inside:
        given = work.argument(f"start {state.name}", f"{state.name}_start")
        for item in work.items(state.size):
            r, u, j, b, length = (work.of_item(what, state.size, item) for what in ("r", "u", "j", "b", "length"))
            with _guarded(work, state.size, item):
                work.line("total = real(0.0)")
                work.line(f"if row0 + {r} < n:")
                work.line(f"    total = {given}[{b} * {work.size(state.size)} + {u}]")
                if state.buffer in work.facts.outside:
                    first = f"{length} * n + {b}" if work.program.reverse else b
                    base = work.pointer(BufferPlace(state.buffer, 1 if work.program.reverse else 0))
                    work.line(f"    {base}[({first}) * {work.size(state.size)} + {u}] = total")
                if work.alone or not work.facts.tiles[f"state {state.name}"].whole:
                    work.line(f"{work.tile(f'state {state.name}', r, u, '', j)} = total")
    if not work.alone:
        enter_whole(work)


def _leave(work: LoopText) -> None:
    """The states after the last step."""
    for state in work.facts.inside:
        result = work.argument(f"final {state.name}", f"{state.name}_final")
        copy = f"(limit & {work.u(1)}) * {work.u(work.copy(f'state {state.name}'))}"
        for item in work.items(state.size):
            r, u, j, b = (work.of_item(what, state.size, item) for what in ("r", "u", "j", "b"))
            with _guarded(work, state.size, item):
                work.line(f"if row0 + {r} < n:")
                work.line(
                    f"    {result}[{b} * {work.size(state.size)} + {u}] ="
                    f" {work.tile(f'state {state.name}', r, u, copy, j)}"
                )


def _fixed(work: LoopText, stage: Stage) -> list[str]:
    """Parameters and sizes that the pointwise work of a stage reads."""
    biases = {b for panel in stage.panels for acc in panel.accumulations if acc.first for b in acc.biases}
    wanted = biases | {n for n in work.outside(stage) if work.program.is_read(n, "parameter", "size")}
    return [n for n in work.graph.nodes if n in wanted]


def _hoist(work: LoopText, stage: Stage) -> None:
    """What is the same in every step, read before the first one if that is little."""
    if not stage.rowwise and len(_fixed(work, stage)) * len(work.items(stage.size)) <= HOISTED:
        _load_fixed(work, stage, work.items(stage.size))


def _load_fixed(work: LoopText, stage: Stage, items: range) -> None:
    for item in items:
        for name in _fixed(work, stage):
            work.line(f"{work.value(name, str(item))} = {work.fixed(name, work.of_item('u', stage.size, item), '')}")


def _steps(work: LoopText) -> None:
    one, program = work.u(1), work.program
    work.line(f"s = {work.u(0)}")
    with work.block("while s < limit:"):
        work.line(f"t = limit - {one} - s" if program.reverse else "t = s")
        for state in work.facts.inside:
            copy = work.u(work.copy(f"state {state.name}"))
            now, then = work.copies(f"state {state.name}")
            work.line(f"{now} = (s & {one}) * {copy}  # {state.name} before the step, and after it")
            work.line(f"{then} = {copy} - {now}")
        exchange_line(work)
        for size in dict.fromkeys(s.size for s in program.loop if not s.rowwise):
            for item in work.items(size):
                live, row, at, u, b, length = (
                    work.of_item(what, size, item) for what in ("live", "row", "at", "u", "b", "length")
                )
                work.line(f"{live}, {row} = t < {length}, t * n + {b}")
                work.line(f"{at} = {row} * {work.size(size)} + {u}")
        if any(stage.rowwise for stage in program.loop):
            work.line("live, row = t < length, t * n + b")
        for number, stage in enumerate(program.loop):
            (_row_stage if stage.rowwise else _stage)(work, stage, number)
            if not work.alone and work.facts.published(number):
                exchanged(work, number)
            elif barriers(program):
                work.line("cuda.syncthreads()")
        work.line(f"s += {one}")


# --- a stage


def _stage(work: LoopText, stage: Stage, number: int) -> None:
    items = work.items(stage.size)
    for item in items:
        _global_loads(work, stage, number, item)
    for index, panel in enumerate(stage.panels):
        product(work, stage, panel, (number, index))
    if stage.panels:
        work.line("cuda.syncthreads()")
    hoisted = len(_fixed(work, stage)) * len(items) <= HOISTED
    for item in items:
        with _guarded(work, stage.size, item):
            if not hoisted:
                _load_fixed(work, stage, range(item, item + 1))
            _item(work, stage, number, item)


def _accumulations(stage: Stage) -> list[tuple[int, int, Accumulation]]:
    """Panel, place in the panel, accumulation."""
    return [
        (index, gate, acc) for index, panel in enumerate(stage.panels) for gate, acc in enumerate(panel.accumulations)
    ]


def _starts_in_global(work: LoopText, acc: Accumulation, number: int) -> bool:
    """Whether what an accumulation goes on from was computed before the loop."""
    return not acc.first and work.facts.parts[acc.value][0] == number


def _start(work: LoopText, acc: Accumulation, item: int) -> str:
    return work.name(f"start {acc.value} {item}", f"{acc.value}_start_{item}")


def _global_loads(work: LoopText, stage: Stage, number: int, item: int) -> None:
    """What lies in global memory, asked for before the products so that it is there after them."""
    live, row, at = (work.of_item(what, stage.size, item) for what in ("live", "row", "at"))
    loads = {}
    for name in work.outside(stage):
        if work.in_global(name):
            loads[work.value(name, str(item))] = (
                f"{work.pointer(work.program.places[name])}[{row if work.is_number(name, stage) else at}]"
            )
    for _, _, acc in _accumulations(stage):
        if _starts_in_global(work, acc, number):
            loads[_start(work, acc, item)] = f"{work.pointer(work.program.places[acc.value])}[{at}]"
    for variable in loads:
        work.line(f"{variable} = real(0.0)")
    if loads:
        work.line(f"if {live}:")
        for variable, text in loads.items():
            work.line(f"    {variable} = {text}")


def _item(work: LoopText, stage: Stage, number: int, item: int) -> None:
    """The pointwise work of one item."""
    r, u, j = (work.of_item(what, stage.size, item) for what in ("r", "u", "j"))
    own = {acc.value for _, _, acc in _accumulations(stage)}
    b = work.of_item("b", stage.size, item)
    for name in work.outside(stage):
        if name in own or work.in_global(name):
            continue
        if work.program.is_read(name, "step"):
            work.line(f"{work.value(name, str(item))} = {work.fixed(name, u, b)}")
        elif not work.fixed(name, u, b):
            work.line(
                f"{work.value(name, str(item))} ="
                f" {work.element(name, r, work.u(0) if work.is_number(name, stage) else u, j)}"
            )
    begun = set[str]()
    for index, gate, acc in _accumulations(stage):
        terms = (
            [work.value(acc.value, str(item))]
            if acc.value in begun  # by another panel of the stage
            else [work.value(b, str(item)) for b in acc.biases]
            if acc.first
            else [_start(work, acc, item) if _starts_in_global(work, acc, number) else work.element(acc.value, r, u, j)]
        )
        terms += product_sums(work, stage, (number, index), gate, (r, j))
        work.line(f"{work.value(acc.value, str(item))} = {' + '.join(terms)}")
        begun.add(acc.value)
    work.compute(stage.nodes, str(item))
    _store(work, stage, number, item)


def _store(work: LoopText, stage: Stage, number: int, item: int) -> None:
    r, u, j, live, at = (work.of_item(what, stage.size, item) for what in ("r", "u", "j", "live", "at"))
    published = () if work.alone else work.facts.published(number)
    to_global = []
    for value, place in dict.fromkeys(work.facts.stored(stage)):
        text = work.value(value, str(item))
        unfinished = work.facts.unfinished(value, number)
        work.store(value, place, (r, u, j), text, "" if unfinished else live, () if unfinished else published)
        if place.buffer in work.facts.outside and not unfinished and (value, place) not in work.facts.carried(stage):
            to_global.append(f"{work.pointer(place)}[{at}] = {text}")
    if to_global:
        work.line(f"if {live}:")
        for text in to_global:
            work.line(f"    {text}")


@dataclass(frozen=True)
class _Rows:
    """Elements of the row `r` of the tile. Blocks that share it do all the same, and one of them
    writes to global memory."""

    work: LoopText
    stage: Stage
    stored: set[str] = field(default_factory=set)

    def read(self, name: str, index: str) -> str:
        work = self.work
        if text := work.fixed(name, index, "b"):
            return text
        if work.in_global(name):
            return (
                f"({work.pointer(work.program.places[name])}[row * {work.size(size_of(work.graph, name))} + {index}] if"
                " live else real(0.0))"
            )
        return work.element(name, "r", index)

    def write(self, name: str, index: str, text: str) -> None:
        work = self.work
        if text != "total":
            work.line(f"total = {text}")
        for place in work.facts.left(self.stage, name):
            work.store(name, place, ("r", index, index), "total", "live")
            if place.buffer in work.facts.outside:
                work.line("if live:" if work.alone else f"if live and part == {work.u(0)}:")
                work.line(f"    {work.pointer(place)}[row * {work.size(size_of(work.graph, name))} + {index}] = total")


def _row_stage(work: LoopText, stage: Stage, number: int) -> None:
    size = _group(work)
    group, access = Group(work.u(size), "lane", work.shape.parts, work.shape.threads), _Rows(work, stage)
    guard = f"if thread < {work.u(size * work.shape.rows)}:"
    if waiting(stage, work.graph):
        with work.block(guard):
            first_phase(work, stage, access, group)
        work.line("cuda.syncthreads()")
    with work.block(guard):
        second_phase(work, stage, access, group)
