"""What a cell is and what is made of it, as text, LaTeX or JSON: the page of `rnnspec show`.

In: a Spec. Out: a string. Nothing is computed here but the number of parameters; the rest is read off the stages.
"""
from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnspec.errors import UnsupportedError
from rnnspec.language.equations import Equation, to_text
from rnnspec.language.sizes import SizeError, canonical_size, full_shape, sizes_in, with_default_sizes
from rnnspec.language.spec import Shape, Size, Spec

if TYPE_CHECKING:
    from rnnspec.lowering.program import Program, Stage
    from rnnspec.pipeline import Stages
    from rnnspec.symbolic.graph import Graph

STAGES = ("spec", "graph", "adjoint", "program", "cpu", "cuda")
SIZE, OTHER = 128, 8
STAGES_NOTE = "products that wait for one another in a step; 0 means elementwise recurrence"


def show(spec: Spec, stage: str | None = None, latex: bool = False, as_json: bool = False) -> str:
    """The page of a cell, or one of its stages: "spec", "graph", "adjoint", "program", "cpu" or "cuda".

    latex: an align environment of the forward and the backward equations. as_json: the facts of the page, as JSON.
    Raises ValueError for another stage, UnsupportedError for a stage that this cell does not reach.
    """
    if stage is not None:
        if stage not in STAGES:
            raise ValueError(f"there is no stage {stage!r}: choose {', '.join(STAGES[:-1])} or {STAGES[-1]}.")
        text = _STAGE_TEXTS[stage](spec)
        return json.dumps({"name": spec.name, "stage": stage, "text": text}, indent=1, ensure_ascii=False) if as_json else text
    if latex:
        from rnnspec.latex import align

        return align(spec, *_graphs(spec))
    return json.dumps(facts(spec), indent=1, ensure_ascii=False, default=float) if as_json else page(spec)


def known_sizes(spec: Spec, size: int = SIZE) -> dict[str, int]:
    """The sizes that a cell is counted at: D and H are `size`, others what their default says, or 8. SizeError where a default has no value."""
    free = {n: size if n in ("D", "H") else OTHER for n, s in _sizes(spec).items() if n in ("D", "H") or s.default is None}
    return with_default_sizes(spec.sizes, free)


def parameter_count(spec: Spec, sizes: Mapping[str, int]) -> int:
    """How many numbers a cell trains at these sizes; sizes with a default may be left out. Does not depend on T or B.

    Raises SizeError, naming the sizes that are missing.
    """
    known = with_default_sizes(spec.sizes, sizes)
    return sum(math.prod(full_shape(shape, known)) for shape in spec.trained.values())


def parameter_formula(spec: Spec) -> str:
    """The number of parameters in the sizes: "4*D*H + 4*H*H + 4*H"."""
    total = "0"
    for shape in spec.trained.values():
        count = "*".join(f"({axis})" for axis in shape) or "1"
        total = canonical_size(f"{total} + {count}")
    return total


def _graphs(spec: Spec) -> tuple[Graph, Graph]:
    from rnnspec.symbolic.adjoint import adjoint
    from rnnspec.symbolic.build import build
    from rnnspec.symbolic.simplify import split_sums

    graph = build(spec)
    return graph, split_sums(adjoint(graph, spec.no_gradient))


# --- one stage -------------------------------------------------------------------------------------------------------


def _spec_text(spec: Spec) -> str:
    """Declarations and the equations as they are understood: choices made, constants and own functions put in."""
    groups = {"input": spec.inputs, "state": spec.states, "parameter": spec.parameters}
    lines = [f"{kind} {name} {_shape(shape)}{f' {spec.noise[name].to_text()}' if name in spec.noise else ''}"
             for kind, group in groups.items() for name, shape in group.items()]
    lines += [f"{left_side(e)} = {to_text(e.value)}    # {_shape(spec.shapes[e.target])}" for e in spec.equations]
    return "\n".join([f"spec {spec.name}", *(f"  {line}" for line in lines), f"  output {', '.join(spec.outputs)}"])


def left_side(equation: Equation) -> str:
    """What stands before the = of an equation: h[t], or W of what is computed once per sequence."""
    return f"{equation.target}[t]" if equation.timed else equation.target


def _program_text(spec: Spec) -> str:
    from rnnspec.pipeline import stages

    made = stages(spec)
    return "\n\n".join(f"# {mode}\n{getattr(made, mode).to_text()}" for mode in ("forward", "backward", "infer"))


def _cpu_text(spec: Spec) -> str:
    from rnnspec.kernel import compile
    from rnnspec.pipeline import MODES

    kernel = compile(spec)
    return "\n\n".join(f"# --- {mode}, {kernel.dtype} ---\n{kernel.source(mode)}" for mode in MODES)


