"""The arguments of `rnnspec export`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import choice, count, name, natural, size

TARGETS = ("c", "wasm", "onnx", "ort")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cell",
        metavar="CELL|RUN_DIR",
        type=name,
        help="a cell from `rnnspec list`, a YAML file, or the folder of a run of `rnnspec train`",
    )
    parser.add_argument(
        "--to",
        choices=TARGETS,
        required=True,
        help=(
            "c: one file of C99 and its header, for one step of one row; wasm: WebAssembly of that, in an ES module;"
            " onnx: a model of ONNX, for whole sequences; ort: an operator of ONNX Runtime, compiled from the C"
        ),
    )
    parser.add_argument("--out", type=name, default=".", metavar="FOLDER", help="where the files go (here)")
    parser.add_argument("--name", type=name, metavar="NAME", help="of the files and functions (the cell's)")
    parser.add_argument(
        "--selftest", action="store_true", help="beside it NAME_selftest, which checks it where it runs"
    )
    parser.add_argument(
        "--with",
        dest="with",
        choices=("backward",),
        help="of one cell, beside it NAME_learn.c and its header: forward with a tape, and backward",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="weights in a file of their own, NAME.weights, which NAME_init is given, not in the source",
    )
    _add_of_onnx(parser)
    _add_of_a_cell(parser)


def _add_of_onnx(parser: argparse.ArgumentParser) -> None:
    more = parser.add_argument_group("with --to onnx")
    more.add_argument("--lengths", action="store_true", help="the model reads how many steps each row has")
    more.add_argument("--states", action="store_true", help="the model reads the states before the first step")
    more.add_argument("--bidirectional", action="store_true", help="layers of two directions")
    more.add_argument("--batch-first", action="store_true", help="arrays have the rows before the steps")


def _add_of_a_cell(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of a cell; a run has its own")
    group.add_argument("--hidden", type=count, metavar="H", help="units (32)")
    group.add_argument("--inputs", type=count, metavar="D", help="features of the input (16)")
    group.add_argument("--layers", type=count, metavar="N", help="layers (1)")
    group.add_argument(
        "--size",
        action="append",
        default=[],
        type=size,
        metavar="NAME=N",
        help="a further size, like P=64",
    )
    group.add_argument(
        "--choice",
        action="append",
        default=[],
        type=choice,
        metavar="NAME=VALUE",
        help="its choice or constant",
    )
    group.add_argument("--weights", type=name, metavar="FILE.npz", help="that `layer.save` wrote (initial ones)")
    group.add_argument("--seed", type=natural, metavar="SEED", help="of initial weights (0)")
    group.add_argument("--dtype", choices=("float32", "float64"), help="of all numbers (float32)")
