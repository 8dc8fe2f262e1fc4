"""`rnnspec diff`: whether two cells are the same function."""

from __future__ import annotations

import argparse
import json

from rnnspec.commands.output import say
from rnnspec.compare.verdict import diff


def run(args: argparse.Namespace) -> int:
    """0 the same, 1 different; what can't be read or compared is an error, 2."""
    found = diff(args.a, args.b)
    say(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if args.json else found.to_text())
    return 0 if found.same else 1
