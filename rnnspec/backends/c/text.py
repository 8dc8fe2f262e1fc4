"""The text of a step in C while it is written: what the common Text has, and the panels and vectors
of numbers that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rnnspec.backends.c.numbers import Real
from rnnspec.backends.c.primitives import NAMES
from rnnspec.backends.c.reductions import REDUCTIONS
from rnnspec.backends.c.words import KEYWORDS, MACROS, OURS
from rnnspec.backends.c.writer import CWriter
from rnnspec.language.sizes import evaluate_size
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.text import Text
from rnnspec.symbolic.graph import Read, size_of

# sums that a loop has in registers: two multiply-adds begin in a cycle, and each takes four
SUMS = 8


@dataclass(frozen=True)
class PackedPanel:
    """The numbers that a panel's loop reads in order. For every block of units: the starts of all
    accumulations, if one is not zero, then for every element of every operand the weights of all
    accumulations.

    accumulations: of each the parameters that its start is the sum of, None where it goes on, and
    the matrix of each term and whether that is transposed. size: the units; inner: the length of
    each operand; lanes: of a vector.
    """

    name: str
    size: int
    inner: tuple[int, ...]
    accumulations: tuple[tuple[tuple[str, ...] | None, tuple[tuple[str, bool], ...]], ...]
    lanes: int

    @property
    def vectors(self) -> int:
        """How many vectors of units a block has: at most SUMS sums in all, and no more
        padding than one vector at a time would have."""
        vectors = -(-self.size // self.lanes)
        most = max(SUMS // len(self.accumulations), 1)
        return max(v for v in range(1, most + 1) if vectors % v == 0)

    @property
    def wide(self) -> bool:
        """Whether two vectors at a time are read: where there are few units, the functions behind
        the products take longer than those, and don't gain."""
        return self.vectors % 2 == 0 and self.size >= 4 * self.lanes

    @property
    def units(self) -> int:
        """The units of a block."""
        return self.vectors * self.lanes

    @property
    def blocks(self) -> int:
        return -(-self.size // self.units)

    @property
    def starts(self) -> bool:
        """Whether there are numbers that accumulations start from."""
        return any(biases for biases, _ in self.accumulations)

    @property
    def numbers(self) -> int:
        """How many numbers the panel has."""
        return self.blocks * self.units * len(self.accumulations) * (self.starts + sum(self.inner))


@dataclass
class CText(Text):
    """The body of the function. sizes: the number of every size; lasting: the values that are
    arrays; tape: buffer -> the identifier of its numbers in the tape of a step."""

    words = frozenset({*KEYWORDS, *MACROS, *OURS, *NAMES.values(), *REDUCTIONS})

    real: Real
    sizes: Mapping[str, int]
    lasting: frozenset[str]
    needed: frozenset[str]
    noise: frozenset[str]
    tape: Mapping[str, str] = field(default_factory=dict)
    members: dict[str, dict[str, str]] = field(default_factory=dict, init=False)  # struct -> wanted -> identifier
    panels: list[PackedPanel] = field(default_factory=list, init=False)
    vectors: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    functions: set[str] = field(default_factory=set, init=False)  # primitives and reductions

    def number(self, expression: str) -> int:
        return evaluate_size(expression, self.sizes)

    def count(self, name: str) -> int:
        """How many numbers a value has."""
        return self.number(size_of(self.graph, name))

    def array(self, name: str) -> str:
        """The text of a pointer to a value's numbers."""
        node = self.graph.nodes[name]
        if not isinstance(node, Read):
            return f"s->value.{self.value(name)}"
        if node.kind == "parameter" or node.source in self.noise:
            if node.source not in self.vectors:
                self.vectors[node.source] = self.member("weights", node.source), self.count(name)
            return f"w->{self.vectors[node.source][0]}"
        if node.kind == "state":
            return f"s->state.{self.member('state', node.source)}"
        if node.kind in ("tape", "history"):
            place = self.program.places[name]
            return f"{'t[1].' if place.shift else 't->'}{self.tape[place.buffer]}"
        assert node.kind == "input", node
        return self.name(f"input {node.source}", node.source)

    def member(self, struct: str, wanted: str) -> str:
        """The identifier of a member of a struct, which has no others beside it."""
        known = self.members.setdefault(struct, {})
        if wanted not in known:
            known[wanted] = fresh(self.spelled(wanted), {*known.values(), *KEYWORDS, *MACROS})
        return known[wanted]

    def element(self, name: str, index: str) -> str:
        """The text of one number of a value."""
        node = self.graph.nodes[name]
        if isinstance(node, Read) and node.kind == "step":
            return "(real)t->step" if self.program.reverse else "(real)s->t"
        if isinstance(node, Read) and node.kind == "size":
            return self.real.constant(self.number(node.source))
        return f"{self.array(name)}[{'0' if self.count(name) == 1 else index}]"

    def loop(self, size: int, index: str = "i") -> str:
        return f"for (int {index} = 0; {index} < {size}; {index}++) {{"

    def expressions(self, names: Mapping[str, str]) -> CWriter:
        return CWriter(names, self.real, self.functions)
