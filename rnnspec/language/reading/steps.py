"""The transforms that a file asks for, as it states them.

    apply: [layer_norm, drop_gate: i, couple_gates: [f, i], zoneout: {h: 0.1, c: 0.05}]

In: the YAML of `apply`. Out: names and arguments, as text. What they mean is for
`transforms/apply.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rnnspec.language.syntax.tree import Place

if TYPE_CHECKING:
    from rnnspec.language.reading.reader import Reader


MAX_STEPS = 16
MAX_ARGUMENTS = 200


@dataclass(frozen=True)
class Argument:
    """keyword: "" where it is given by position. at, keyword_at: where the value and the keyword
    stand."""

    keyword: str
    text: str
    at: Place
    keyword_at: Place


@dataclass(frozen=True)
class Step:
    """One transform that is asked for."""

    name: str
    arguments: tuple[Argument, ...]
    at: Place

    def words(self) -> set[str]:
        """Every name that the arguments mention."""
        return {a.keyword for a in self.arguments} | {a.text for a in self.arguments}


def read_steps(reader: Reader, node: Node) -> tuple[Step, ...]:
    """The steps of `apply`, in their order."""
    found: list[Step] = []
    for item in reader.items(node, "apply"):
        if isinstance(item, ScalarNode):
            found.append(Step(str(item.value).strip(), (), reader.sheet.place(item)))
            continue
        for name, at, value in reader.pairs(item, "an entry of apply"):
            found.append(Step(name.strip(), _arguments(reader, name, value), at))
    if len(found) > MAX_STEPS:
        reader.faults.add(f"apply has {len(found)} entries; at most {MAX_STEPS} are offered.", found[MAX_STEPS].at)
    return tuple(found[:MAX_STEPS])


def _arguments(reader: Reader, name: str, node: Node) -> tuple[Argument, ...]:
    what = f"an argument of {name[:40]}"
    if isinstance(node, MappingNode):
        given = [(keyword, at, value) for keyword, at, value in reader.pairs(node, f"the arguments of {name[:40]}")]
    elif isinstance(node, SequenceNode):
        given = [("", reader.sheet.place(item), item) for item in node.value]
    else:
        given = [("", reader.sheet.place(node), node)]
    if len(given) > MAX_ARGUMENTS:
        reader.wrong(f"{name[:40]} has {len(given)} arguments; at most {MAX_ARGUMENTS} are offered.", node)
    return tuple(
        Argument(keyword.strip(), reader.text(value, what).strip(), reader.sheet.place(value), at)
        for keyword, at, value in given[:MAX_ARGUMENTS]
    )
