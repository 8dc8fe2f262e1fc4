"""Two cells side by side: which input, state and output of one stands for which of the other, and
which parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rnnspec.compare.normal import Leaf
from rnnspec.language.spec import Shape, Spec
from rnnspec.storage.locks import once_only
from rnnspec.symbolic.derive import surrogates
from rnnspec.symbolic.graph import Graph


@dataclass(frozen=True)
class Pair:
    """Two cells with their graphs. Each cached value is made once, at its first use."""

    a: Spec
    b: Spec
    graph_a: Graph
    graph_b: Graph

    def swapped(self) -> Pair:
        return Pair(self.b, self.a, self.graph_b, self.graph_a)

    @once_only
    def declared(self) -> Mapping[str, tuple[dict[str, Shape], dict[str, Shape]]]:
        """The shapes that each cell declares, by kind ("input", "state", "output") and name."""
        left, right = _declared(self.a, self.graph_a), _declared(self.b, self.graph_b)
        return {kind: (left[kind], right[kind]) for kind in left}

    @once_only
    def roles(self) -> Mapping[str, Mapping[str, str]]:
        """For each kind, the names in b with those in a that they stand for: the same names, else
        the next that is left."""
        roles = {}
        for kind, (left, right) in self.declared.items():
            rest = [n for n in left if n not in right]
            roles[kind] = {n: n if n in left else rest.pop(0) for n in right if n in left or rest}
        return roles

    @once_only
    def shared(self) -> tuple[str, ...]:
        """The parameters that both have, of one name and shape."""
        return tuple(n for n, shape in self.a.parameters.items() if self.b.parameters.get(n) == shape)

    def differences_declared(self) -> str:
        """What differs in the declarations of inputs, states and outputs, or nothing."""
        a, b, wrong = self.a.name, self.b.name, []
        for kind, (left, right) in self.declared.items():
            roles = self.roles[kind]
            unmatched = [n for n in left if n not in roles.values()]
            wrong += [f"'{a}' has the {kind} {n}{_shown(left[n])}, '{b}' has none for it" for n in unmatched]
            unmatched = [n for n in right if n not in roles]
            wrong += [f"'{b}' has the {kind} {n}{_shown(right[n])}, '{a}' has none for it" for n in unmatched]
            wrong += [
                f"the {kind} {n} is {_shown(left[m])} in '{a}' and {_shown(right[n])} in '{b}'"
                for n, m in roles.items()
                if left[m] != right[n]
            ]
        return "; ".join(wrong)

    def results(self) -> Iterator[tuple[str, str]]:
        """The nodes of both graphs that must be equal: those of outputs and of states."""
        for kind, left, right in (
            ("output", self.graph_a.outputs, self.graph_b.outputs),
            ("state", self.graph_a.states, self.graph_b.states),
        ):
            for theirs, ours in self.roles[kind].items():
                yield left[ours], right[theirs]

    def notes(self) -> tuple[str, ...]:
        """Where gradients or draws may differ although the values are the same."""
        kinds = sorted(surrogates(self.graph_a) | surrogates(self.graph_b))
        notes = [f"{' and '.join(kinds)}: the values were compared, the gradients may differ"] if kinds else []
        for theirs, ours in {**self.roles["input"], **{n: n for n in self.b.parameters}}.items():
            a, b = _noise(self.a, ours), _noise(self.b, theirs)
            if a != b:
                notes.append(f"{ours} was compared as a value: it is {a} '{self.a.name}' and {b} '{self.b.name}'")
        for name in self.b.weights:
            if name in self.a.weights and (name in self.a.fixed) != (name in self.b.fixed):
                held, other = (self.a, self.b) if name in self.a.fixed else (self.b, self.a)
                notes.append(f"{name} is fixed in '{held.name}' and trained in '{other.name}'")
        return tuple(notes)


def _declared(spec: Spec, graph: Graph) -> dict[str, dict[str, Shape]]:
    states = {s: graph.shapes[n] for s, n in graph.states.items()}
    outputs = {o: graph.shapes[n] for o, n in graph.outputs.items()}
    return {"input": dict(spec.inputs), "state": states, "output": outputs}


def _shown(shape: Shape) -> str:
    return f" [{', '.join(shape)}]" if shape else ""


def _noise(spec: Spec, name: str) -> str:
    return f"{spec.noise[name].to_text()} in" if name in spec.noise else "no noise in"


class Match(NamedTuple):
    """Parameters of a whose sum is that of parameters of b, or (sign -1) its negative."""

    a: tuple[Leaf, ...]
    b: tuple[Leaf, ...]
    sign: int = 1

    def to_text(self) -> str:
        """The equation, or nothing where both sides read the same."""
        left = " + ".join(map(Leaf.to_text, self.a))
        right = "-" * (self.sign < 0) + " + ".join(map(Leaf.to_text, self.b))
        return f"{left} = {right}" if left != right else ""


def one_to_one(names: Iterable[tuple[str, str]], sign: int = 1) -> tuple[Match, ...]:
    """A match of each parameter of a, by name, with one of b."""
    return tuple(Match((Leaf("a", n),), (Leaf("b", m),), sign) for n, m in names)


@dataclass(frozen=True)
class Proof:
    """Which parameters were matched, and whether the normal forms of both cells are equal then."""

    proved: bool
    matches: tuple[Match, ...] = ()

    def swapped(self) -> Proof:
        """The same of both cells the other way round."""
        matches = (Match(m.b, m.a, m.sign) for m in self.matches)
        return Proof(self.proved, tuple(sorted(matches, key=lambda m: m.a[0].to_text())))

    @property
    def mapping(self) -> tuple[str, ...]:
        """The matches beyond those of one name, as equations."""
        return tuple(filter(None, map(Match.to_text, self.matches)))
