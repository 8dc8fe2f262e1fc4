"""`rnnspec pack`: writes the conformance pack of a cell, or of all cells."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnspec.check.packs.write import same_pack, write_pack
from rnnspec.check.sampling import NoSampleError
from rnnspec.commands.output import say
from rnnspec.commands.progress import counting
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, spec_names

WRITTEN, THERE, OTHER, NONE = "written", "there", "other", "none"


def run(args: argparse.Namespace) -> int:
    """0 written; with --all 1 where a cell has no pack, or a folder has another one."""
    if args.all is not None:
        if args.cell or args.out or args.choice:
            raise RnnspecError(
                "--all DIR writes the packs of all cells into DIR: give it without a cell, --out, --choice"
            )
        return _write_all(Path(args.all), args.seed)
    if args.cell is None:
        args.refuse("the following arguments are required: NAME|PATH, a cell or a YAML file, or --all DIR")
    spec = load(args.cell, **dict(args.choice))
    folder = Path(args.out or f"{spec.name}_pack")
    about = write_pack(spec, folder, args.seed)
    say(
        f"{folder}: {len(about['cases'])} cases ({', '.join(c['name'] for c in about['cases'])}), expected values at"
        f" {about['digits']} digits"
    )
    _tell_left_out(folder, about)
    say(
        f"try an implementation with: python {folder / 'runner.py'} MODULE:FUNCTION, or rnnspec verify {folder}"
        " --adapter MODULE:FUNCTION"
    )
    return 0


def _write_all(parent: Path, seed: int) -> int:
    """Every cell's pack, each whole or not at all. What is there and would be the same stays."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RnnspecError(f"the folder '{parent}' can't be made: {error.strerror}.") from None
    names, start, results = spec_names(), time.monotonic(), list[str]()
    with counting("writing packs") as progress:
        for number, name in enumerate(names):
            progress(name, number, len(names))
            results.append(_write(name, parent / name, seed))
    written, there, other, none = (results.count(r) for r in (WRITTEN, THERE, OTHER, NONE))
    said = [f"{written} packs written", f"{there} were there"]
    said += [f"{other} folders hold something else"] * bool(other) + [f"{none} cells have none"] * bool(none)
    say(f"{parent}: {', '.join(said)}; {time.monotonic() - start:.0f} s")
    return 1 if other or none else 0


def _write(name: str, folder: Path, seed: int) -> str:
    spec = load(name)
    if folder.exists():
        about = same_pack(spec, folder, seed)
        if about is not None:
            _tell_left_out(folder, about)
            return THERE
        say(f"'{folder}' holds something else and is left as it is: remove it to have this pack", error=True)
        return OTHER
    try:
        _tell_left_out(folder, write_pack(spec, folder, seed))
    except NoSampleError as error:
        say(f"no pack of {error}", error=True)
        return NONE
    return WRITTEN


def _tell_left_out(folder: Path, about: Mapping[str, Any]) -> None:
    for case in about.get("left_out", ()):
        say(f"{folder} is without the case '{case['name']}': {case['reason']}", error=True)
