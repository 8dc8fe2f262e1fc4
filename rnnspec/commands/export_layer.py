"""The layer that the arguments of `rnnspec export` tell."""

from __future__ import annotations

import argparse

from rnnspec.errors import RnnspecError
from rnnspec.language.load import load
from rnnspec.layers.recurrent import Recurrent

OF_A_CELL = ("hidden", "inputs", "layers", "size", "choice", "weights", "seed", "dtype", "bidirectional", "batch_first")
OF_ONNX = ("bidirectional", "batch_first", "lengths", "states")


def layer_of(args: argparse.Namespace) -> Recurrent:
    """The layer, with the weights of --weights or initial ones."""
    if args.weights:
        refuse(args, ("seed",), "the numbers are those of --weights")
    layer = Recurrent(
        load(args.cell, **dict(args.choice)),
        args.inputs or 16,
        args.hidden or 32,
        num_layers=args.layers or 1,
        bidirectional=args.bidirectional,
        batch_first=args.batch_first,
        sizes=dict(args.size),
        dtype=args.dtype or "float32",
        seed=args.seed or 0,
    )
    if args.weights:
        layer.load(args.weights)
    return layer


def refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises RnnspecError naming those of the options that were given."""
    if given := [n.replace("_", "-") for n in names if getattr(args, n)]:
        raise RnnspecError(f"{why}: leave out --{', --'.join(given)}.")
