"""The arguments of `rnnspec dynamics`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import add_meaning, count, name, natural, nonnegative

ABOUT = "see what a cell does: fixed points, cycles, branches, Lyapunov exponents, a picture of them"
EXAMPLES = (
    "gru --hidden 16 --out picture",
    "--run runs/lstm --slow --out picture",
    "unit.yaml --along b --over -1 1",
    "--run runs/a --against runs/b --json",
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cell", nargs="?", metavar="CELL", help="a cell from `rnnspec list`, or a YAML file, at its initial weights"
    )
    parser.add_argument(
        "--run", dest="trained", metavar="RUN_DIR", help="the trained layer of this run, on its own data"
    )
    _of_cells(parser)
    found = parser.add_argument_group("what is found")
    found.add_argument("--starts", type=count, default=256, metavar="N", help="that Newton's method begins from (256)")
    found.add_argument(
        "--noise", type=nonnegative, default=0.5, metavar="SD", help="added to states of the run to start from (0.5)"
    )
    found.add_argument(
        "--hold", choices=("mean", "zero"), default="mean", help="what every step reads: its inputs' mean, or zeros"
    )
    found.add_argument("--period", type=count, default=1, metavar="P", help="cycles of P steps, not fixed points")
    found.add_argument("--slow", action="store_true", help="slow points too: minima of the speed, or below 1e-8")
    found.add_argument("--exponents", type=natural, default=4, metavar="K", help="Lyapunov exponents (4); 0: none")
    found.add_argument("--driven", action="store_true", help="exponents under inputs as they come, not held ones")
    found.add_argument("--steps", type=count, default=2000, metavar="N", help="that exponents are counted over (2000)")
    found.add_argument(
        "--along", metavar="NUMBER", help="follow the first point as this moves: b, W[0,3], or x[2] of the inputs"
    )
    found.add_argument("--over", type=float, nargs=2, metavar=("LOW", "HIGH"), help="the range of --along")
    found.add_argument("--against", metavar="RUN_DIR|CELL", help="dynamical similarity with another run, or cell")
    found.add_argument("--delays", type=count, default=10, metavar="N", help="of the similarity (10)")
    found.add_argument("--rank", type=count, default=10, metavar="R", help="of the similarity (10)")
    parser.add_argument(
        "--out", type=name, metavar="NAME", help="write the picture NAME.png and NAME.svg, or NAME.pdf, .svg, .png"
    )
    parser.add_argument("--json", action="store_true", help="for machines: all numbers as an object")


def _of_cells(parser: argparse.ArgumentParser) -> None:
    """What the cell is, and what it reads."""
    parser.add_argument("--length", type=count, default=100, metavar="T", help="steps of each trajectory (100)")
    parser.add_argument("--rows", type=count, default=16, metavar="B", help="trajectories (16)")
    parser.add_argument("--hidden", type=count, metavar="H", help="units (32); of a run: its own")
    parser.add_argument(
        "--inputs", type=count, metavar="D", help="features of the input, drawn from a normal distribution (16)"
    )
    add_meaning(parser, "the cell")
    parser.add_argument("--seed", type=natural, default=0, help="of weights, inputs and starts (0)")
