"""Which parameters of one cell play the part of which of another, found from normal forms that are
equal but for them.

A sum of parameters counts as one: b_ih + b_hh against b. Where several would do, the one of the
same name is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rnnspec.compare.normal import Leaf, Table, terms
from rnnspec.symbolic.operations import Value

Group = tuple[frozenset[str], frozenset[str]]  # atoms whose sum in the one cell is that of others in the other
Term = tuple[Value, list[tuple[Value, Value]]]


@dataclass(frozen=True)
class Binding:
    """What was found so far: the group of each parameter's atom, and pairs of atoms that are equal
    under it."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    equal: frozenset[tuple[str, str]] = frozenset()


@dataclass
class Matcher:
    """Finds which parameters of one cell are which of another. shared: those of both cells that
    must be matched by name."""

    table: Table
    shared: frozenset[str] = frozenset()
    prints: dict[str, Any] = field(default_factory=dict)

    def match(self, a: Value, b: Value, bound: Binding) -> Binding | None:
        """The bound with which two forms are equal; None where none was found."""
        left, right = self.classes(a), self.classes(b)
        if left.keys() != right.keys():
            return None
        for key in sorted(left, key=lambda k: len(left[k])):
            found = (
                self.pair(left[key], right[key], bound)
                if len(left[key]) == len(right[key])
                else self.sums(left[key], right[key], bound)
            )
            if found is None:
                return None
            bound = found
        return bound

    # fingerprints: what a form is, its parameters but for their shapes left aside

    def classes(self, form: Value) -> dict[Any, list[Term]]:
        found: dict[Any, list[Term]] = {}
        for number, factors in terms(form):
            key = hash((str(number), tuple(sorted((self.fingerprint(f), str(e)) for f, e in factors))))
            found.setdefault(key, []).append((number, factors))
        return found

    def form_print(self, form: Value) -> int:
        return hash(
            tuple(
                sorted((key, 1 if self.linear(group[0]) else len(group)) for key, group in self.classes(form).items())
            )
        )

    def fingerprint(self, atom: Value) -> int:
        if atom.name not in self.prints:
            known = self.table.of(atom)
            args = (
                ("",)
                if known.op == "parameter"
                else tuple(self.form_print(a) if hasattr(a, "free_symbols") else str(a) for a in known.args)
            )
            self.prints[atom.name] = hash((known.op, args, known.shape))
        return int(self.prints[atom.name])

    def linear(self, term: Term) -> Leaf | None:
        """The parameter in a term that is a parameter, or the product of one with a vector."""
        number, factors = term
        if len(factors) != 1 or factors[0][1] != 1 or not factors[0][0].is_Symbol:
            return None
        known = self.table.of(factors[0][0])
        if known.op == "product" and number == 1 and known.args[0].is_Symbol:
            known = self.table.of(known.args[0])
        return known.args[0] if known.op == "parameter" else None

    # pairs and sums

    def pair(self, left: list[Term], right: list[Term], bound: Binding) -> Binding | None:
        """Each term with one of the other side, all of one fingerprint."""
        if not left:
            return bound
        first, rest = left[0], left[1:]
        for other in sorted(right, key=lambda t: self.names(t) != self.names(first))[:6]:
            found = self.term(first, other, bound)
            found = found and self.pair(rest, [t for t in right if t is not other], found)
            if found is not None:
                return found
        return None

    def names(self, term: Term) -> set[str]:
        """The parameters right below a term: enough to try those of one name first."""
        found, waiting, depth = set(), [f for f, _ in term[1]], 0
        while waiting and depth < 40:
            known, depth = self.table.of(waiting.pop()), depth + 1
            if known.op == "parameter":
                found.add(known.args[0].parameter)
            waiting += [s for a in known.args if hasattr(a, "free_symbols") for s in sorted(a.free_symbols, key=str)]
        return found

    def term(self, a: Term, b: Term, bound: Binding) -> Binding | None:
        left, right = list(a[1]), list(b[1])
        for factor, exponent in left:
            candidates = [(f, e) for f, e in right if e == exponent and self.fingerprint(f) == self.fingerprint(factor)]
            for f, e in candidates:
                found = self.atom(factor, f, bound)
                if found is not None:
                    bound = found
                    right.remove((f, e))
                    break
            else:
                return None
        return bound

    def atom(self, a: Value, b: Value, bound: Binding) -> Binding | None:
        if (a.name, b.name) in bound.equal:
            return bound
        left, right = self.table.of(a), self.table.of(b)
        if left.op == "parameter":
            return self.bind({a.name}, {b.name}, bound)
        if len(left.args) != len(right.args):
            return None
        for x, y in zip(left.args, right.args):
            if hasattr(x, "free_symbols"):
                found = self.match(x, y, bound)
                if found is None:
                    return None
                bound = found
            elif x != y:
                return None
        return Binding(bound.groups, bound.equal | {(a.name, b.name)})

    def sums(self, left: list[Term], right: list[Term], bound: Binding) -> Binding | None:
        """b_ih + b_hh against b, (W + V) @ x against W @ x."""
        if not all(self.linear(t) for t in (*left, *right)):
            return None
        heads = [[t[1][0][0] for t in side] for side in (left, right)]
        known = [[self.table.of(h) for h in side] for side in heads]
        if known[0][0].op == "parameter":
            return self.bind({h.name for h in heads[0]}, {h.name for h in heads[1]}, bound)
        vectors = {k.args[1] for side in known for k in side}
        if len(vectors) > 1:
            return None
        return self.bind({k.args[0].name for k in known[0]}, {k.args[0].name for k in known[1]}, bound)

    def bind(self, left: set[str], right: set[str], bound: Binding) -> Binding | None:
        group = (frozenset(left), frozenset(right))
        if any(bound.groups.get(name, group) != group for name in left | right):
            return None
        names = [{self.table.atoms[n].args[0].parameter for n in side} & self.shared for side in group]
        if names[0] != names[1]:
            return None
        return Binding({**bound.groups, **dict.fromkeys(left | right, group)}, bound.equal)
