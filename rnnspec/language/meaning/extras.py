"""What a spec says beside its equations: layouts, layers that compute the same, examples. Checked
against the Spec."""

from __future__ import annotations

from collections.abc import Mapping

from rnnspec.language.reading.document import Document, Entry
from rnnspec.language.sizes import SizeError, full_shape
from rnnspec.language.spec import Choice, Example, Shape, Spec
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.tree import Place

ZERO = "0"  # in a layout: a part that holds zeros and means nothing


def check_layouts(document: Document, spec: Spec, faults: Faults) -> None:
    """Every entry is a parameter, every parameter is in each layout, the parts of a block fit
    together."""
    for library, blocks in document.layouts.items():
        if not blocks:
            faults.add(
                f"the layout '{library}' names no block; null takes away a layout that is inherited, and none of this"
                " name is.",
                document.key("layouts"),
            )
            continue
        placed: set[str] = set()
        for block, entries in blocks.items():
            shapes: dict[Shape, str] = {}
            for entry in entries:
                name = entry.value
                if name in spec.weights:
                    placed.add(name)
                    shapes.setdefault(spec.parameters[name][1:] if spec.parameters[name] else (), name)
                elif name != ZERO:
                    near = did_you_mean(name, spec.weights)
                    faults.add(f"the layout '{library}' names '{name[:60]}', which is no parameter.{near}", entry.at)
            if len(shapes) > 1:
                names = " and ".join(shapes.values())
                faults.add(
                    f"{names} can't stand in one block ('{block}' of '{library}'): their shapes differ after the first"
                    " axis.",
                    entries[0].at,
                )
            _check_kinds(library, block, [e for e in entries if e.value in spec.weights], spec, faults)
            if not shapes and all(e.value == ZERO for e in entries):
                faults.add(f"the block '{block}' of '{library}' names no parameter.", document.key("layouts"))
        missing = [name for name in spec.weights if name not in placed]
        if missing and not document.problems:
            faults.add(
                f"the layout '{library}' lacks {listed(missing)}: it must place every parameter.",
                document.key("layouts"),
            )


def _check_kinds(library: str, block: str, entries: list[Entry[str]], spec: Spec, faults: Faults) -> None:
    """A block is trained as a whole or not at all."""
    fixed = [e for e in entries if e.value in spec.fixed]
    if fixed and len(fixed) < len(entries):
        trained = next(e.value for e in entries if e.value not in spec.fixed)
        faults.add(
            f"the block '{block}' of '{library}' holds '{fixed[0].value}', which is fixed, beside '{trained}', which is"
            " trained: give them blocks of their own.",
            fixed[0].at,
        )


def library_layers(
    document: Document, choices: Mapping[str, Choice], changed_constants: Mapping[str, object]
) -> dict[str, Mapping[str, object]]:
    """The layers that compute the same with the options now chosen.

    An entry speaks of the defaults. With another option it holds only if an attribute gives a value
    for that option: `nonlinearity: {phi: {tanh: tanh, relu: relu}}`.
    """
    found: dict[str, Mapping[str, object]] = {}
    other = {name for name, choice in choices.items() if choice.chosen != choice.options[0]}
    for layer, attributes in document.same_as.items():
        values: dict[str, object] = {}
        spoken: set[str] = set()
        holds = not changed_constants
        for key, value in attributes.items():
            if isinstance(value, Mapping):
                name, by_option = next(iter(value.items()), ("", {}))
                chosen = choices[name].chosen if name in choices else ""
                if not isinstance(by_option, Mapping) or chosen not in by_option:
                    holds = False
                    continue
                spoken.add(name)
                value = by_option[chosen]
            values[key] = value
        if holds and other <= spoken:
            found[layer] = values
    return found


def check_examples(document: Document, spec: Spec, faults: Faults) -> None:
    """The arrays of each example have the shapes that its sizes give. A spec of other constants or
    choices has no examples."""
    if faults.found or not spec.examples:
        return
    for entry in document.examples:
        _check_example(entry.value, entry.at, spec, faults)


def _check_example(example: Example, at: Place, spec: Spec, faults: Faults) -> None:
    sizes = dict(example.sizes)
    for name in sizes:
        if name not in spec.sizes:
            faults.add(
                f"the example names the size '{name[:60]}', which the spec has not. Known here: {listed(spec.sizes)}.",
                at,
            )
    steps = {len(v) for v in example.inputs.values() if isinstance(v, tuple)} | {
        len(v) for v in example.outputs.values() if isinstance(v, tuple)
    }
    if len(steps) != 1 or (not example.inputs and not example.outputs):
        faults.add("the arrays of inputs and outputs of an example have one entry per step, and all as many.", at)
        return
    length = steps.pop()
    outputs = {name: spec.shapes[name] for name in spec.outputs}
    parameters = {n: s for n, s in spec.parameters.items() if n not in spec.fixed}
    gradients = {**parameters, **spec.states, **spec.inputs}
    missing = [name for name in spec.inputs if name not in example.inputs]
    if missing:
        faults.add(f"the example lacks the input {listed(missing)}.", at)
    for group, values, shapes in (
        ("parameters", example.parameters, spec.parameters),
        ("inputs", example.inputs, spec.inputs),
        ("states", example.states, spec.states),
        ("outputs", example.outputs, outputs),
        ("final", example.final, spec.states),
        ("gradients", example.gradients, gradients),
    ):
        for name, value in values.items():
            if name not in shapes:
                faults.add(
                    f"'{name[:60]}' under {group} of an example is not known there. Known:"
                    f" {listed(shapes)}.{did_you_mean(name, shapes)}",
                    at,
                )
                continue
            timed = group in ("inputs", "outputs") or (group == "gradients" and name in spec.inputs)
            _check_array(name, group, value, shapes[name], sizes, (length,) * timed, at, faults)


def _check_array(
    name: str,
    group: str,
    value: object,
    shape: Shape,
    sizes: Mapping[str, int],
    before: tuple[int, ...],
    at: Place,
    faults: Faults,
) -> None:
    try:
        wanted = before + full_shape(shape, sizes)
    except SizeError as error:
        faults.add(f"in an example, {error}. Give it under sizes.", at)
        return
    given = _dimensions(value)
    if given != wanted:
        faults.add(
            f"'{name}' under {group} of an example has the shape {given if given is not None else 'of a ragged list'},"
            f" not {wanted}.",
            at,
        )


def _dimensions(value: object) -> tuple[int, ...] | None:
    """The shape of nested tuples; None where they are ragged."""
    if not isinstance(value, tuple):
        return ()
    inner = {_dimensions(item) for item in value}
    first = next(iter(inner), ())
    return (len(value), *first) if len(inner) <= 1 and first is not None else None
