"""`rnnspec show`: a cell as text, LaTeX or JSON, or a drawing of its step."""

from __future__ import annotations

import argparse

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load


def run(args: argparse.Namespace) -> int:
    if args.svg is not None:
        return _draw(args)
    from rnnspec.show.page import show

    say(show(load(args.cell), stage=args.stage, latex=args.latex, as_json=args.json))
    return 0


def _draw(args: argparse.Namespace) -> int:
    if args.stage or args.latex or args.json:
        raise RnnspecError("--svg draws a picture and prints nothing: give it without --stage, --latex and --json")
    from rnnspec.show.diagram import svg
    from rnnspec.storage import atomic

    text = svg(load(args.cell))
    atomic.write(args.svg, text.encode())
    say(f"written {args.svg}", error=True)
    return 0
