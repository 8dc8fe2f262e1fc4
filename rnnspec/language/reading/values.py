"""Nodes of YAML -> texts, numbers, lists, names and shapes, whatever key they stand under."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rnnspec.language.reading.document import RESERVED, Entry, reserved
from rnnspec.language.sizes import SizeError, canonical_size
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.faults import Faults, bad_name
from rnnspec.language.syntax.parse import decimal
from rnnspec.language.syntax.tree import Place
from rnnspec.language.syntax.yamltext import Sheet

# constants and choices are keywords beside these
ARGUMENTS = frozenset(
    {
        "backend",
        "batch_first",
        "bias",
        "bidirectional",
        "cell",
        "dropout",
        "dtype",
        "hidden_size",
        "input_size",
        "num_layers",
        "proj_size",
        "seed",
        "self",
        "sizes",
        "spec",
        "threads",
    }
)


class Values:
    """Reads the values of nodes; notes what is wrong and goes on with what is left."""

    def __init__(self, sheet: Sheet, faults: Faults):
        self.sheet, self.faults = sheet, faults

    def wrong(self, message: str, node: Node) -> None:
        self.faults.add(message, self.sheet.place(node))

    # parts of YAML

    def pairs(self, node: Node, what: str) -> list[tuple[str, Place, Node]]:
        """Key, place and value of each entry; a key given twice is a fault that names both
        lines."""
        if not isinstance(node, MappingNode):
            if not (isinstance(node, ScalarNode) and not node.value and node.style is None):  # nothing after the colon
                self.wrong(f"{what} is a mapping, like {{name: value}}.", node)
            return []
        seen: dict[str, Place] = {}
        found = []
        for key, value in node.value:
            at = self.sheet.place(key)
            if not isinstance(key, ScalarNode):
                self.wrong(f"a key in {what} is a plain name.", key)
            elif key.value in seen:
                self.faults.add(
                    f"'{key.value[:60]}' is given twice in {what}: here and on line {seen[key.value].line}.", at
                )
            else:
                seen[key.value] = at
                found.append((key.value, at, value))
        return found

    def items(self, node: Node, what: str) -> list[Node]:
        if isinstance(node, SequenceNode):
            return list(node.value)
        self.wrong(f"{what} is a list, like [a, b].", node)
        return []

    def text(self, node: Node, what: str) -> str:
        if isinstance(node, ScalarNode):
            return str(node.value)
        self.wrong(f"{what} is a text.", node)
        return ""

    def number(self, node: Node, what: str) -> Fraction | None:
        value = decimal(node.value.strip()) if isinstance(node, ScalarNode) else None
        if value is None:
            self.wrong(f"{what} is a number, like 0.1 or 1e-3.", node)
        return value

    def array(self, node: Node, what: str) -> object:
        """Nested lists of numbers, as nested tuples of floats."""
        if isinstance(node, SequenceNode):
            return tuple(self.array(item, what) for item in node.value)
        value = self.number(node, f"each entry of {what}")
        return float(value) if value is not None else 0.0

    # names

    def named(self, node: Node, what: str) -> list[tuple[str, Place, Node]]:
        """Name, place and value of each declaration: `a, b: value` declares both. What is no name
        is noted and left out."""
        found: list[tuple[str, Place, Node]] = []
        seen: dict[str, Place] = {}
        for key, at, value in self.pairs(node, what):
            for part in re.finditer("[^,]+", key) if "," in key else [re.match("(?s).*", key)]:
                name = part.group().strip() if part else ""
                start = part.start() + len(part.group()) - len(part.group().lstrip()) if part else 0
                here = dataclasses.replace(at, column=at.column + start, width=len(name)) if "," in key else at
                if self.good(name, what, here) and name in seen:
                    self.faults.add(f"'{name}' is given twice in {what}: here and on line {seen[name].line}.", here)
                elif not bad_name(name):
                    seen[name] = here
                    found.append((name, here, value))
        return found

    def good(self, name: str, what: str, at: Place) -> bool:
        """Whether this can be a name at all; if not, that is noted."""
        message = bad_name(name)
        if not message and name in RESERVED:
            message = reserved(name, f"it in {what}")
        if not message and what in ("constants", "choices") and name in ARGUMENTS:
            message = (
                f"'{name}' can't be among the {what}: it is an argument of compile or Recurrent. Choose another name."
            )
        if message:
            self.faults.add(message, at)
        return not message

    def names(self, node: Node, what: str) -> tuple[Entry[str], ...]:
        return tuple(
            Entry(self.text(item, f"each entry of {what}"), self.sheet.place(item)) for item in self.items(node, what)
        )

    def shape(self, node: Node, what: str) -> Shape:
        """[] is one number, D a vector, [H, D] a matrix."""
        parts = node.value if isinstance(node, SequenceNode) else [node]
        sizes = []
        for part in parts:
            try:
                if not isinstance(part, ScalarNode) or not part.value:
                    raise SizeError(f"the shape of {what} is a size name, a list of them, or [] for one number")
                sizes.append(canonical_size(part.value))
                if sizes[-1] == "0":
                    raise SizeError(f"a size of 0 in the shape of {what}: sizes start at 1")
            except SizeError as error:
                self.wrong(f"{error}.", part)
                sizes.append("1")
        return tuple(sizes)
