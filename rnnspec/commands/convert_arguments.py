"""The arguments of `rnnspec convert`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import choice, name


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        f"{parser.epilog}\n\nfiles: .npz and .safetensors; .keras, .h5 and .hdf5, read only (h5py); .msgpack of flax"
        " (msgpack);\n.pt and .pth, a state dict (torch)\nexit status: 0 done; 1 where OUT is - and no place has the"
        " cell's weights; 2 bad use or a bad file"
    )
    parser.add_argument("source", metavar="IN", type=name, help="the file that has the weights")
    parser.add_argument(
        "target", metavar="OUT", type=name, help="the file to write; - only lists where in IN the cell's weights are"
    )
    parser.add_argument(
        "--cell", required=True, type=name, metavar="CELL", help="a cell from `rnnspec list`, or a YAML file"
    )
    parser.add_argument(
        "--place",
        action="append",
        default=[],
        type=name,
        metavar="NAME",
        help="where in IN the weights of a layer are; may be repeated, from the lowest layer up (all that fit)",
    )
    parser.add_argument("--layout", type=name, metavar="LAYOUT", help="of IN, like keras.GRU (found by the names)")
    parser.add_argument("--to-layout", type=name, metavar="LAYOUT", help="of OUT (that of the ending, else a layer's)")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="of OUT (that of IN)")
    parser.add_argument(
        "--choice", action="append", default=[], type=choice, metavar="NAME=VALUE", help="the cell's choice or constant"
    )
    parser.add_argument("--json", action="store_true", help="for machines: what was found, and written, as an object")
