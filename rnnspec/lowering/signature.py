"""What the launcher needs to know of a kernel: the LAYOUT that stands in its text, so that one read
from the cache is called at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnnspec.lowering.program import Program, Stage
from rnnspec.symbolic.graph import Graph, size_of

Pairs = tuple[tuple[str, str], ...]


def layout(program: Program, lanes: int, fields: Sequence[str], panels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the launcher needs to know, as literals. fields: of the kernel's table, in order;
    panels: as `launch` has to pack them."""
    graph = program.graph
    return {
        "fields": tuple(fields),
        "reverse": program.reverse,
        "lanes": lanes,
        "buffers": {
            b.name: (b.size, b.kind, "taped" if b.taped else "saved" if b.saved else "scratch")
            for b in program.buffers.values()
        },
        "inputs": {source: program.buffers[buffer].size for source, buffer in program.inputs.items()},
        "outputs": {name: size_of(graph, value) for name, value in program.outputs.items()},
        "states": {s.name: s.size for s in program.states},
        "panels": tuple(panels),
        "biases": {f: f.removeprefix("bias ").split(" + ") for f in fields if f.startswith("bias ")},
        "vectors": tuple(f.removeprefix("vector ") for f in fields if f.startswith("vector ")),
        "gradients": _gradients(program),
        "pieces": {p: tuple(vars(graph.pieces[p]).values()) for p in graph.pieces},
        "flops": _flops(program),
        "step": _products(program, program.loop),
        "barriers": barriers(program),
    }


def gradient_name(graph: Graph, parameter: str, value: str) -> str:
    """Where a value is summed that is no outer product: a matrix as the one long row that it is
    read as."""
    return f"{parameter} flat" if len(graph.shapes[value]) > 1 else parameter


def _gradients(program: Program) -> dict[str, tuple[str, ...]]:
    graph = program.graph
    found: dict[str, tuple[str, ...]] = {
        o.parameter: (size_of(graph, o.left), size_of(graph, o.right)) for o in program.outers
    }
    for stage in program.after:
        for parameter, value in stage.sums:
            name = gradient_name(graph, parameter, value)
            found[name] = graph.shapes[value] if name == parameter else (size_of(graph, value),)
    return found


def _products(program: Program, stages: Iterable[Stage]) -> Pairs:
    """Sizes whose products, doubled, are the work of the matrix products of stages for one row."""
    return tuple(
        (stage.size, size_of(program.graph, t.operand))
        for stage in stages
        for panel in stage.panels
        for acc in panel.accumulations
        for t in acc.terms
    )


def _flops(program: Program) -> Pairs:
    """The same for a whole program; a pointwise node counts as eight multiply-adds an element."""
    pointwise = tuple((stage.size, str(8 * len(stage.nodes))) for stage in program.stages() if stage.nodes)
    outers = tuple((size_of(program.graph, o.left), size_of(program.graph, o.right)) for o in program.outers)
    return _products(program, program.stages()) + pointwise + outers


def barriers(program: Program) -> int:
    """How often in a step the parts of a block's units have to wait for each other: never if no
    unit reads another."""
    alone = len({s.size for s in program.loop}) < 2 and not any(s.panels or s.rowwise for s in program.loop)
    return 0 if alone else len(program.loop)
