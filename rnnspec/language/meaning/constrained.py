"""What the parameters of a cell are held to: what a file says by name and pattern, settled for each
parameter."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from fractions import Fraction

from rnnspec.language.constraints import MATRIX, SQUARE, Constraint, at_odds, constraint
from rnnspec.language.reading.constrained import Stated
from rnnspec.language.reading.document import Document, Entry
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed

Held = dict[str, tuple[Constraint, ...]]


def matching(document: Document) -> dict[str, Entry[Stated]]:
    """What each parameter that has any is held to: a full name wins over a pattern, an earlier
    pattern over a later one."""
    found: dict[str, Entry[Stated]] = {}
    for pattern, entry in document.constrain.items():
        for name in document.parameters:
            if name == pattern or (
                fnmatch.fnmatchcase(name, pattern) and name not in found and name not in document.constrain
            ):
                found[name] = entry
    return {name: found[name] for name in document.parameters if name in found}


def fixed_names(document: Document) -> tuple[str, ...]:
    """The parameters that are fixed, by the key `fixed` or by a constraint."""
    named = {e.value for e in document.fixed}
    named |= {n for n, entry in matching(document).items() if any(e.value.kind == "fixed" for e in entry.value)}
    return tuple(n for n in document.parameters if n in named)


def names_in_constraints(document: Document) -> dict[str, set[str]]:
    """parameter -> the names that its constraints mention."""
    return {
        name: {arg.removeprefix("-").strip() for e in entry.value for arg in e.value.args}
        for name, entry in matching(document).items()
    }


def constraints(document: Document, constants: Mapping[str, Fraction], faults: Faults) -> Held:
    """The constraints of each parameter that has some, without `fixed`, in the order in which they
    are done."""
    for pattern, entry in document.constrain.items():
        if not any(fnmatch.fnmatchcase(name, pattern) for name in document.parameters):
            faults.add(
                f"constrain names '{pattern[:60]}', which is no parameter.{did_you_mean(pattern, document.parameters)}"
                f" Known here: {listed(document.parameters)}.",
                entry.at,
            )
    fixed = fixed_names(document)
    found: Held = {}
    for name, entry in matching(document).items():
        _check_whole(name, entry, document, faults)
        found[name] = _of_one(name, entry.value, document, constants, fixed, faults)
        if why := at_odds(list(found[name]), name in fixed):
            faults.add(f"constrain, '{name}': {why}", entry.value[0].at)
    return {name: held for name, held in found.items() if held}


def _check_whole(name: str, entry: Entry[Stated], document: Document, faults: Faults) -> None:
    if name in document.noise:
        faults.add(f"'{name}' is noise, drawn anew for every call: there is nothing to constrain.", entry.at)
    for library, blocks in document.layouts.items():
        if sum(e.value == name for entries in blocks.values() for e in entries) > 1:
            faults.add(
                f"'{name}' is the sum of two places of the layout '{library}', neither of which is it: it can't be"
                " constrained there. Place it once.",
                entry.at,
            )


def _of_one(
    name: str,
    stated: Stated,
    document: Document,
    constants: Mapping[str, Fraction],
    fixed: tuple[str, ...],
    faults: Faults,
) -> tuple[Constraint, ...]:
    found: dict[str, Constraint] = {}
    shape = document.parameters[name].value
    arrays = {n: document.parameters[n].value for n in fixed if n != name}
    for e in stated:
        made = constraint(e.value, constants, arrays)
        if isinstance(made, str):
            faults.add(f"constrain, '{name}': {made}", e.at)
            continue
        if made.kind in found:
            faults.add(f"'{made.kind}' is given twice in the constraints of '{name}'.", e.at)
        if why := _does_not_fit(made, shape, arrays):
            faults.add(f"constrain: {why.format(name=name, shape=_text(shape))}", e.at)
        found[made.kind] = made
    kept = [c for c in found.values() if c.kind != "fixed"]
    return tuple(sorted(kept, key=lambda c: c.row.order))


def _does_not_fit(made: Constraint, shape: Shape, arrays: Mapping[str, Shape]) -> str:
    """What is wrong with the shapes; "" where nothing is."""
    row = made.row
    if row.of in (MATRIX, SQUARE) and len(shape) < 2:
        return f"'{made.kind}' is for matrices, and '{{name}}' has the shape {{shape}}."
    if row.of == SQUARE and shape[-1] != shape[-2]:
        return f"'{made.kind}' is for square matrices, as [H, H], and '{{name}}' has the shape {{shape}}."
    for array in made.arrays:
        fits = [shape, shape[-1:]] if made.kind == "sign" else [shape]
        if arrays[array] not in fits:
            wanted = " or ".join(dict.fromkeys(_text(s) for s in fits))
            return f"'{array}' of {made.kind} has the shape {_text(arrays[array])}; for '{{name}}' it needs {wanted}."
    return ""


def _text(shape: Shape) -> str:
    return f"[{', '.join(shape)}]"
