"""The text of one step of a program, for one row: C functions of which every size is a number.

In: the `infer` Program of a cell. Out: a Step, the lines of the function's body and what it reads
and keeps, of which export/c makes a file. Stages run one after the other; a value that another
stage or a product reads is an array among the cell's numbers, any other a constant inside of a
loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rnnspec.backends.c.learn import Learning, after, before, outers, saved_values, sums
from rnnspec.backends.c.numbers import REALS, Real
from rnnspec.backends.c.rowwise import rowwise
from rnnspec.backends.c.text import CText, PackedPanel
from rnnspec.errors import UnsupportedError
from rnnspec.lowering.needed import needed_of, taken
from rnnspec.lowering.program import Panel, Program, Stage
from rnnspec.lowering.signature import bias_sources, panel_signature
from rnnspec.symbolic.graph import Read, node_text, operands

NEAREST = 32 * 1024  # bytes of a core's first cache, which other things lie in too
VEC = "vec", "ADD_PRODUCT", "ZERO", "LANES"


@dataclass(frozen=True)
class Step:
    """A step of a cell in C. body: the lines of the function. panels: the matrices it reads;
    vectors: parameter -> (identifier, numbers) of those that it reads element by element. states,
    inputs, outputs: name -> (identifier, numbers); scratch: identifier -> numbers. functions: the
    primitives and reductions that are called."""

    real: Real
    body: tuple[str, ...]
    panels: tuple[PackedPanel, ...]
    vectors: Mapping[str, tuple[str, int]]
    states: Mapping[str, tuple[str, int]]
    inputs: Mapping[str, tuple[str, int]]
    outputs: Mapping[str, tuple[str, int]]
    scratch: Mapping[str, int]
    functions: frozenset[str]


def step(
    program: Program,
    dtype: str,
    sizes: Mapping[str, int],
    noise: Collection[str] = (),
    learning: Learning | None = None,
) -> Step:
    """The step of a cell for one row. sizes: the number of every size of the cell; noise: the
    inputs that are noise, which are read from the weights; learning: where a tape and gradients
    lie, for the forward program that writes one and for its adjoint.

    Raises UnsupportedError for names that C can't have.
    """
    needed = needed_of(program.graph, saved_values(program))
    learning = learning or Learning({}, {}, {})
    text = CText(program, REALS[dtype], sizes, lasting(program) & needed, needed, frozenset(noise), learning.tape)
    for name in text.graph.nodes:
        if not text.value(name).isascii():
            raise UnsupportedError(f"{program.name}: {name!r} has letters that C knows only since 2011. Rename it.")
    states = {s.name: (text.member("state", s.name), text.number(s.size)) for s in program.states}
    inputs = {
        node.source: (text.name(f"input {node.source}", node.source), text.count(name))
        for name, node in text.graph.nodes.items()
        if isinstance(node, Read) and node.kind == "input" and node.source not in text.noise
    }
    outputs = {
        name: (text.name(f"output {name}", f"d_{name}" if program.reverse else f"{name}_out"), text.count(value))
        for name, value in program.outputs.items()
    }
    _body(text, outputs, learning)
    # a product writes whole vectors
    scratch = {
        text.value(n): -(-text.count(n) // text.real.lanes) * text.real.lanes
        for n in text.graph.nodes
        if n in text.lasting
    }
    panels, functions = tuple(text.panels), frozenset(text.functions)
    return Step(text.real, tuple(text.lines), panels, text.vectors, states, inputs, outputs, scratch, functions)


def _body(text: CText, outputs: Mapping[str, tuple[str, int]], learning: Learning) -> None:
    before(text)
    for stage in text.program.stages():
        _stage(text, stage)
        sums(text, stage, learning)
    outers(text, learning)
    after(text)
    _ending(text, outputs)


def lasting(program: Program) -> frozenset[str]:
    """The values that are arrays: those of products, of nodes that need whole rows, those that are
    read beyond their stage, and results."""
    graph, found = program.graph, set[str]()
    for stage in program.stages():
        found |= {acc.value for panel in stage.panels for acc in panel.accumulations} | {*stage.rowwise}
        found |= {o for panel in stage.panels for o in panel.operands}
        found |= {o for name in stage.rowwise for o in operands(graph.nodes[name])} | {*stage.reads(graph)}
        found |= {value for value, _ in stage.stores}
    found |= {*graph.states.values(), *program.outputs.values(), *saved_values(program)}
    found |= {v for o in program.outers for v in (o.left, o.right)}
    found |= {value for stage in program.stages() for _, value in stage.sums}
    return frozenset(n for n in found if not isinstance(graph.nodes[n], Read))


def _stage(text: CText, stage: Stage) -> None:
    for panel in stage.panels:
        _panel(text, panel)
    if text.needed.intersection(stage.nodes):
        _pointwise(text, stage)
    for name in filter(text.needed.__contains__, stage.rowwise):
        text.line(f"/* {name} = {node_text(text.graph.nodes[name])} */")
        rowwise(text, name)


def _panel(text: CText, panel: Panel) -> None:
    known = panel_signature(text.program, panel)
    accumulations = tuple(
        (bias_sources(text.program, acc) if acc.first else None, tuple((m, bool(t)) for m, t in matrices))
        for acc, matrices in zip(panel.accumulations, known["matrices"], strict=True)
    )
    name = text.member("weights", f"panel {len(text.panels)}")
    inner = tuple(text.count(o) for o in panel.operands)
    packed = PackedPanel(name, text.number(known["size"]), inner, accumulations, text.real.lanes)
    text.panels.append(packed)
    for acc in panel.accumulations:
        terms = [f"{t.matrix}{'.T' * t.transposed} @ {t.operand}" for t in acc.terms]
        text.line(f"/* {acc.value} {'=' if acc.first else '+='} {' + '.join([*terms, *acc.biases])} */")
    if not packed.blocks:
        return
    with text.block("{"):
        kind, turned = "wide" if packed.wide else "vec", _turned(text, packed)
        if not turned:
            text.line(f"const {kind} *panel = (const {kind} *)w->{name};")
        with text.block(text.loop(packed.blocks, "b" if turned else "block")):
            if turned:  # what lies near from the last step is read first
                text.line(f"const int block = s->t & 1 ? {packed.blocks - 1} - b : b;")
                start = f"w->{name} + block * {packed.numbers // packed.blocks}"
                text.line(f"const {kind} *panel = (const {kind} *)({start});")
            _block(text, panel, packed)
        text.line("}")
    text.line("}")


def _turned(text: CText, packed: PackedPanel) -> bool:
    """Whether every second step reads a panel's blocks from the last to the first: one that does
    not fit into the nearest memory of a core would be out of it each time that it is read."""
    large = packed.numbers * np.dtype(text.real.name).itemsize > NEAREST
    return large and packed.blocks > 1 and not text.program.reverse


def _block(text: CText, panel: Panel, packed: PackedPanel) -> None:
    """The products of one block of units: sums of each accumulation, kept in registers."""
    kind, add, zero, lanes = ("wide", "ADD_WIDE", "ZERO_WIDE", "2 * LANES") if packed.wide else VEC
    values, vectors = [acc.value for acc in panel.accumulations], packed.vectors // (1 + packed.wide)
    count = vectors * len(values)
    places = [
        [f"{text.array(value)} + block * {packed.units}{f' + {v} * {lanes}' if v else ''}" for v in range(vectors)]
        for value in values
    ]
    for n, (value, acc) in enumerate(zip(values, panel.accumulations, strict=True)):
        starts = [f"panel[{n * vectors + v}]" if packed.starts else zero for v in range(vectors)]
        if not acc.first:
            starts = [f"LOAD({kind}, {place})" for place in places[n]]
        text.line(f"{kind} {text.value(value)}[{vectors}] = {{{', '.join(starts)}}};")
    if packed.starts:
        text.line(f"panel += {count};")
    for operand, inner in zip(panel.operands, packed.inner, strict=True):
        with text.block(f"for (int k = 0; k < {inner}; k++, panel += {count}) {{"):
            text.line(f"const real factor = {text.element(operand, 'k')};")
            if text.program.is_kept(panel):  # what a branch not taken multiplies leaves no trace
                text.line("if (factor == 0)")
                text.line("    continue;")
            for n, value in enumerate(values):
                for v in range(vectors):
                    text.line(f"{add}({text.value(value)}[{v}], panel[{n * vectors + v}], factor);")
        text.line("}")
    for n, value in enumerate(values):
        for v, place in enumerate(places[n]):
            text.line(f"STORE({kind}, {place}, {text.value(value)}[{v}]);")


def _pointwise(text: CText, stage: Stage) -> None:
    graph, size = text.graph, text.number(stage.size)
    nodes = [name for name in stage.nodes if name in text.needed]
    with text.block(text.loop(size)):
        for name in stage.reads(graph):
            if any(name in taken(graph.nodes[n]) for n in nodes):
                text.line(f"const real {text.value(name)} = {text.element(name, 'i')};")
        for name in nodes:
            text.compute([name])
            if name in text.lasting:
                text.line(f"{text.array(name)}[{'0' if text.count(name) == 1 else 'i'}] = {text.value(name)};")
    text.line("}")


def _ending(text: CText, outputs: Mapping[str, tuple[str, int]]) -> None:
    """Outputs are copied out, then all new states over the old ones. A state that takes what
    another one was is copied first, to where nobody writes."""
    graph = text.graph
    for name, value in text.program.outputs.items():
        target, size = outputs[name]
        text.line(f"memcpy({target}, {text.array(value)}, {size} * sizeof(real));")
    moved = {s: v for s, v in graph.states.items() if isinstance(graph.nodes[v], Read)}
    for state, value in moved.items():
        if text.count(value):
            text.line(f"real {text.name(f'moved {state}', f'{state}_next')}[{text.count(value)}];")
            target = text.name(f"moved {state}")
            text.line(f"memcpy({target}, {text.array(value)}, sizeof({target}));")
    for state, value in graph.states.items():
        if text.count(value):
            source = text.name(f"moved {state}") if state in moved else text.array(value)
            text.line(f"memcpy(s->state.{text.member('state', state)}, {source}, {text.count(value)} * sizeof(real));")
    if not text.program.reverse:
        text.line("s->t++;")
