"""The facts of a cell that its page shows, as plain data.

In: a Spec. Out: what JSON can hold. Nothing is computed here but the number of parameters; the rest
is read off the stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import SizeError
from rnnspec.language.spec import Shape, Spec
from rnnspec.lowering.pipeline import stages
from rnnspec.lowering.program import Program, Stage
from rnnspec.show.adjoint import backward_equations
from rnnspec.show.counts import all_sizes, jacobian_text, known_sizes, parameter_count, parameter_formula
from rnnspec.show.reading import reading


def facts(spec: Spec) -> dict[str, Any]:
    """Everything on the page, as plain data."""
    back = backward_equations(reading(spec))
    return {
        "name": spec.name,
        "title": spec.title,
        "source": spec.source.to_dict(),
        "equations": list(dict.fromkeys(e.text for e in spec.equations)),
        "sizes": {n: {"meaning": s.meaning, "default": s.default} for n, s in all_sizes(spec).items()},
        "inputs": _lists(spec.inputs),
        "states": _lists(spec.states),
        "parameters": _lists(spec.parameters),
        "outputs": list(spec.outputs),
        "parameter_count": {"formula": parameter_formula(spec), **_count_at(spec), "depends_on_T": False},
        "backward": {
            "where": list(back.where),
            "steps": list(back.steps),
            "sums": list(back.sums),
            "lines": [f"with {text}" if explains else text for text, explains in back.lines],
        },
        "jacobian": jacobian_text(spec),
        "program": _program_facts(spec),
        "layouts": {k: {b: list(v) for b, v in blocks.items()} for k, blocks in spec.layouts.items()},
        "same_as": {layer: dict(attributes) for layer, attributes in spec.same_as.items()},
        "choices": {n: {"options": list(c.options), "chosen": c.chosen} for n, c in spec.choices.items()},
        "constants": {n: float(v) for n, v in spec.constants.items()},
        "noise": {n: draw.to_text() for n, draw in spec.noise.items()},
        "no_gradient": [n for n in spec.no_gradient if n not in spec.fixed],
        "fixed": list(spec.fixed),
        "constraints": {n: [c.to_text() for c in held] for n, held in spec.constraints.items()},
        "integration": {n: i.to_text() for n, i in spec.integration.items()},
        "defaults": {n: "t" if v is None else v for n, v in spec.defaults.items()},
        "examples": [e.title for e in spec.examples],
        "notes": spec.notes.strip(),
    }


def _count_at(spec: Spec) -> dict[str, Any]:
    try:
        sizes = known_sizes(spec)
    except SizeError:
        return {"at": {}, "count": None}
    return {"at": {n: sizes[n] for n in all_sizes(spec)}, "count": parameter_count(spec, sizes)}


def _lists(group: Mapping[str, Shape]) -> dict[str, list[str]]:
    return {name: list(shape) for name, shape in group.items()}


def _program_facts(spec: Spec) -> dict[str, Any]:
    try:
        made = stages(spec, fused=True)
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
        lines.append(
            f"{names.get(accumulation.value, accumulation.value)} = {' + '.join([*terms, *accumulation.biases])}"
        )
    return lines


def _sums(program: Program) -> list[str]:
    made = program.summed()
    return [f"the gradients of all parameters ({len(made)} sums over t and b)"] if made else []
