"""`rnnspec gallery`: pages of cells and their index, into a folder."""

from __future__ import annotations

import argparse

from rnnspec.commands.output import say
from rnnspec.commands.progress import counting
from rnnspec.gallery.build import INDEX, Built, build
from rnnspec.language.load import spec_names


def run(args: argparse.Namespace) -> int:
    """0 where all checks of the pages passed, else 1."""
    with counting("gallery") as progress:
        built = build(args.cells or spec_names(), args.out, progress)
    say(told(built))
    say(f"open {args.out.rstrip('/') or '/'}/{INDEX} in a browser", error=True)
    for name in built.failed:
        say(f"rnnspec gallery: {name}: a check failed, as its page says; rnnspec check {name} has more", error=True)
    return 1 if built.failed else 0


def told(built: Built) -> str:
    parts = [f"{len(built.made)} pages made"]
    parts += [f"{len(built.kept)} as they were"] * bool(built.kept)
    parts += [f"{len(built.removed)} of other cells removed"] * bool(built.removed)
    return ", ".join(parts)
