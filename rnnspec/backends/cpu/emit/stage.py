"""The text of a stage: its panels' products, then the pointwise work that follows, for the rows
`first` to `first + count`."""

from __future__ import annotations

import re

from rnnspec.backends.cpu.emit.emission import Emission
from rnnspec.backends.cpu.emit.pairs import pairs
from rnnspec.backends.cpu.emit.panels import column_descriptor, descriptor, split
from rnnspec.backends.cpu.emit.rowwise import rowwise
from rnnspec.backends.cpu.emit.sums import summed
from rnnspec.backends.cpu.processor import FEW_ROWS, side_by_side
from rnnspec.lowering.program import Stage
from rnnspec.lowering.signature import barriers, gradient_sums
from rnnspec.symbolic.graph import operands, size_of


def loop(work: Emission, stages: tuple[Stage, ...], number: int) -> int:
    """The stages of the loop, step by step. number: of their first panel; returns that of the next
    one."""
    with work.block(f"for s in range({'steps - 1, -1, -1' if work.program.reverse else 'steps'}):"):
        work.line("first, t = s * n, t0 + s")
        _live(work)
        _own_rows(work)
        for stage in stages:
            number = _stage(work, stage, number)
            if barriers(work.program):
                work.barrier("owners > 1")
    if not barriers(work.program):
        work.barrier("owners > 1")
    return number


def whole(work: Emission, stage: Stage, number: int) -> int:
    """A stage over all rows of a chunk: at once if all are live, all are this part's and none needs
    to know its step, else step by step. What is summed over rows is summed over all of them."""
    program = work.program
    by_step = any(program.is_read(o, "step") for n in stage.nodes for o in operands(program.graph.nodes[n]))
    if stage.sums:
        work.barrier("by_rows != 0")
    at_once = "1 if full else steps" if stage.sums else "1 if full and by_rows == 0 else steps"
    work.line(f"spans = {'steps' if by_step else at_once}")
    with work.block("for span in range(spans):"):
        work.line("first, live, count, t = 0, rows, rows, t0")
        with work.block("if spans > 1 or steps == 1:"):
            work.line("first, t = span * n, t0 + span")
            _live(work)
            if stage.sums:
                work.line("count = live")
            else:
                _own_rows(work)
        number = _stage(work, stage, number)
    work.barrier("parts > 1" if stage.sums else "owners > 1")
    return number


def _live(work: Emission) -> None:
    work.line("live = n if active == 0 else min(n, get(pointer_int(active), t))")


def _own_rows(work: Emission) -> None:
    """The rows of a step that are this part's."""
    work.line("first, count = first + low, max(low, min(live, high)) - low")


def _stage(work: Emission, stage: Stage, number: int) -> int:
    if stage.panels:
        number = _products(work, stage, number)
    elif stage.pairs:
        pairs(work, stage)
    elif stage.rowwise:
        rowwise(work, stage)
    elif stage.sums:
        with work.block(f"for p in {work.units(stage.size, everyone=True)}:"):
            _unit_block(work, stage)
    elif _is_pointwise(stage):
        _row_by_row(work, stage)
    _clear_holes(work, stage)
    return number


def _is_pointwise(stage: Stage) -> bool:
    """Whether a stage does anything beside products."""
    return bool(stage.nodes or stage.stores or stage.sums)


def _products(work: Emission, stage: Stage, number: int) -> int:
    """Every other step takes the panels from the last to the first, and finds in the cache what the
    step before used last."""
    panels, blocks = split(stage, work.target)
    padded, width = work.pad(stage.size), f"{blocks} * lanes" if blocks > 1 else "lanes"
    first, end = work.share(stage.size, blocks, bool(stage.sums))
    narrowest = min(len(panel.accumulations) for panel in panels) * blocks
    few = "".join(f"{side_by_side(narrowest, rows)} if count == {rows} else " for rows in range(1, FEW_ROWS + 1))
    work.line(f"many = {few}{side_by_side(narrowest, FEW_ROWS + 1)}")
    with work.block(f"for turn in range({first}, {end}, many):"):
        work.line(f"groups = min(many, {end} - turn)")
        work.line(f"group = turn if t % 2 == 0 else {first} + {end} - groups - turn")
        for panel in panels:
            values = ", ".join(a.value for a in panel.accumulations)
            function = work.get("kept product") if work.program.is_kept(panel) else "product"
            by_column = work.program.has_matrices_by_column(panel)
            described = column_descriptor(work, number, panel) if by_column else descriptor(work, number)
            columns_are_rows = panel.accumulations[0].value in work.program.columned and not by_column
            rows = "first * columns, count * columns" if columns_are_rows else "first, count"
            with work.columns(by_column):
                work.line(f"invoke({function}, {described}, group, groups, {rows})  # {values}")
            number += 1
        if _is_pointwise(stage):
            with work.block(f"for p in range(group * {width}, min({padded}, (group + groups) * {width}), lanes):"):
                _unit_block(work, stage)
    return number


def _unit_block(work: Emission, stage: Stage) -> None:
    """The pointwise work of one block of units, over the rows."""
    padded, columned = work.pad(stage.size), work.program.columned
    found = gradient_sums(work.graph, stage)
    sums, by_column = [s for s in found if s[1] not in columned], [s for s in found if s[1] in columned]
    inner, hoisted = _loads(work, stage)
    for text in hoisted:
        work.line(text)

    def compute() -> None:
        work.line(f"offset = row * {padded} + p")
        _compute(work, stage, inner)

    if not sums and (stage.nodes or stage.stores):
        with work.block("for row in range(first, first + count):"):
            compute()
    elif sums:
        summed(work, sums, "p", compute)
    if by_column:
        _sum_columns(work, stage, by_column)


