"""The key `source` of a file: a text, or a paper by its parts."""

from __future__ import annotations

from yaml.nodes import MappingNode, Node

from rnnspec.language.reading.values import Values
from rnnspec.language.source import KEYS, SHAPES, Source
from rnnspec.language.syntax.faults import did_you_mean, listed

YEARS = range(1800, 2200)


def source(values: Values, node: Node) -> Source:
    """What the key says; faults are noted in `values`.

    source: Jordan 1986
    source: {authors: [Jordan], title: Serial Order, year: 1986}
    """
    if not isinstance(node, MappingNode):
        return Source(note=values.text(node, "source (a text, or {authors: [...], title: ..., year: ...})").strip())
    found: dict[str, object] = {}
    for key, at, value in values.pairs(node, "source"):
        if key not in KEYS:
            values.faults.add(f"unknown key '{key[:60]}'.{did_you_mean(key, KEYS)} Known here: {listed(KEYS)}.", at)
        elif key == "authors":
            found[key] = tuple(entry.value.strip() for entry in values.names(value, "authors"))
        else:
            text = values.text(value, f"'{key}' of the source").strip()
            if key == "year":
                if not (text.isdecimal() and text.isascii() and len(text) == 4 and int(text) in YEARS):
                    values.wrong("the year of the source is a year, like 1997.", value)
                    continue
                found[key] = int(text)
            elif key in SHAPES and not SHAPES[key][0].fullmatch(text):
                values.wrong(f"the {key} of the source is its number alone, like {SHAPES[key][1]}.", value)
            else:
                found[key] = text
    return Source(**found)  # type: ignore[arg-type]
