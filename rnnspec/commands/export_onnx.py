"""`rnnspec export --to onnx`: a cell, or a trained run, as a model of ONNX."""

from __future__ import annotations

import argparse
from pathlib import Path

from rnnspec.commands.export_layer import OF_A_CELL, layer_of, refuse
from rnnspec.commands.output import say
from rnnspec.export.onnx import OPSET, OnnxModel, onnx, onnx_model


def run(args: argparse.Namespace, folder: Path) -> int:
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


def _made(args: argparse.Namespace) -> OnnxModel:
    given = {"lengths": args.lengths, "states": args.states}
    if not Path(args.cell).is_dir():
        return onnx(layer_of(args), name=args.name or "", **given)
    refuse(args, OF_A_CELL, f"{args.cell} is a run, which has its own")
    from rnnspec.export.onnx_run import run_net

    return onnx_model(run_net(args.cell, args.name or ""), **given)
