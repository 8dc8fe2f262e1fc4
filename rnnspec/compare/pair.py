"""Two cells side by side: which input, state, output and parameter of one stands for which of the
other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rnnspec.compare.normal import Leaf
from rnnspec.language.spec import Shape, Spec
from rnnspec.symbolic.derive import surrogates
from rnnspec.symbolic.graph import Graph

# --- declarations ---


@dataclass(frozen=True)
class Pair:
    a: Spec
    b: Spec
    graph_a: Graph
    graph_b: Graph

    def groups(self) -> dict[str, tuple[dict[str, Shape], dict[str, Shape]]]:
        def of(spec: Spec, graph: Graph) -> dict[str, dict[str, Shape]]:
            states = {s: graph.shapes[n] for s, n in graph.states.items()}
            outputs = {o: graph.shapes[n] for o, n in graph.outputs.items()}
            return {"input": dict(spec.inputs), "state": states, "output": outputs}

        left, right = of(self.a, self.graph_a), of(self.b, self.graph_b)
        return {kind: (left[kind], right[kind]) for kind in left}

    def roles(self, kind: str) -> dict[str, str]:
        """name in b -> name in a: the same, or the next that is left."""
        left, right = self.groups()[kind]
        rest = [n for n in left if n not in right]
        return {n: n if n in left else rest.pop(0) for n in right if n in left or rest}

    def declared(self) -> str:
        """What differs in the declarations of inputs, states and outputs, or nothing."""
        wrong = []
        for kind, (left, right) in self.groups().items():
            roles = self.roles(kind)
            wrong += [
                f"'{self.a.name}' has the {kind} {n}{_shown(left[n])}, '{self.b.name}' has none for it"
                for n in left
                if n not in roles.values()
            ]
            wrong += [
                f"'{self.b.name}' has the {kind} {n}{_shown(right[n])}, '{self.a.name}' has none for it"
                for n in right
                if n not in roles
            ]
            wrong += [
                f"the {kind} {n} is {_shown(left[m])} in '{self.a.name}' and {_shown(right[n])} in '{self.b.name}'"
                for n, m in roles.items()
                if left[m] != right[n]
            ]
        return "; ".join(wrong)

    def shared(self) -> list[str]:
        return [n for n, shape in self.a.parameters.items() if self.b.parameters.get(n) == shape]


def _shown(shape: Shape) -> str:
    return f" [{', '.join(shape)}]" if shape else ""


def notes_of(pair: Pair) -> tuple[str, ...]:
    kinds = sorted(surrogates(pair.graph_a) | surrogates(pair.graph_b))
    notes = [f"{' and '.join(kinds)}: the values were compared, the gradients may differ"] if kinds else []
    for theirs, ours in (pair.roles("input") | {n: n for n in pair.b.parameters}).items():
        a, b = (
            f"{spec.noise[n].to_text()} in" if n in spec.noise else "no noise in"
            for spec, n in ((pair.a, ours), (pair.b, theirs))
        )
        notes += (
            [f"{ours} was compared as a value: it is {a} '{pair.a.name}' and {b} '{pair.b.name}'"] if a != b else []
        )
    return tuple(notes)


def results_of(pair: Pair) -> Iterator[tuple[str, str]]:
    for kind, left, right in (
        ("output", pair.graph_a.outputs, pair.graph_b.outputs),
        ("state", pair.graph_a.states, pair.graph_b.states),
    ):
        for theirs, ours in pair.roles(kind).items():
            yield left[ours], right[theirs]


@dataclass(frozen=True)
class Proof:
    """groups: parameters of a whose sum is that of parameters of b, or (-1) its negative."""

    proved: bool
    groups: tuple[tuple[tuple[Leaf, ...], tuple[Leaf, ...], int], ...] = ()

    @property
    def mapping(self) -> tuple[str, ...]:
        texts = [
            (" + ".join(map(Leaf.to_text, a)), "-" * (sign < 0) + " + ".join(map(Leaf.to_text, b)))
            for a, b, sign in self.groups
        ]
        return tuple(f"{left} = {right}" for left, right in texts if left != right)


def signed(names: Iterable[tuple[str, str]], sign: int) -> Iterator[tuple[tuple[Leaf, ...], tuple[Leaf, ...], int]]:
    return (((Leaf("a", n),), (Leaf("b", m),), sign) for n, m in names)
