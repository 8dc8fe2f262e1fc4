"""What can go wrong, and how it is said: what, where, what was expected, what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """A text of somebody else's for a terminal: what would control it, turn the direction of
    writing or not be seen stands as its escape, such as \\u001b; line ends and tabs stay."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


class RnnspecError(Exception):
    """Every error that rnnspec raises on purpose. Its text is `visible`."""

    def __str__(self) -> str:
        return visible(super().__str__())


LINE_SHOWN = 160  # characters of a source line that a message shows


@dataclass(frozen=True)
class Problem:
    """One fault in a spec: `line` and `column` count from 1 (line 0: the whole file is meant);
    `width` characters are marked."""

    message: str
    line: int
    column: int
    file: str = "<text>"
    source_line: str = ""
    width: int = 1

    def __str__(self) -> str:
        file = visible(self.file)
        where = f"{file}:{self.line}:{self.column}: " if self.line else f"{file}: " if file else ""
        if not self.source_line:
            return f"{where}{visible(self.message)}"
        # one for one: the mark below points to a column
        shown = _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", self.source_line.replace("\t", " ").rstrip())
        start = len(shown) - len(shown.lstrip())
        if len(shown) - start > LINE_SHOWN:  # a window around the fault
            start = max(start, min(self.column - 1 - LINE_SHOWN // 2, len(shown) - LINE_SHOWN))
        caret = " " * max(0, self.column - 1 - start) + "^" * max(
            1, min(self.width, start + LINE_SHOWN - self.column + 1)
        )
        return f"{where}{visible(self.message)}\n   {shown[start : start + LINE_SHOWN]}\n   {caret}"


class SpecError(RnnspecError, ValueError):
    """All the faults found in one spec, in the order of the file: `.errors`, a tuple of
    `Problem`."""

    def __init__(self, *errors: Problem):
        self.errors = tuple(sorted(errors, key=lambda e: (e.line, e.column)))
        super().__init__("\n".join(str(e) for e in self.errors))

    def __reduce__(self):
        return (SpecError, self.errors)


class ShapeError(RnnspecError, ValueError, RuntimeError):
    """An array's shape is not what the spec asks for. (PyTorch raises a ValueError for some shapes,
    a RuntimeError for others: who catches either catches this.)"""


class DtypeError(RnnspecError, TypeError, ValueError, RuntimeError):
    """An array's dtype is not the kernel's; nothing is cast silently. (PyTorch raises a ValueError
    or a RuntimeError: who catches either catches this.)"""


class SettingError(RnnspecError, ValueError):
    """What an environment variable says is not what it may say; the message names both."""


class UnsupportedError(RnnspecError, NotImplementedError):
    """Known, but not offered here; the message names the alternative."""


class BackendUnavailable(RnnspecError, RuntimeError):
    """The backend that was asked for can't run on this machine; the message says why."""