def _cuda_text(spec: Spec) -> str:
    """Which kernels run on a GPU at some sizes, and their texts at a small one."""
    from rnnspec.backends.cuda.listing import listing
    from rnnspec.pipeline import stages

    made = stages(spec)
    free = [name for name, size in spec.sizes.items() if size.default is None]

    def sizes(number: int) -> dict[str, int]:
        return with_default_sizes(spec.sizes, dict.fromkeys(free, number))

    return "\n\n".join(f"# --- {mode}, float32 ---\n{listing(getattr(made, mode), sizes)}" for mode in ("forward", "backward", "infer"))


_STAGE_TEXTS: Mapping[str, Callable[[Spec], str]] = {
    "spec": _spec_text,
    "graph": lambda spec: _graphs(spec)[0].to_text(),
    "adjoint": lambda spec: _graphs(spec)[1].to_text(),
    "program": _program_text,
    "cpu": _cpu_text,
    "cuda": _cuda_text,
}


# --- the backward equations ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backward:
    """The adjoint for reading. where: lines for forward values that have no equation of their own; steps: one line for each
    gradient, in order; sums: the gradients of parameters."""

    where: tuple[str, ...]
    steps: tuple[str, ...]
    sums: tuple[str, ...]


def backward_equations(spec: Spec, graph: Graph, reverse: Graph) -> Backward:
    """The adjoint's own nodes, products that are read once written inline: `d_h_prev = U_f.T @ d_a_f + ...`."""
    from rnnspec.symbolic.graph import Outer, Read

    text = Text(graph, reverse)
    uses = reverse.uses()
    own = [n for n, node in reverse.nodes.items() if n not in graph.nodes and n not in text.inline and not isinstance(node, Read)
           and (uses[n] or not isinstance(node, Outer))]
    steps = [f"{text.name(n)}{'[t]' * (text.own_sum(n))} = {text.node(n)}" for n in own]
    for source, node in [*((f"{s}_prev", n) for s, n in reverse.states.items()), *reverse.outputs.items()]:
        if f"d_{source}" != text.name(node):
            steps.append(f"d_{source} = {text.inline.get(node, text.name(node))}")
    sums = [f"d_{p} = sum over t, b of {' + '.join(text.term(n) + '[t]' * text.own_sum(n) for n in group) or '0'}"
            for p, group in reverse.sums.items()]
    return Backward(tuple(text.where(spec)), tuple(steps), tuple(sums))


class Text:
    """Texts of an adjoint's nodes. `inline`: products that are read once, as text; `alias`: a product that is all of a
    forward value's gradient bears that gradient's name."""

    def __init__(self, graph: Graph, reverse: Graph):
        from rnnspec.symbolic.expressions import Writer
        from rnnspec.symbolic.graph import Pointwise, Product

        self.graph, self.reverse = graph, reverse
        uses, nodes = reverse.uses(), reverse.nodes
        self.alias = self._aliases()
        products = {n: node for n, node in nodes.items() if n not in graph.nodes and isinstance(node, Product)}
        self.inline = {n: f"{p.matrix}{'.T' * p.transposed} @ {self.name(p.vector)}" for n, p in products.items()
                       if not uses[n] or (len(uses[n]) == 1 and isinstance(nodes[uses[n][0]], Pointwise) and n not in self.alias)}
        self.products = set(products)
        outer = self

        class Inline(Writer):
            def _write(self, expr: Any) -> tuple[str, int]:
                if expr.is_Symbol:
                    return (outer.inline[expr.name], 2) if expr.name in outer.inline else (outer.name(expr.name), 3)
                return super()._write(expr)

        self.write = Inline()

    def _aliases(self) -> dict[str, str]:
        from rnnspec.symbolic.graph import Product

        found = {}
        uses, results = self.graph.uses(), set(self.graph.results())
        for name, node in self.graph.nodes.items():
            if isinstance(node, Product):
                made, gradient = f"{node.matrix}_d_{name}", f"d_{node.vector}"
                whole = uses[node.vector] == [name] and node.vector not in results
                if whole and made in self.reverse.nodes and gradient not in self.reverse.nodes and self.reverse.uses()[made]:
                    found[made] = gradient
        return found

    def name(self, node: str) -> str:
        return self.alias.get(node, node)

    def own_sum(self, name: str) -> bool:
        """Whether a value of every step has the name of the parameter's gradient, which is its sum."""
        return self.term(name) == name and any(name in group and name == f"d_{p}" for p, group in self.reverse.sums.items())

    def node(self, name: str) -> str:
        from rnnspec.symbolic.graph import Outer, Pointwise, node_text, renamed

        node = self.reverse.nodes[name]
        if isinstance(node, Outer):
            return self.term(name)
        return self.write(node.expr) if isinstance(node, Pointwise) else node_text(renamed(node, self.alias))

    def term(self, name: str) -> str:
        from rnnspec.symbolic.graph import Outer

        node = self.reverse.nodes[name]
        return f"{self.name(node.left)} {self.name(node.right)}^T" if isinstance(node, Outer) else self.inline.get(name, self.name(name))

    def where(self, spec: Spec) -> Iterator[str]:
        """Forward values that the gradients read and the equations do not name; products in them written inline."""
        from rnnspec.symbolic.graph import Pointwise, Product, Read, node_text, operands

        forward = self.graph.nodes
        wanted = {o for n, node in self.reverse.nodes.items() if n not in forward for o in operands(node)}
        inner: dict[str, str] = {}
        for name, node in reversed(list(forward.items())):  # what those values read in turn
            if name in wanted and name not in spec.shapes:
                products = {o: p for o in operands(node) if isinstance(node, Pointwise) and isinstance(p := forward[o], Product)}
                inner |= {o: f"{p.matrix}{'.T' * p.transposed} @ {p.vector}" for o, p in products.items()}
                wanted |= {o for n in operands(node) for o in (operands(products[n]) if n in products else (n,))}
        self.inline |= inner
        for name, node in forward.items():
            if name in wanted and name not in spec.shapes:
                if isinstance(node, Pointwise):
                    yield f"{name} = {self.write(node.expr)}"
                elif isinstance(node, Read) and node.source in self.graph.pieces:
                    yield f"{name} = {self.graph.pieces[node.source].to_text()}"
                elif not isinstance(node, Read) or (node.kind != "step" and name != node.source):
                    yield f"{name} = {node_text(node)}"


