"""Program -> source text of one kernel for Numba.

The emitted function works on one block of batch rows, through the whole sequence, with everything it needs in one
table of int64 fields; which field is what stands in the text's LAYOUT, so that a kernel read from the cache can be
called without building anything. Names are the spec's; names of ours give way to them.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pprint import pformat
from typing import Any

from rnnspec.backends.cpu.expressions import VectorWriter
from rnnspec.backends.cpu.layout import barriers, gradient_name, layout
from rnnspec.backends.cpu.rowwise import rowwise
from rnnspec.lowering.program import Accumulation, Panel, Place, Program, Stage
from rnnspec.lowering.schedule import size_of
from rnnspec.symbolic.graph import Pointwise, Read, fresh, node_text, operands

IMPORTS = ("at", "copy", "first_lanes", "from_int", "get", "horizontal_max", "horizontal_sum", "invoke", "larger", "load", "load_one", "load_splat", "min",
           "number", "pointer", "pointer_int", "prefix_sum", "put", "put_all", "select", "spread_lane", "store", "store_first",
           "store_one", "suffix_sum", "wait")
FUNCTIONS = ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "erf", "tanh", "sigmoid")
LOCALS = ("active", "barrier", "call", "chunk", "chunk_table", "chunks", "count", "dest", "end", "fields", "first", "full", "gather", "group", "history_rows",
          "item", "k", "kernel", "lanes", "left", "lengths", "min", "n", "njit", "offset", "order", "outer", "p", "part", "parts", "piece", "product",
          "range", "right", "row", "row0", "rows", "s", "s_end", "s_first", "scatter", "scratch", "source", "span", "spans", "steps", "t", "t0", "table",
          "total", "turn", "unit", "yielding", "zeros")
CHUNK_FIELDS = 5  # first step, steps, rows of the first step, rows before it on the tape, the same in a history
HEADER = ("product", "outer", "gather", "scatter", "chunks", "chunk_table", "order", "active", "lengths", "zeros", "scratch", "part", "parts", "barrier",
          "yielding")


@dataclass(frozen=True)
class Target:
    """What the text depends on beside the program: dtype name, lanes of its vector, most vectors in one panel group."""

    dtype: str
    lanes: int
    vectors: int


@dataclass
class Emission:
    """One text under construction: the names in use, the table's fields in order, and what the launcher has to pack."""

    program: Program
    target: Target
    lines: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=lambda: list(HEADER))
    names: dict[str, str] = field(default_factory=dict)
    panels: list[dict[str, Any]] = field(default_factory=list)
    indent: int = 1

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def name(self, key: str, wanted: str | None = None) -> str:
        """The identifier of something; `key` tells things apart, `wanted` is what it would like to be called."""
        if key not in self.names:
            text = "".join(c if c.isalnum() or c == "_" else "_" for c in (wanted or key))
            text = f"size_{text}" if text[0].isdigit() else text  # sizes such as 1 and 2 * H
            self.names[key] = fresh(text, {*self.names.values(), *IMPORTS, *FUNCTIONS, *LOCALS})
        return self.names[key]

    def get(self, *keys: str) -> str:
        """Text that reads fields of the table."""
        for key in keys:
            if key not in self.fields:
                self.fields.append(key)
        return ", ".join(f"get(table, {self.fields.index(key)})" for key in keys)

    def pad(self, size: str) -> str:
        """The padded width of a size: the distance between rows of a buffer."""
        return self.name(f"padded {size}", f"{size}_row")

    def share(self, size: str, blocks: int = 1) -> tuple[str, str]:
        """Of the unit blocks of a size, `blocks` vectors each: the first that is this part's, and the first that is the next one's."""
        key, text = f"share {size} {blocks}", f"{size}_group{blocks}" if blocks > 1 else f"{size}_block"
        return self.name(f"{key} first", f"{text}_first"), self.name(f"{key} end", f"{text}_end")

    def units(self, size: str) -> str:
        """The vectors of a size that are this part's, as a range."""
        first, end = self.share(size)
        return f"range({first} * lanes, {end} * lanes, lanes)"

    def barrier(self) -> None:
        self.line("if parts > 1:")
        self.line("    wait(barrier, parts, yielding)")

    def address(self, place: Place) -> str:
        return self.name(f"address {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_address")

    def rows(self, place: Place) -> str:
        return self.name(f"rows {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_rows")


