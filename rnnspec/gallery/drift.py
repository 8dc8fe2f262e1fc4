"""Where other people's implementations agree with a cell and where they differ, as `python -m bench
drift` found it: the table of `docs/drift.md`, which is in what is installed too.

In: that file. Out: rows. Nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rnnspec.language.load import specs_folder
from rnnspec.storage import guarded

HEAD = ("cell", "package", "theirs", "result", "values", "gradients", "why")
MOST = 2**20  # bytes of the file


@dataclass(frozen=True)
class Peer:
    """A row. package: the library; version: which; theirs: its class or operator; result: "equal",
    "different" or "gradients differ"; values, gradients: the largest differences, in parts of the
    largest; why: what explains a difference."""

    cell: str
    package: str
    version: str
    theirs: str
    result: str
    values: str
    gradients: str
    why: str

    @property
    def equal(self) -> bool:
        return self.result == "equal"


@lru_cache(maxsize=1)
def peers() -> Mapping[str, tuple[Peer, ...]]:
    """The rows of every cell by its name; none where the file is not there."""
    top = specs_folder().parent
    path = next((p for p in (top / "docs" / "drift.md", top / "drift.md") if p.is_file()), None)
    found: dict[str, tuple[Peer, ...]] = {}
    for line in guarded.text(path, MOST).splitlines() if path else ():
        cells = tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
        if not line.startswith("|") or len(cells) != len(HEAD) or cells == HEAD or not re.match(r"\w", cells[0]):
            continue
        package, _, version = cells[1].partition(" ")
        peer = Peer(cells[0], package, version, *cells[2:])
        found[peer.cell] = (*found.get(peer.cell, ()), peer)
    return found
