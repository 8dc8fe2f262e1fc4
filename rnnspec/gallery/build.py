"""Makes a gallery in a folder: pages of cells and their index, each whole; what has not changed
since is left as it is.

In: cells, and a folder. Out: files. `gallery.json` in the folder keeps the row of each cell, under
a digest of all that its page is made of, and the digest of the page. A gallery without it is none,
and one that it does not describe is made again.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rnnspec.errors import RnnspecError
from rnnspec.gallery.cell import cell_page
from rnnspec.gallery.drift import peers
from rnnspec.gallery.frame import script, style
from rnnspec.gallery.index import Row, index, row_from, row_of
from rnnspec.gallery.known import known
from rnnspec.language.load import load, specs_folder
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import bad_name
from rnnspec.language.syntax.yamltext import MAX_BYTES
from rnnspec.storage import atomic, guarded
from rnnspec.storage.cache import sources_digest
from rnnspec.storage.jsontext import json_text
from rnnspec.storage.version import version_of

KEPT, INDEX, PAGES = "gallery.json", "index.html", "cells"
FORMAT = 1
MOST = 64 * 2**20  # bytes of what is kept
ROOMS = ("backends", "check", "engine", "gallery", "language", "lowering", "probe", "show", "storage", "symbolic")
Progress = Callable[[str, int, int], None]


class GalleryError(RnnspecError):
    """What is wrong with a folder, or with the cells, of a gallery."""


@dataclass(frozen=True)
class Built:
    """made, kept, removed: names of cells whose pages were made, were there, or went; failed: those
    whose page says that a check failed."""

    made: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """What is kept of a page: a digest of all that it is made of, its own, and its row."""

    key: str
    page: str
    row: Row


def build(cells: Sequence[str], out: str | os.PathLike[str], progress: Progress | None = None) -> Built:
    """The gallery of these cells, and of no others: names, or paths of YAML files. out: a folder
    that is empty, not there, or has a gallery, whose pages of other cells go.

    Raises GalleryError, SpecError for a cell that is none, before anything is written, and OSError.
    """
    folder = Path(out)
    loaded = _loaded(cells)
    _check_folder(folder)
    (folder / PAGES).mkdir(parents=True, exist_ok=True)
    with atomic.held(folder) as mine:
        if not mine:
            raise GalleryError(f"{folder}: another process is making a gallery there. Wait until it has ended.")
        return _Work(folder, loaded, progress or (lambda what, done, total: None)).run()


def _loaded(cells: Iterable[str]) -> dict[str, tuple[Spec, str]]:
    """The cells by name, each with the text of its file."""
    found: dict[str, tuple[Spec, str]] = {}
    folded: dict[str, str] = {}
    for cell in cells:
        spec = load(cell)
        other = folded.setdefault(spec.name.lower(), spec.file)
        if other != spec.file:
            raise GalleryError(f"{other} and {spec.file} would have one page, {spec.name}.html. Rename one of them.")
        found[spec.name] = spec, guarded.text(spec.file, MAX_BYTES)
    return dict(sorted(found.items()))


def _check_folder(folder: Path) -> None:
    """GalleryError where a gallery would be put among files that are not its own."""
    if (folder / PAGES).is_symlink() or (folder.exists() and not folder.is_dir()):
        raise GalleryError(f"{folder}: a gallery needs a folder, with no link in it called {PAGES}.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / KEPT).is_file():
        raise GalleryError(f"{folder} has files, and no gallery ({KEPT}). Give a folder that is empty or not there.")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def made_with() -> str:
    """The versions that a page's numbers were measured with."""
    versions = {"rnnspec": version_of("rnnspec") or "from its source", "NumPy": version_of("numpy")}
    versions |= {"SymPy": version_of("sympy"), "Python": platform.python_version()}
    return f"Made with {', '.join(f'{name} {version}' for name, version in versions.items())}."


