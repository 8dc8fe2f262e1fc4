"""What the commands print. Text of others (names, titles, lines of a file, samples) comes in, and
nothing that would control a terminal goes out."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from rnnspec.errors import visible
from rnnspec.show.wrapped import FURTHER, wrapped


def say(text: object, *, error: bool = False) -> None:
    """Prints a text at once, on stderr where it is an error or news of the work. JSON stays what it
    is: what is written as \\u001b there means the same."""
    print(visible(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


def columns(stream: TextIO | None = None) -> int | None:
    """How wide the screen is (stream: stdout), None where there is none: a pipe gets lines whole,
    unless COLUMNS is set."""
    there = (stream or sys.stdout).isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if there else None


def say_wrapped(text: str, *, further: int = FURTHER, error: bool = False) -> None:
    """As `say`, with lines cut where the screen ends; what goes on below stands `further` columns
    to the right."""
    width = columns(sys.stderr if error else sys.stdout)
    say("\n".join(wrapped(visible(text).split("\n"), width, further)), error=error)


def say_marked(text: str, styles: Mapping[str, str]) -> None:
    """Prints a text on stdout; on a terminal with these words in these styles of rich, which leaves
    colours out where NO_COLOR is set."""
    if not sys.stdout.isatty():
        say(text)
        return
    from rich import get_console
    from rich.text import Text

    shown = Text(visible(text))
    for word, style in styles.items():
        shown.highlight_regex(rf"\b{word}\b", style)
    get_console().print(shown, soft_wrap=True)  # the one on which a bar is drawn, so that it stands above it


@contextlib.contextmanager
def hints_alone() -> Iterator[None]:
    """Hints at a spec without the line of ours that read it; other warnings as they are."""
    before = warnings.formatwarning

    def as_text(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        from rnnspec.language.hints import SpecHint

        return f"hint: {message}\n" if issubclass(category, SpecHint) else before(message, category, *place, **more)

    warnings.formatwarning = as_text
    try:
        yield
    finally:
        warnings.formatwarning = before
