"""Whether two cells are the same function of inputs, states and parameters: `rnnspec diff`.

In: two Specs. Out: a Comparison. First by their normal forms, then by running both in the reference
with numbers of 50 digits. Parameters of one name and shape are one; others are matched where the
mathematics tells: b_ih + b_hh against b, pieces of a matrix that multiplies concat(x, h) against
two matrices, other names, other signs. Values are compared, not derivatives: see `notes` where
those may differ.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import product

import mpmath

from rnnspec.backends import reference
from rnnspec.check.sampling import NoSampleError
from rnnspec.compare.comparison import Comparison
from rnnspec.compare.numbers import (
    DIGITS,
    EXACT,
    SCALES,
    SIZES,
    STEPS,
    errors_at,
    free_parameters,
    guessed,
    negated,
    point,
)
from rnnspec.compare.pair import Pair, Proof, notes_of
from rnnspec.compare.proof import by_names, prove
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, loads
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.spec import Spec
from rnnspec.symbolic.build import build


def diff(a: Spec | str | os.PathLike[str], b: Spec | str | os.PathLike[str]) -> Comparison:
    """Compares two cells: Specs, names or paths. `.same` is the verdict, `.to_text()` says how it
    was shown or where they differ.

    Raises RnnspecError where they can't be compared: no point was found at which the values of the
    first are finite.
    """
    first, second = (s if isinstance(s, Spec) else load(s) for s in (a, b))
    second, sizes = _with_sizes_of(first, second)
    pair = Pair(first, second, build(first), build(second))
    found = _compared(pair)
    return replace(found, notes=(*sizes, *found.notes))


def _compared(pair: Pair) -> Comparison:
    first, second = pair.a, pair.b
    declared = pair.declared()
    if declared:
        return Comparison(first.name, second.name, False, "by declaration", f"{declared}.")
    proof = by_names(pair)
    if not proof.proved:  # parameters of one name are one only where both cells call all of them alike
        proof = prove(pair, frozenset(pair.shared()))
    if proof.proved:
        how = "symbolically: the normal forms of all states and outputs are equal" + _with(pair, proof)
        return replace(_verdict(pair, True, "symbolically", how, proof), notes=notes_of(pair))
    found = _run(pair, guessed(pair, proof))
    if not found.same and pair.shared():
        renamed = prove(pair, frozenset())
        if renamed.proved:
            found = replace(
                found,
                notes=(*found.notes, f"they are the same with other parameters' names: {', '.join(renamed.mapping)}"),
            )
        elif turned := negated(pair):
            found = replace(
                found, notes=(*found.notes, f"they are the same with the signs of {turned} changed in one of them")
            )
    return found


def _with_sizes_of(a: Spec, b: Spec) -> tuple[Spec, tuple[str, ...]]:
    """b with the names of a's sizes, where inputs and states tell which is which."""
    names: dict[str, str] = {}
    for ours, theirs in ((a.inputs, b.inputs), (a.states, b.states)):
        for name, shape in theirs.items():
            for size, other in zip(shape, ours.get(name, ())):
                if size != other and size.isidentifier() and other.isidentifier():
                    names.setdefault(size, other)
    if not names or len(set(names.values())) < len(names):
        return b, ()
    words = re.compile(rf"\b({'|'.join(names)})\b")
    try:
        renamed = loads(words.sub(lambda m: names[m[0]], to_yaml(b)))
    except RnnspecError:  # the name is taken by something else
        return b, ()
    return replace(renamed, name=b.name), (
        f"sizes of '{b.name}': " + ", ".join(f"{n} is {m}" for n, m in names.items()),
    )


def _run(pair: Pair, proof: Proof) -> Comparison:
    """The verdict by numbers. Parameters without a counterpart are 0 first, then random."""
    numbers, largest, points, free = (
        reference.mpmath_numbers(),
        0.0,
        0,
        [n for names in free_parameters(pair, proof) for n in names],
    )
    for seed in [None, 1] if free else [None]:
        for number, (sizes, scale) in enumerate(product(SIZES, SCALES)):
            try:
                case = point(pair, sizes, number, scale)
            except NoSampleError:
                continue
            try:
                with mpmath.workdps(DIGITS):
                    error, difference = errors_at(pair, case, proof, numbers, seed)
            except (
                ZeroDivisionError,
                ValueError,
                OverflowError,
            ):  # mpmath has no infinity there, as in the side of a `where` not chosen
                error, difference = errors_at(pair, case, proof, reference.FLOAT64, seed)
            largest, points = max(largest, error), points + 1
            if difference is not None:
                where = f"at {difference.kind} {difference.name}, step {difference.step}"
                extra = f" where {', '.join(free)}, which only one of them has, {'is' if len(free) == 1 else 'are'} "
                reason = where + (extra + ("0" if seed is None else "not 0; the same where 0") if free else "")
                return replace(
                    _verdict(pair, False, "numerically", reason, proof),
                    points=points,
                    largest=error,
                    difference=difference,
                    notes=_unmatched(pair, proof),
                )
    if not points:
        raise RnnspecError(
            f"'{pair.a.name}' and '{pair.b.name}' can't be compared: no point was found at which the values of "
            f"'{pair.a.name}' are finite. See that its equations stay finite for weights and inputs in [-1, 1]."
        )
    close = "to 1e-30" if largest <= EXACT else f"to {largest:.1g}, not to 1e-30: numbers were rounded to float64"
    reason = f"numerically at {points} points of {STEPS} steps {close}" + _with(pair, proof)
    return replace(
        _verdict(pair, True, "numerically", reason, proof), points=points, largest=largest, notes=notes_of(pair)
    )


def _unmatched(pair: Pair, proof: Proof) -> tuple[str, ...]:
    left, right = free_parameters(pair, proof)
    if not left or not right:
        return ()
    return (
        (
            f"nothing was found in '{pair.b.name}' for {', '.join(left)} of '{pair.a.name}', nor for {', '.join(right)}"
            " the other way. Where one stands for another, give them one name and shape"
        ),
    )


def _with(pair: Pair, proof: Proof) -> str:
    return f", where the parameters of '{pair.a.name}' are those of '{pair.b.name}':" if proof.mapping else ""


def _verdict(pair: Pair, same: bool, how: str, reason: str, proof: Proof) -> Comparison:
    return Comparison(pair.a.name, pair.b.name, same, how, reason, proof.mapping)
