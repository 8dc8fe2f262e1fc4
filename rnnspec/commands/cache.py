"""`rnnspec cache`: what compiled kernels take on disk, and their end."""

from __future__ import annotations

import argparse

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.storage import cache
from rnnspec.storage.jsontext import json_text


def run(args: argparse.Namespace) -> int:
    """Tells what is there, after it was cleared where that is asked for."""
    before = cache.contents()
    if args.clear:
        if before.trouble:
            raise RnnspecError(f"nothing is deleted from the cache: {before.trouble}")
        removed = cache.clear()
        say(
            f"deleted {removed:,} files, {size_text(before.size)}; kernels are compiled again when needed",
            error=args.json,
        )
        before = cache.contents()
        if args.json:
            say(json_text(as_dict(before)))
        return 0
    say(json_text(as_dict(before)) if args.json else size_text(before.size) if args.size else text(before))
    return 0


def as_dict(found: cache.Contents) -> dict[str, object]:
    """For JSON."""
    return {
        "folder": None if found.folder is None else str(found.folder),
        "files": found.files,
        "bytes": found.size,
        "trouble": found.trouble,
    }


def text(found: cache.Contents) -> str:
    """A few lines."""
    lines = [f"{found.folder or 'no folder'}", f"{found.files:,} files, {size_text(found.size)}"]
    if found.trouble:
        lines.append(f"not used: {found.trouble}")
    lines.append(
        f"what was not used for {cache.KEPT_DAYS} days goes by itself,\n"
        f"and the longest unused beyond {size_text(cache.KEPT_BYTES)}"
    )
    return "\n".join(lines)


def size_text(size: int) -> str:
    """ "3.4 MiB"."""
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, iter(("KiB", "MiB", "GiB"))
    unit = next(units)
    while value >= 1000 and unit != "GiB":
        value, unit = value / 1024, next(units)
    return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
