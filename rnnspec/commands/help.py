"""`rnnspec help`: the language, its functions, or a command, in 80 columns.

The language is told by the manual's page about it (docs/language.md, which is installed too), the
functions by their tables.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.load import specs_folder
from rnnspec.language.syntax.faults import did_you_mean, listed

WIDTH = 80


def run(args: argparse.Namespace) -> int:
    topics = {"language": language, "functions": functions}
    commands = args.parser.beside
    if args.topic is None:
        args.parser.print_help()
    elif args.topic in topics:
        say(topics[args.topic]())
    elif args.topic in commands:
        commands[args.topic].print_help()
    else:
        known = [*topics, *commands]
        raise RnnspecError(
            f"there is no help about '{args.topic}'.{did_you_mean(args.topic, known)} There is about:"
            f" {listed(known, 99)}."
        )
    return 0


def functions() -> str:
    """Every function of the language with what it is."""
    lines = ["Element by element:", ""]
    for function in FUNCTIONS.values():
        if function.name not in INTERNAL:
            lines += _entry(f"{function.name}({', '.join(function.args)})", function.about)
    lines += _entry("where(condition, a, b)", "a where the condition holds, else b; < <= > >= == != and or not")
    lines += ["", "Along features, and on shapes (capitals are sizes):", ""]
    for feature in FEATURES.values():
        lines += _entry(f"{feature.name}({', '.join(feature.args)})", feature.about)
    own = (
        "A file may define its own, functions: {squash(v): 1.7159 * tanh(2 * v / 3)}, and let one be chosen at load,"
        " choices: {phi: [tanh, relu]}. Operators and the rest: rnnspec help language"
    )
    return "\n".join([*lines, "", *textwrap.wrap(own, WIDTH)])


def _entry(call: str, about: str) -> list[str]:
    head = f"  {call}".ljust(30)
    if not head.endswith(" "):
        return [head.rstrip(), *_wrapped(about, " " * 30, " " * 30)]
    return _wrapped(about, head, " " * 30)


def _wrapped(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False, break_long_words=False
    )


def language() -> str:
    """The manual's page about the language, reflowed. Raises RnnspecError where it is not here."""
    page = specs_folder().parent / "docs" / "language.md"  # of a checkout, or of what was installed
    if not page.is_file():
        raise RnnspecError(f"the description of the language is not here: {page} is missing. Install rnnspec anew")
    rows = page.read_text(encoding="utf-8").split("\n")
    return "\n".join(_reflowed(rows[1:])).strip("\n")


def _reflowed(rows: list[str]) -> Iterator[str]:
    """Markdown as plain text of 80 columns: paragraphs wrapped, code as it is, its long comments
    below it."""
    paragraph: list[str] = []
    inside, deep = False, ""
    for row in [*rows, ""]:
        fence = row.strip().startswith("```")
        starts = re.match(r"\s*(\d+\.|[-*]) ", row)
        if paragraph and (fence or not row.strip() or starts):
            yield from _prose(paragraph)
            paragraph = []
        if fence:
            inside = not inside
            deep = row[: len(row) - len(row.lstrip())]
        elif inside:
            yield from _code(f"    {row.removeprefix(deep)}")
        elif row.strip():
            paragraph.append(row)
        else:
            yield ""


def _prose(rows: list[str]) -> list[str]:
    item = re.match(r"(\s*)(\d+\.|[-*]) ", rows[0])
    text = " ".join(" ".join(row.split()) for row in rows)
    text = re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r"\1", re.sub(r"\*\*([A-Z][^*]*)\*\*", r"\1", text))
    hang = " " * (len(item[0]) if item else len(rows[0]) - len(rows[0].lstrip()))
    return _wrapped(text, hang if item is None else item[1], hang)


def _code(row: str) -> list[str]:
    code, sign, comment = row.partition(" #")
    if not sign:
        return [row.rstrip()]
    if code.strip() and len(code.rstrip()) + len(comment) + 3 <= WIDTH:
        return [f"{code.rstrip()}  #{comment}"]
    lines = [code.rstrip()] if code.strip() else []
    return [*lines, *_wrapped(comment.strip(), " " * 10 + "# ", " " * 10 + "# ")]
