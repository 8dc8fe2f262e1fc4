"""Document -> Spec: everything that must hold of a cell as a whole.

In: a Document (joined with what it extends) and the values of its constants and choices. Out: a
Spec whose equations are resolved, checked and in an order in which each reads what stands above it
or an earlier step. All faults are found before one SpecError carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from rnnspec.language.meaning.constrained import constraints, fixed_names, names_in_constraints
from rnnspec.language.meaning.definitions import check_choices, used_names
from rnnspec.language.meaning.drawn import initialisers, noise_draws
from rnnspec.language.meaning.extras import check_examples, check_layouts, library_layers
from rnnspec.language.meaning.integrate import integrated, with_settings
from rnnspec.language.meaning.order import in_order
from rnnspec.language.meaning.resolve import resolve
from rnnspec.language.meaning.scope import Scope, with_article
from rnnspec.language.meaning.shapes import infer_shapes, pull_factors
from rnnspec.language.meaning.unroll import lower_taps, unroll, with_numbers
from rnnspec.language.reading.document import RESERVED, SECTIONS, Document, Entry, reserved
from rnnspec.language.sizes import SizeError, canonical_size, size_names
from rnnspec.language.spec import Choice, Shape, Size, Spec
from rnnspec.language.syntax import habits
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.tree import Equation, Place, Ref, walk

_KINDS = {section: section.removesuffix("s") for section in SECTIONS}


@dataclass(frozen=True)
class Settings:
    """Values given at load: constants by name, the option of each choice by name."""

    constants: Mapping[str, Fraction]
    chosen: Mapping[str, str]


def check(document: Document, settings: Settings) -> Spec:
    """The Spec of a document. Raises SpecError with all that is wrong."""
    faults = Faults(document.lines)
    faults.extend(document.problems)
    constants = {name: settings.constants.get(name, entry.value) for name, entry in document.constants.items()}
    document, in_shapes = with_numbers(document, constants, faults)
    kinds = _kinds(document, faults)
    check_choices(document, faults)
    choices = {
        name: Choice(e.value, settings.chosen.get(name, e.value[0])) for name, e in document.choices.items() if e.value
    }
    unrolled = unroll(document, kinds, constants, faults)
    chosen, functions = {n: c.chosen for n, c in choices.items()}, {n: e.value for n, e in document.functions.items()}
    unrolled = with_settings(document, kinds, unrolled)
    scope = Scope(kinds, constants, chosen, functions, document.broken, unrolled)
    made = integrated(document, scope, resolve(document, scope, faults), faults)
    taken = {*kinds, *(r.target for r in unrolled.rounds), *(e.target for e in made.equations)}
    equations = lower_taps(made.equations, taken, faults)
    _check_defined(document, faults)
    _check_used(document, in_shapes, kinds, faults)
    _check_ranks(document, faults)
    ordered = equations if made.told else in_order(equations, faults)
    shapes = _all_shapes(document, equations, ordered, scope.named("size"), faults)
    sizes = _sizes(document, faults, {n.name for e in equations for n in walk(e.value) if isinstance(n, Ref)})
    _check_emitted(document, kinds, set(unrolled.families), faults)
    spec = replace(
        _declared(document, constants, faults),
        sizes=sizes,
        equations=tuple(replace(e, value=pull_factors(e.value, shapes, scope.named("size"))) for e in ordered),
        shapes=shapes,
        choices=choices,
        same_as=library_layers(document, choices, settings.constants),
        examples=() if settings.chosen or settings.constants else tuple(e.value for e in document.examples),
        integration=made.integration,
        changed=settings.constants,
    )
    check_layouts(document, spec, faults)
    check_examples(document, spec, faults)
    faults.stop_if_any()
    return spec


def _declared(document: Document, constants: Mapping[str, Fraction], faults: Faults) -> Spec:
    """The Spec of what a document declares, without its equations, sizes, choices and examples."""
    init, noise = initialisers(document, faults), noise_draws(document, constants, faults)
    fixed = fixed_names(document)
    return Spec(
        name=document.name,
        title=document.title or document.name,
        source=document.source,
        sizes={},
        inputs={n: e.value for n, e in document.inputs.items()},
        states={n: e.value for n, e in document.states.items()},
        parameters={n: e.value for n, e in document.parameters.items()},
        equations=(),
        outputs=tuple(e.value for e in document.outputs),
        shapes={},
        constants=constants,
        no_gradient=tuple(dict.fromkeys([*(e.value for e in document.no_gradient), *noise, *fixed])),
        fixed=fixed,
        constraints=constraints(document, constants, faults),
        defaults={n: e.value for n, e in document.defaults.items()},
        noise=noise,
        init=init,
        layouts={
            library: {b: tuple(e.value for e in es) for b, es in blocks.items()}
            for library, blocks in document.layouts.items()
        },
        notes=document.notes,
        file=document.file,
    )


def _all_shapes(
    document: Document, equations: list[Equation], ordered: list[Equation], sizes: list[str], faults: Faults
) -> dict[str, Shape]:
    """The shape of every name: first what is declared, then what is computed, in its order.

    ordered: the equations, each after what it reads; sizes: the names of sizes.
    """
    declared = {
        name: e.value
        for section in (document.inputs, document.states, document.parameters)
        for name, e in section.items()
    }
    shapes = infer_shapes(equations, declared, document.states, sizes, faults)
    names = [*declared, *(e.target for e in ordered)]
    return {n: shapes[n] for n in dict.fromkeys([*names, *shapes]) if n in shapes}


# --- names ---


def _kinds(document: Document, faults: Faults) -> dict[str, str]:
    """What each name is; a name that is two things is a fault."""
    kinds: dict[str, str] = {}
    places: dict[str, Place] = {}
    sizes = {n: e.at for n, e in document.sizes.items()}
    for shape_at, shape in _shapes(document):
        for size in shape:
            sizes |= {name: shape_at for name in size_names(size) if name not in sizes}
    for section in SECTIONS:
        entries = sizes if section == "sizes" else {n: e.at for n, e in getattr(document, section).items()}
        for name, at in entries.items():
            if name in kinds:
                faults.add(
                    f"'{name}' is {with_article(kinds[name])} (line {places[name].line}) and can't be"
                    f" {with_article(_KINDS[section])} too.",
                    at,
                )
            else:
                kinds[name], places[name] = _KINDS[section], at
    for name, (equation, *_) in document.equations.items():
        kind = kinds.setdefault(name, "intermediate" if equation.timed else "once")
        if kind == "state" and not equation.timed:
            faults.add(f"'{name}' is a state and changes with time. Write {name}[t] = ...", equation.at)
        elif kind not in ("intermediate", "state", "once"):
            kind, line = kinds[name], places[name].line
            faults.add(
                f"'{name}' is {with_article(kind)} (line {line}); an equation defines states and intermediate values"
                " only.",
                equation.at,
            )
    return kinds


def _shapes(document: Document) -> list[tuple[Place, Shape]]:
    return [
        (e.at, e.value) for section in (document.inputs, document.states, document.parameters) for e in section.values()
    ]


def _check_ranks(document: Document, faults: Faults) -> None:
    for what, section, most in (
        ("an input", document.inputs, 1),
        ("a state", document.states, 2),
        ("a parameter", document.parameters, 3),
    ):
        for name, entry in section.items():
            if len(entry.value) > most:
                axes = f"{most} ax{'e' if most > 1 else 'i'}s"
                faults.add(f"'{name}' has the shape [{', '.join(entry.value)}]; {what} has at most {axes}.", entry.at)


def _check_defined(document: Document, faults: Faults) -> None:
    if "equations" not in document.keys:
        return
    for name, entry in document.states.items():
        if name not in document.equations and name not in document.broken:
            faults.add(f"the state '{name}' is never defined. Write an equation {name}[t] = ...", entry.at)


def _check_used(document: Document, in_shapes: set[str], kinds: Mapping[str, str], faults: Faults) -> None:
    if document.broken or document.problems:  # what uses it may be what can't be read
        return
    used = (
        used_names(document)
        | in_shapes
        | {e.value.argument for e in document.noise.values()}
        | set().union(*names_in_constraints(document).values())
        | {a.text for entry in document.apply for a in entry.arguments}
    )
    meant = (habits.of_step(name, (*document.inputs, *document.states)) for name in used_names(document) - set(kinds))
    used |= {found[0] for found in meant if found}  # x_t, which is told of already, is no reason to take x out
    for section in ("inputs", "parameters", "constants", "choices", "functions"):
        for name, entry in getattr(document, section).items():
            if name not in used:
                faults.add(f"the {_KINDS[section]} '{name}' is used in no equation. Use it or take it out.", entry.at)


def _check_emitted(document: Document, kinds: Mapping[str, str], indexed: set[str], faults: Faults) -> None:
    known = [name for name, kind in kinds.items() if kind in ("state", "intermediate") and name not in indexed]
    for entry in document.outputs:
        if entry.value in indexed:
            faults.add(
                f"'{entry.value}' has one value a round. Emit one of them by an equation of its own: last[t] ="
                f" {entry.value}[t, 3].",
                entry.at,
            )
            known.append(entry.value)
    _check_list("outputs", "a state or intermediate value", document.outputs, [*known, *document.broken], faults)
    _check_list("no_gradient", "an input", document.no_gradient, list(document.inputs), faults)
    _check_list("fixed", "a parameter", document.fixed, list(document.parameters), faults)
    for entry in document.fixed:
        if entry.value in document.noise:
            faults.add(
                f"'{entry.value}' is noise, drawn anew for every call, and can't be fixed: take it out of one.",
                entry.at,
            )
    _check_list(
        "defaults",
        "an input",
        tuple(Entry(n, e.at) for n, e in document.defaults.items()),
        list(document.inputs),
        faults,
    )
    if "outputs" in document.keys and not document.outputs and not document.problems:
        faults.add("outputs is empty. Write what is emitted every step, like [h].", document.key("outputs"))


def _check_list(key: str, kind: str, entries: tuple[Entry[str], ...], known: list[str], faults: Faults) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.value not in known:
            near = did_you_mean(entry.value, known)
            faults.add(f"'{entry.value[:60]}' in {key} is not {kind}. Known here: {listed(known)}.{near}", entry.at)
        elif entry.value in seen:
            faults.add(f"'{entry.value}' is given twice in {key}.", entry.at)
        seen.add(entry.value)


# --- sizes ---


def _sizes(document: Document, faults: Faults, mentioned: set[str]) -> dict[str, Size]:
    """Every size with its meaning and default, in the order of first use; each must be told by
    something at run time."""
    used: dict[str, Place] = {}
    for at, shape in _shapes(document):
        for size in shape:
            used |= {name: at for name in sorted(size_names(size)) if name not in used}
    names = set(used) | set(document.sizes)
    sizes = {
        name: _default(name, document.sizes[name], names, faults) if name in document.sizes else Size()
        for name in [*used, *document.sizes]
    }
    told = {size for _, shape in _shapes(document) for size in shape} & names
    for name in _in_circles(sizes):
        if name in told:
            at = document.sizes[name].at
            faults.add(f"the default of the size '{name}' needs itself. Give it a number, or none.", at)
    if "seed" in names:
        faults.add(
            "'seed' can't be a size: it is an argument of Kernel.init beside the sizes. Choose another name.",
            used.get("seed") or document.sizes["seed"].at,
        )
    for name in sorted(used.keys() & RESERVED):  # those that stand under `sizes` were refused there
        faults.add(reserved(name, "the size"), used[name])
    for name in ("B", "T"):
        if name in names:
            what = "rows of a batch" if name == "B" else "steps"
            faults.add(
                f"'{name}' stands for the number of {what} everywhere and can't be a size here. Choose another name.",
                used.get(name) or document.sizes[name].at,
            )
    while more := {n for n in names - told if (d := sizes[n].default) is not None and size_names(d) <= told}:
        told |= more
    needed = (
        set(used)
        | (set(document.sizes) & mentioned)
        | {n for size in sizes.values() if size.default for n in size_names(size.default)}
    )
    for name in [*used, *document.sizes]:
        at = used.get(name) or document.sizes[name].at
        if name not in needed:
            faults.add(f"the size '{name}' stands in no shape. Use it or take it out.", at)
        elif name not in told:
            faults.add(
                f"nothing tells the size '{name}' at run time: no array has it as an axis of its own. Give it a default"
                " under sizes.",
                at,
            )
    return {name: size for name, size in sizes.items() if name in needed}


def _in_circles(sizes: Mapping[str, Size]) -> list[str]:
    """The sizes whose defaults need themselves, at once or through other defaults."""
    needs = {name: size_names(size.default) if size.default else frozenset() for name, size in sizes.items()}
    found = []
    for name in needs:
        reached, waiting = set[str](), [*needs[name]]
        while waiting:
            other = waiting.pop()
            waiting += needs.get(other, frozenset()) - reached if other not in reached else ()
            reached.add(other)
        found += [name] * (name in reached)
    return found


def _default(name: str, entry: Entry[Size], names: set[str], faults: Faults) -> Size:
    """`P: H` and `L: 3` are defaults, `D: features of x` a meaning; `{meaning: ..., default: ...}`
    says which is which."""
    size = entry.value
    text = size.default if size.default is not None else size.meaning
    try:
        default = canonical_size(text)
        if default == "0":
            raise SizeError(f"'{text[:60]}' is 0, and sizes start at 1")
        if not size_names(default) <= names:
            raise SizeError(f"'{text[:60]}' is not made of whole numbers and the sizes {listed(sorted(names))}")
    except SizeError as error:
        if size.default is not None:
            faults.add(
                f"the default of the size '{name}': {error}. What is meant as words is written {{meaning: ...}}.",
                entry.at,
            )
        return replace(size, default=None)
    return Size(size.meaning if size.default is not None else "", default)
