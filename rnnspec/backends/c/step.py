"""The text of one step of a program, for one row: C functions of which every size is a number.

In: the `infer` Program of a cell. Out: a Step, the lines of the function's body and what it reads
and keeps, of which export/c makes a file. Stages run one after the other; a value that another
stage or a product reads is an array among the cell's numbers, any other a constant inside of a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rnnspec.backends.c.numbers import REALS, Real
from rnnspec.backends.c.primitives import NAMES
from rnnspec.backends.c.rowwise import rowwise
from rnnspec.backends.c.words import KEYWORDS, MACROS, OURS
from rnnspec.backends.c.writer import CWriter
from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import evaluate_size
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.program import Panel, Program, Stage
from rnnspec.lowering.signature import bias_sources, panel_signature
from rnnspec.lowering.text import Text
from rnnspec.lowering.writer import expand
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read, node_text, operands, size_of


@dataclass(frozen=True)
class PackedPanel:
    """The numbers that a panel's loop reads in order. For every block of `lanes` units: the starts
    of all accumulations, if they start here, then for every element of every operand the weights of
    all accumulations.

    accumulations: of each the parameters that its start is the sum of, None where it goes on, and
    the matrix of each term and whether that is transposed. size: the units; inner: the length of
    each operand.
    """

    name: str
    size: int
    inner: tuple[int, ...]
    accumulations: tuple[tuple[tuple[str, ...] | None, tuple[tuple[str, bool], ...]], ...]
    lanes: int

    @property
    def blocks(self) -> int:
        return -(-self.size // self.lanes)

    @property
    def numbers(self) -> int:
        """How many numbers the panel has."""
        starts = any(biases is not None for biases, _ in self.accumulations)
        return self.blocks * self.lanes * len(self.accumulations) * (starts + sum(self.inner))


@dataclass(frozen=True)
class Step:
    """A step of a cell in C. body: the lines of the function. panels: the matrices it reads;
    vectors: parameter -> (identifier, numbers) of those that it reads element by element. states,
    inputs, outputs: name -> (identifier, numbers); scratch: identifier -> numbers. functions: the
    primitives that are called. counts: whether the step's number is read."""

    name: str
    real: Real
    body: tuple[str, ...]
    panels: tuple[PackedPanel, ...]
    vectors: Mapping[str, tuple[str, int]]
    states: Mapping[str, tuple[str, int]]
    inputs: Mapping[str, tuple[str, int]]
    outputs: Mapping[str, tuple[str, int]]
    scratch: Mapping[str, int]
    functions: frozenset[str]
    counts: bool


@dataclass
class CText(Text):
    """The body of the function. sizes: the number of every size; lasting: the values that are
    arrays."""

    words = frozenset({*KEYWORDS, *MACROS, *OURS, *NAMES.values()})
    writer = CWriter  # type: ignore[assignment]

    real: Real
    sizes: Mapping[str, int]
    lasting: frozenset[str]
    needed: frozenset[str]
    noise: frozenset[str]
    members: dict[str, dict[str, str]] = field(default_factory=dict, init=False)  # struct -> wanted -> identifier
    panels: list[PackedPanel] = field(default_factory=list, init=False)
    vectors: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    functions: set[str] = field(default_factory=set, init=False)

    def number(self, expression: str) -> int:
        return evaluate_size(expression, self.sizes)

    def count(self, name: str) -> int:
        """How many numbers a value has."""
        return self.number(size_of(self.graph, name))

    def array(self, name: str) -> str:
        """The text of a pointer to a value's numbers."""
        node = self.graph.nodes[name]
        if not isinstance(node, Read):
            return f"s->value.{self.value(name)}"
        if node.kind == "parameter" or node.source in self.noise:
            if node.source not in self.vectors:
                self.vectors[node.source] = self.member("weights", node.source), self.count(name)
            return f"w->{self.vectors[node.source][0]}"
        if node.kind == "state":
            return f"s->state.{self.member('state', node.source)}"
        assert node.kind == "input", node
        return self.name(f"input {node.source}", node.source)

    def member(self, struct: str, wanted: str) -> str:
        """The identifier of a member of a struct, which has no others beside it."""
        known = self.members.setdefault(struct, {})
        if wanted not in known:
            known[wanted] = fresh(self.spelled(wanted), {*known.values(), *KEYWORDS, *MACROS})
        return known[wanted]

    def element(self, name: str, index: str) -> str:
        """The text of one number of a value."""
        node = self.graph.nodes[name]
        if isinstance(node, Read) and node.kind == "step":
            return "(real)s->t"
        if isinstance(node, Read) and node.kind == "size":
            return self.real.constant(self.number(node.source))
        return f"{self.array(name)}[{'0' if self.count(name) == 1 else index}]"

    def loop(self, size: int, header: str = "i") -> str:
        return f"for (int {header} = 0; {header} < {size}; {header}++) {{"

    def equation(self, name: str, expr: object, comment: str) -> list[str]:
        writer = CWriter({n: self.value(n) for n in self.graph.nodes}, self.real)
        lines = writer.assign(self.value(name), expr, comment.replace("*/", "* /"))
        self.functions |= writer.used
        return lines


