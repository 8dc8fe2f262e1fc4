"""Whether two cells have one normal form, and which parameters of one then are which of the
other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rnnspec.compare.match import Bound, Matcher
from rnnspec.compare.normal import Leaf, Table, normal_forms
from rnnspec.compare.numbers import holds
from rnnspec.compare.pair import Pair, Proof, results_of
from rnnspec.symbolic.expressions import Value

# --- symbolically
# ----------------------------------------------------------------------------------------------------


def by_names(pair: Pair) -> Proof:
    """With each parameter that of the same name: their normal forms are then the same expressions,
    and nothing need be found."""
    names = pair.shared()
    if not len(names) == len(pair.a.parameters) == len(pair.b.parameters):
        return Proof(False)
    left, right = _forms(pair, Table(), "a")
    proved = all(left[a] == right[b] for a, b in results_of(pair))
    return Proof(proved, tuple(((Leaf("a", n),), (Leaf("b", n),), 1) for n in sorted(names)))


def _forms(pair: Pair, table: Table, side: str) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """The normal forms of both graphs by node; side: that of the parameters of b."""
    roles = {kind: pair.roles(kind) for kind in ("input", "state")}
    return (
        normal_forms(pair.graph_a, table, lambda n: Leaf("a", n), lambda kind, n: n),
        normal_forms(pair.graph_b, table, lambda n: Leaf(side, n), lambda kind, n: roles.get(kind, {}).get(n, n)),
    )


def prove(pair: Pair, shared: frozenset[str]) -> Proof:
    table = Table()
    left, right = _forms(pair, table, "b")
    matcher, bound, proved = Matcher(table, shared), Bound(), True
    for a, b in results_of(pair):
        found = matcher.match(left[a], right[b], bound)
        bound, proved = (bound, False) if found is None else (found, proved)
    if not proved:  # what agrees in part tells about parameters all the same
        for e in pair.a.equations:
            found = (
                matcher.match(left[e.target], right[e.target], bound)
                if e.target in left and e.target in right
                else None
            )
            bound = found or bound
    groups = []
    for sides in dict.fromkeys(bound.groups.values()):
        a_side, b_side = (tuple(sorted((table.atoms[n].args[0] for n in side), key=Leaf.to_text)) for side in sides)
        groups.append((a_side, b_side, 1))
    proof = Proof(proved, tuple(sorted(groups, key=lambda g: g[0][0].to_text())))
    return replace(proof, proved=proved and holds(pair, proof))
