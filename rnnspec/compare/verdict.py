"""Whether two cells are the same function of inputs, states and parameters: `rnnspec diff`.

In: two Specs. Out: a Comparison. First by their normal forms, which is a proof; then by running
both with numbers of 50 digits, which finds differences and proves nothing. Parameters of one name
and shape are one; others are matched where the mathematics tells: b_ih + b_hh against b, pieces of
a matrix that multiplies concat(x, h) against two matrices, other names, other signs. Values of real
numbers are compared: not their rounding, not NaN or infinities, not derivatives (`notes` say where
those may differ).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from rnnspec.compare.comparison import DIFFERENT, SAME, UNDECIDED, Comparison, Tried, Verdict
from rnnspec.compare.edges import conditions, search, sides
from rnnspec.compare.numbers import (
    DIGITS,
    difference_at,
    differing,
    family,
    gate_to_negate,
    match_the_rest,
    of_both,
    unmatched_parameters,
)
from rnnspec.compare.pair import Pair, Proof
from rnnspec.compare.points import SIZES, Points, constants, families, joined, reads_step
from rnnspec.compare.proof import prove, prove_by_names, prove_matched
from rnnspec.compare.reals import reals
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, loads
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.spec import Spec
from rnnspec.symbolic.build import build

EDGES = (0, 2)  # of SIZES: those at which points beside the edges of conditions are looked for
PLACES = {1: "above", -1: "below", 0: "exactly"}


def diff(a: Spec | str | os.PathLike[str], b: Spec | str | os.PathLike[str]) -> Comparison:
    """Compares two cells: Specs, names or paths. `.verdict` is "same" where that was proved,
    "different" where a difference was found, else "no difference found"; `.same` and `.different`
    are those; `.to_text()` says how it was shown, where they differ, or what was tried.

    diff(b, a) is the mirror image of diff(a, b). Raises RnnspecError where they can't be compared:
    no point was found at which the values of either are finite.
    """
    first, second = (s if isinstance(s, Spec) else load(s) for s in (a, b))
    swapped = _order(second) < _order(first)  # whichever comes first, the work is the same
    second, sizes = _with_sizes_of(first, second)
    given = Pair(first, second, build(first), build(second))
    found = _Compare(given.swapped() if swapped else given, given, swapped).compared()
    return replace(found, notes=(*sizes, *found.notes))


def parameters_alike(a: Spec, b: Spec) -> tuple[Proof, Pair]:
    """Whether two cells are proved to be one function, and which parameters of one then are which
    of the other; and both side by side, b with the names of a's sizes."""
    second, _ = _with_sizes_of(a, b)
    pair = Pair(a, second, build(a), build(second))
    return (Proof(False) if pair.differences_declared() else _proof(pair)), pair


def _proof(pair: Pair) -> Proof:
    """A proof by the normal forms, or what was matched on the way."""
    proof = prove_by_names(pair)
    if not proof.proved:  # parameters of one name are one only where both cells call all of them alike
        proof = prove(pair, frozenset(pair.shared))
    if not proof.proved:
        proof = match_the_rest(pair, proof)
        proof = prove_matched(pair, proof.matches)
    return proof


def _order(spec: Spec) -> tuple[str, str]:
    return spec.name, to_yaml(spec)


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


