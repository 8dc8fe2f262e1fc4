"""`rnnspec completion`: what a shell needs to complete commands, options and cells, by argcomplete,
which asks this program at every Tab.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError

ASKED = "_ARGCOMPLETE"  # set by the shell's function, by argcomplete's convention
OF_CELLS = ("NAME|PATH", "CELL", "A", "B")  # as the help calls an argument that is a cell


def run(args: argparse.Namespace) -> int:
    """Prints the shell's function."""
    if find_spec("argcomplete") is None:
        raise RnnspecError("completion needs argcomplete: pip install 'rnnspec[completion]'")
    import argcomplete

    say(argcomplete.shellcode(["rnnspec"], shell=args.shell))
    return 0


def offer(parser: argparse.ArgumentParser) -> None:
    """Where a shell asks, answers it and ends the process; else returns at once."""
    if ASKED not in os.environ or find_spec("argcomplete") is None:
        return
    import argcomplete

    for action in _actions(parser):
        if action.metavar in OF_CELLS:
            action.completer = cells  # type: ignore[attr-defined]
        elif action.metavar == "TASK":
            action.completer = tasks  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)


def cells(prefix: str, **rest: Any) -> list[str]:
    """The cells that begin so, and the YAML files and folders."""
    from rnnspec.language.load import spec_names

    folder, _, start = prefix.rpartition("/")
    try:
        here = sorted(Path(f"{folder}/" if folder or prefix.startswith("/") else ".").iterdir())
    except OSError:
        here = []
    head = f"{folder}/" if "/" in prefix else ""
    files = [f"{head}{p.name}{'/' * p.is_dir()}" for p in here if p.is_dir() or p.suffix in (".yaml", ".yml")]
    visible = [f for f in files if start.startswith(".") or not f.removeprefix(head).startswith(".")]
    return [name for name in (*spec_names(), *visible) if name.startswith(prefix)]


def tasks(prefix: str, **rest: Any) -> list[str]:
    """The tasks that begin so."""
    from rnnspec.train.tasks import task_names

    return [name for name in task_names() if name.startswith(prefix)]
