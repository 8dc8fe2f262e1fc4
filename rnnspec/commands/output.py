"""What the commands print. Text of others (names, titles, lines of a file, samples) comes in, and
nothing that would control a terminal goes out."""

from __future__ import annotations

import sys

from rnnspec.errors import visible


def say(text: object, *, error: bool = False) -> None:
    """Prints a text at once, on stderr where it is an error or news of the work. JSON stays what it
    is: what is written as \\u001b there means the same."""
    print(visible(str(text)), file=sys.stderr if error else sys.stdout, flush=True)
