"""Whether two cells have one normal form, and which parameters of one then are which of the
other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rnnspec.compare.match import Binding, Matcher
from rnnspec.compare.normal import Leaf, Table, normal_forms
from rnnspec.compare.numbers import agree_where_tried
from rnnspec.compare.pair import Match, Pair, Proof, one_to_one
from rnnspec.symbolic.operations import Value


def prove_by_names(pair: Pair) -> Proof:
    """A proof with each parameter that of the same name: the normal forms are then the same
    expressions, and nothing need be found."""
    if not len(pair.shared) == len(pair.a.parameters) == len(pair.b.parameters):
        return Proof(False)
    left, right = _forms(pair, Table(), "a")
    proved = all(left[a] == right[b] for a, b in pair.results())
    return Proof(proved, one_to_one((n, n) for n in sorted(pair.shared)))


def _forms(pair: Pair, table: Table, side: str) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """The normal forms of both graphs by node. side: that of the parameters of b."""

    def name_in_a(kind: str, name: str) -> str:
        return pair.roles[kind].get(name, name) if kind in ("input", "state") else name

    return (
        normal_forms(pair.graph_a, table, lambda n: Leaf("a", n), lambda kind, n: n),
        normal_forms(pair.graph_b, table, lambda n: Leaf(side, n), name_in_a),
    )


def prove(pair: Pair, by_name: frozenset[str]) -> Proof:
    """A proof with parameters matched as the normal forms tell, `by_name` with those of their own
    names; where there is none, the matches that were found on the way."""
    table = Table()
    left, right = _forms(pair, table, "b")
    matcher, binding, proved = Matcher(table, by_name), Binding(), True
    for a, b in pair.results():
        further = matcher.match(left[a], right[b], binding)
        binding, proved = (binding, False) if further is None else (further, proved)
    if not proved:  # what agrees in part tells about parameters all the same
        for target in (e.target for e in pair.a.equations if e.target in left and e.target in right):
            binding = matcher.match(left[target], right[target], binding) or binding
    matches = []
    for sides in dict.fromkeys(binding.groups.values()):
        a_side, b_side = (tuple(sorted((table.atoms[n].args[0] for n in side), key=Leaf.to_text)) for side in sides)
        matches.append(Match(a_side, b_side))
    proof = Proof(proved, tuple(sorted(matches, key=lambda m: m.a[0].to_text())))
    return replace(proof, proved=proved and agree_where_tried(pair, proof))
