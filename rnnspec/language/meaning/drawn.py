"""How the parameters of a cell begin and how its noise is drawn: what a file says by name and
pattern, settled for each parameter and input."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from fractions import Fraction

from rnnspec.language.draws import Draw, drawn
from rnnspec.language.reading.document import Document, Entry
from rnnspec.language.spec import Init
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed


def initialisers(document: Document, faults: Faults) -> dict[str, Init]:
    """The initialiser of each parameter that has one: a full name wins over a pattern, an earlier
    pattern over a later one."""
    found: dict[str, Entry[Init]] = {}
    for pattern, entry in document.init.items():
        matching = [name for name in document.parameters if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            near = did_you_mean(pattern, document.parameters)
            faults.add(
                f"init names '{pattern[:60]}', which is no parameter.{near} Known here: {listed(document.parameters)}.",
                entry.at,
            )
        for name in matching:
            if entry.value.kind in ("orthogonal", "identity") and len(document.parameters[name].value) < 2:
                faults.add(
                    f"'{entry.value.kind}' is for matrices, and '{name}' has the shape"
                    f" [{', '.join(document.parameters[name].value)}].",
                    entry.at,
                )
            if name == pattern or (name not in found and name not in document.init):
                found[name] = entry
    _check_likes(found, document, faults)
    return {name: found[name].value for name in document.parameters if name in found}


def _check_likes(init: Mapping[str, Entry[Init]], document: Document, faults: Faults) -> None:
    """The parameter whose random numbers another one takes draws some itself, and as many."""
    shapes = {n: e.value for n, e in document.parameters.items() if n not in document.noise}
    for name, entry in init.items():
        like, shape = entry.value.like, document.parameters[name].value
        if not like:
            continue
        own = init[like].value if like in init else Init("")
        if like not in shapes:
            faults.add(
                f"init: '{name}' is like '{like[:60]}', which is no parameter.{did_you_mean(like, shapes)} Known here:"
                f" {listed(shapes)}.",
                entry.at,
            )
        elif own.kind != "chrono" or own.like:
            faults.add(
                f"init: '{name}' is like '{like}', which draws no numbers by chrono itself. Write {like}: chrono(Tmax),"
                " without 'like'.",
                entry.at,
            )
        elif shape != shapes[like]:
            faults.add(
                f"init: '{name}' [{', '.join(shape)}] is like '{like}' [{', '.join(shapes[like])}]: they need one"
                " shape.",
                entry.at,
            )


def noise_draws(document: Document, constants: Mapping[str, Fraction], faults: Faults) -> dict[str, Draw]:
    """How each input or parameter that is noise is drawn, in the order of their declaration."""
    known, found = [*document.inputs, *document.parameters], {}
    for name, entry in document.noise.items():
        if name not in known:
            faults.add(
                f"noise names '{name}', which is no input and no parameter.{did_you_mean(name, known)} Known here:"
                f" {listed(known)}.",
                entry.at,
            )
            continue
        if name in document.defaults:
            faults.add(
                f"'{name}' is noise: where a call does not give it, it is drawn. Take its default out.",
                document.defaults[name].at,
            )
        draw = drawn(entry.value, constants, name in document.parameters)
        if isinstance(draw, str):
            faults.add(f"the noise '{name}': {draw}", entry.at)
        else:
            found[name] = draw
    return {name: found[name] for name in known if name in found}
