"""`rnnspec export`: a cell, or a trained run, as a program that needs no Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.export.c import CSource, c, program
from rnnspec.language.load import load
from rnnspec.layers.recurrent import Recurrent
from rnnspec.storage import atomic

OF_A_CELL = ("hidden", "inputs", "layers", "size", "choice", "weights", "seed", "dtype")


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    if not folder.is_dir():
        raise RnnspecError(f"there is no folder '{folder}' to write to: make it first, or give another with --out.")
    try:
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
    layer = Recurrent(
        load(args.cell, **dict(args.choice)),
        args.inputs or 16,
        args.hidden or 32,
        num_layers=args.layers or 1,
        sizes=dict(args.size),
        dtype=args.dtype or "float32",
        seed=args.seed or 0,
    )
    if args.weights:
        layer.load(args.weights)
    return list(c(layer, name=args.name or "", apart=args.apart).write(folder, args.selftest))


def _run(args: argparse.Namespace, folder: Path) -> list[Path]:
    given = [
        n for n in ("hidden", "inputs", "layers", "size", "choice", "weights", "seed", "dtype") if getattr(args, n)
    ]
    if given:
        raise RnnspecError(f"{args.cell} is a run, which has its own: leave out --{', --'.join(given)}.")
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
