"""What every kernel's text is made with: names, arguments, places. A text is plain Python for the
compiler behind shim.py; what `arguments` lists, in order, is what the launcher has to pass.

Indices are uint64 throughout, constants included: Numba makes a float64 of uint64 and int64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pprint import pformat

from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.writer import WRITTEN_OUT, ScalarWriter
from rnnspec.language.functions import PRIMITIVES
from rnnspec.lowering.program import BufferPlace, Stage
from rnnspec.lowering.text import Text
from rnnspec.symbolic.graph import size_of

FUNCTIONS = tuple(name for name in PRIMITIVES if name not in WRITTEN_OUT)
OWN = {"float32": ("sin", "cos"), "float64": ()}  # functions that are ours (circular.py) and not NVIDIA's
HELPERS = (
    "add_kept_products",
    "add_products",
    "arrive",
    "arrived",
    "cuda",
    "fresh",
    "larger",
    "real",
    "select",
    "uint64",
)
LOCALS = (
    "across",
    "at",
    "b",
    "block",
    "chunk",
    "count",
    "counters",
    "down",
    "e",
    "end",
    "exchange",
    "expected",
    "first",
    "group",
    "high",
    "item",
    "k",
    "kernel",
    "lane",
    "lengths",
    "limit",
    "live",
    "low",
    "n",
    "np",
    "order",
    "part",
    "patience",
    "piece",
    "r",
    "row",
    "row0",
    "s",
    "sh",
    "source",
    "swap",
    "t",
    "t0",
    "thread",
    "tile0",
    "total",
    "turns",
    "u",
    "waited",
    "while",
)


CONSTANT = re.compile(r"U\d+")  # a whole number as an index


@dataclass
class CudaText(Text):
    """One kernel's text. arguments: the identifier of each, by its key; constants: the whole
    numbers that it uses as indices."""

    words = frozenset({*FUNCTIONS, *HELPERS, *LOCALS})
    writer = ScalarWriter

    dtype: str
    arguments: dict[str, str] = field(default_factory=dict, init=False)
    constants: set[int] = field(default_factory=set, init=False)

    def spelled(self, wanted: str) -> str:
        text = super().spelled(wanted)
        return f"{text}_" if CONSTANT.fullmatch(text) else text

    def argument(self, key: str, wanted: str) -> str:
        """The identifier of what the launcher passes under `key`."""
        self.arguments.setdefault(key, self.name(f"argument {key}", wanted))
        return self.arguments[key]

    def header(self, *keys: str) -> None:
        """Arguments under names of ours."""
        self.arguments |= {key: key for key in keys}

    def u(self, number: int) -> str:
        """A whole number as an index."""
        self.constants.add(number)
        return f"U{number}"

    def pointer(self, place: BufferPlace) -> str:
        """The rows of a place in global memory."""
        return self.argument(
            f"rows {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_rows"
        )

    def vector(self, name: str) -> str:
        """A parameter, where it lies."""
        source = self.program.source_of(name)
        return self.argument(f"vector {source}", f"{source}_vector")

    def size(self, expression: str) -> str:
        """The value of a size expression."""
        return self.u(int(expression)) if expression.isdigit() else self.argument(f"size {expression}", expression)

    def is_number(self, name: str, stage: Stage) -> bool:
        """Whether a value is one number to all the units of a stage."""
        return size_of(self.graph, name) == "1" and stage.size != "1"

    def fixed(self, name: str, unit: str, row: str) -> str:
        """The text of a value that no step writes: a parameter, a size, or the number of step t of
        a row of the batch; empty for others."""
        if self.program.is_read(name, "parameter"):
            return f"{self.vector(name)}[{self.u(0) if self.graph.shapes[name] == () else unit}]"
        if self.program.is_read(name, "step"):
            return f"real(t + {self.argument('counts', 'counts')}[{row}])"
        return f"real({self.size(self.program.source_of(name))})" if self.program.is_read(name, "size") else ""

    def source(self, title: str, digest: str, threads: int, shared: int, **facts: object) -> Source:
        """The whole module: `kernel`, and LAYOUT with its arguments and `facts`. shared: in
        numbers."""
        body = "\n".join(self.lines)
        functions, helpers = (
            [n for n in names if re.search(rf"\b{n}[.(]", body) or n in ("real", "cuda")]
            for names in (FUNCTIONS, HELPERS)
        )
        imported = [f"{self.dtype} as real" if n == "real" else n for n in helpers]
        own = sorted(n for n in functions if n in OWN[self.dtype])
        library = sorted(n for n in functions if n not in own)
        layout = {"arguments": tuple(self.arguments), "threads": threads, "shared": shared, **facts}
        lines = [
            f'"""{self.program.name}, {title}, {self.dtype}. Generated by rnnspec from spec {digest[:16]};'
            ' not to be edited."""',
            "# ruff: noqa",
            *([f"from math import {', '.join(library)}", ""] if library else []),
            "import numpy as np",
            "",
            *([f"from rnnspec.backends.cuda.emit.circular import {', '.join(own)}"] if own else []),
            f"from rnnspec.backends.cuda.compile.shim import {', '.join(sorted(imported))}",
            "",
            f"LAYOUT = {pformat(layout, width=150, sort_dicts=False)}",
            *(f"U{n} = np.uint64({n})" for n in sorted(self.constants)),
            "",
            "",
            f"def kernel({', '.join(self.arguments.values())}):",
            body,
            "",
        ]
        kinds = tuple(_kind(key) for key in self.arguments)
        text = "\n".join(lines)
        return Source(self.program.name, self.dtype, text, tuple(self.arguments), kinds, threads, shared)


def _kind(key: str) -> str:
    if key in ("lengths", "tile_lengths", "order", "counters", "counts"):
        return "index*"
    return "real*" if key.split(" ")[0] in ("rows", "vector", "start", "final", "parts", "exchange") else "index"