# --- the page --------------------------------------------------------------------------------------------------------


def facts(spec: Spec) -> dict[str, Any]:
    """Everything on the page, as plain data."""
    graph, reverse = _graphs(spec)
    back = backward_equations(spec, graph, reverse)
    return {
        "name": spec.name, "title": spec.title, "source": spec.source,
        "equations": list(dict.fromkeys(e.text for e in spec.equations)),
        "sizes": {n: {"meaning": s.meaning, "default": s.default} for n, s in _sizes(spec).items()},
        "inputs": _lists(spec.inputs), "states": _lists(spec.states), "parameters": _lists(spec.parameters), "outputs": list(spec.outputs),
        "parameter_count": {"formula": parameter_formula(spec), **_count_at(spec), "depends_on_T": False},
        "backward": {"where": list(back.where), "steps": list(back.steps), "sums": list(back.sums)},
        "program": _program_facts(spec),
        "layouts": {k: {b: list(v) for b, v in blocks.items()} for k, blocks in spec.layouts.items()},
        "same_as": {layer: dict(attributes) for layer, attributes in spec.same_as.items()},
        "choices": {n: {"options": list(c.options), "chosen": c.chosen} for n, c in spec.choices.items()},
        "constants": {n: float(v) for n, v in spec.constants.items()},
        "noise": {n: draw.to_text() for n, draw in spec.noise.items()},
        "no_gradient": list(spec.no_gradient), "defaults": {n: "t" if v is None else v for n, v in spec.defaults.items()},
        "examples": [e.title for e in spec.examples], "notes": spec.notes.strip(),
    }


def _count_at(spec: Spec) -> dict[str, Any]:
    try:
        sizes = known_sizes(spec)
    except SizeError:
        return {"at": {}, "count": None}
    return {"at": {n: sizes[n] for n in _sizes(spec)}, "count": parameter_count(spec, sizes)}


def _at(sizes: Mapping[str, int]) -> str:
    """Names of equal sizes together: "D = H = 128, P = 8"."""
    together: dict[int, list[str]] = {}
    for name, size in sizes.items():
        together.setdefault(size, []).append(name)
    return ", ".join(" = ".join([*names, str(size)]) for size, names in together.items())


def _size_names(spec: Spec) -> list[str]:
    return list(dict.fromkeys([*sizes_in(spec.shapes.values()), *spec.sizes]))


def _sizes(spec: Spec) -> dict[str, Size]:
    return {n: spec.sizes.get(n, Size()) for n in _size_names(spec)}


def _lists(group: Mapping[str, Shape]) -> dict[str, list[str]]:
    return {name: list(shape) for name, shape in group.items()}


def _program_facts(spec: Spec) -> dict[str, Any]:
    from rnnspec.pipeline import stages

    try:
        made: Stages = stages(spec)
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    return {
        "recurrent_stages": {"forward": made.forward.recurrent_stages(), "backward": made.backward.recurrent_stages()},
        "tape": [{"name": b.name, "size": b.size, "kind": b.kind} for b in made.forward.buffers.values() if b.saved],
        "hoisted": {**_hoisted("forward", made.forward), **_hoisted("backward", made.backward)},
    }