def _sum_columns(work: Emission, stage: Stage, sums: list[tuple[str, str]]) -> None:
    """Adds values of each column that are there already to the sums of that column."""

    def compute() -> None:
        work.line(f"at_column = (row * columns + column) * {work.pad(stage.size)} + p")
        for value in dict.fromkeys(v for _, v in sums):
            work.line(f"{work.value(value)} = load({work.rows(work.program.places[value])}, at_column)")

    with work.columns(True):
        summed(work, sums, f"column * {work.pad(stage.size)} + p", compute)


def _row_by_row(work: Emission, stage: Stage) -> None:
    """The pointwise work of a stage without products, in the order in which the rows lie in
    memory."""
    with (
        work.block("for row in range(first, first + count):"),
        work.block(f"for p in {work.units(stage.size)}:"),
    ):
        work.line(f"offset = row * {work.pad(stage.size)} + p")
        inner, hoisted = _loads(work, stage)
        _compute(work, stage, hoisted + inner)


def _compute(work: Emission, stage: Stage, loads: list[str]) -> None:
    """Loads, one equation a line, stores: for the vector at `offset`, and for each column of it."""
    columned, start = work.program.columned, len(work.lines)
    for text in loads:
        work.line(text)
    work.compute(n for n in stage.nodes if n not in columned)
    work.lines[start:] = _read_late(work.lines[start:], len(loads))
    stores = [(v, p) for value in dict.fromkeys(v for v, _ in stage.stores) for v, p in stage.stores if v == value]
    for value, place in dict.fromkeys(stores):
        if not work.program.is_columned(place):
            work.line(f"store({work.rows(place)}, offset, {work.value(value)})")
    own, kept = [n for n in stage.nodes if n in columned], [s for s in stores if work.program.is_columned(s[1])]
    if own or kept:
        with work.columns(True):
            work.line(f"at_column = (row * columns + column) * {work.pad(stage.size)} + p")
            for text in _column_loads(work, stage):
                work.line(text)
            work.compute(own)
            for value, place in dict.fromkeys(kept):
                work.line(f"store({work.rows(place)}, at_column, {work.value(value)})")


def _read_late(lines: list[str], loads: int) -> list[str]:
    """The lines with each of the first `loads` moved to where its value is first needed: with 16
    registers LLVM puts values aside that were read before their turn."""
    left = {line.split(" = ", 1)[0].strip(): line for line in lines[:loads]}
    ordered = []
    for line in lines[loads:]:
        needed = [name for name in re.findall(r"\w+", line.partition(" = ")[2]) if name in left]
        ordered += [left.pop(name) for name in dict.fromkeys(needed)]
        ordered.append(line)
    return [*ordered, *left.values()]


def _loads(work: Emission, stage: Stage) -> tuple[list[str], list[str]]:
    """Texts that load what the pointwise nodes read: row by row, and what is the same for all
    rows. What there is of for each column is not among it."""
    program, graph = work.program, work.graph
    inner, hoisted = [], []
    for name in (n for n in stage.reads(graph) if n not in program.columned):
        value = work.value(name)
        alone = size_of(graph, name) == "1" and stage.size != "1"
        if program.is_read(name, "step"):
            inner.append(f"{value} = from_int(t + get(counts, row - first))")
        elif program.is_read(name, "size"):
            hoisted.append(f"{value} = from_int({work.get(f'size {program.source_of(name)}')})")
        elif program.is_read(name, "parameter"):
            vector = work.name(f"vector {program.source_of(name)}")
            hoisted.append(
                f"{value} = load_splat({vector}, 0)" if graph.shapes[name] == () else f"{value} = load({vector}, p)"
            )
        elif alone:
            inner.append(f"{value} = load_splat({work.rows(program.places[name])}, row * {work.pad('1')})")
        else:
            inner.append(f"{value} = load({work.rows(program.places[name])}, offset)")
    return inner, hoisted


def _column_loads(work: Emission, stage: Stage) -> list[str]:
    """Texts that load what the pointwise nodes read of a column of a row."""
    program, found = work.program, []
    for name in (n for n in stage.reads(work.graph) if n in program.columned):
        value, alone = work.value(name), size_of(work.graph, name) == "1" and stage.size != "1"
        if program.is_read(name, "parameter"):
            vector = work.name(f"vector {program.source_of(name)}")
            place = f"column * {work.pad(stage.size)} + p"
            single = work.graph.shapes[name] == ()
            text = f"load_splat({vector}, column * lanes)" if single else f"load({vector}, {place})"
        elif alone:
            text = f"load_splat({work.rows(program.places[name])}, (row * columns + column) * {work.pad('1')})"
        else:
            text = f"load({work.rows(program.places[name])}, at_column)"
        found.append(f"{value} = {text}")
    return found


def _clear_holes(work: Emission, stage: Stage) -> None:
    """Rows that have ended become zero wherever a product over all rows of the chunk will read
    them."""
    program = work.program
    read_whole = {program.places[v].buffer for o in program.outers for v in (o.left, o.right)}
    written = [place for _, place in stage.stores] + [
        program.places[a.value] for p in stage.panels for a in p.accumulations
    ]
    written = [p for p in dict.fromkeys(written) if program.buffers[p.buffer].saved or p.buffer in read_whole]
    if not written:
        return
    with work.block("if part == 0 and live < n:"):
        work.line("base = first // n * n")
        for place in written:
            row = work.row(place)
            with work.block(f"for k in range((base + live) * {row}, (base + n) * {row}, lanes):"):
                work.line(f"store({work.rows(place)}, k, number(0.0))")
