"""The text of a kernel while it is written, in whatever language: lines, their indentation, and
identifiers that give way to each other.

A backend adds its own words, its writer of expressions, and what its texts begin and end with.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.program import Program
from rnnspec.lowering.writer import KernelWriter
from rnnspec.symbolic.graph import Graph, Pointwise, node_text

LONGEST = 100  # letters of an identifier as a user or a graph has it: LLVM (14 to 20) confuses those of over 1,024


@dataclass
class Lines:
    """Lines, each as far in as the blocks that it stands in."""

    lines: list[str] = field(default_factory=list, init=False)
    indent: int = field(default=1, init=False)

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """What is written in here stands below the header; as if there were no block, if the header
        is empty."""
        if not header:
            yield
            return
        self.line(header)
        self.indent += 1
        yield
        self.indent -= 1


@dataclass
class Text(Lines, ABC):
    """The text of one kernel of a program. The values of its graph have their own names, or the
    nearest to them that are free."""

    words: ClassVar[frozenset[str]] = frozenset()  # identifiers that mean something in every text of the backend
    writer: ClassVar[type[KernelWriter]]

    program: Program
    names: dict[str, str] = field(default_factory=dict, init=False)
    taken: set[str] = field(default_factory=set, init=False)
    values: dict[str, dict[str, str]] = field(default_factory=dict, init=False)  # item -> value -> identifier

    def __post_init__(self) -> None:
        self.taken.update(self.words)
        for name in self.graph.nodes:
            self.name(f"value {name}", name)

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def name(self, key: str, wanted: str | None = None) -> str:
        """The identifier of something; `key` tells things apart, `wanted` is what it would like to
        be called."""
        if key not in self.names:
            self.names[key] = fresh(self.spelled(wanted or key), self.taken)
            self.taken.add(self.names[key])
        return self.names[key]

    def spelled(self, wanted: str) -> str:
        """The identifier that is most like a text: a size such as 2 * H becomes size_2___H. A long
        one ends with a digest of what was left out."""
        text = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted)
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return f"size_{text}" if text[0].isdigit() else text

    def value(self, name: str, item: str = "") -> str:
        """The identifier of a value; `item` tells the several items apart that one thread works
        on."""
        return self.name(f"value {name} {item}", f"{name}_{item}") if item else self.name(f"value {name}")

    def expressions(self, names: Mapping[str, str]) -> KernelWriter:
        """The writer of expressions over values with these identifiers."""
        return self.writer(names)

    def compute(self, nodes: Iterable[str], item: str = "") -> None:
        """Writes pointwise nodes, one equation a line; the values that they read have been read."""
        if item not in self.values:
            self.values[item] = {n: self.value(n, item) for n in self.graph.nodes}
        writer = self.expressions(self.values[item])
        for name in nodes:
            node = self.graph.nodes[name]
            assert isinstance(node, Pointwise)
            for text in writer.assign(self.value(name, item), node.expr, node_text(node)):
                self.line(text)
