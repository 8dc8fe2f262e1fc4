"""`rnnspec export`: a cell, or a trained run, as a program that needs no Python."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from rnnspec.commands.export_layer import OF_A_CELL, OF_ONNX, layer_of, refuse
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.export.c import CSource, c, program
from rnnspec.export.learn import Learner, learner
from rnnspec.storage import atomic


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    if not folder.is_dir():
        raise RnnspecError(f"there is no folder '{folder}' to write to: make it first, or give another with --out.")
    try:
        if args.to in ("onnx", "ort"):
            from rnnspec.commands import export_onnx

            return export_onnx.TARGETS[args.to](args, folder)
        refuse(args, OF_ONNX, f"--to {args.to} makes one step of one row")
        backward = getattr(args, "with")
        if backward and (args.to != "c" or Path(args.cell).is_dir()):
            raise RnnspecError("--with backward is for --to c of a cell: a run and WebAssembly have no backward pass.")
        source, texts = _run(args) if Path(args.cell).is_dir() else (_cell(args), {})
        more = [_learner(args)] if backward else []
        files = FILES[args.to](source, args.selftest)
        for made in more:
            files |= made.files(args.selftest)
    except (ValueError, TypeError) as error:
        raise RnnspecError(str(error)) from error
    files |= {file: text.encode() for file, text in texts.items() if args.to == "c"}
    for path in atomic.write_all({folder / file: data for file, data in files.items()}):
        say(f"{path}: {path.stat().st_size:,} bytes")
    for line in HINTS[args.to](folder / source.name, bool(texts), args.selftest):
        say(line)
    return 0


def _wasm(source: CSource, selftest: bool) -> dict[str, bytes]:
    from rnnspec.export.wasm import wasm

    return wasm(source).files(selftest)


def _compiling(path: Path, whole: bool, selftest: bool) -> Iterator[str]:
    """How the C is compiled. whole: whether there is a program that writes text."""
    name, (source, main, check) = path.name, (_word(f"{path}{end}.c") for end in ("", "_main", "_selftest"))
    command = f"cc -O3 -march=native {source}"
    yield f"compile with: {command} {f'{main} -o {name} -lm' if whole else '-c'}"
    if selftest:
        yield f"check with: {command} {check} -o {name}_selftest -lm && ./{name}_selftest"


def _importing(path: Path, whole: bool, selftest: bool) -> Iterator[str]:
    """How the ES module is used."""
    yield f'use with: import {{ Cell }} from "./{path.name}.mjs"'
    if selftest:
        yield f"check with: node {_word(f'{path}_selftest.mjs')}"


def _word(path: str) -> str:
    """A path as one word of a shell's command, and no option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


FILES: dict[str, Callable[[CSource, bool], dict[str, bytes]]] = {"c": CSource.files, "wasm": _wasm}
HINTS = {"c": _compiling, "wasm": _importing}


def _learner(args: argparse.Namespace) -> Learner:
    layer = layer_of(args)
    return learner(layer, name=f"{args.name or layer.spec.name}_learn")


def _cell(args: argparse.Namespace) -> CSource:
    return c(layer_of(args), name=args.name or "", apart=args.apart)


def _run(args: argparse.Namespace) -> tuple[CSource, dict[str, str]]:
    """A run, and the program around it where it is one of text: file -> text."""
    refuse(args, OF_A_CELL, f"{args.cell} is a run, which has its own")
    from rnnspec.export.run import run_model, text_main
    from rnnspec.train.data import Vocabulary

    trained, model = run_model(args.cell)
    source = program(args.name or trained.spec.name, model, args.apart)
    vocabulary = trained.vocabulary
    if not isinstance(vocabulary, Vocabulary):
        return source, {}
    return source, {f"{source.name}_main.c": text_main(source.program, vocabulary)}
