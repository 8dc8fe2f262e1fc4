"""`rnnspec train`: a run folder from a command line."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import rnnspec
from rnnspec.commands import progress
from rnnspec.errors import RnnspecError
from rnnspec.language.load import digest, load
from rnnspec.train import checkpoint
from rnnspec.train.data import Corpus, default_text, make_corpus, read_text
from rnnspec.train.errors import Diverged, TrainError
from rnnspec.train.fit import fitted
from rnnspec.train.loop import Config, Run, fraction, start_run, train, write_on
from rnnspec.train.model import make_model

WEIGHTS, METRICS, PLOT = "weights.npz", "metrics.json", "loss.png"
RECENT = 50


def run(args: argparse.Namespace) -> int:
    """Everything is checked before anything is written."""
    saved = open_saved(args)
    config = make_config(args, saved)
    folder = choose_folder(args, config)
    this = make_run(config, saved, args.threads)
    announce(this, folder)
    with progress.waiting(f"compiling {title_of(config)}"):
        began = time.perf_counter()
        this.model.warm_up()
        compiled = time.perf_counter() - began
    make_folder(folder)
    first, code, trouble = (this.step, this.seconds), 0, ""
    with stop_signals() as stopped:
        try:
            follow(this, folder, lambda: stopped.number is not None)
        except Diverged as error:
            code, trouble = 1, f"rnnspec train: {error}"
        final = write_results(this, folder, first, compiled, args)
    if trouble:
        print(trouble, file=sys.stderr)
    elif stopped.number is not None and fraction(this) < 1:
        print(f"stopped at step {this.step}. Go on with: rnnspec train --resume {folder}", file=sys.stderr)
        code = 128 + stopped.number
    conclude(this, folder, final)
    return code


# from arguments to a run


def open_saved(args: argparse.Namespace) -> checkpoint.Checkpoint | None:
    if args.resume is None:
        if args.cell is None:
            raise TrainError("give a cell, like lstm, or --resume RUN_DIR")
        return None
    folder = Path(args.resume)
    if not (folder / WEIGHTS).is_file():
        raise TrainError(f"{folder} holds no run to resume: there is no {folder / WEIGHTS}")
    return checkpoint.load(folder / WEIGHTS)


def make_config(args: argparse.Namespace, saved: checkpoint.Checkpoint | None) -> Config:
    """The defaults, or what the saved run had, with what the command line gives on top; the spec is loaded, so its errors show now."""
    given = {
        name: value for name in ("hidden", "embed", "batch", "length", "lr", "clip", "seed") if (value := getattr(args, name)) is not None
    }
    if args.cell is not None:
        given["cell"] = os.path.abspath(args.cell) if is_path(args.cell) else args.cell
    if args.text is not None:
        given["text"] = os.path.abspath(args.text)
    if args.size:
        given["sizes"] = dict(args.size)
    if args.choice:
        given["choices"] = dict(args.choice)
    if args.steps is not None or args.seconds is not None:
        spent = saved.meta["seconds"] if saved else 0.0
        given |= {"steps": args.steps, "seconds": None if args.seconds is None else spent + args.seconds}
    config = replace(saved.config, **given) if saved else Config(**given)
    spec = load(config.cell, **config.choices)
    embed, sizes = fitted(spec, config.hidden, config.embed, config.sizes, chosen="embed" in given or saved is not None)
    return replace(config, embed=embed, sizes=sizes, equations=tuple(e.text for e in spec.equations), digest=digest(spec))


def make_run(config: Config, saved: checkpoint.Checkpoint | None, threads: int | None) -> Run:
    corpus = make_corpus(
        default_text() if config.text is None else read_text(config.text),
        config.text or "the default text",
        saved.vocabulary if saved else None,
    )
    try:
        model = make_model(
            rnnspec.Recurrent,
            len(corpus.vocabulary),
            cell=config.cell,
            embed=config.embed,
            hidden=config.hidden,
            seed=config.seed,
            threads=threads,
            sizes=config.sizes,
            choices=config.choices,
        )
        run = start_run(config, model, corpus)
    except (ValueError, TypeError) as error:  # the layer's own checks of sizes
        hint = " On the command line: --size NAME=N, as in --size P=64." if "proj_size" in str(error) or "sizes=" in str(error) else ""
        raise error if isinstance(error, RnnspecError) else TrainError(f"{error}{hint}") from error
    except MemoryError:
        raise TrainError(f"not enough memory for --hidden {config.hidden} and --embed {config.embed}") from None
    if saved:
        checkpoint.restore(run, saved)
        if fraction(run) >= 1:
            raise TrainError(
                f"{saved.path.parent} is finished at step {run.step}. To train on, give --steps (more than {run.step}) or --seconds"
            )
    return run


def choose_folder(args: argparse.Namespace, config: Config) -> Path:
    """Where the results go; nothing is made yet. A folder with another run in it is refused."""
    if args.out is None and args.resume is not None:
        return Path(args.resume)
    if args.out is None:
        base = Path("runs") / Path(config.cell).stem
        folder = next(f for i in range(1, 10_000) if not (f := base if i == 1 else base.with_name(f"{base.name}-{i}")).exists())
    else:
        folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise TrainError(f"--out {folder} is a file, not a folder")
    if args.resume is None or folder.resolve() != Path(args.resume).resolve():
        found = [name for name in (WEIGHTS, METRICS, PLOT) if (folder / name).exists()]
        if found:
            raise TrainError(
                f"{folder} holds another run already ({', '.join(found)}). Choose another --out, or go on with it: --resume {folder}"
            )
    parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise TrainError(f"can't write to {parent}, where the results should go; choose another --out")
    return folder


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainError(f"can't make the folder {folder}: {error.strerror}") from None


def title_of(config: Config) -> str:
    return Path(config.cell).stem


def is_path(cell: str) -> bool:
    return cell.endswith((".yaml", ".yml")) or "/" in cell or os.sep in cell


# while it runs


@dataclass
class Stopped:
    number: int | None = None


@contextmanager
def stop_signals() -> Iterator[Stopped]:
    """Ctrl-C (or SIGTERM) asks to stop after the step being computed, so that weights are never half updated.

    A second one stops at once.
    """
    stopped = Stopped()
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, _: object) -> None:
        stopped.number = number
        for n, handler in before.items():
            signal.signal(n, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(run: Run, folder: Path, stop: Callable[[], bool]) -> None:
    """Trains, shows every report and saves the weights at every snapshot."""
    with progress.training(title_of(run.config)) as show:
        for report in train(run, stop):
            show(report)
            if report.held_out is not None and report.step:
                checkpoint.save(folder / WEIGHTS, run)


# results


def write_results(run: Run, folder: Path, first: tuple[int, float], compiled: float, args: argparse.Namespace) -> dict[str, Any]:
    """Evaluates on all the held-out text, writes the three files, and returns what `metrics.json` has under "final"."""
    from rnnspec.train.plots import loss_curve

    checkpoint.save(folder / WEIGHTS, run)
    recent = [b for b in run.history.bits[-RECENT:] if math.isfinite(b)]
    steps, seconds = run.step - first[0], run.seconds - first[1]
    final: dict[str, Any] = {
        "step": run.step,
        "finished": fraction(run) >= 1,
        "held_out_bits": run.model.bits(run.corpus.held_out),
        "unigram_bits": run.corpus.unigram_bits,
        "training_bits": sum(recent) / len(recent) if recent else None,
        "seconds": run.seconds,
        "compile_seconds": compiled,
        "characters_per_second": steps * run.config.batch * run.config.length / seconds if seconds else None,
        "skipped_steps": run.skipped,
        "sample": write_on(run, args.sample, args.temperature),
    }
    snapshots = run.history.snapshots
    if not snapshots or snapshots[-1]["step"] != run.step:
        snapshots.append({"step": run.step, "bits": final["held_out_bits"], "sample": final["sample"][:60]})
        checkpoint.save(folder / WEIGHTS, run)
    metrics = {
        "config": asdict(run.config),
        "environment": environment(args),
        "corpus": about(run.corpus),
        "history": asdict(run.history),
        "final": final,
    }
    text = json.dumps(finite(metrics), indent=1, ensure_ascii=False, allow_nan=False)
    checkpoint.write_atomic(folder / METRICS, lambda file: file.write(text.encode("utf-8", "replace")))
    title = f"{title_of(run.config)}, {run.config.hidden} units: {final['held_out_bits']:.3f} bits per character held out"
    loss_curve(folder / PLOT, run.history, run.corpus.unigram_bits, title)
    return final


def announce(run: Run, folder: Path) -> None:
    parameters = sum(array.size for array in run.model.params.values())
    corpus = run.corpus
    unknown = f" ({corpus.unknown} of them unknown)" if corpus.unknown else ""
    sizes = "".join(f", {name} = {value}" for name, value in run.config.sizes.items())
    print(
        f"cell        {title_of(run.config)}, {run.config.hidden} units{sizes}, {parameters:,} parameters with embedding and head\n"
        f"text        {corpus.name}: {len(corpus.train):,} characters to train on, {len(corpus.held_out):,} held out{unknown}, "
        f"{len(corpus.vocabulary)} symbols\n"
        f"results     {folder}{os.sep}",
        file=sys.stderr,
    )


def conclude(run: Run, folder: Path, final: dict[str, Any]) -> None:
    if final["sample"]:
        print(f"{final['sample']}\n{'-' * 72}")
    speed = final["characters_per_second"] or 0
    print(f"held-out    {final['held_out_bits']:.3f} bits per character (unigram entropy {final['unigram_bits']:.3f})")
    print(
        f"steps       {run.step:,} in {run.seconds:.1f} s, {speed:,.0f} characters per second; compiling {final['compile_seconds']:.1f} s"
    )
    if run.skipped:
        print(f"skipped     {run.skipped} steps whose gradients were not finite")
    print(f"written     {folder / METRICS}, {folder / PLOT}, {folder / WEIGHTS}")


def about(corpus: Corpus) -> dict[str, Any]:
    return {
        "name": corpus.name,
        "sha256": corpus.digest,
        "train": len(corpus.train),
        "held_out": len(corpus.held_out),
        "symbols": len(corpus.vocabulary),
        "unknown": corpus.unknown,
        "unigram_bits": corpus.unigram_bits,
    }


def environment(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": args.threads,
    }


def finite(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: finite(v) for key, v in value.items()}
        case list() | tuple():
            return [finite(v) for v in value]
        case _:
            return value