def emit(program: Program, target: Target, digest: str = "") -> str:
    """The text of a module with `kernel(call)` and `LAYOUT`."""
    work = Emission(program, target)
    for name in program.graph.nodes:
        work.name(f"value {name}", name)
    _prologue(work)
    _chunk(work)
    text = "\n".join(work.lines)
    used = [f for f in FUNCTIONS if f"{f}(" in text]
    bits = {"float32": 32, "float64": 64}[target.dtype]
    own = {"from_int": f"from_int{bits} as from_int", "number": f"number{bits} as number", "pointer": f"pointer{bits} as pointer"}
    imports = ", ".join(sorted(own.get(i, i) for i in [*IMPORTS, *used] if f"{i}(" in text))
    return "\n".join([
        f'"""{program.name}, {target.dtype}, {target.lanes} lanes. Generated by rnnspec from spec {digest[:16]}; not to be edited."""',
        "# ruff: noqa", "from numba import njit", "", f"from rnnspec.backends.cpu.simd import {imports}", "",
        f"LAYOUT = {pformat(layout(program, work.target.lanes, work.fields, work.panels), width=150, sort_dicts=False)}", "", "",
        '@njit(nogil=True, error_model="numpy")', "def kernel(call):", text, ""])


# --- before the first chunk ------------------------------------------------------------------------------------------


def _prologue(work: Emission) -> None:
    program = work.program
    work.line("table = pointer_int(call)")
    for key in HEADER:
        work.line(f"{key} = {work.get(key)}")
    work.line(f"item = {4 if work.target.dtype == 'float32' else 8}  # bytes of a number")
    work.line(f"lanes = {work.target.lanes}")
    for size in program.sizes():
        work.line(f"{work.name(f'size {size}', size)} = {work.get(f'size {size}')}")
        work.line(f"{work.pad(size)} = {work.get(f'padded {size}')}  # {size}, up to whole vectors")
    for size, blocks in dict.fromkeys([(size, 1) for size in program.sizes()] + [(p.size, blocks) for p, blocks in _panel_stages(work)]):
        groups = f"({work.pad(size)} // lanes + {blocks - 1}) // {blocks}" if blocks > 1 else f"{work.pad(size)} // lanes"
        first, end = work.share(size, blocks)
        work.line(f"{first}, {end} = {groups} * part // parts, {groups} * (part + 1) // parts")
    for number, panel, _ in _all_panels(work):
        work.line(f"{_desc(work, number)} = {work.get(f'fields {number}')}  # {', '.join(a.value for a in panel.accumulations)}")
    for key in dict.fromkeys(_source(program, name) for name in _parameter_reads(program)):
        work.line(f"{work.name(f'vector {key}', f'{key}_vector')} = pointer({work.get(f'vector {key}')})")
    for parameter in dict.fromkeys(p for stage in program.after for p, _ in _sums(work, stage)):
        work.line(f"{_gradient(work, parameter)} = pointer({work.get(f'gradient {parameter}')})")


def _desc(work: Emission, number: int) -> str:
    return work.name(f"panel {number}", f"panel_{number}")


def _gradient(work: Emission, parameter: str) -> str:
    return work.name(f"gradient {parameter}", f"d_{parameter}_total")


def _parameter_reads(program: Program) -> list[str]:
    """Parameters that pointwise nodes read."""
    graph = program.graph
    read = {o for stage in program.stages() for n in stage.nodes for o in operands(graph.nodes[n])}
    read |= {o for stage in program.stages() for n in stage.rowwise for o in operands(graph.nodes[n])}
    read |= {v for stage in program.stages() for v, _ in stage.stores} | {v for stage in program.after for _, v in stage.sums}
    return [n for n in graph.nodes if n in read and _is(program, n, "parameter")]


