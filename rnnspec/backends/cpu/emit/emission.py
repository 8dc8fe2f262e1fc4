"""The text of a CPU kernel while it is written: what the common Text has, and the fields of the
table that the launcher fills in."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from rnnspec.backends.cpu.emit.writer import VectorWriter
from rnnspec.language.functions import PRIMITIVES
from rnnspec.lowering.program import BufferPlace
from rnnspec.lowering.signature import signature
from rnnspec.lowering.text import Text

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
    "max",
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
SUMS = ("total_0", "total_1", "total_2", "total_3")  # of a reduction: each addition waits for the one before it
LOCALS = (
    "active",
    "barrier",
    "base",
    "by_rows",
    "call",
    "chunk",
    "chunk_table",
    "chunks",
    "count",
    "counts",
    "dest",
    "end",
    "few",
    "fields",
    "first",
    "fold",
    "folds",
    "full",
    "gather",
    "group",
    "groups",
    "high",
    "history_rows",
    "item",
    "k",
    "kernel",
    "lanes",
    "leaf",
    "left",
    "lengths",
    "live",
    "low",
    "many",
    "max",
    "min",
    "n",
    "offset",
    "order",
    "outer",
    "own",
    "owners",
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
    *SUMS,
    "turn",
    "unit",
    "whole",
    "yielding",
    "zeros",
)
COLUMN_LOCALS = ("at_column", "column", "columns")  # of a text with values for each column
HEADER = (
    "product",
    "outer",
    "gather",
    "scatter",
    "fold",
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
    "by_rows",
)


@dataclass(frozen=True)
class Target:
    """What the text depends on beside the program: dtype name, lanes of its vector, most vectors in
    one panel group."""

    dtype: str
    lanes: int
    vectors: int


@dataclass
class Emission(Text):
    """One kernel's text. fields: of the table, in order; panels: as the launcher has to pack
    them."""

    words = frozenset({*IMPORTS, *PRIMITIVES, *LOCALS})
    writer = VectorWriter

    target: Target
    fields: list[str] = field(default_factory=lambda: list(HEADER), init=False)
    panels: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.program.columned:
            self.taken.update(COLUMN_LOCALS)
        super().__post_init__()

    def get(self, *keys: str) -> str:
        """Text that reads fields of the table."""
        for key in keys:
            if key not in self.fields:
                self.fields.append(key)
        return ", ".join(f"get(table, {self.fields.index(key)})" for key in keys)

    def pad(self, size: str) -> str:
        """The padded width of a size: the distance between rows of a buffer."""
        return self.name(f"padded {size}", f"{size}_row")

    def extent(self, size: str) -> str:
        """The value of a size expression."""
        return size if size.isdigit() else self.names.get(f"size {size}") or self.get(f"size {size}")

    def row(self, place: BufferPlace) -> str:
        """The distance between rows of a place: of a columned one they hold all columns."""
        padded = self.pad(self.program.buffers[place.buffer].size)
        return f"{padded} * columns" if self.program.is_columned(place) else padded

    def columns(self, columned: bool) -> contextlib.AbstractContextManager[None]:
        """A block that runs for each column, where there are some."""
        return self.block("for column in range(columns):" if columned else "")

    def share(self, size: str, blocks: int = 1, everyone: bool = False) -> tuple[str, str]:
        """The unit blocks of a size that are this part's, `blocks` vectors each: the first of them,
        and the first that is the next part's. everyone: where parts have rows of their own too."""
        key, text = f"share {size} {blocks} {everyone}", f"{size}_group{blocks}" if blocks > 1 else f"{size}_block"
        text = f"{text}_of_all" if everyone else text
        return self.name(f"{key} first", f"{text}_first"), self.name(f"{key} end", f"{text}_end")

    def units(self, size: str, everyone: bool = False) -> str:
        """The vectors of a size that are this part's, as a range."""
        first, end = self.share(size, everyone=everyone)
        return f"range({first} * lanes, {end} * lanes, lanes)"

    def barrier(self, when: str = "parts > 1") -> None:
        """Parts wait for each other: `owners > 1` where they share units, `by_rows` where they
        share rows."""
        with self.block(f"if {when}:"):
            self.line("wait(barrier, parts, yielding)")

    def address(self, place: BufferPlace) -> str:
        return self._place("address", place)

    def rows(self, place: BufferPlace) -> str:
        return self._place("rows", place)

    def _place(self, what: str, place: BufferPlace) -> str:
        return self.name(
            f"{what} {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_{what}"
        )

    def layout(self) -> dict[str, Any]:
        """What the launcher has to know of the kernel, as literals: the program's signature, with
        the fields of the table, and panels and biases as this text reads them."""
        known = vars(signature(self.program))
        biases = {bias_field(names): list(names) for names in known["biases"].values()}
        head = {"fields": tuple(self.fields), "reverse": known["reverse"], "lanes": self.target.lanes}
        rare = ("columns", "row_sums")
        known = {key: value for key, value in known.items() if value or key not in rare}
        return {**head, **known, "panels": tuple(self.panels), "biases": biases}


def bias_field(names: tuple[str, ...]) -> str:
    """The field with the address of a sum of parameters."""
    return f"bias {' + '.join(names)}"
