"""`rnnspec export --to onnx`: a cell, or a trained run, as a model of ONNX; `--to ort`: layers as
an operator of ONNX Runtime."""

from __future__ import annotations

import argparse
from pathlib import Path

from rnnspec.commands.export_layer import OF_A_CELL, OF_ONNX, layer_of, refuse
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.export.onnx import OPSET, OnnxModel, onnx, onnx_model


def _onnx(args: argparse.Namespace, folder: Path) -> int:
    refuse(args, ("selftest", "apart", "with"), "a model is run in ONNX Runtime before it is written, and is one file")
    made = _made(args)
    path = made.write(folder / f"{made.name}.onnx")
    say(f"{path}: {path.stat().st_size:,} bytes, opset {OPSET}")
    for title, values in (("reads", made.inputs), ("gives", made.outputs)):
        say(f"{title}: " + ", ".join(f"{n} [{', '.join(map(str, s))}]" for n, (_, s) in values.items()))
    say("cells: " + ", ".join(f"{kind}{f' ({place[1:]})' if place else ''}" for place, kind in made.operators.items()))
    largest = max(made.checked.errors.values())
    say(f"ONNX Runtime {made.checked.runtime}: largest difference {largest:.2g} of the largest value")
    return 0


def _ort(args: argparse.Namespace, folder: Path) -> int:
    refuse(args, ("selftest", "apart", "with"), "an operator is run in ONNX Runtime before it is written, and is whole")
    refuse(args, OF_ONNX, "the operator of --to ort goes forward over whole rows, from its own first state")
    if Path(args.cell).is_dir():
        raise RnnspecError("--to ort makes layers of a cell: export a run with --to onnx, or its layer from Python.")
    from rnnspec.export.ort import ort

    made = ort(layer_of(args), name=args.name or "")
    model, library = made.write(folder)
    for path in (model, library):
        say(f"{path}: {path.stat().st_size:,} bytes")
    say(f"use it with: options.register_custom_ops_library({str(library)!r})")
    say(f"ONNX Runtime {made.checked.runtime}: largest difference {max(made.checked.errors.values()):.2g}")
    return 0


TARGETS = {"onnx": _onnx, "ort": _ort}


def _made(args: argparse.Namespace) -> OnnxModel:
    given = {"lengths": args.lengths, "states": args.states}
    if not Path(args.cell).is_dir():
        return onnx(layer_of(args), name=args.name or "", **given)
    refuse(args, OF_A_CELL, f"{args.cell} is a run, which has its own")
    from rnnspec.export.onnx_run import run_net

    return onnx_model(run_net(args.cell, args.name or ""), **given)
