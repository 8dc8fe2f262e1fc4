"""The page of `rnnspec show`: what a cell is and what is made of it, as text, LaTeX or JSON.

In: a Spec. Out: a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnspec.language.spec import Shape, Spec
from rnnspec.show.equations import shape_text
from rnnspec.show.stages import STAGE_TEXTS, STAGES
from rnnspec.show.wrapped import paragraphs, wrapped
from rnnspec.storage.jsontext import json_text

STAGES_NOTE = "products that wait for one another in a step; 0 means elementwise recurrence"
INDENT = 2  # columns of what stands below a title


def show(
    spec: Spec,
    stage: str | None = None,
    latex: bool | str = False,
    as_json: bool = False,
    constants: str = "symbols",
    width: int | None = None,
) -> str:
    """The page of a cell, or one of its stages: "spec", "graph", "adjoint", "program", "cpu" or
    "cuda".

    stage: that one alone. latex: True for align environments of the equations and the gradients,
    or "forward", "backward", "parameters", "document" for one of these; constants: whether it has
    the file's constants as "symbols" or as "numbers". as_json: the facts of the page, or the stage,
    as JSON. width: columns that the page is cut to (None: as wide as its lines are); stages, LaTeX
    and JSON stay whole. Raises ValueError for another stage or part, UnsupportedError for a stage
    that this cell does not reach.
    """
    if stage is not None:
        if stage not in STAGES:
            raise ValueError(f"there is no stage {stage!r}: choose {', '.join(STAGES[:-1])} or {STAGES[-1]}.")
        text = STAGE_TEXTS[stage](spec)
        return json_text({"name": spec.name, "stage": stage, "text": text}) if as_json else text
    if latex:
        from rnnspec.show.tex.document import latex as written

        return written(spec, "" if latex is True else latex, constants)
    from rnnspec.show.facts import facts

    known = facts(spec)
    return json_text(known) if as_json else page(spec, known, width)


def page(spec: Spec, known: Mapping[str, Any], width: int | None = None) -> str:
    """The default page of `rnnspec show`. known: the facts of the cell; width: its columns."""
    count, back = known["parameter_count"], known["backward"]
    number = f" ({count['count']:,} at {_at(count['at'])})" if count["at"] and count["count"] is not None else ""
    parts = [
        [f"{spec.name}: {spec.title}", *([spec.source.to_text()] if spec.source else [])],
        _section("equations", known["equations"]),
        _integration(known["integration"]),
        _section("sizes", [_size_line(n, s) for n, s in known["sizes"].items()]),
        _section("inputs", _declared(spec.streams)),
        _section("noise (at evaluation what is expected of it)", _noise(spec)),
        _section("states (zero at the start unless given)", _declared(spec.states)),
        _section(
            "parameters",
            [*_declared(spec.trained), f"{count['formula']} numbers in all{number}, for every length T and batch B"],
        ),
        _section("fixed parameters (given, not trained, and not in that number)", _declared(spec.held)),
        _constraints(known["constraints"]),
        _section("outputs, at every step", [", ".join(spec.outputs)]),
        _section(
            "backward, from the last step to the first (d_v: gradient of v; d_v_next: what step t+1 says of v, its"
            " d_v_prev; d_v_out: from the output; with: a part of an equation, above the gradient that needs it)",
            [*back["lines"], *back["sums"]],
        ),
        _jacobian(known["jacobian"]),
        *_program_sections(known["program"]),
        _section(
            "choices and constants",
            [
                *(f"{n}: {', '.join(c['options'])} (now {c['chosen']})" for n, c in known["choices"].items()),
                *(f"{n} = {v:g}" for n, v in known["constants"].items()),
            ],
        ),
        *_about_inputs(spec),
        _section(
            "layouts of other libraries",
            [
                f"{library}: {', '.join(f'{b} [' + ' '.join(p) + ']' for b, p in blocks.items())}"
                for library, blocks in known["layouts"].items()
            ],
        ),
        _section(
            "claims to compute the same as",
            [f"{layer} {_attributes(values)}".rstrip() for layer, values in known["same_as"].items()],
        ),
        _section("notes", paragraphs(known["notes"], None if width is None else width - INDENT)),
    ]
    return "\n\n".join("\n".join(wrapped(part, width)) for part in parts if part)


def _constraints(known: Mapping[str, list[str]]) -> list[str]:
    title = "constraints (of initial values, and by projection after every update)"
    return _section(title, [f"{name}: {', '.join(held)}" for name, held in known.items()])


def _integration(known: Mapping[str, str]) -> list[str]:
    title = "integration (what each d/dt is as equations of a step: --stage spec)"
    return _section(title, [f"{name}: {how}" for name, how in known.items()])


def _about_inputs(spec: Spec) -> list[list[str]]:
    left_out = [f"{n}: {'the step number, t' if v is None else f'{v:g}'} then" for n, v in spec.defaults.items()]
    return [
        _section("no gradient", [n for n in spec.no_gradient if n in spec.streams]),
        _section("inputs that may be left out", left_out),
    ]


def _at(sizes: Mapping[str, int]) -> str:
    """Names of equal sizes together: "D = H = 128, P = 8"."""
    together: dict[int, list[str]] = {}
    for name, size in sizes.items():
        together.setdefault(size, []).append(name)
    return ", ".join(" = ".join([*names, str(size)]) for size, names in together.items())


def _jacobian(known: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The structure of the Jacobian, a line for each state: the states before the step on which it
    depends in one way are named together."""
    lines = []
    for after, row in known.items():
        together: dict[str, list[str]] = {}
        for before, text in row.items():
            together.setdefault(text, []).append(before)
        lines.append(f"{after} by " + "; ".join(f"{', '.join(names)}: {text}" for text, names in together.items()))
    return _section("Jacobian of a step (what each state after it takes from those before it)", lines)


def _program_sections(program: Mapping[str, Any]) -> list[list[str]]:
    if "unsupported" in program:
        return [_section("kernels", [program["unsupported"]])]
    waits = program["recurrent_stages"]
    tape = [
        f"{b['name'].removesuffix('_history') if b['kind'] == 'history' else b['name']} [{b['size']}]"
        for b in program["tape"]
    ]
    return [
        _section("saved on the tape, per step and row", [", ".join(tape)]),
        _section(
            f"recurrent stages: {waits['forward']} forward, {waits['backward']} backward ({STAGES_NOTE})",
            [f"{where}: {'; '.join(lines)}" for where, lines in program["hoisted"].items()],
        )
        or [],
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"{'':{INDENT}}{line}".rstrip() for line in lines)] if lines else []


def _size_line(name: str, size: Mapping[str, Any]) -> str:
    default = f"(default {size['default']})" if size.get("default") is not None else ""
    return f"{name}  {size.get('meaning', '')} {default}".rstrip()


def _declared(group: Mapping[str, Shape]) -> list[str]:
    """One line for each run of names of one shape."""
    by_shape: dict[Shape, list[str]] = {}
    for name, shape in group.items():
        by_shape.setdefault(shape, []).append(name)
    return [f"{', '.join(names)}: {shape_text(shape)}" for shape, names in by_shape.items()]


def _noise(spec: Spec) -> list[str]:
    return [
        f"{name}: {shape_text(spec.shapes[name])} {draw.kind}({draw.argument:g}) per {draw.per}, {draw.mean:g} at"
        " evaluation"
        for name, draw in spec.noise.items()
    ]


def _attributes(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
