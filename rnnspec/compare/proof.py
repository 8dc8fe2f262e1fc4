"""Whether two cells have one normal form, and which parameters of one then are which of the
other.

A proof holds for real numbers and all sizes. What was only tried, as a guess of which parameters
stand for which, is none: it is proved with the guess in place, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from rnnspec.compare.match import Binding, Matcher
from rnnspec.compare.normal import Forms, Leaf, Table, normal_forms
from rnnspec.compare.pair import Match, Pair, Proof, one_to_one
from rnnspec.language.sizes import SizeError, remainder


def prove_by_names(pair: Pair) -> Proof:
    """A proof with each parameter that of the same name: the normal forms are then the same
    expressions, and nothing need be found."""
    if not len(pair.shared) == len(pair.a.parameters) == len(pair.b.parameters):
        return Proof(False)
    matches = one_to_one((n, n) for n in sorted(pair.shared))
    return Proof(_one_graph(pair) or prove_matched(pair, matches).proved, matches)


def _one_graph(pair: Pair) -> bool:
    """Whether both are the same operations in the same order."""
    a, b = pair.graph_a, pair.graph_b
    return (list(a.nodes.items()), a.shapes, a.states, a.outputs, a.pieces) == (
        list(b.nodes.items()), b.shapes, b.states, b.outputs, b.pieces,
    )  # fmt: skip


def prove_matched(pair: Pair, matches: tuple[Match, ...]) -> Proof:
    """A proof with whole parameters matched one to one, or with negatives, as the matches say; none
    where they match others."""
    if not all(len(m.a) == len(m.b) == 1 and _whole(m.a[0]) and _whole(m.b[0]) for m in matches):
        return Proof(False, matches)
    names = {m.b[0].parameter: m.a[0].parameter for m in matches}
    missing = [n for n in pair.b.parameters if n not in names and n not in pair.shared]
    used = [names.get(n, n) for n in pair.b.parameters if n not in missing]
    if missing or sorted(used) != sorted(pair.a.parameters):
        return Proof(False, matches)
    negative = frozenset(m.b[0].parameter for m in matches if m.sign < 0)
    table = Table()
    left = normal_forms(pair.graph_a, table, lambda n: Leaf("a", n), lambda kind, n: n)
    right = normal_forms(pair.graph_b, table, lambda n: Leaf("a", names.get(n, n)), _role(pair), negative)
    return Proof(_defined(left, right) and all(left.of[a] == right.of[b] for a, b in pair.results()), matches)


def _whole(leaf: Leaf) -> bool:
    return leaf.index is None and not leaf.cuts


def _role(pair: Pair) -> Callable[[str, str], str]:
    """What a calls an input or state of b."""
    return lambda kind, name: pair.roles[kind].get(name, name) if kind in ("input", "state") else name


def _defined(left: Forms, right: Forms) -> bool:
    """Whether equal forms mean that both are defined at the same numbers."""
    return not left.lossy and not right.lossy


def prove(pair: Pair, by_name: frozenset[str]) -> Proof:
    """A proof with parameters matched as the normal forms tell, `by_name` with those of their own
    names; where there is none, the matches that were found on the way."""
    table = Table()
    left = normal_forms(pair.graph_a, table, lambda n: Leaf("a", n), lambda kind, n: n)
    right = normal_forms(pair.graph_b, table, lambda n: Leaf("b", n), _role(pair))
    matcher, binding, proved = Matcher(table, by_name), Binding(), True
    for a, b in pair.results():
        further = matcher.match(left.of[a], right.of[b], binding)
        binding, proved = (binding, False) if further is None else (further, proved)
    if not proved:  # what agrees in part tells about parameters all the same
        for target in (e.target for e in pair.a.equations if e.target in left.of and e.target in right.of):
            binding = matcher.match(left.of[target], right.of[target], binding) or binding
    matches = []
    for sides in dict.fromkeys(binding.groups.values()):
        a_side, b_side = (tuple(sorted((table.atoms[n].args[0] for n in side), key=Leaf.to_text)) for side in sides)
        matches.append(Match(a_side, b_side))
    leaves = [leaf for match in matches for side in (match.a, match.b) for leaf in side]
    proved = proved and _defined(left, right) and _apart(leaves)
    return Proof(proved, tuple(sorted(matches, key=lambda m: m.a[0].to_text())))


def _apart(leaves: Iterable[Leaf]) -> bool:
    """Whether no two pieces have a number in common, whatever the sizes are: each then can be what
    its match says."""
    for one, other in combinations(dict.fromkeys(leaves), 2):
        if (one.side, one.parameter) != (other.side, other.parameter):
            continue
        if None not in (one.index, other.index) and one.index != other.index:
            continue
        if one.index != other.index or not any(_follows(a, b) for a, b in zip(one.cuts, other.cuts)):
            return False
    return True


def _follows(one: tuple[str, str] | None, other: tuple[str, str] | None) -> bool:
    """Whether one of two ranges, each (first, length), begins where the other has ended."""
    if one is None or other is None:
        return False
    for (first, length), (later, _) in ((one, other), (other, one)):
        try:
            remainder(later, first, length)
        except SizeError:
            continue
        return True
    return False
