"""Gates that keep a state for long from the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rnnspec.language.roles import SIGMOIDS
from rnnspec.language.spec import Init, Spec
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref
from rnnspec.language.transforms.change import signed_terms


@dataclass(frozen=True)
class Keeper:
    """A gate that decides how much of a state's old value stays: all of it where the gate is 1
    (sign 1), or 0 (sign -1). `writers`: other gates in the same sum, which let new values in."""

    gate: str
    sign: int
    writers: tuple[str, ...] = ()


def keeping(spec: Spec, steps: int) -> Spec:
    """The cell with biases such that its gates keep states for between 1 and `steps` steps at
    first: b = log(uniform(1, steps - 1)).

    Tallec & Ollivier 2018, equation 16 ("chrono"): the keeping gate has b, writing gates -b, and
    other weights are as they were. Which gates keep and write follows from the equations; a cell
    without any is returned as it is.
    """
    return replace(spec, init={**spec.init, **kept_biases(spec, steps)})


def kept_biases(spec: Spec, steps: int) -> dict[str, Init]:
    """The biases that `keeping` sets, and to what; none for a cell whose gates keep no state, or
    have no bias."""
    found = {bias: keeper for keeper in keepers(spec) for bias in _biases(spec, keeper.gate)[:1]}
    init = {bias: Init("chrono", (float(keeper.sign * steps),)) for bias, keeper in found.items()}
    for bias, keeper in found.items():
        for other in (b for writer in keeper.writers for b in _biases(spec, writer)[:1] if b not in found):
            init[other] = Init(
                "chrono", (-float(steps),), bias if spec.parameters[other] == spec.parameters[bias] else ""
            )
    return init


def keepers(spec: Spec) -> list[Keeper]:
    """The gates of every state: g in g * s[t-1] or (1 - g) * s[t-1] that are terms of its next
    value; s[t-1] - g * s[t-1] is the latter."""
    by_name = {e.target: e for e in spec.equations}
    found: dict[str, Keeper] = {}
    for state in spec.states:
        if state not in by_name:
            continue
        terms = [(sign, list(_factors(term))) for sign, term in signed_terms(by_name[state].value)]
        for added, term in terms:
            if Ref(state, -1) not in term:
                continue
            turned = -1 if (-added, [Ref(state, -1)]) in terms else 1
            for gate, sign in _gates(term, by_name):
                others = [
                    g
                    for _, other in terms
                    if other is not term
                    for g, s in _gates(other, by_name)
                    if s == 1 and g != gate
                ]
                found.setdefault(gate, Keeper(gate, turned * sign, tuple(dict.fromkeys(others))))
    return list(found.values())


def _gates(factors: list[Expr], by_name: Mapping[str, Equation]) -> Iterator[tuple[str, int]]:
    """Names of gates among factors: sign 1 for g, -1 for 1 - g, looked up through intermediates
    that are no more than that."""
    for factor in factors:
        sign = 1
        while True:
            match factor:
                case Binary("-", Number(one), Ref() as inner) if one == 1:
                    factor, sign = inner, -sign
                case Ref(name, 0) if name in by_name and isinstance(by_name[name].value, Binary | Ref):
                    factor = by_name[name].value
                case _:
                    break
        if isinstance(factor, Ref) and factor.time == 0 and factor.name in by_name:
            value = by_name[factor.name].value
            if isinstance(value, Call) and value.function in SIGMOIDS:
                yield factor.name, sign


def _biases(spec: Spec, gate: str) -> list[str]:
    """Vector parameters that are added in what a gate squashes."""
    value = next(e.value for e in spec.equations if e.target == gate)
    terms = signed_terms(value.args[0]) if isinstance(value, Call) else ()
    return [
        term.name
        for sign, term in terms
        if sign == 1 and isinstance(term, Ref) and len(spec.parameters.get(term.name, ())) == 1
    ]


def _factors(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield expr
