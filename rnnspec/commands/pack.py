"""`rnnspec pack`: writes the conformance pack of a cell."""

from __future__ import annotations

import argparse
from pathlib import Path

from rnnspec.check.packs.write import write_pack
from rnnspec.commands.output import say
from rnnspec.language.load import load


def run(args: argparse.Namespace) -> int:
    spec = load(args.cell, **dict(args.choice))
    folder = Path(args.out or f"{spec.name}_pack")
    about = write_pack(spec, folder, args.seed)
    say(
        f"{folder}: {len(about['cases'])} cases ({', '.join(c['name'] for c in about['cases'])}), expected values at"
        f" {about['digits']} digits"
    )
    say(
        f"try an implementation with: python {folder / 'runner.py'} MODULE:FUNCTION, or rnnspec verify {folder}"
        " --adapter MODULE:FUNCTION"
    )
    return 0