@dataclass(frozen=True)
class _Compare:
    """One comparison. pair: both in the order in which they are worked on; given: in the caller's,
    which is the other one where `swapped`."""

    pair: Pair
    given: Pair
    swapped: bool

    def compared(self) -> Comparison:
        """The verdict: by the declarations, else by the normal forms, else by numbers."""
        pair = self.pair
        if differences := pair.differences_declared():
            return self.verdict(DIFFERENT, "by declaration", f"{differences}.", Proof(False))
        proof = _proof(pair)
        if not proof.proved:
            return self.by_numbers(proof)
        how = "symbolically, for all real numbers: the normal forms of all states and outputs are equal"
        return replace(self.verdict(SAME, "symbolically", how + self.mapped(proof), proof), notes=self.given.notes())

    def verdict(self, verdict: Verdict, how: str, reason: str, proof: Proof) -> Comparison:
        return Comparison(self.given.a.name, self.given.b.name, verdict, how, reason, self.mapping(proof))

    def mapping(self, proof: Proof) -> tuple[str, ...]:
        return (proof.swapped() if self.swapped else proof).mapping

    def mapped(self, proof: Proof) -> str:
        """The words before the lines that say which parameters are which."""
        a, b = self.given.a.name, self.given.b.name
        return f", where the parameters of '{a}' are those of '{b}':" if proof.mapping else ""

    # by numbers

    def by_numbers(self, proof: Proof) -> Comparison:
        """A difference, or what was tried. Parameters without a counterpart are 0 first, then
        random."""
        rest = list(dict.fromkeys(n for names in unmatched_parameters(self.pair, proof) for n in names))
        for seed in [None, 1] if rest else [None]:
            trial = _Trial(self.pair, proof, seed)
            if (row := trial.run()) is not None:
                return self.different(row, proof, seed, rest)
        if not trial.told:
            raise RnnspecError(
                f"'{self.given.a.name}' and '{self.given.b.name}' can't be compared: no point was found at which"
                " the values of either are finite. See that their equations stay finite for weights and inputs in"
                " [-1, 1]."
            )
        reason = "in numbers; this is no proof that they are the same" + self.mapped(proof)
        found = self.verdict(UNDECIDED, "numerically", reason, proof)
        return replace(found, tried=trial.tried(), notes=self.given.notes())

    def different(self, row: Points, proof: Proof, seed: int | None, rest: list[str]) -> Comparison:
        difference = difference_at(self.pair, row, proof, seed, self.swapped)
        reason = f"at {difference.kind} {difference.name}, step {difference.step}"
        if rest:
            value = "0" if seed is None else "not 0; no difference was found where 0"
            reason += (
                f" where {', '.join(rest)}, which only one of them has, {'is' if len(rest) == 1 else 'are'} {value}"
            )
        found = self.verdict(DIFFERENT, "numerically", reason, proof)
        return replace(found, difference=difference, notes=(*self.unmatched(proof), *self.almost()))

    def unmatched(self, proof: Proof) -> tuple[str, ...]:
        """A note, where each cell has parameters that the other has nothing for."""
        rest = unmatched_parameters(self.pair, proof)
        left, right = reversed(rest) if self.swapped else rest
        if not left or not right:
            return ()
        a, b = self.given.a.name, self.given.b.name
        return (
            f"nothing was found in '{b}' for {', '.join(left)} of '{a}', nor for {', '.join(right)}"
            " the other way. Where one stands for another, give them one name and shape",
        )

    def almost(self) -> tuple[str, ...]:
        """What would make two cells the same whose shared parameters are one and that differ
        then."""
        pair = self.pair
        if not pair.shared:
            return ()
        renamed = prove(pair, frozenset())
        if renamed.proved:
            return (f"they are the same with other parameters' names: {', '.join(self.mapping(renamed))}",)
        negated = gate_to_negate(pair)
        if negated is None:
            return ()
        names = ", ".join(match.a[0].parameter for match in negated.matches)
        signs = f"with the signs of {names} changed in one of them"
        if prove_matched(pair, negated.matches).proved:
            return (f"they are the same {signs}",)
        return (f"at a few points they have the same values {signs}",)


class _Trial:
    """Points at which two cells are run, and what became of it."""

    def __init__(self, pair: Pair, proof: Proof, seed: int | None):
        self.pair, self.proof, self.seed = pair, proof, seed
        self.points: list[Points] = []
        self.told, self.largest = 0, 0.0
        self.conditions = (
            conditions(pair.graph_a, lambda points: of_both(pair, points, proof, seed)[0]),
            conditions(pair.graph_b, lambda points: of_both(pair, points, proof, seed)[1]),
        )
        self.reached: list[set[tuple[str, int]]] = [set(), set()]

    def run(self) -> Points | None:
        """The first point at which they differ, or None."""
        known = constants((self.pair.a, self.pair.b))
        for number, sizes in enumerate(SIZES):
            drawn = []
            for points in families(family(self.pair, sizes, number), number == 0, known):
                drawn.append(points)
                if (row := self.at(points)) is not None:
                    return row
            if number not in EDGES:
                continue
            simple = joined([drawn[1].take([0, 1, 2]), drawn[0].take([0])])
            for one in self.conditions:
                for points in search(one, joined(drawn), simple, reals(DIGITS)):
                    if (row := self.at(points)) is not None:
                        return row
        return None

    def at(self, points: Points) -> Points | None:
        found = differing(self.pair, points, self.proof, self.seed)
        self.points.append(points)
        self.told += found.told
        self.largest = max(self.largest, found.largest)
        for reached, one in zip(self.reached, self.conditions):
            reached |= sides(one, points, reals(DIGITS))
        return found.rows[0] if found.rows else None

    def tried(self) -> Tried:
        """What was tried, for who reads that no difference was found."""
        least, most = zip(*((low.min(), high.max()) for low, high in (p.magnitudes() for p in self.points)))
        steps = [int(s) for p in self.points for s in (p.steps.min(), p.steps.max())]
        counts = reads_step(self.pair.graph_a) or reads_step(self.pair.graph_b)
        unreached: dict[str, None] = {}
        compared: dict[tuple[str, str], None] = {}
        for reached, one in zip(self.reached, self.conditions):
            compared |= dict.fromkeys(one.gaps.values())
            for name, (a, b) in one.gaps.items():
                left = [sign for sign in PLACES if (name, sign) not in reached]
                unreached |= {f"{a} {PLACES[sign]} {b}": None for sign in left}
        return Tried(
            points=self.told,
            sizes=tuple(self.sizes()),
            steps=(min(steps), max(steps)) if counts else None,
            magnitudes=(float(min(least)), float(max(most))),
            conditions=len(compared),
            unreached=tuple(unreached),
            digits=DIGITS,
            largest=self.largest,
        )

    def sizes(self) -> list[dict[str, int]]:
        """At which points lie, each once."""
        found = {tuple(points.sizes.items()): dict(points.sizes) for points in self.points}
        return list(found.values())
