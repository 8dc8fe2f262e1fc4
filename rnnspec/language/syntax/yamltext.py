"""YAML text to nodes that know their place; every scalar stays text.

In: the text of a file. Out: PyYAML's nodes, composed within limits (size, depth, aliases, what
aliases expand to). No tag is accepted, so nothing is ever constructed; what a scalar means is for
`reader.py` to say.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import Node, ScalarNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from rnnspec.errors import Problem, SpecError
from rnnspec.language.syntax.tree import Place

MAX_BYTES = 64 * 1024
MAX_DEPTH = 40
MAX_ALIASES = 100
MAX_NODES = 30_000  # with every alias written out

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # and the marks that turn the direction of writing
_HALF = re.compile("[\ud800-\udfff]")


class _LimitError(Exception):
    def __init__(self, message: str, index: int):
        self.message, self.index = message, index


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's own reader, scanner, parser and composer, without its resolver (which turns `no`
    into False) and without a constructor (which runs tags)."""

    def __init__(self, text: str):
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.open: list[str] = []  # anchors of the nodes being composed, outermost first; "" for none
        self.aliases = 0
        self.expanded: dict[int, int] = {}  # id of a node -> nodes below it, aliases written out

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        if self.flow_level >= MAX_DEPTH:  # the scanner looks far ahead at a cost that grows with the depth
            raise _LimitError(f"nested deeper than {MAX_DEPTH}.", self.index)
        Scanner.fetch_flow_collection_start(self, TokenClass)

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        at = event.start_mark.index
        if isinstance(event, yaml.AliasEvent):
            self.aliases += 1
            if event.anchor in self.open:
                raise _LimitError(f"the alias *{event.anchor} stands inside what it names.", at)
            if self.aliases > MAX_ALIASES:
                raise _LimitError(f"over {MAX_ALIASES} aliases.", at)
        elif event.tag is not None:
            raise _LimitError(
                f"the tag {event.tag[:60]!r} is not offered: a spec holds plain names, numbers, lists and mappings.", at
            )
        if len(self.open) >= MAX_DEPTH:
            raise _LimitError(f"nested deeper than {MAX_DEPTH}.", at)
        self.open.append(getattr(event, "anchor", None) or "")
        node = Composer.compose_node(self, parent, index)
        self.open.pop()
        if isinstance(node, ScalarNode) and (odd := _CONTROL.search(node.value)):  # of an escape: "\e[31m"
            raise _LimitError(
                f"the character {odd.group()!a} is not allowed: it would control the terminal that shows it.", at
            )
        if isinstance(node, ScalarNode) and (odd := _HALF.search(node.value)):  # "\ud800"
            raise _LimitError(
                f"the character {odd.group()!a} is not allowed: it is half of one, which no file can hold.", at
            )
        if node is not None and id(node) not in self.expanded:
            below = [] if isinstance(node, ScalarNode) else node.value
            parts = [part for pair in below for part in (pair if isinstance(pair, tuple) else (pair,))]
            self.expanded[id(node)] = 1 + sum(self.expanded[id(part)] for part in parts)
            if self.expanded[id(node)] > MAX_NODES:
                raise _LimitError(f"the aliases expand to over {MAX_NODES} values.", at)
        return node


class Sheet:
    """The text of one file, and where things stand in it."""

    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.rows = tuple(text.split("\n"))
        self.starts = [0]
        for row in self.rows:
            self.starts.append(self.starts[-1] + len(row) + 1)

    def at(self, index: int, width: int = 1) -> Place:
        """The place of a character, by its number in the text."""
        line = max(1, min(bisect_right(self.starts, index), len(self.rows)))
        return Place(line, index - self.starts[line - 1] + 1, width, self.file)

    def place(self, node: Node) -> Place:
        start, end = node.start_mark.index, node.end_mark.index
        at = self.at(start)
        one_line = isinstance(node, ScalarNode) and self.at(end).line == at.line
        return Place(at.line, at.column, max(1, end - start) if one_line else 1, self.file)

    def problem(self, message: str, index: int) -> SpecError:
        at = self.at(index)
        return SpecError(Problem(message, at.line, at.column, self.file or "<text>", self.rows[at.line - 1]))


def compose(
    text: str, file: str, begins: str = "A spec starts with 'rnnspec: 1' and 'name: ...'."
) -> tuple[Node, Sheet]:
    """The root node and the sheet that places it. Raises SpecError for all that is not plain YAML
    within the limits. begins: what an empty file is told to begin with."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    sheet = Sheet(text, file)
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise SpecError(Problem(f"the file is over {MAX_BYTES // 1024} KiB.", 0, 0, file or "<text>"))
    if odd := re.search("[\x85\u2028\u2029]", text):  # line ends to YAML, but to hardly any editor: places would be off
        raise sheet.problem(
            f"the character {odd.group()!a} is not allowed here. Lines end with a line feed.", odd.start()
        )
    try:
        root = _Loader(text).get_single_node()
    except _LimitError as error:
        raise sheet.problem(error.message, error.index) from None
    except yaml.reader.ReaderError as error:
        raise sheet.problem(f"the character {chr(error.character)!a} is not allowed in YAML.", error.position) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise sheet.problem(_explained(error), mark.index if mark else 0) from None
    except Exception as error:  # PyYAML 6.0 lets ValueError, OverflowError and others out on odd escapes and directives
        raise sheet.problem(f"not valid YAML ({type(error).__name__}).", 0) from None
    if root is None:
        raise SpecError(Problem(f"the file is empty. {begins}", 0, 0, file or "<text>"))
    return root, sheet


def _explained(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "single document" in (error.context or ""):
        return "a file holds one cell: a second document starts here."
    if "'\\t'" in problem:
        return "a tab can't indent YAML. Use spaces."
    context = f" {error.context}" if error.context else ""
    return f"not valid YAML: {problem}{context}."


def locate_block(node: ScalarNode, sheet: Sheet) -> tuple[int, int]:
    """Line and column of the first character of a literal block (`|`)."""
    line = sheet.at(node.start_mark.index).line + 1
    indent = 0
    for row, value in zip(sheet.rows[line - 1 :], node.value.split("\n")):
        if value.strip():
            indent = len(row) - len(value)
            break
    return line, max(0, indent) + 1


def align(node: ScalarNode, sheet: Sheet) -> list[int]:
    """The place in the text of each character of a scalar's value: exact but for escapes, blanks
    and line folds."""
    raw, end, where = node.start_mark.index, node.end_mark.index, []
    if node.style in ("|", ">"):
        raw = sheet.starts[min(sheet.at(raw).line, len(sheet.rows))]
    for character in node.value:
        following = raw
        while not character.isspace() and following < end and sheet.text[following] != character:
            following += 1
        if following < end and not character.isspace():
            where.append(following)
            raw = following + 1
        else:
            where.append(min(raw, max(0, end - 1)))
    return where