def step(program: Program, dtype: str, sizes: Mapping[str, int], noise: Collection[str] = ()) -> Step:
    """The step of a cell for one row. sizes: the number of every size of the cell; noise: the inputs
    that are noise, which are read from the weights.

    Raises UnsupportedError for names that C can't have, and for programs that run backwards.
    """
    if program.reverse:
        raise UnsupportedError(f"{program.name}: only the forward step is written in C")
    needed = needed_of(program.graph)
    text = CText(program, REALS[dtype], sizes, lasting(program) & needed, needed, frozenset(noise))
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
        name: (text.name(f"output {name}", f"{name}_out"), text.count(value)) for name, value in program.outputs.items()
    }
    for stage in program.stages():
        _stage(text, stage)
    _ending(text, outputs)
    # a product writes whole vectors
    scratch = {
        text.value(n): -(-text.count(n) // text.real.lanes) * text.real.lanes
        for n in text.graph.nodes
        if n in text.lasting
    }
    reads = {node.kind for node in text.graph.nodes.values() if isinstance(node, Read)}
    return Step(
        program.name,
        text.real,
        tuple(text.lines),
        tuple(text.panels),
        text.vectors,
        states,
        inputs,
        outputs,
        scratch,
        frozenset(text.functions),
        "step" in reads,
    )


def needed_of(graph: Graph) -> frozenset[str]:
    """The nodes that results depend on: a derivative's surrogate is of no use here."""
    found = {*graph.results()}
    for name in reversed(list(graph.nodes)):
        if name in found:
            found.update(taken(graph.nodes[name]))
    return frozenset(found)


def taken(node: Node) -> tuple[str, ...]:
    """The values that the text of a node reads: of a surrogate's operands not those that only its
    derivative has."""
    return names(expand(node.expr)) if isinstance(node, Pointwise) else operands(node)


def lasting(program: Program) -> frozenset[str]:
    """The values that are arrays: those of products, of nodes that need whole rows, those that are
    read beyond their stage, and results."""
    graph, found = program.graph, set[str]()
    for stage in program.stages():
        found |= {acc.value for panel in stage.panels for acc in panel.accumulations} | {*stage.rowwise}
        found |= {o for panel in stage.panels for o in panel.operands}
        found |= {o for name in stage.rowwise for o in operands(graph.nodes[name])} | {*stage.reads(graph)}
        found |= {value for value, _ in stage.stores}
    found |= {*graph.states.values(), *program.outputs.values()}
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
        text.line(f"const vec *panel = (const vec *)w->{name};")
        with text.block(text.loop(packed.blocks, "block")):
            _block(text, panel, packed)
        text.line("}")
    text.line("}")


def _block(text: CText, panel: Panel, packed: PackedPanel) -> None:
    """The products of one block of units: one sum of each accumulation, kept in registers."""
    values = [acc.value for acc in panel.accumulations]
    starting = [n for n, acc in enumerate(panel.accumulations) if acc.first]
    count, at = len(values), f"block * {text.real.lanes}"
    for n, (value, acc) in enumerate(zip(values, panel.accumulations, strict=True)):
        start = f"panel[{n}]" if acc.first else f"LOAD({text.array(value)} + {at})"
        text.line(f"vec {text.value(value)} = {start};")
    if starting:
        text.line(f"panel += {count};")
    for operand, inner in zip(panel.operands, packed.inner, strict=True):
        with text.block(f"for (int k = 0; k < {inner}; k++, panel += {count}) {{"):
            text.line(f"const real factor = {text.element(operand, 'k')};")
            for n, value in enumerate(values):
                text.line(f"ADD_PRODUCT({text.value(value)}, panel[{n}], factor);")
        text.line("}")
    for value in values:
        text.line(f"STORE({text.array(value)} + {at}, {text.value(value)});")


def _pointwise(text: CText, stage: Stage) -> None:
    graph, size = text.graph, text.number(stage.size)
    nodes = [name for name in stage.nodes if name in text.needed]
    with text.block(text.loop(size)):
        for name in stage.reads(graph):
            if any(name in taken(graph.nodes[n]) for n in nodes):
                text.line(f"const real {text.value(name)} = {text.element(name, 'i')};")
        for name in nodes:
            node = graph.nodes[name]
            for line in text.equation(name, node.expr, node_text(node)):  # type: ignore[union-attr]
                text.line(line)
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
    text.line("s->t++;")
