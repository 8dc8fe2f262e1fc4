"""The arguments of `rnnspec probe`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import add_meaning, count, name, natural
from rnnspec.engine.rules import RULES

ABOUT = "see why gates exist: how far gradients reach, the spectrum of a step, saturated gates"
EXAMPLES = (
    "rnn gru lstm",
    "lstm --length 200 --out why",
    "--run runs/lstm",
    "rnn lstm --json",
    "lstm gru --online snap1",
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cells", nargs="*", metavar="CELL", help="cells from `rnnspec list`, or YAML files, at their initial weights"
    )
    parser.add_argument(
        "--run",
        dest="trained",
        action="append",
        default=[],
        metavar="RUN_DIR",
        help="the trained layer of this run, on its own data; may be repeated",
    )
    parser.add_argument("--length", type=count, default=100, metavar="T", help="steps (100)")
    parser.add_argument("--hidden", type=count, metavar="H", help="units (32); of a run: its own")
    parser.add_argument(
        "--inputs", type=count, metavar="D", help="features of the input, drawn from a normal distribution (16)"
    )
    parser.add_argument("--rows", type=count, default=4, metavar="B", help="sequences that are averaged over (4)")
    parser.add_argument(
        "--retain",
        type=natural,
        metavar="STEPS",
        help="as in `rnnspec train`: gates keep a state for up to so many steps",
    )
    add_meaning(parser, "all the cells")
    parser.add_argument("--seed", type=natural, default=0, help="of weights and inputs (0)")
    parser.add_argument(
        "--online",
        action="append",
        default=[],
        metavar="RULE",
        choices=tuple(RULES),
        help="measure instead how near the gradients of this rule, learned step by step, are to those of a backward"
        f" pass: {', '.join(RULES)}; may be repeated",
    )
    parser.add_argument(
        "--out", type=name, metavar="NAME", help="write the figures NAME.png and NAME.svg, or NAME.pdf, .svg, .png"
    )
    parser.add_argument("--json", action="store_true", help="for machines: all numbers as an object")
