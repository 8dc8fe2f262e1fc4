"""What callers of a program's kernels have to know, as plain data: what is read, carried, written
and summed, and how much work it is.

A backend's launcher is made of it. It holds literals alone, so that it may stand in an emitted text
and be read back without building anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rnnspec.lowering.program import Accumulation, BufferPlace, Panel, Program, Stage
from rnnspec.symbolic.graph import Graph, size_of

Names = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Signature:
    """What callers of a program's kernels have to know. Sizes are expressions in the spec's sizes.

    reverse: whether the program runs from the last step to the first. buffers: size, "rows" or
    "history", and "taped", "saved" or "scratch", by name. inputs, outputs, states: the size of
    each. panels: see `panel_signature`. biases: the parameters of which a value is the sum before
    its products are added, by that value. vectors: the parameters that are read element by element.
    gradients: the shape in which each is summed. pieces: the parameter that each piece is of, and
    which part of it. flops: pairs of sizes whose products, doubled, are the work for one row; step:
    those of the products in the loop. barriers: how often in a step parts of a block wait. columns:
    the names of what there is of for each column, by kind ("buffers", "inputs", "outputs",
    "states", "parameters", "gradients"), and the "flops" and "step" of one; empty where there is
    nothing.
    row_sums: (gradient, left or "", value, the kept side or "") of a program that has some.
    """

    reverse: bool
    buffers: dict[str, tuple[str, str, str]]
    inputs: dict[str, str]
    outputs: dict[str, str]
    states: dict[str, str]
    panels: tuple[dict[str, Any], ...]
    biases: dict[str, Names]
    vectors: Names
    gradients: dict[str, Names]
    pieces: dict[str, tuple[Any, ...]]
    flops: Pairs
    step: Pairs
    barriers: int
    columns: dict[str, Any]
    row_sums: tuple[tuple[str, str, str, str], ...]


def signature(program: Program) -> Signature:
    graph, stages = program.graph, list(program.stages())
    panels = [panel for stage in stages for panel in stage.panels]
    accumulations = [acc for panel in panels for acc in panel.accumulations]
    read = {name for stage in stages for name in stage.reads(graph)}
    parameters = [n for n in graph.nodes if n in read and program.is_read(n, "parameter")]
    return Signature(
        reverse=program.reverse,
        buffers={
            b.name: (b.size, b.kind, "taped" if b.taped else "saved" if b.saved else "scratch")
            for b in program.buffers.values()
        },
        inputs={source: program.buffers[buffer].size for source, buffer in program.inputs.items()},
        outputs={name: size_of(graph, value) for name, value in program.outputs.items()},
        states={s.name: s.size for s in program.states},
        panels=tuple(panel_signature(program, panel) for panel in panels),
        biases={acc.value: bias_sources(program, acc) for acc in accumulations if acc.biases},
        vectors=tuple(dict.fromkeys(program.source_of(n) for n in parameters)),
        gradients=_gradients(program),
        pieces={p: tuple(vars(graph.pieces[p]).values()) for p in graph.pieces},
        flops=_flops(program),
        step=_products(program, program.loop),
        barriers=barriers(program),
        columns=_columns(program) if program.columned else {},
        row_sums=tuple((s.gradient, s.left or "", s.value, s.kept or "") for s in program.row_sums),
    )


def panel_signature(program: Program, panel: Panel) -> dict[str, Any]:
    """The size of a panel's values, those of its operands, and for each of its accumulations the
    matrix of each term and whether that is transposed."""
    return {
        "size": size_of(program.graph, panel.accumulations[0].value),
        "operands": tuple(size_of(program.graph, o) for o in panel.operands),
        "matrices": tuple(
            tuple((program.source_of(t.matrix), t.transposed) for t in acc.terms) for acc in panel.accumulations
        ),
    }


def bias_sources(program: Program, accumulation: Accumulation) -> Names:
    """The parameters of which an accumulation's start is the sum."""
    return tuple(program.source_of(b) for b in accumulation.biases)


def gradient_sums(graph: Graph, stage: Stage) -> list[tuple[str, str]]:
    """The gradients to which a stage adds values of its rows, and the values."""
    return [(_gradient_name(graph, parameter, value), value) for parameter, value in stage.sums]


def _gradient_name(graph: Graph, parameter: str, value: str) -> str:
    """Where a value is summed that is no outer product: a matrix as the one long row that it is
    read as."""
    return f"{parameter} flat" if len(graph.shapes[value]) > 1 else parameter


def _gradients(program: Program) -> dict[str, Names]:
    graph = program.graph
    shapes: dict[str, Names] = {o.parameter: (size_of(graph, o.left), size_of(graph, o.right)) for o in program.outers}
    for stage in program.after:
        for (parameter, value), (name, _) in zip(stage.sums, gradient_sums(graph, stage), strict=True):
            shapes[name] = graph.shapes[value] if name == parameter else (size_of(graph, value),)
    return shapes


def _gradients_by_column(program: Program) -> Names:
    graph, columned = program.graph, program.columned
    outers = [o.parameter for o in program.outers if program.is_columned_sum(o)]
    sums = [name for stage in program.after for name, value in gradient_sums(graph, stage) if value in columned]
    return tuple(dict.fromkeys([*outers, *sums]))


def _columns(program: Program) -> dict[str, Any]:
    graph, columned = program.graph, program.columned
    histories = {s.name: BufferPlace(s.buffer) for s in program.states}
    return {
        "buffers": tuple(b.name for b in program.buffers.values() if b.columned),
        "inputs": tuple(s for s, b in program.inputs.items() if program.buffers[b].columned),
        "outputs": tuple(o for o, value in program.outputs.items() if value in columned),
        "states": tuple(s for s, place in histories.items() if program.is_columned(place)),
        "parameters": tuple(s for s, n in graph.reads("parameter").items() if n in columned),
        "gradients": _gradients_by_column(program),
        "flops": _products(program, program.stages(), columned=True),
        "step": _products(program, program.loop, columned=True),
    }


def _products(program: Program, stages: Iterable[Stage], *, columned: bool = False) -> Pairs:
    """Sizes whose products, doubled, are the work of the matrix products of stages for one row, or
    for one column of it."""
    return tuple(
        (stage.size, size_of(program.graph, t.operand))
        for stage in stages
        for panel in stage.panels
        for acc in panel.accumulations
        for t in acc.terms
        if (acc.value in program.columned) == columned
    )


def _flops(program: Program) -> Pairs:
    """Sizes whose products, doubled, are the work of a whole program for one row; a pointwise node
    counts as eight multiply-adds an element."""
    pointwise = tuple((stage.size, str(8 * len(stage.nodes))) for stage in program.stages() if stage.nodes)
    outers = tuple((size_of(program.graph, o.left), size_of(program.graph, o.right)) for o in program.outers)
    return _products(program, program.stages()) + pointwise + outers


def barriers(program: Program) -> int:
    """How often in a step the parts of a block's units have to wait for each other: never if no
    unit reads another."""
    alone = len({s.size for s in program.loop}) < 2 and not any(s.panels or s.rowwise for s in program.loop)
    return 0 if alone else len(program.loop)
