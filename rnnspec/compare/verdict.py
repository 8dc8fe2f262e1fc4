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

from rnnspec.backends import numbers
from rnnspec.check.sampling import Case, NoSampleError
from rnnspec.compare.comparison import Comparison, Difference
from rnnspec.compare.numbers import (
    DIGITS,
    EXACT,
    SCALES,
    SIZES,
    STEPS,
    compare_at,
    gate_to_negate,
    match_the_rest,
    point,
    unmatched_parameters,
)
from rnnspec.compare.pair import Pair, Proof
from rnnspec.compare.proof import prove, prove_by_names
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
    comparison = _compared(Pair(first, second, build(first), build(second)))
    return replace(comparison, notes=(*sizes, *comparison.notes))


def _compared(pair: Pair) -> Comparison:
    """The verdict: by the declarations, else by the normal forms, else by numbers."""
    if differences := pair.differences_declared():
        return Comparison(pair.a.name, pair.b.name, False, "by declaration", f"{differences}.")
    proof = prove_by_names(pair)
    if not proof.proved:  # parameters of one name are one only where both cells call all of them alike
        proof = prove(pair, frozenset(pair.shared))
    if proof.proved:
        how = "symbolically: the normal forms of all states and outputs are equal" + _mapped(pair, proof)
        return replace(_verdict(pair, True, "symbolically", how, proof), notes=pair.notes())
    by_numbers = _run(pair, match_the_rest(pair, proof))
    return by_numbers if by_numbers.same else replace(by_numbers, notes=(*by_numbers.notes, *_almost(pair)))


def _almost(pair: Pair) -> tuple[str, ...]:
    """What would make two cells the same whose shared parameters are one and that differ then."""
    if not pair.shared:
        return ()
    renamed = prove(pair, frozenset())
    if renamed.proved:
        return (f"they are the same with other parameters' names: {', '.join(renamed.mapping)}",)
    if names := gate_to_negate(pair):
        return (f"they are the same with the signs of {names} changed in one of them",)
    return ()


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
    rest = [n for names in unmatched_parameters(pair, proof) for n in names]
    largest, points = 0.0, 0
    for seed in [None, 1] if rest else [None]:
        for number, (sizes, scale) in enumerate(product(SIZES, SCALES)):
            try:
                case = point(pair, sizes, number, scale)
            except NoSampleError:
                continue
            error, difference = _at(pair, case, proof, seed)
            largest, points = max(largest, error), points + 1
            if difference is not None:
                reason = f"at {difference.kind} {difference.name}, step {difference.step}"
                if rest:
                    are = "is" if len(rest) == 1 else "are"
                    value = "0" if seed is None else "not 0; the same where 0"
                    reason += f" where {', '.join(rest)}, which only one of them has, {are} {value}"
                verdict = _verdict(pair, False, "numerically", reason, proof)
                notes = _unmatched(pair, proof)
                return replace(verdict, points=points, largest=error, difference=difference, notes=notes)
    if not points:
        raise RnnspecError(
            f"'{pair.a.name}' and '{pair.b.name}' can't be compared: no point was found at which the values of "
            f"'{pair.a.name}' are finite. See that its equations stay finite for weights and inputs in [-1, 1]."
        )
    close = "to 1e-30" if largest <= EXACT else f"to {largest:.1g}, not to 1e-30: numbers were rounded to float64"
    reason = f"numerically at {points} points of {STEPS} steps {close}" + _mapped(pair, proof)
    verdict = _verdict(pair, True, "numerically", reason, proof)
    return replace(verdict, points=points, largest=largest, notes=pair.notes())


def _at(pair: Pair, case: Case, proof: Proof, seed: int | None) -> tuple[float, Difference | None]:
    """The largest error at one point and the first difference, in numbers of 50 digits."""
    try:
        with mpmath.workdps(DIGITS):
            return compare_at(pair, case, proof, numbers.mpmath_numbers(), seed)
    except (ZeroDivisionError, ValueError, OverflowError):
        # mpmath has no infinity there, as in the side of a `where` not chosen
        return compare_at(pair, case, proof, numbers.FLOAT64, seed)


def _unmatched(pair: Pair, proof: Proof) -> tuple[str, ...]:
    """A note, where each cell has parameters that the other has nothing for."""
    left, right = unmatched_parameters(pair, proof)
    if not left or not right:
        return ()
    return (
        f"nothing was found in '{pair.b.name}' for {', '.join(left)} of '{pair.a.name}', nor for {', '.join(right)}"
        " the other way. Where one stands for another, give them one name and shape",
    )


def _mapped(pair: Pair, proof: Proof) -> str:
    """The words before the lines that say which parameters are which."""
    return f", where the parameters of '{pair.a.name}' are those of '{pair.b.name}':" if proof.mapping else ""


def _verdict(pair: Pair, same: bool, how: str, reason: str, proof: Proof) -> Comparison:
    return Comparison(pair.a.name, pair.b.name, same, how, reason, proof.mapping)
