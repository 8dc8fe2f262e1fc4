"""What every kernel's text is made with: names, arguments, places. A text is plain Python for the
compiler behind shim.py; what `arguments` lists, in order, is what the launcher has to pass.

Indices are uint64 throughout, constants included: Numba makes a float64 of uint64 and int64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pprint import pformat

from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.writer import WRITTEN_OUT, ScalarWriter
from rnnspec.language.functions import PRIMITIVES
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.program import Place, Program, Stage
from rnnspec.symbolic.graph import Graph, Pointwise, Read, node_text, operands, size_of

FUNCTIONS = tuple(name for name in PRIMITIVES if name not in WRITTEN_OUT)
OWN = {"float32": ("sin", "cos"), "float64": ()}  # functions that are ours (circular.py) and not NVIDIA's
HELPERS = ("add_products", "arrive", "arrived", "cuda", "fresh", "larger", "real", "select", "uint64")
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


@dataclass
class Text:
    """One kernel's text under construction."""

    program: Program
    dtype: str
    lines: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)  # key -> identifier
    constants: set[int] = field(default_factory=set)
    indent: int = 1

    def __post_init__(self) -> None:
        for name in self.program.graph.nodes:
            self.name(f"value {name}", name)

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, key: str, wanted: str | None = None) -> str:
        """The identifier of something; `key` tells things apart, `wanted` is what it would like to
        be called."""
        if key not in self.names:
            text = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted or key)
            text = f"size_{text}" if text[0].isdigit() else text
            text = f"{text}_" if text[0] == "U" and text[1:].isdigit() else text
            self.names[key] = fresh(text, {*self.names.values(), *FUNCTIONS, *HELPERS, *LOCALS})
        return self.names[key]

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

    def pointer(self, place: Place) -> str:
        """The rows of a place in global memory."""
        return self.argument(
            f"rows {place.buffer} {place.shift}", f"{place.buffer}{'_next' if place.shift else ''}_rows"
        )

    def vector(self, name: str) -> str:
        """A parameter, where it lies."""
        node = self.graph.nodes[name]
        assert isinstance(node, Read)
        return self.argument(f"vector {node.source}", f"{node.source}_vector")

    def size(self, expression: str) -> str:
        """The value of a size expression."""
        return self.u(int(expression)) if expression.isdigit() else self.argument(f"size {expression}", expression)

    def is_read(self, name: str, *kinds: str) -> bool:
        node = self.graph.nodes[name]
        return isinstance(node, Read) and node.kind in kinds

    def outside(self, stage: Stage) -> list[str]:
        """The values that the pointwise work of a stage reads, but does not compute, in the graph's
        order."""
        wanted = (
            {o for n in stage.nodes for o in operands(self.graph.nodes[n])}
            | {v for v, _ in stage.stores}
            | {v for _, v in stage.sums}
        )
        return [n for n in self.graph.nodes if n in wanted and n not in stage.nodes and n not in stage.rowwise]

    def is_number(self, name: str, stage: Stage) -> bool:
        """Whether a value is one number to all the units of a stage."""
        return size_of(self.graph, name) == "1" and stage.size != "1"

    def fixed(self, name: str, unit: str, step: str) -> str:
        """The text of a value that no step writes: a parameter, a size or the step's number; empty
        for others."""
        if self.is_read(name, "parameter"):
            return f"{self.vector(name)}[{self.u(0) if self.graph.shapes[name] == () else unit}]"
        if self.is_read(name, "step"):
            return f"real({step} + {self.argument('step0', 'step0')})"
        node = self.graph.nodes[name]
        return f"real({self.size(node.source)})" if isinstance(node, Read) and node.kind == "size" else ""

    def value(self, name: str, item: str = "") -> str:
        """The identifier of a value; `item` tells the several items apart that one thread works
        on."""
        return self.name(f"value {name} {item}", f"{name}_{item}") if item else self.name(f"value {name}")

    def compute(self, nodes: Iterable[str], item: str = "") -> None:
        """One equation a line."""
        writer = ScalarWriter({n: self.value(n, item) for n in self.graph.nodes})
        for name in nodes:
            node = self.graph.nodes[name]
            assert isinstance(node, Pointwise)
            for text in writer.assign(self.value(name, item), node.expr, node_text(node)):
                self.line(text)

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
        layout = pformat(
            {"arguments": tuple(self.arguments), "threads": threads, "shared": shared, **facts},
            width=150,
            sort_dicts=False,
        )
        text = "\n".join(
            [
                (
                    f'"""{self.program.name}, {title}, {self.dtype}. Generated by rnnspec from spec {digest[:16]}; not to'
                    ' be edited."""'
                ),
                "# ruff: noqa",
                *([f"from math import {', '.join(library)}", ""] if library else []),
                "import numpy as np",
                "",
                *([f"from rnnspec.backends.cuda.emit.circular import {', '.join(own)}"] if own else []),
                f"from rnnspec.backends.cuda.compile.shim import {', '.join(sorted(imported))}",
                "",
                f"LAYOUT = {layout}",
                *(f"U{n} = np.uint64({n})" for n in sorted(self.constants)),
                "",
                "",
                f"def kernel({', '.join(self.arguments.values())}):",
                body,
                "",
            ]
        )
        return Source(
            self.program.name,
            self.dtype,
            text,
            tuple(self.arguments),
            tuple(_kind(key) for key in self.arguments),
            threads,
            shared,
        )


def _kind(key: str) -> str:
    if key in ("lengths", "tile_lengths", "order", "counters"):
        return "index*"
    return "real*" if key.split(" ")[0] in ("rows", "vector", "start", "final", "parts", "exchange") else "index"
