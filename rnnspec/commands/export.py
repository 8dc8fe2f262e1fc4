"""`rnnspec export`: a cell, or a trained run, as a program that needs no Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from rnnspec.commands.export_layer import OF_A_CELL, OF_ONNX, layer_of, refuse
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.export.c import CSource, c, program
from rnnspec.storage import atomic


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    if not folder.is_dir():
        raise RnnspecError(f"there is no folder '{folder}' to write to: make it first, or give another with --out.")
    try:
        if args.to == "onnx":
            from rnnspec.commands import export_onnx

            return export_onnx.run(args, folder)
        refuse(args, OF_ONNX, f"--to {args.to} makes one step of one row")
        written = _run(args, folder) if Path(args.cell).is_dir() else _cell(args, folder)
    except (ValueError, TypeError) as error:
        raise RnnspecError(str(error)) from error
    for path in written:
        say(f"{path}: {path.stat().st_size:,} bytes")
    sources = " ".join(str(p) for p in written if p.suffix == ".c" and not p.stem.endswith("_selftest"))
    whole = any(p.stem.endswith("_main") for p in written)
    stem = written[0].stem
    say(f"compile with: cc -O3 -march=native {sources} {f'-o {stem} -lm' if whole else '-c'}")
    if args.selftest:
        checked = [str(p) for p in written if p.suffix == ".c" and not p.stem.endswith("_main")]
        say(f"check with: cc -O3 -march=native {' '.join(checked)} -o {stem}_selftest -lm && ./{stem}_selftest")
    return 0


def _cell(args: argparse.Namespace, folder: Path) -> list[Path]:
    return list(c(layer_of(args), name=args.name or "", apart=args.apart).write(folder, args.selftest))


def _run(args: argparse.Namespace, folder: Path) -> list[Path]:
    refuse(args, OF_A_CELL, f"{args.cell} is a run, which has its own")
    from rnnspec.export.run import run_model, text_main
    from rnnspec.train.data import Vocabulary

    trained, model = run_model(args.cell)
    source: CSource = program(args.name or trained.spec.name, model, args.apart)
    vocabulary = trained.vocabulary
    extra = {}
    if isinstance(vocabulary, Vocabulary):
        extra[f"{source.name}_main.c"] = text_main(source.program, vocabulary)
    written = list(source.write(folder, args.selftest))
    for file, text in extra.items():
        atomic.write(folder / file, text.encode())
        written.append(folder / file)
    return written
