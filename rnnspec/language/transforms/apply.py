"""`apply` of a file: transforms by name, with arguments that are checked against the signature of
each.

In: a Document that asks for transforms. Out: the Spec after all of them. Its examples are those of
the result; its name, title, choices and constants are the file's. Every fault has its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from rnnspec.errors import RnnspecError
from rnnspec.language.meaning.check import Settings, check
from rnnspec.language.meaning.extras import check_examples
from rnnspec.language.reading.document import AppliedTransform, Argument, Document
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.parse import decimal
from rnnspec.language.transforms import clips, gates, recurrence, regularise

MAX_WORK = 1000  # equations, read again after each transform
Transform = Callable[..., Spec]
TRANSFORMS: Mapping[str, Transform] = {
    f.__name__: f
    for f in (
        gates.drop_gate,
        gates.couple_gates,
        gates.peepholes,
        recurrence.diagonal_recurrence,
        recurrence.low_rank_recurrence,
        recurrence.multiplicative_integration,
        recurrence.layer_norm,
        recurrence.leak,
        regularise.zoneout,
        regularise.recurrent_dropout,
        regularise.dropconnect,
        regularise.input_dropout,
        regularise.candidate_dropout,
        regularise.state_noise,
        clips.clip_cell,
        clips.clip_projection,
    )
}


def applied(document: Document, settings: Settings) -> Spec:
    """The Spec of a document and its transforms. Raises SpecError with all that is wrong with the
    document, else with the transforms."""
    plain = check(replace(document, examples=()), settings)
    faults, spec = Faults(document.lines), plain
    calls = [(entry, _call(entry, plain.constants, faults)) for entry in document.apply]
    if len(plain.equations) * len(calls) > MAX_WORK:
        faults.add(
            f"{len(calls)} transforms of {len(plain.equations)} equations are too much work: at most {MAX_WORK}"
            " equations in all.",
            calls[-1][0].at,
        )
    faults.stop_if_any()
    for entry, call in calls:
        assert call is not None
        try:
            spec = call(spec)
        except RnnspecError as error:
            faults.add(f"apply: {error}", entry.at)
            faults.stop_if_any()
    examples = () if settings.chosen or settings.constants else tuple(e.value for e in document.examples)
    spec = replace(
        spec,
        name=plain.name,
        title=plain.title,
        source=plain.source,
        notes=plain.notes,
        file=plain.file,
        choices=plain.choices,
        constants=plain.constants,
        same_as=plain.same_as,
        examples=examples,
    )
    check_examples(document, spec, faults)
    faults.stop_if_any()
    return spec


def _call(entry: AppliedTransform, constants: Mapping[str, Fraction], faults: Faults) -> Callable[[Spec], Spec] | None:
    """The transform with its arguments, or None where they are at fault."""
    if entry.name not in TRANSFORMS:
        faults.add(
            f"no transform is called '{entry.name[:60]}'.{did_you_mean(entry.name, TRANSFORMS)} Known here:"
            f" {listed(TRANSFORMS, 30)}.",
            entry.at,
        )
        return None
    transform = TRANSFORMS[entry.name]
    fixed = list(inspect.signature(transform).parameters.values())[1:]
    named = {p.name: p for p in fixed if p.kind is not p.VAR_KEYWORD}
    rest = next((p for p in fixed if p.kind is p.VAR_KEYWORD), None)
    values: dict[str, object] = {}
    fine = True
    for number, argument in enumerate(entry.arguments):
        name = argument.keyword or (list(named)[number] if number < len(named) else "")
        parameter = named.get(name, rest if argument.keyword else None)
        if parameter is None:
            offers = listed([*named, *([f"{rest.name} by name"] if rest else [])])
            what = (
                f"no argument '{name[:40]}'.{did_you_mean(name, named)}"
                if argument.keyword
                else f"at most {len(named)} arguments by position."
            )
            faults.add(f"{entry.name} takes {what} It takes: {offers}.", argument.keyword_at)
            fine = False
            continue
        value = _value(argument, str(parameter.annotation), constants)
        if value is None:
            faults.add(
                f"'{argument.text[:40]}' for {name[:40]} of {entry.name} is not"
                f" {_EXPECTED[_kind(str(parameter.annotation))]}.",
                argument.at,
            )
            fine = False
        values[name] = value
    if fine and (missing := [p.name for p in named.values() if p.default is p.empty and p.name not in values]):
        faults.add(f"{entry.name} needs {listed(missing)}. Write {entry.name}: {{{missing[0]}: ...}}.", entry.at)
        fine = False
    return (lambda spec: transform(spec, **values)) if fine else None


_EXPECTED = {
    "float": "a number, or a constant of the file",
    "int": "a whole number",
    "bool": "true or false",
    "str": "a name",
}


def _kind(annotation: str) -> str:
    return annotation.removesuffix(" | None")


def _value(argument: Argument, annotation: str, constants: Mapping[str, Fraction]) -> object:
    """The argument as what the signature asks for; None where it is not that."""
    text = argument.text
    match _kind(annotation):
        case "float":
            number = constants.get(text, decimal(text))
            return None if number is None else float(number)
        case "int":
            number = constants.get(text, decimal(text))
            return int(number) if number is not None and number.denominator == 1 else None
        case "bool":
            return {"true": True, "false": False}.get(text)
        case "str":
            return text or None
    raise TypeError(f"a transform takes a {annotation}")