class _Work:
    def __init__(self, folder: Path, loaded: Mapping[str, tuple[Spec, str]], progress: Progress):
        self.folder, self.loaded, self.progress = folder, loaded, progress
        self.before = entries_in(folder / KEPT)
        self.about = made_with()
        self.maker = _digest(sources_digest(*(f"rnnspec.{room}" for room in ROOMS)), style(), script(), self.about)
        self.entries: dict[str, Entry] = {}

    def run(self) -> Built:
        self.keep(self.before)  # from here on the folder is a gallery's, however this ends
        made, kept = [], []
        for number, name in enumerate(self.loaded):
            self.progress(name, number, len(self.loaded))
            key = self.key(name)
            if self.is_there(name, key):
                self.entries[name] = self.before[name]
                kept.append(name)
                continue
            self.entries[name] = self.make(name, key)
            made.append(name)
            self.keep({**self.before, **self.entries})  # who is stopped or killed goes on from here
        removed = self.remove()
        atomic.write(self.folder / INDEX, index([entry.row for entry in self.entries.values()], self.about))
        self.keep(self.entries)
        self.progress("done", len(self.loaded), len(self.loaded))
        failed = tuple(name for name, entry in self.entries.items() if not entry.row.passed)
        return Built(tuple(made), tuple(kept), removed, failed)

    def key(self, name: str) -> str:
        """A digest of all that a page is made of: the cell (its parents are in it), its file, what
        it was compared with, the cells that its notes may lead to, and what makes it."""
        spec, text = self.loaded[name]
        parts = [f"{f.name}={getattr(spec, f.name)!r}" for f in fields(spec) if f.name != "file"]
        pages = sorted(self.pages(spec))
        return _digest(self.maker, text, *parts, repr(self.peers(spec)), *pages)

    def pages(self, spec: Spec) -> frozenset[str]:
        """The cells of the gallery that the notes name."""
        return frozenset(word for word in spec.notes.replace("\n", " ").split() for word in [word.strip(".,:;()'`")]
                         if word in self.loaded)  # fmt: skip

    def peers(self, spec: Spec) -> Any:
        """What was measured is about our cells, and not about those of others with their names."""
        return peers().get(spec.name, ()) if Path(spec.file).parent == specs_folder() else ()

    def path(self, name: str) -> Path:
        return self.folder / PAGES / f"{name}.html"

    def is_there(self, name: str, key: str) -> bool:
        entry = self.before.get(name)
        return entry is not None and entry.key == key and self.is_ours(name, entry)

    def is_ours(self, name: str, entry: Entry) -> bool:
        """Whether the page is as it was written."""
        try:
            return hashlib.sha256(guarded.read(self.path(name), MOST)).hexdigest() == entry.page
        except (OSError, guarded.Refused):
            return False

    def make(self, name: str, key: str) -> Entry:
        spec, text = self.loaded[name]
        told = known(spec, text, self.peers(spec), self.pages(spec))
        content = cell_page(told, self.about)
        atomic.write(self.path(name), content, durable=False)
        return Entry(key, hashlib.sha256(content).hexdigest(), row_of(told))

    def remove(self) -> tuple[str, ...]:
        """The pages of other cells go, where nobody has changed them."""
        gone = [name for name in self.before if name not in self.loaded and self.is_ours(name, self.before[name])]
        for name in gone:
            with suppress(FileNotFoundError):
                self.path(name).unlink()
        return tuple(gone)

    def keep(self, entries: Mapping[str, Entry]) -> None:
        plain = {name: asdict(entry) for name, entry in entries.items()}
        atomic.write(self.folder / KEPT, json_text({"format": FORMAT, "cells": plain}).encode(), durable=False)


def entries_in(path: Path) -> dict[str, Entry]:
    """What was kept; of a file that is damaged, or that somebody has put there, nothing."""
    try:
        told = guarded.values(path, MOST)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            return {}
        return {name: _entry(name, value) for name, value in told["cells"].items()}
    except (OSError, guarded.Refused, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _entry(name: str, value: Mapping[str, Any]) -> Entry:
    if bad_name(name) or value.keys() != {"key", "page", "row"}:
        raise ValueError("no entry of a gallery")
    if not all(isinstance(value[part], str) for part in ("key", "page")):
        raise ValueError("no entry of a gallery")
    row = row_from(value["row"])
    if row.name != name:
        raise ValueError("an entry of another cell")
    return Entry(value["key"], value["page"], row)
