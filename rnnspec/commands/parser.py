"""The parser of command lines: argparse that says what was meant.

An option is written in full, since a shortened one would mean something else once there is a
second that begins so. What is not known is answered with the usage of the subcommand and the
nearest name.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rnnspec.commands.output import say
from rnnspec.errors import visible
from rnnspec.language.syntax.faults import did_you_mean, listed, nearest

SHORTEST = 3  # characters of what is taken for a shortened option, its dashes included


class Parser(argparse.ArgumentParser):
    """A parser, of the whole command or of a subcommand."""

    def __init__(self, **settings: Any):
        super().__init__(**{"allow_abbrev": False, **settings})
        self.beside: Mapping[str, argparse.ArgumentParser] = {}  # the subcommands, by name

    def error(self, message: str) -> NoReturn:
        """Names of files may be on the command line, by a shell's *, so errors are visible too."""
        super().error(visible(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but what is left over is an error here already: it is the subcommand that
        knows what it would have taken."""
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            said = "".join(dict.fromkeys(self._advice(word.partition("=")[0]) for word in extra))
            self.error(f"unrecognized arguments: {' '.join(extra)}.{said}")
        return found, extra

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A value that is none of an option's, or of the names of commands, with the nearest."""
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            said = f"there is no command {value!r}.{_command_meant(str(value), list(action.choices))}"
        else:
            said = f"must be one of {listed(map(str, action.choices))}, not {value!r}."
            said += did_you_mean(str(value), map(str, action.choices))
        raise argparse.ArgumentError(action, said)

    def _advice(self, word: str) -> str:
        """What may have been meant by an option that there is not."""
        if not word.startswith("-"):
            many = any(action.nargs in ("*", "+") for action in self._actions if not action.option_strings)
            return " Names stand side by side, all before the options or all after them." * many
        options = [name for name in self._option_string_actions if name.startswith("--")]
        begun = [name for name in options if name.startswith(word)] if len(word) >= SHORTEST else []
        if begun:
            return f" {word} is not written in full. Did you mean {' or '.join(begun)}?"
        others = [parser.prog for parser in self.beside.values() if word in parser._option_string_actions]
        if others:
            return f" It is an option of `{'`, `'.join(others)}`, given after it."
        near = nearest(word[2:], [name[2:] for name in options], 1)
        return f" Did you mean --{near[0]}?" if near else ""


def _command_meant(word: str, commands: Sequence[str]) -> str:
    """What a word may mean that is no command."""
    from rnnspec.language.load import is_path, spec_names  # not at the top: it reads YAML, for errors only

    if is_path(word) or word in spec_names():
        return f" It is a cell: rnnspec show {word}, rnnspec check {word}, rnnspec train {word}."
    if word in ("language", "functions"):
        return f" Did you mean 'rnnspec help {word}'?"
    return f"{did_you_mean(word, commands)} The commands are: {listed(commands, 99)}."


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rnnspec.storage.version import version_of

        say(f"rnnspec {version_of('rnnspec') or '(not installed)'}")
        parser.exit()
