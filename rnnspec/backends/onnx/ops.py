"""Operators of ONNX as plain data while a graph is written: nodes, bodies of loops, constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.language.syntax.tree import fresh


@dataclass(frozen=True)
class Op:
    """A node. attributes: numbers, texts, lists of them, arrays, Bodies; domain: "" for ONNX's
    own."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True)
class Body:
    """The graph inside of a node, which sees the values around it too. inputs, outputs: name ->
    dtype."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    ops: tuple[Op, ...]


class Ops:
    """The nodes of a graph in order. taken: names that no value of these nodes may have."""

    def __init__(self, taken: Iterable[str] = ()):
        self.ops: list[Op] = []
        self.taken = set(taken)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def name(self, wanted: str) -> str:
        """A name like the one that is wanted, which nothing here has."""
        found = fresh(wanted, self.taken)
        self.taken.add(found)
        return found

    def put(self, op: Op) -> None:
        """Adds a node whose outputs have names of their own."""
        self.ops.append(op)

    def add(self, kind: str, *inputs: str, name: str = "", exact: bool = False, **attributes: Any) -> str:
        """Adds a node with one output and returns its name. name: of the output, or like it unless
        `exact`."""
        output = name if exact else self.name(name or kind.lower())
        self.put(Op(kind, inputs, (output,), attributes))
        return output

    def constant(self, value: Array, name: str = "") -> str:
        """The name of a constant, which is there once."""
        array = np.ascontiguousarray(value)
        key = (array.dtype.name, np.shape(value), array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.add("Constant", name=name or "constant", value=array.reshape(np.shape(value)))
        return self._constants[key]

    def integers(self, *values: int, name: str = "") -> str:
        return self.constant(np.array(values, np.int64), name or "_".join(["n", *map(str, values)]).replace("-", "m"))
