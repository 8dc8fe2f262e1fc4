"""What mkdocs adds to the pages: the README as the front page, CONTRIBUTING.md, CHANGELOG.md, the
help of every command, and the public names of the package, whose docstrings mkdocstrings reads;
links out of the manual as plain text."""

import contextlib
import inspect
import io
import os
import re
from importlib import import_module
from pathlib import Path

from mkdocs.structure.files import File

TOP = Path(__file__).resolve().parents[2]
WHOLE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
COLUMNS = "88"  # of the help of commands
MODULES = {  # module: the names of it that are shown, it isn't imported then; None for all public ones
    "rnnspec": None,
    "rnnspec.transform": None,
    "rnnspec.train": None,
    "rnnspec.dynamics": None,
    "rnnspec.probe": None,
    "rnnspec.check": None,
    "rnnspec.interop.torch": ("Recurrent", "Cell", "describe", "recurrent", "Config"),
    "rnnspec.interop.onnx": ("run", "cells", "load"),
    "rnnspec.layers.stack": ("Stack",),
}


def on_files(files, config):
    for page, source in WHOLE.items():
        files.append(File.generated(config, page, content=inside((TOP / source).read_text(encoding="utf-8"))))
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, "api.md", content=names()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Files that are no page (`../examples/greff.yaml`) are named, not linked."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)


def inside(text):
    """A file of the top folder as a page of the manual."""
    for page, source in WHOLE.items():
        text = text.replace(f"]({source})", f"]({page})")
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)([\w/.]+\.(?:py|yaml|png|cff)|bench/[^)]+|LICENSE)\)", r"\1", text)


def commands():
    """`--help` of each command."""
    os.environ["COLUMNS"] = COLUMNS
    from rnnspec.commands.cli import make_parser

    parts = ["# Commands", "`rnnspec help` tells of them, and `rnnspec COMMAND --help` of one."]
    for name, parser in make_parser().beside.items():
        with contextlib.redirect_stdout(io.StringIO()) as told:
            parser.print_help()
        parts.append(f"## rnnspec {name}\n\n```text\n{told.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def names():
    """The public names of each module, with a directive of mkdocstrings each."""
    parts = ["# Python", "Every public name, with its docstring. `help(rnnspec.compile)` has the same."]
    for module, shown in MODULES.items():
        for name, place in shown_of(module, shown):
            about = "    options: {show_root_heading: false, show_root_toc_entry: false, heading_level: 4}"
            parts.append(f"### {module}.{name}\n\n::: {place}\n{about}")
    return "\n\n".join(parts) + "\n"


def shown_of(module, shown):
    """(name, where it is defined) of the names that are shown."""
    if shown is not None:
        return [(name, f"{module}.{name}") for name in shown]
    here = import_module(module)
    found = [(name, getattr(here, name)) for name in sorted(here.__all__)]
    return [(n, f"{v.__module__}.{v.__qualname__}") for n, v in found if inspect.isclass(v) or inspect.isfunction(v)]
