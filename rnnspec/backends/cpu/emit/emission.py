"""One text of a kernel under construction: the names in use, the fields of the table, what the
launcher has to pack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rnnspec.language.functions import PRIMITIVES
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.program import Place, Program
from rnnspec.symbolic.graph import Read

IMPORTS = (
    "at",
    "copy",
    "first_lanes",
    "from_int",
    "get",
    "horizontal_max",
    "horizontal_sum",
    "invoke",
    "larger",
    "load",
    "load_one",
    "load_splat",
    "min",
    "number",
    "pointer",
    "pointer_int",
    "prefix_sum",
    "put",
    "put_all",
    "select",
    "spread_lane",
    "store",
    "store_first",
    "store_one",
    "suffix_sum",
    "wait",
)
LOCALS = (
    "active",
    "barrier",
    "call",
    "chunk",
    "chunk_table",
    "chunks",
    "count",
    "dest",
    "end",
    "fields",
    "first",
    "full",
    "gather",
    "group",
    "history_rows",
    "item",
    "k",
    "kernel",
    "lanes",
    "left",
    "lengths",
    "min",
    "n",
    "njit",
    "offset",
    "order",
    "outer",
    "p",
    "part",
    "parts",
    "piece",
    "product",
    "range",
    "right",
    "row",
    "row0",
    "rows",
    "s",
    "s_end",
    "s_first",
    "scatter",
    "scratch",
    "source",
    "span",
    "spans",
    "steps",
    "t",
    "t0",
    "table",
    "total",
    "turn",
    "unit",
    "yielding",
    "zeros",
)
HEADER = (
    "product",
    "outer",
    "gather",
    "scatter",
    "chunks",
    "chunk_table",
    "order",
    "active",
    "lengths",
    "zeros",
    "scratch",
    "part",
    "parts",
    "barrier",
    "yielding",
)


@dataclass(frozen=True)
class Target:
    """What the text depends on beside the program: dtype name, lanes of its vector, most vectors in
    one panel group."""

    dtype: str
    lanes: int
    vectors: int


@dataclass
class Emission:
    """One text under construction: the names in use, the table's fields in order, and what the
    launcher has to pack."""

    program: Program
    target: Target
    lines: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=lambda: list(HEADER))
    names: dict[str, str] = field(default_factory=dict)
    panels: list[dict[str, Any]] = field(default_factory=list)
    indent: int = 1

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def name(self, key: str, wanted: str | None = None) -> str:
        """The identifier of something; `key` tells things apart, `wanted` is what it would like to
        be called."""
        if key not in self.names:
            text = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted or key)
            text = f"size_{text}" if text[0].isdigit() else text  # sizes such as 1 and 2 * H
            self.names[key] = fresh(text, {*self.names.values(), *IMPORTS, *PRIMITIVES, *LOCALS})
        return self.names[key]

    def get(self, *keys: str) -> str:
        """Text that reads fields of the table."""
        for key in keys:
            if key not in self.fields:
                self.fields.append(key)
        return ", ".join(f"get(table, {self.fields.index(key)})" for key in keys)

    def pad(self, size: str) -> str:
        """The padded width of a size: the distance between rows of a buffer."""
        return self.name(f"padded {size}", f"{size}_row")

    def share(self, size: str, blocks: int = 1) -> tuple[str, str]:
        """Of the unit blocks of a size, `blocks` vectors each: the first that is this part's, and
        the first that is the next one's."""
        key, text = f"share {size} {blocks}", f"{size}_group{blocks}" if blocks > 1 else f"{size}_block"
        return self.name(f"{key} first", f"{text}_first"), self.name(f"{key} end", f"{text}_end")

    def units(self, size: str) -> str:
        """The vectors of a size that are this part's, as a range."""
        first, end = self.share(size)
        return f"range({first} * lanes, {end} * lanes, lanes)"

    def barrier(self) -> None:
        self.line("if parts > 1:")
        self.line("    wait(barrier, parts, yielding)")

    def address(self, place: Place) -> str:
        return self.name(
            f"address {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_address"
        )

    def rows(self, place: Place) -> str:
        return self.name(f"rows {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_rows")


def is_read(program: Program, name: str, kind: str) -> bool:
    node = program.graph.nodes[name]
    return isinstance(node, Read) and node.kind == kind


def source_of(program: Program, name: str) -> str:
    """What a node reads: a parameter's name, or that of a piece of one."""
    node = program.graph.nodes[name]
    assert isinstance(node, Read)
    return node.source