def _is(program: Program, name: str, kind: str) -> bool:
    node = program.graph.nodes[name]
    return isinstance(node, Read) and node.kind == kind


def _source(program: Program, name: str) -> str:
    """What a node reads: a parameter's name, or that of a piece of one."""
    node = program.graph.nodes[name]
    assert isinstance(node, Read)
    return node.source


def _all_panels(work: Emission) -> Iterator[tuple[int, Panel, int]]:
    """number, panel and unit blocks per group of every panel, those that are too wide split."""
    number = 0
    for stage in work.program.stages():
        panels, blocks = _split(stage, work.target)
        for panel in panels:
            yield number, panel, blocks
            number += 1


def _panel_stages(work: Emission) -> list[tuple[Stage, int]]:
    return [(stage, _split(stage, work.target)[1]) for stage in work.program.stages() if stage.panels]


def _split(stage: Stage, target: Target) -> tuple[list[Panel], int]:
    """The panels of a stage, none wider than the tile, and how many unit blocks one group of them takes."""
    panels: list[Panel] = []
    for panel in stage.panels:
        gates = panel.accumulations
        pieces = -(-len(gates) // target.vectors)
        cuts = [len(gates) * i // pieces for i in range(pieces + 1)]
        panels += [Panel(gates[a:b]) for a, b in pairwise(cuts)]
    widest = max((len(p.accumulations) for p in panels), default=1)
    return panels, target.vectors // widest


# --- a chunk ---------------------------------------------------------------------------------------------------------


def _chunk(work: Emission) -> None:
    program = work.program
    work.line("for chunk in range(chunks):")
    work.indent += 1
    work.line(f"fields = at(pointer_int(chunk_table), {CHUNK_FIELDS} * {'(chunks - 1 - chunk)' if program.reverse else 'chunk'})")
    work.line("t0, steps, n, row0, history_rows = get(fields, 0), get(fields, 1), get(fields, 2), get(fields, 3), get(fields, 4)")
    work.line("rows = steps * n")
    work.line("s_first, s_end = steps * part // parts, steps * (part + 1) // parts")
    work.line("full = active == 0 or get(pointer_int(active), t0 + steps - 1) >= n  # every row runs through the whole chunk")
    _places(work)
    _describe_panels(work)
    for source, buffer in program.inputs.items():
        _transfer(work, "gather", f"input {source}", Place(buffer), program.buffers[buffer].size)
    _carry(work, entering=True)
    work.barrier()
    number = 0
    for title, stages in (("before the loop", program.before), ("loop", program.loop), ("after the loop", program.after)):
        if stages:
            work.line(f"# {title}")
        if title == "loop":
            number = _loop(work, stages, number)
            continue
        for stage in stages:
            number = _whole(work, stage, number)
    for outer in program.outers:
        _outer(work, outer.parameter, outer.left, outer.right)
    for name, value in program.outputs.items():
        _transfer(work, "scatter", f"output {name}", program.places[value], size_of(program.graph, value))
    _carry(work, entering=False)
    work.barrier()
    work.indent -= 1


def _used_places(program: Program) -> list[Place]:
    histories = [Place(s.buffer, shift) for s in program.states for shift in (0, 1)]
    stored = [place for stage in program.stages() for _, place in stage.stores]
    return list(dict.fromkeys([*program.places.values(), *stored, *histories]))


def _places(work: Emission) -> None:
    """Where the rows of the chunk lie: addresses for the runtime, pointers for the code here."""
    program = work.program
    for place in _used_places(program):
        buffer = program.buffers[place.buffer]
        terms = []
        if buffer.saved or buffer.taped:
            terms.append("history_rows" if buffer.kind == "history" else "row0")
        backwards = program.reverse and not buffer.taped
        if buffer.kind == "history" and (place.shift == 1) != backwards:
            terms.append("n")
        offset = f" + ({' + '.join(terms)}) * {work.pad(buffer.size)} * item" if terms else ""
        work.line(f"{work.address(place)} = {work.get(f'buffer {buffer.name}')}{offset}")
        work.line(f"{work.rows(place)} = pointer({work.address(place)})")


def _transfer(work: Emission, function: str, key: str, place: Place, size: str) -> None:
    """Rows of the chunk from or to an array of the caller's."""
    fields = work.get(key, f"{key}, t", f"{key}, b", f"{key}, d")
    width, padded = work.name(f"size {size}"), work.pad(size)
    tail = f"{width}, {padded}" if function == "gather" else width
    work.line(f"invoke({function}, {work.address(place)} + s_first * n * {padded} * item, {padded}, {fields}, order, t0 + s_first, 1, "
              f"s_end - s_first, n, active, {tail})")


def _describe_panels(work: Emission) -> None:
    """The descriptors that `product` reads (tile.py says which field is which)."""
    for number, panel, blocks in _all_panels(work):
        program, gates = work.program, panel.accumulations
        size = size_of(program.graph, gates[0].value)
        desc, padded = f"pointer_int({_desc(work, number)})", work.pad(size)
        fields = work.get(f"panels {number}", f"panels {number}, stride", f"panels {number}, vectors", f"panels {number}, last vectors",
                          f"panels {number}, last")
        first = work.address(program.places[gates[0].value])
        work.line(f"put_all({desc}, 0, {len(panel.operands)}, {fields}, {first}, {padded}, {blocks} * lanes)")
        for j in range(len(gates) * blocks):
            work.line(f"put_all({desc}, {16 + 4 * j}, {_vector(work, gates, j, padded, first)})")
        for i, operand in enumerate(panel.operands):
            inner = size_of(program.graph, operand)
            width = work.name(f"size {inner}")
            work.line(f"put_all({desc}, {48 + 4 * i}, {work.address(program.places[operand])}, {work.pad(inner)}, {width})")
        work.panels.append({
            "size": size, "blocks": blocks, "operands": tuple(size_of(program.graph, o) for o in panel.operands),
            "matrices": tuple(tuple((_source(work.program, t.matrix), t.transposed) for t in acc.terms) for acc in gates)})


def _vector(work: Emission, gates: tuple[Accumulation, ...], j: int, padded: str, first: str) -> str:
    """Vector j of a group: its offset in C, where it starts from, and the distance between rows there."""
    block, gate = divmod(j, len(gates))
    acc = gates[gate]
    own = work.address(work.program.places[acc.value])
    offset = "0" if gate == 0 else f"({own} - {first}) // item"
    shift = f" + {block} * lanes" if block else ""
    start = own if not acc.first else work.get(f"bias {' + '.join(_source(work.program, b) for b in acc.biases)}") if acc.biases else "zeros"
    return f"{offset}{shift}, {start}{shift + ' * item' if shift else ''}, {padded if not acc.first else 0}"


def _carry(work: Emission, *, entering: bool) -> None:
    """States from one chunk to the next. A row that ends within the chunk leaves (or, backwards, enters) at its own last step."""
    program = work.program
    ragged_side = program.reverse == entering
    for state in program.states:
        padded = work.pad(state.size)
        carry = f"pointer({work.get(f'carry {state.name}')})"
        history = work.rows(Place(state.buffer, 0 if not program.reverse else 1))
        work.line("for k in range(n):")
        work.indent += 1
        if ragged_side:
            work.line("end = steps if lengths == 0 else min(steps, get(pointer_int(lengths), k) - t0)")
        place = "(end * n + k)" if ragged_side else "k"
        work.line(f"for p in {work.units(state.size)}:")
        inside, outside = f"{place} * {padded} + p", f"k * {padded} + p"
        if entering:
            work.line(f"    store({history}, {inside}, load({carry}, {outside}))")
        else:
            work.line(f"    store({carry}, {outside}, load({history}, {inside}))")
        work.indent -= 1


def _outer(work: Emission, parameter: str, left: str, right: str) -> None:
    program = work.program
    height, width = size_of(program.graph, left), size_of(program.graph, right)
    a, b = work.address(program.places[left]), work.address(program.places[right])
    units = work.name(f"size {height}")
    work.line(f"first, end = {units} * part // parts, {units} * (part + 1) // parts")
    work.line(f"invoke(outer, {a} + first * item, {work.pad(height)}, {b}, {work.pad(width)}, rows, end - first, {work.pad(width)}, "
              f"{work.get(f'gradient {parameter}')} + first * {work.pad(width)} * item, {work.pad(width)}, scratch)"
              f"  # d_{parameter} += {left} {right}^T")


# --- stages ----------------------------------------------------------------------------------------------------------


def _live(work: Emission, t: str) -> None:
    work.line(f"count = n if active == 0 else min(n, get(pointer_int(active), {t}))")


def _loop(work: Emission, stages: tuple[Stage, ...], number: int) -> int:
    work.line(f"for s in range({'steps - 1, -1, -1' if work.program.reverse else 'steps'}):")
    work.indent += 1
    work.line("first, t = s * n, t0 + s")
    _live(work, "t")
    for stage in stages:
        number = _stage(work, stage, number)
        if barriers(work.program):
            work.barrier()
    work.indent -= 1
    if not barriers(work.program):
        work.barrier()
    return number


def _whole(work: Emission, stage: Stage, number: int) -> int:
    """A stage over all rows of a chunk: at once if all are live and none needs to know its step, else step by step."""
    by_step = any(_is(work.program, o, "step") for n in stage.nodes for o in operands(work.program.graph.nodes[n]))
    work.line(f"spans = {'steps' if by_step else '1 if full else steps'}")
    work.line("for span in range(spans):")
    work.indent += 1
    work.line("first, count, t = 0, rows, t0")
    work.line("if spans > 1 or steps == 1:")
    work.indent += 1
    work.line("first, t = span * n, t0 + span")
    _live(work, "t")
    work.indent -= 2
    work.indent += 1
    number = _stage(work, stage, number)
    work.indent -= 1
    work.barrier()
    return number


def _stage(work: Emission, stage: Stage, number: int) -> int:
    """Every other step takes the panels from the last to the first, and finds in the cache what the step before used last."""
    panels, blocks = _split(stage, work.target)
    padded = work.pad(stage.size)
    pointwise = bool(stage.nodes or stage.stores or stage.sums)
    if panels:
        width = f"{blocks} * lanes" if blocks > 1 else "lanes"
        first, end = work.share(stage.size, blocks)
        work.line(f"for turn in range({first}, {end}):")
        work.indent += 1
        work.line(f"group = turn if t % 2 == 0 else {first} + {end} - 1 - turn")
        for panel in panels:
            work.line(f"invoke(product, {_desc(work, number)}, group, first, count)  # {', '.join(a.value for a in panel.accumulations)}")
            number += 1
        if pointwise:
            work.line(f"for p in range(group * {width}, min({padded}, (group + 1) * {width}), lanes):")
            _blocks(work, stage)
        work.indent -= 1
    elif stage.rowwise:
        rowwise(work, stage)
    elif stage.sums:
        work.line(f"for p in {work.units(stage.size)}:")
        _blocks(work, stage)
    elif pointwise:
        _row_by_row(work, stage)
    _clear_holes(work, stage)
    return number


def _blocks(work: Emission, stage: Stage) -> None:
    """The pointwise work of one block of units, over the rows."""
    padded = work.pad(stage.size)
    work.indent += 1
    inner, hoisted = _loads(work, stage)
    for text in hoisted:
        work.line(text)
    for parameter, _ in _sums(work, stage):
        work.line(f"{_running(work, parameter)} = load({_gradient(work, parameter)}, p)")
    work.line("for row in range(first, first + count):")
    work.indent += 1
    work.line(f"offset = row * {padded} + p")
    _compute(work, stage, inner)
    for parameter, value in _sums(work, stage):
        work.line(f"{_running(work, parameter)} = {_running(work, parameter)} + {work.name(f'value {value}')}")
    work.indent -= 1
    for parameter, _ in _sums(work, stage):
        work.line(f"store({_gradient(work, parameter)}, p, {_running(work, parameter)})")
    work.indent -= 1


def _row_by_row(work: Emission, stage: Stage) -> None:
    """The pointwise work of a stage without products, in the order in which the rows lie in memory."""
    padded = work.pad(stage.size)
    work.line("for row in range(first, first + count):")
    work.line(f"    for p in {work.units(stage.size)}:")
    work.indent += 2
    work.line(f"offset = row * {padded} + p")
    inner, hoisted = _loads(work, stage)
    _compute(work, stage, hoisted + inner)
    work.indent -= 2


def _compute(work: Emission, stage: Stage, loads: list[str]) -> None:
    """Loads, one equation a line, stores: for the vector at `offset`."""
    graph = work.program.graph
    for text in loads:
        work.line(text)
    writer = VectorWriter({n: work.name(f"value {n}") for n in graph.nodes})
    for name in stage.nodes:
        node = graph.nodes[name]
        assert isinstance(node, Pointwise)
        for text in writer.assign(work.name(f"value {name}"), node.expr, node_text(node)):
            work.line(text)
    for value in dict.fromkeys(v for v, _ in stage.stores):
        for place in dict.fromkeys(p for v, p in stage.stores if v == value):
            work.line(f"store({work.rows(place)}, offset, {work.name(f'value {value}')})")


def _sums(work: Emission, stage: Stage) -> list[tuple[str, str]]:
    """Where the values of a stage are summed, and the values."""
    return [(gradient_name(work.program.graph, parameter, value), value) for parameter, value in stage.sums]


def _running(work: Emission, parameter: str) -> str:
    return work.name(f"running {parameter}", f"d_{parameter}_sum")


def _loads(work: Emission, stage: Stage) -> tuple[list[str], list[str]]:
    """Texts that load what the pointwise nodes read: row by row, and what is the same for all rows."""
    program, graph = work.program, work.program.graph
    wanted = {o for n in stage.nodes for o in operands(graph.nodes[n])} | {v for v, _ in stage.stores} | {v for _, v in stage.sums}
    inner, hoisted = [], []
    for name in graph.nodes:
        if name not in wanted or name in stage.nodes:
            continue
        value = work.name(f"value {name}")
        alone = size_of(graph, name) == "1" and stage.size != "1"
        if _is(program, name, "step"):
            hoisted.append(f"{value} = from_int(t)")
        elif _is(program, name, "size"):
            hoisted.append(f"{value} = from_int({work.get(f'size {_source(program, name)}')})")
        elif _is(program, name, "parameter"):
            vector = work.name(f"vector {_source(program, name)}")
            hoisted.append(f"{value} = load_splat({vector}, 0)" if graph.shapes[name] == () else f"{value} = load({vector}, p)")
        elif alone:
            inner.append(f"{value} = load_splat({work.rows(program.places[name])}, row * {work.pad('1')})")
        else:
            inner.append(f"{value} = load({work.rows(program.places[name])}, offset)")
    return inner, hoisted


def _clear_holes(work: Emission, stage: Stage) -> None:
    """Rows that have ended become zero wherever a product over all rows of the chunk will read them."""
    program = work.program
    read_whole = {program.places[v].buffer for o in program.outers for v in (o.left, o.right)}
    written = [place for _, place in stage.stores] + [program.places[a.value] for p in stage.panels for a in p.accumulations]
    written = [p for p in dict.fromkeys(written) if program.buffers[p.buffer].saved or p.buffer in read_whole]
    if not written:
        return
    work.line("if part == 0 and count < n and first + count < rows:")
    for place in written:
        padded = work.pad(program.buffers[place.buffer].size)
        work.line(f"    for k in range((first + count) * {padded}, (first // n + 1) * n * {padded}, lanes):")
        work.line(f"        store({work.rows(place)}, k, number(0.0))")
