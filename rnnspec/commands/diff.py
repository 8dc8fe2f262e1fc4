"""`rnnspec diff`: whether two cells are the same function."""

from __future__ import annotations

import argparse

from rnnspec.commands.output import say, say_wrapped
from rnnspec.compare.comparison import DIFFERENT, SAME, UNDECIDED
from rnnspec.compare.verdict import diff
from rnnspec.storage.jsontext import json_text

STATUS = {SAME: 0, DIFFERENT: 1, UNDECIDED: 3}  # 2 is an error, as of every command


def run(args: argparse.Namespace) -> int:
    """0 the same, which was proved; 1 different; 3 no difference found, which proves nothing; what
    can't be read or compared is an error, 2."""
    found = diff(args.a, args.b)
    if args.json:
        say(json_text(found.to_dict()))
    else:
        say_wrapped(found.to_text())
    return STATUS[found.verdict]
