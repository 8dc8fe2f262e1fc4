"""`rnnspec show`: a cell as text, LaTeX or JSON, or a drawing of its step."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rnnspec.commands.output import columns, say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load
from rnnspec.show.drawing import VIEWS
from rnnspec.show.tex import PARTS


def run(args: argparse.Namespace) -> int:
    cell, part = args.cell, args.latex
    if cell is None and part and part not in PARTS:  # --latex lstm
        cell, part = part, ""
    if cell is None:
        args.refuse("the following arguments are required: NAME|PATH, a cell from `rnnspec list` or a YAML file")
    if args.svg is not None:
        return _draw(args, cell)
    if args.view:
        raise RnnspecError("--view says what is drawn: give it with --svg FILE")
    if part is not None and part not in ("", *PARTS):
        near = get_close_matches(part, PARTS, 1)
        raise RnnspecError(
            f"--latex has no part {part!r}: choose {', '.join(PARTS[:-1])} or {PARTS[-1]}"
            + (f". Did you mean {near[0]!r}?" if near else "")
        )
    if args.constants and part is None:
        raise RnnspecError("--constants says how LaTeX is written: give it with --latex")
    from rnnspec.show.page import show

    more: dict[str, Any] = {"constants": args.constants} if args.constants else {}
    latex = part or part is not None
    say(show(load(cell), stage=args.stage, latex=latex, as_json=args.json, width=columns(), **more))
    return 0


def _draw(args: argparse.Namespace, cell: str) -> int:
    if args.stage or args.latex is not None or args.json or args.constants:
        raise RnnspecError("--svg draws a picture and prints nothing: give it without --stage, --latex and --json")
    from rnnspec.show.drawing.svg import svg
    from rnnspec.storage import atomic

    path = Path(args.svg)
    if path.is_dir():
        raise RnnspecError(f"'{path}': it is a folder, and a file was to be written: give FILE.svg.")
    if path.suffix.lower() != ".svg":
        raise RnnspecError(f"--svg writes SVG, and '{path}' does not end with .svg: give FILE.svg.")
    if not path.absolute().parent.is_dir():
        raise RnnspecError(f"there is no folder '{path.parent}' to write '{path.name}' into.")
    text = svg(load(cell), args.view or VIEWS[0])
    atomic.write(args.svg, text.encode())
    say(f"written {args.svg}", error=True)
    return 0
