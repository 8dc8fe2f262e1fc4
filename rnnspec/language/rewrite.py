"""A Spec as a file, and Specs made from others: what is given replaces or adds by name, as
`extends` does.

In: a Spec, some declarations and equations. Out: a new Spec, read and checked like any other. Loops
are unrolled, choices made and constants numbers in a Spec, so that is how they are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from rnnspec.language.meaning.check import Settings, check
from rnnspec.language.meaning.unroll import settle
from rnnspec.language.reading.document import Entry
from rnnspec.language.reading.extend import join
from rnnspec.language.reading.reader import read
from rnnspec.language.spec import Init, Shape, Spec
from rnnspec.language.syntax.tree import Equation, to_text


def to_yaml(spec: Spec) -> str:
    """The text of a file from which `loads` makes the same cell. Examples and same_as are left
    out."""
    groups = {"inputs": spec.inputs, "states": spec.states, "parameters": spec.parameters}
    lines = ["rnnspec: 1", f"name: {spec.name}", f"title: {json.dumps(spec.title, ensure_ascii=False)}"]
    about = {"source": spec.source.given(), "notes": spec.notes}
    lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items() if value]
    sizes = {
        n: {k: v for k, v in (("meaning", s.meaning), ("default", s.default)) if v}
        for n, s in spec.sizes.items()
        if s.meaning or s.default
    }
    lines += _block("sizes", {n: json.dumps(s, ensure_ascii=False) for n, s in sizes.items()})
    for key, group in groups.items():
        lines += _block(key, {n: shape_text(shape) for n, shape in group.items()})
    lines += ["equations: |", *(f"  {line(e)}" for e in spec.equations)]
    lines.append(f"outputs: [{', '.join(spec.outputs)}]")
    still = [n for n in spec.no_gradient if n in spec.inputs and n not in spec.noise]
    lines += [f"no_gradient: [{', '.join(still)}]"] if still else []
    lines += [f"fixed: [{', '.join(spec.fixed)}]"] if spec.fixed else []
    constrained = {f"{n!r}": json.dumps([c.to_text() for c in held]) for n, held in spec.constraints.items()}
    lines += _block("constrain", constrained)
    lines += _block("defaults", {n: "t" if v is None else repr(v) for n, v in spec.defaults.items()})
    lines += _block("noise", {n: draw.to_text() for n, draw in spec.noise.items()})
    lines += _block("init", {f"{n!r}": _init(i) for n, i in spec.init.items()})
    lines += (
        [f"layouts: {json.dumps({k: {b: list(p) for b, p in v.items()} for k, v in spec.layouts.items()})}"]
        if spec.layouts
        else []
    )
    return "\n".join(lines) + "\n"


def rewrite(
    spec: Spec, name: str, title: str, equations: Mapping[str, str], declared: Mapping[str, Mapping[str, str]]
) -> Spec:
    """The cell `spec` with these equations (target -> "i[t] = 1") and declarations, under a new
    name and title; what nothing uses any more is dropped. declared: a key of the file -> name ->
    what it says; under "fixed" names alone. Raises SpecError where the result is no cell."""
    lines = ["rnnspec: 1", f"name: {name}", f"extends: {spec.name}", f"title: {json.dumps(title, ensure_ascii=False)}"]
    for key, entries in declared.items():
        lines += _block(key, entries) if key != "fixed" else []
    lines += ["equations: |", *(f"  {e}" for e in equations.values())]
    base = read(to_yaml(spec), f"<{spec.name}>")
    own = read("\n".join(lines) + "\n", f"<{name}>")
    joined = join(base, own)
    fixed = joined.fixed + tuple(Entry(n, own.key("parameters")) for n in declared.get("fixed", ()))
    return check(settle(replace(joined, extends=None, fixed=fixed)), Settings({}, {}))


def line(equation: Equation) -> str:
    """`target[t] = value` as one would write it."""
    return f"{equation.target}{'[t]' * equation.timed} = {to_text(equation.value)}"


def _block(key: str, entries: Mapping[str, str]) -> list[str]:
    return [f"{key}:", *(f"  {name}: {value}" for name, value in entries.items())] if entries else []


def shape_text(shape: Shape) -> str:
    """[H, D], as a file says it."""
    return f"[{', '.join(shape)}]"


def _init(init: Init) -> str:
    args = ", ".join(repr(a) for a in init.args)
    text = args if init.kind == "constant" else f"{init.kind}({args})" if args else init.kind
    return f"{text} like {init.like}" if init.like else text
