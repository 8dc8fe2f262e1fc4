"""Lines of a page, cut where a screen ends.

In: a page as lines, and how many columns there are. Out: lines that fit. What has no space in it
stays whole.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

FURTHER = 4
_GOOD = re.compile(r"(?<=[;,.]) | (?=[+-] |\()")
"""Spaces at which a reader expects a line to end: after a mark, before + and -, and before a
bracket."""
_LEAST = 0.7  # of a line is filled before such a space is taken in place of a later one


def wrapped(lines: Iterable[str], width: int | None, further: int = FURTHER) -> list[str]:
    """The lines, each cut into as many as it takes (width None: as they are). further: columns that
    what goes on below stands further right."""
    return list(lines) if width is None else [part for line in lines for part in _parts(line, width, further)]


def paragraphs(text: str, width: int | None) -> list[str]:
    """A text of the file in lines. Where there is a width, lines that belong together are joined
    before they are cut; one that is indented, or stands after an empty one, begins anew."""
    lines = text.splitlines()
    if width is None:
        return lines
    joined: list[str] = []
    for line in lines:
        begins = not joined or not joined[-1] or not line or line[0].isspace() or line.startswith(("- ", "* "))
        if begins:
            joined.append(line)
        else:
            joined[-1] = f"{joined[-1]} {line}"
    filled = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in joined)
    return [part for lines in filled for part in lines or [""]]


def _parts(line: str, width: int, further: int) -> Iterator[str]:
    left = line[: len(line) - len(line.lstrip())]
    before, rest = left, line[len(left) :]
    while len(before) + len(rest) > width and (cut := _cut(rest, width - len(before))):
        yield before + rest[:cut].rstrip()
        before, rest = left + " " * further, rest[cut:].lstrip()
    yield before + rest


def _cut(text: str, room: int) -> int:
    """Where to cut, 0 for nowhere: at the last of the good spaces that stand in the fewest
    brackets, else at the last space."""
    good = [found.start() for found in _GOOD.finditer(text, int(_LEAST * room), room + 2) if found.start() <= room]
    if good:
        return min(good, key=lambda at: (_depth(text[:at]), -at))
    at = text.rfind(" ", 0, room + 1)
    return at if at > 0 else max(0, text.find(" "))


def _depth(text: str) -> int:
    """How many brackets are open at its end."""
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")
