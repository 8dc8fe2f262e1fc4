"""The arguments of `rnnspec check`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import choice, count, natural


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cells",
        nargs="*",
        metavar="NAME|PATH",
        help="cells from `rnnspec list`, or YAML files (default: every cell of the list)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="what needs no kernel, in seconds: the file, its examples, and gradients of the definition",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        default=[],
        choices=["float32", "float64"],
        help="of the kernels; may be repeated (both)",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME",
        help="this property only, by its name in the table; may be repeated",
    )
    parser.add_argument(
        "--choice",
        action="append",
        default=[],
        type=choice,
        metavar="NAME=VALUE",
        help="with this choice or constant only; may be repeated (every option once)",
    )
    parser.add_argument("--json", action="store_true", help="for machines: the report as an object")
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML too")
    _add_instead(parser)


def _add_instead(parser: argparse.ArgumentParser) -> None:
    """What is looked at in place of the properties."""
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="no properties: the errors of values and gradients, against numbers of 50 digits",
    )
    parser.add_argument(
        "--functions",
        action="store_true",
        help="with --accuracy: the errors of every elementwise function, over its whole range",
    )
    parser.add_argument(
        "--random", type=count, metavar="N", help="no cells: N random specs, through every stage of the engine"
    )
    parser.add_argument(
        "--compiled",
        type=natural,
        metavar="K",
        help="with --random: compile K of them, and compare with the reference (0)",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the first random spec (0)")
