"""`rnnspec list`: the cells that come with rnnspec, as a table or JSON; a word filters, a column
sorts."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rnnspec.commands.output import columns, say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, spec_names
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.show.counts import SIZE, row
from rnnspec.storage.jsontext import json_text

COLUMNS: Mapping[str, Callable[[Any], str]] = {
    "name": str,
    "year": lambda year: str(year or ""),
    "states": ", ".join,
    "gates": ", ".join,
    "parameters": lambda count: "?" if count is None else f"{count:,}",
    "flop": lambda count: "?" if count is None else f"{count:,}",
    "stages": lambda count: "-" if count is None else str(count),
    "jacobian": lambda told: ", ".join(dict.fromkeys(text for row in told.values() for text in row.values())),
    "libraries": ", ".join,
    "title": str,
}
NUMBERS = ("year", "parameters", "flop", "stages")
_HEADS = {"parameters": f"parameters at {SIZE}", "flop": "FLOP a step", "stages": "recurrent stages"}
TITLE = 44  # columns that a title gets at least, where there are 80 or more


def run(args: argparse.Namespace) -> int:
    if args.sort not in (None, *COLUMNS):
        raise RnnspecError(
            f"there is no column '{args.sort}'.{did_you_mean(args.sort, COLUMNS)} The columns are: {listed(COLUMNS)}."
        )
    specs = [spec for spec in map(load, spec_names()) if matches(spec, args.word)]
    rows = [row(spec, args.stats or args.sort in ("stages", "jacobian")) for spec in specs]
    if args.sort:
        rows.sort(key=lambda r: _order(r[args.sort]))
    if args.json:
        say(json_text(rows))
    elif not rows:
        say(
            f"rnnspec list: no cell has '{args.word}' in its name, title, source or notes. `rnnspec list` has all"
            f" {len(spec_names())}.",
            error=True,
        )
    else:
        asked = [c for c in (args.sort, "stages" if args.stats else None) if c]
        say(table(rows, columns(), asked))
    return 0


def matches(spec: Spec, word: str | None) -> bool:
    """Whether every part of `word` stands in the cell's name, title, source or notes."""
    text = " ".join((spec.name, spec.title, spec.source.to_text(), spec.notes)).lower()
    return all(part in text for part in (word or "").lower().split())


def _order(value: Any) -> tuple[bool, Any]:
    """Lists by how many they hold; what is unknown stands last."""
    return value is None, len(value) if isinstance(value, list | dict) else value or 0 if not isinstance(
        value, str
    ) else value


# text


def table(rows: Sequence[dict[str, Any]], width: int | None, asked: Collection[str] = ()) -> str:
    """Aligned columns within `width` (None: all of them, however wide): name and title always, then
    what was asked for, then what else has room, numbers last. Titles go on below."""
    cells = {c: [_HEADS.get(c, c), *(COLUMNS[c](r[c]) for r in rows)] for c in COLUMNS if c in rows[0]}
    widths = {c: max(map(len, texts)) for c, texts in cells.items()}
    if width is not None:
        others = [c for c in cells if c not in ("name", "title")]
        others.sort(key=lambda c: (c not in asked, c in NUMBERS))
        left = width - widths["name"] - 2 - min(widths["title"], TITLE)
        kept = {"name", "title"}
        for column in others:
            if widths[column] + 2 <= left or column in asked:
                left -= widths[column] + 2
                kept.add(column)
        cells = {c: texts for c, texts in cells.items() if c in kept}
        widths["title"] = max(TITLE // 3, min(widths["title"], TITLE) + left)
    lines = []
    for parts in zip(*cells.values()):
        padded = [f"{t:>{widths[c]}}" if c in NUMBERS else f"{t:{widths[c]}}" for c, t in zip(cells, parts)]
        before = "  ".join(padded[:-1]) + "  "
        title = textwrap.wrap(parts[-1], widths["title"], break_on_hyphens=False) or [""]
        lines += [before + title[0], *(" " * len(before) + text for text in title[1:])]
    return "\n".join(line.rstrip() for line in lines)
