"""`rnnspec cite`: the papers that cells are from, and rnnspec itself, as BibTeX."""

from __future__ import annotations

import argparse

import yaml

from rnnspec.commands.doctor import version_of
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, specs_folder
from rnnspec.language.source import bibtex, escaped

OURS = "rnnspec"


def run(args: argparse.Namespace) -> int:
    """Every paper once, in the order of the names, below it a comment for each cell; a cell that
    says no source is an error, 2."""
    entries: dict[str, list[str]] = {}
    for name in args.names:
        if name == OURS:
            entries[of_rnnspec()] = []
            continue
        spec = load(name)
        if not spec.source:
            raise RnnspecError(
                f"'{spec.name}' says no source. Give its file one: source: {{authors: [...], title: ..., year: ...}}"
            )
        about = entries.setdefault(spec.source.to_bibtex(spec.name, spec.title), [])
        about.append(f"% {spec.name}: {spec.title}" + (f"; {spec.source.note}" if spec.source.note else ""))
    say("\n\n".join("\n".join([*dict.fromkeys(about), entry]) for entry, about in entries.items()))
    return 0


def of_rnnspec() -> str:
    """The entry of the version that is installed, from CITATION.cff: in the package, or beside it
    in a source checkout."""
    facts = yaml.safe_load((specs_folder().parent / "CITATION.cff").read_text(encoding="utf-8"))
    version = version_of(OURS)
    return bibtex(
        "misc",
        OURS,
        {
            "author": " and ".join(f"{{{escaped(author['name'])}}}" for author in facts["authors"]),
            "title": f"{{{escaped(facts['title'])}}}",
            "note": f"Version {version}" if version else "",
        },
    )
