"""`rnnspec list`: the cells that come with rnnspec, as a table or JSON; a word filters, a column
sorts."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, spec_names
from rnnspec.language.roles import gate_names
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.show.counts import SIZE, counts, recurrent_stages
from rnnspec.storage.jsontext import json_text

COLUMNS: Mapping[str, Callable[[Any], str]] = {
    "name": str,
    "year": lambda year: str(year or ""),
    "states": ", ".join,
    "gates": ", ".join,
    "parameters": lambda count: "?" if count is None else f"{count:,}",
    "flop": lambda count: "?" if count is None else f"{count:,}",
    "stages": lambda count: "-" if count is None else str(count),
    "libraries": ", ".join,
    "title": str,
}
NUMBERS = ("year", "parameters", "flop", "stages")


def run(args: argparse.Namespace) -> int:
    if args.sort not in (None, *COLUMNS):
        raise RnnspecError(
            f"there is no column '{args.sort}'.{did_you_mean(args.sort, COLUMNS)} The columns are: {listed(COLUMNS)}."
        )
    specs = [spec for spec in map(load, spec_names()) if matches(spec, args.word)]
    rows = [row(spec, args.stats or args.sort == "stages") for spec in specs]
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
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        say(table(rows, width))
    return 0


def matches(spec: Spec, word: str | None) -> bool:
    """Whether every part of `word` stands in the cell's name, title, source or notes."""
    text = " ".join((spec.name, spec.title, spec.source, spec.notes)).lower()
    return all(part in text for part in (word or "").lower().split())


def row(spec: Spec, stats: bool = False) -> dict[str, Any]:
    """The cell's row; "stages" only with `stats`, since it is built for it."""
    year = re.search(r"\b(1[89]|20)\d\d\b", spec.source)
    return {
        "name": spec.name,
        "title": spec.title,
        "year": int(year[0]) if year else None,
        "states": list(spec.states),
        "gates": gate_names(spec),
        **counts(spec),
        **({"stages": recurrent_stages(spec)} if stats else {}),
        "libraries": sorted(spec.layouts),
        "outputs": list(spec.outputs),
    }


def _order(value: Any) -> tuple[bool, Any]:
    """Lists by how many they hold; what is unknown stands last."""
    return value is None, len(value) if isinstance(value, list) else value or 0 if not isinstance(value, str) else value


# text


def table(rows: Sequence[dict[str, Any]], width: int | None) -> str:
    """Aligned columns; titles are cut to fit `width` (None: not cut)."""
    columns = [c for c in COLUMNS if c in rows[0]]
    heads = {"parameters": f"parameters at {SIZE}", "flop": "FLOP a step", "stages": "recurrent stages"}
    cells = [[heads.get(c, c) for c in columns], *([COLUMNS[c](r[c]) for c in columns] for r in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for parts in cells:
        padded = [f"{text:>{w}}" if c in NUMBERS else f"{text:{w}}" for text, w, c in zip(parts, widths, columns)]
        line = "  ".join([*padded[:-1], parts[-1]])
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 20)] + "…")
    return "\n".join(lines)
