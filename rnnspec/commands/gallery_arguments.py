"""The arguments of `rnnspec gallery`."""

from __future__ import annotations

import argparse

ABOUT = "write pages of cells for a browser: equations, gradients, cost, checks, and an index to search"
EXAMPLES = ("site", "site lstm gru my.yaml")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    parser.add_argument("out", metavar="OUT", help="the folder: empty, not there yet, or with a gallery in it")
    parser.add_argument(
        "cells",
        nargs="*",
        metavar="CELL",
        help="cells from `rnnspec list`, or YAML files (all that come with rnnspec); pages of other cells go from OUT",
    )
