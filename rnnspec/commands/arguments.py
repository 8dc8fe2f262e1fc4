"""Values of command-line arguments, checked where they are read. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def count(text: str) -> int:
    return _whole(text, 1)


def natural(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 2**31:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least}, not {text!r}")
    return value


def positive(text: str) -> float:
    return _number(text, "a number above 0", lambda v: 0 < v < math.inf)


def positive_or_inf(text: str) -> float:
    return _number(text, "a number above 0, or inf", lambda v: v > 0)


def nonnegative(text: str) -> float:
    return _number(text, "0 or more", lambda v: 0 <= v < math.inf)


def fraction(text: str) -> float:
    return _number(text, "a number from 0 to 1", lambda v: 0 <= v <= 1)


def _number(text: str, what: str, good: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not good(value):
        raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
    return value


def name(text: str) -> str:
    """The name of a file or a folder; an empty one is a shell variable that isn't set."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not (name and value):
        raise argparse.ArgumentTypeError(f"must be NAME=N, like P=64, not {text!r}")
    return name, count(value)


def choice(text: str) -> tuple[str, str | float]:
    """ "phi=relu" to ("phi", "relu"), "alpha=0.2" to ("alpha", 0.2)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, like phi=relu, not {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, like items=5, not {text!r}")
    return name, value


def add_meaning(group: argparse._ActionsContainer, whose: str) -> None:
    """The arguments that say what a cell is beside its name: --choice and --size. whose: of what
    they are, for the help."""
    group.add_argument(
        "--choice",
        action="append",
        default=[],
        type=choice,
        metavar="NAME=VALUE",
        help=f"a choice or constant of {whose}",
    )
    group.add_argument(
        "--size",
        action="append",
        default=[],
        type=size,
        metavar="NAME=N",
        help="a size that --hidden doesn't tell, like P=64",
    )
