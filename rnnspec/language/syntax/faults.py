"""Collecting the faults of a spec, so that all of them are found before any is raised."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rnnspec.errors import Problem, SpecError
from rnnspec.language.syntax.tree import Place

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
MOST = 100  # more faults than anybody reads; also bounds the work on hostile text


@dataclass
class Faults:
    """The faults found so far. `lines` has the source lines of every file that takes part (several,
    with `extends`)."""

    lines: Mapping[str, Sequence[str]]
    found: list[Problem] = field(default_factory=list)

    def add(self, message: str, at: Place) -> None:
        """Note one fault at a place; the same words at the same place are noted once."""
        rows = self.lines.get(at.file, ())
        row = rows[at.line - 1] if 0 < at.line <= len(rows) else ""
        width = max(1, min(at.width, len(row) - at.column + 1))
        problem = Problem(message, at.line, at.column, at.file or "<text>", row, width)
        if problem not in self.found and len(self.found) < MOST:
            self.found.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Take over faults found elsewhere."""
        self.found.extend(p for p in problems if p not in self.found)

    def stop_if_any(self) -> None:
        if self.found:
            raise SpecError(*self.found[:MOST])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean 'z'?', or nothing where no known name is near."""
    near = nearest(word, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def nearest(word: str, known: Iterable[str], most: int) -> list[str]:
    """At most so many of the known names, the nearest to the word first; those that are not near
    are left out."""
    candidates = list(known)
    if len(candidates) > 500 or len(word) > 60:  # difflib is quadratic: not worth a second of waiting
        return []
    lowered = {c.lower(): c for c in reversed(candidates)}
    cutoff = 0.9 if len(word) == 1 else 0.5 if len(word) < 4 else 0.6
    return [lowered[name] for name in difflib.get_close_matches(word.lower(), list(lowered), n=most, cutoff=cutoff)]


def listed(names: Iterable[str], most: int = 16) -> str:
    """'a, b, c', cut after `most` names; 'none' where there are none."""
    names = list(names)
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "") if names else "none"


def bad_name(name: str) -> str:
    """What is wrong with a name as such (its letters, Python's keywords), or nothing."""
    if keyword.iskeyword(name):
        return f"'{name}' is a Python keyword and can't be a name here. Write '{name}_' or another name."
    if not NAME.fullmatch(name):
        return (
            f"'{name[:40]}' is not a name: names are letters (a to z, A to Z), digits and _, and start with a letter."
        )
    return ""
