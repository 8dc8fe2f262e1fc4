"""`extends`: a cell that starts from another.

In: a Document and a way to read others. Out: one Document, as if all had been written in one file.

- What the file says replaces or adds by name; a name that it declares in another section (a gate
  that becomes a state) leaves the old one. `outputs`, `no_gradient` and `fixed` are replaced as a
  whole.
- What was inherited and nothing uses any more (parameters, inputs, constants, choices, functions,
  sizes, states and intermediates on no way to an output or to something this file says) is dropped,
  with its initialiser.
- `defaults`, `init`, `constrain` and each setting of `integrate` are joined by name; a default goes
  with its input, and what was `like` a parameter that goes draws for itself.
- `apply` adds to what the base applies, and all of it is done to the joined cell, in that order.
- `source` and `notes` say nothing of another cell and are not inherited; a title that is not given
  is "after PARENT". A layout is inherited where it still places every parameter with its old
  shape and the file does not say `null` in its place; `examples` and `same_as` only where the file
  changes nothing that is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from os.path import realpath
from typing import Any

from rnnspec.errors import SpecError
from rnnspec.language.reading.document import SECTIONS, Document, Entry, StatedIntegration, fail
from rnnspec.language.sizes import sizes_in
from rnnspec.language.spec import Init, Shape
from rnnspec.language.syntax.tree import names_in, names_in_equation

MAX_CHAIN = 16
_COMPUTED = frozenset({*SECTIONS, "equations", "outputs", "noise", "fixed", "apply"})


def extend(document: Document, fetch: Callable[[str, str], Document], identity: str) -> Document:
    """`document` joined with the chain it extends. `fetch(name, file)` reads the cell that `file`
    calls `name`; `identity` is what `document` itself is known as, so that a chain which comes back
    to it is refused."""
    chain, seen = [document], [identity]  # as shown; files are the same where their real paths are
    while chain[-1].extends is not None:
        last, wanted = chain[-1], chain[-1].extends
        if len(chain) > MAX_CHAIN:
            raise fail(f"the chain of extends is longer than {MAX_CHAIN}.", last.file, wanted.at, last)
        try:
            base = fetch(wanted.value, last.file)
        except SpecError as error:
            if error.errors[0].line:  # the base itself is at fault: its own places say more
                raise
            raise fail(error.errors[0].message, last.file, wanted.at, last) from None
        if realpath(base.file) in map(realpath, seen):
            raise fail(
                f"extends comes back to where it began: {' -> '.join([*seen, base.file])}.", last.file, wanted.at, last
            )
        chain.append(base)
        seen.append(base.file)
    joined = chain.pop()
    for own in reversed(chain):
        joined = join(joined, own)
    return joined


def join(base: Document, own: Document) -> Document:
    """The document that says what `own` says on top of what `base` says."""
    declared = {name for section in SECTIONS if section != "sizes" for name in getattr(own, section)}
    merged: dict[str, Any] = {}
    for section in SECTIONS:
        keep = {
            n: e
            for n, e in getattr(base, section).items()
            if section == "sizes" or n not in declared or n in getattr(own, section)
        }
        merged[section] = keep | dict(getattr(own, section))
    # what was declared as something that equations can't define loses its inherited equation
    given = {
        name
        for section in ("inputs", "parameters", "constants", "choices", "functions")
        for name in getattr(own, section)
    }
    merged["equations"] = {n: e for n, e in base.equations.items() if n not in given} | dict(own.equations)
    joined = replace(
        own,
        **merged,
        lines={**base.lines, **own.lines},
        keys={**base.keys, **own.keys},
        title=own.title or f"after {base.name}",
        source=own.source,  # what a cell is from says nothing of the cells that start from it
        notes=own.notes,
        broken=base.broken | own.broken,
        outputs=own.outputs or base.outputs,
        no_gradient=own.no_gradient if "no_gradient" in own.keys else base.no_gradient,
        fixed=own.fixed if "fixed" in own.keys else base.fixed,
        constrain={**base.constrain, **own.constrain},
        integrate=_integration(base.integrate, own.integrate),
        defaults={**base.defaults, **own.defaults},
        init={**base.init, **own.init},
        noise={**base.noise, **own.noise},
        apply=base.apply + own.apply,
        problems=base.problems + own.problems,
        same_as=own.same_as if own.same_as or _COMPUTED & set(own.keys) else base.same_as,
        examples=own.examples if own.examples or _COMPUTED & set(own.keys) else base.examples,
    )
    joined = _with_integration(_drop_unused(joined, own), own)
    layouts = {**{k: v for k, v in base.layouts.items() if _fits(v, base, joined)}, **own.layouts}
    return replace(joined, layouts={k: v for k, v in layouts.items() if v or k not in base.layouts})


def _drop_unused(joined: Document, own: Document) -> Document:
    """The document without what was inherited and is on no way to an output, or to something that
    the extending file itself says."""
    reads = {name: set().union(*map(names_in_equation, group)) for name, group in joined.equations.items()}
    for name in (n for n, group in joined.equations.items() if group[0].derivative):
        reads[name] |= joined.integrate.names(name)
    reads |= {name: names_in(e.value.body) for name, e in joined.functions.items()}
    reads |= {name: set(e.value) for name, e in joined.choices.items()}
    said = {name for section in SECTIONS for name in getattr(own, section)} | set(own.equations)
    live: set[str] = set()
    waiting = [*said, *(e.value for e in joined.outputs), *(word for entry in joined.apply for word in entry.words())]
    reads |= {name: {e.value.argument} for name, e in joined.noise.items() if isinstance(e.value.argument, str)}
    for pattern, entry in joined.constrain.items():
        for name in (n for n in joined.parameters if fnmatchcase(n, pattern)):
            reads[name] = {arg.removeprefix("-").strip() for e in entry.value for arg in e.value.args}
    while waiting:
        name = waiting.pop()
        if name not in live:
            live.add(name)
            waiting += reads.get(name, ())
    kept: dict[str, Any] = {
        s: {n: e for n, e in getattr(joined, s).items() if n in live} for s in (*SECTIONS, "equations") if s != "sizes"
    }
    shapes = [e.value for s in ("inputs", "states", "parameters") for e in kept[s].values()]
    sizes = _live_sizes(joined, shapes) | set(own.sizes)
    kept["sizes"] = {n: e for n, e in joined.sizes.items() if n in sizes}
    init = {
        n: _alone(e) if n not in own.init and e.value.like not in kept["parameters"] else e
        for n, e in joined.init.items()
        if n in own.init or any(fnmatchcase(p, n) for p in kept["parameters"])
    }
    no_gradient = tuple(e for e in joined.no_gradient if e in own.no_gradient or e.value in kept["inputs"])
    fixed = tuple(e for e in joined.fixed if e in own.fixed or e.value in kept["parameters"])
    constrain = {
        n: e
        for n, e in joined.constrain.items()
        if n in own.constrain or any(fnmatchcase(p, n) for p in kept["parameters"])
    }
    defaults = {n: e for n, e in joined.defaults.items() if n in own.defaults or n in kept["inputs"]}
    noise = {n: e for n, e in joined.noise.items() if n in own.noise or n in kept["inputs"] or n in kept["parameters"]}
    return replace(
        joined,
        **kept,
        init=init,
        no_gradient=no_gradient,
        fixed=fixed,
        constrain=constrain,
        defaults=defaults,
        noise=noise,
    )


def _integration(base: StatedIntegration, own: StatedIntegration) -> StatedIntegration:
    """What both say: a setting that `own` gives as one for all replaces all of it."""
    others = base.settings()
    joined = {key: dict(given) if "" in given else {**others[key], **given} for key, given in own.settings().items()}
    return StatedIntegration(**joined)


def _with_integration(joined: Document, own: Document) -> Document:
    """The document without the settings of integration of what is no derivative any more, but for
    those that the extending file gives."""
    derived = {name for name, group in joined.equations.items() if group[0].derivative}
    given = own.integrate.settings()
    kept = {
        key: {n: e for n, e in setting.items() if n in given[key] or n in derived or (n == "" and derived)}
        for key, setting in joined.integrate.settings().items()
    }
    return replace(joined, integrate=StatedIntegration(**kept))


def _alone(entry: Entry[Init]) -> Entry[Init]:
    """An initialiser with numbers of its own: what it took them from is gone."""
    return replace(entry, value=replace(entry.value, like=""))


def _live_sizes(document: Document, shapes: list[Shape]) -> set[str]:
    """The sizes in these shapes, and those that their defaults need."""
    live: set[str] = set()
    waiting = [*sizes_in(shapes)]
    while waiting:
        name = waiting.pop()
        entry = document.sizes.get(name)
        if name not in live and entry is not None:
            text = entry.value.default or entry.value.meaning
            waiting += [other for other in document.sizes if other in text.replace("*", " ").replace("+", " ").split()]
        live.add(name)
    return live


def _fits(blocks: Mapping[str, tuple[Entry[str], ...]], base: Document, joined: Document) -> bool:
    """Whether a layout of `base` still places all parameters of `joined`, with the shapes they
    had."""
    named = {e.value for entries in blocks.values() for e in entries} - {"0"}
    weights = {n: e for n, e in joined.parameters.items() if n not in joined.noise}
    same = all(n in base.parameters and base.parameters[n].value == e.value for n, e in weights.items())
    fixed = {e.value for e in joined.fixed}
    whole = all(len({e.value in fixed for e in entries if e.value != "0"}) < 2 for entries in blocks.values())
    return named == set(weights) and same and whole