def _hoisted(mode: str, program: Program) -> dict[str, list[str]]:
    before, after = _work(program, program.before), _work(program, program.after) + _sums(program)
    return {f"{when} the {mode} loop": lines for when, lines in (("before", before), ("after", after)) if lines}


def _work(program: Program, stages: tuple[Stage, ...]) -> list[str]:
    """The products of some stages, in words of the language."""
    names = {node: f"d_{source}" for source, node in program.outputs.items()} if program.reverse else {}
    lines = []
    for accumulation in (a for stage in stages for panel in stage.panels for a in panel.accumulations):
        terms = [f"{t.matrix}{'.T' * t.transposed} @ {t.operand}" for t in accumulation.terms]
        lines.append(f"{names.get(accumulation.value, accumulation.value)} = {' + '.join([*terms, *accumulation.biases])}")
    return lines


def _sums(program: Program) -> list[str]:
    made = program.summed()
    return [f"the gradients of all parameters ({len(made)} sums over t and b)"] if made else []


def page(spec: Spec) -> str:
    """The default page of `rnnspec show`."""
    known = facts(spec)
    count, back = known["parameter_count"], known["backward"]
    number = f" ({count['count']:,} at {_at(count['at'])})" if count["at"] and count["count"] is not None else ""
    parts = [
        [f"{spec.name}: {spec.title}", *([spec.source] if spec.source else [])],
        _section("equations", known["equations"]),
        _section("sizes", [_size_line(n, s) for n, s in known["sizes"].items()]),
        _section("inputs", _declared(spec.streams)),
        _section("noise (at evaluation what is expected of it)", _noise(spec)),
        _section("states (zero at the start unless given)", _declared(spec.states)),
        _section("parameters", [*_declared(spec.trained), f"{count['formula']} numbers in all{number}, for every length T and batch B"]),
        _section("outputs, at every step", [", ".join(spec.outputs)]),
        _section("backward, from the last step to the first (d_v: gradient of v; d_v_next: what step t+1 says of v, its d_v_prev; d_v_out: from the output)",
                 [*back["steps"], *back["sums"], *(f"with {line}" for line in back["where"])]),
        *_program_sections(known["program"]),
        _section("choices and constants", [*(f"{n}: {', '.join(c['options'])} (now {c['chosen']})" for n, c in known["choices"].items()),
                                           *(f"{n} = {v:g}" for n, v in known["constants"].items())]),
        _section("no gradient", [n for n in spec.no_gradient if n not in spec.noise]),
        _section("inputs that may be left out", [f"{n}: {'the step number, t' if v is None else f'{v:g}'} then" for n, v in spec.defaults.items()]),
        _section("layouts of other libraries", [f"{library}: {', '.join(f'{b} [' + ' '.join(p) + ']' for b, p in blocks.items())}"
                                                for library, blocks in known["layouts"].items()]),
        _section("computes the same", [f"{layer} {_attributes(values)}".rstrip() for layer, values in known["same_as"].items()]),
        _section("notes", known["notes"].splitlines()),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _program_sections(program: Mapping[str, Any]) -> list[list[str]]:
    if "unsupported" in program:
        return [_section("kernels", [program["unsupported"]])]
    waits = program["recurrent_stages"]
    tape = [f"{b['name'].removesuffix('_history')} [{b['size']}]" for b in program["tape"]]
    return [
        _section("saved on the tape, per step and row", [", ".join(tape)]),
        _section(f"recurrent stages: {waits['forward']} forward, {waits['backward']} backward ({STAGES_NOTE})",
                 [f"{where}: {'; '.join(lines)}" for where, lines in program["hoisted"].items()]) or [],
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"  {line}".rstrip() for line in lines)] if lines else []


def _size_line(name: str, size: Mapping[str, Any]) -> str:
    default = f"(default {size['default']})" if size.get("default") is not None else ""
    return f"{name}  {size.get('meaning', '')} {default}".rstrip()


def _declared(group: Mapping[str, Shape]) -> list[str]:
    """One line for each run of names of one shape."""
    by_shape: dict[Shape, list[str]] = {}
    for name, shape in group.items():
        by_shape.setdefault(shape, []).append(name)
    return [f"{', '.join(names)}: {_shape(shape)}" for shape, names in by_shape.items()]


def _noise(spec: Spec) -> list[str]:
    return [f"{name}: {_shape(spec.shapes[name])} {draw.kind}({draw.argument:g}) per {draw.per}, {draw.mean:g} at evaluation"
            for name, draw in spec.noise.items()]


def _shape(shape: Shape) -> str:
    return "[" + ", ".join(shape) + "]"


def _attributes(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
