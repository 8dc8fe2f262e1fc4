"""`rnnspec train`: a run folder from a command line."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from rnnspec.commands import progress
from rnnspec.commands.output import say, say_wrapped
from rnnspec.commands.stopping import stop_signals
from rnnspec.language.load import loads
from rnnspec.show.figure import FORMATS
from rnnspec.train.errors import Diverged, TrainError
from rnnspec.train.loop import TrainingRun, exhausted, fraction
from rnnspec.train.own_task import told_of
from rnnspec.train.plots import shown
from rnnspec.train.request import Request
from rnnspec.train.results import FILES, counted, write_results
from rnnspec.train.runs import compile_kernels, ending, follow, quiet, taken
from rnnspec.train.setup import Setup, nothing_to_keep, set_up, title_of

PARTS = {"embed": "embedding", "source": "embeddings", "target": "embeddings", "map": "linear map", "head": "head"}
"""What the groups of a model's parameters are, beside the layers."""


def run(args: argparse.Namespace) -> int:
    """Everything is checked before anything is written."""
    if args.tasks:
        say_wrapped(tasks_text(), further=12)
        return 0
    with told_of(args.task):
        return run_task(args)


def run_task(args: argparse.Namespace) -> int:
    """A run from its arguments; a folder in which nothing came about is taken away again."""
    request = request_from(args)
    setup = set_up(request)
    this, folder = setup.run, choose_folder(args, setup)
    announce(this, folder, setup.retained if args.resume is None else None)
    with progress.waiting(f"compiling {title_of(this.config)}"):
        compiled = compile_kernels(this)
    with taken(folder):
        check_folder(args, folder)  # again: another run may have come and gone while this one compiled
        return train_in(folder, setup, request, compiled)


def request_from(args: argparse.Namespace) -> Request:
    """The arguments as what a run is asked for; what repeats is a mapping."""
    told: dict[str, Any] = {"options": dict(args.set), "choices": dict(args.choice), "sizes": dict(args.size)}
    told |= {f.name: getattr(args, f.name) for f in fields(Request) if f.name not in told}
    return Request(**(told | {"figures": args.figures or FORMATS[0]}))


def train_in(folder: Path, setup: Setup, request: Request, compiled: float) -> int:
    """Trains and leaves everything in the folder; returns the exit code."""
    this = setup.run
    first, code, trouble = (this.seconds, this.tokens), 0, ""
    with stop_signals() as stopped, quiet():
        try:
            with progress.training(title_of(this.config), this.problem) as show:
                follow(this, folder, show, lambda: stopped.number is not None)
        except Diverged as error:
            code, trouble = 1, f"rnnspec train: {error}"
        final = write_results(this, folder, first, compiled, ending(request, setup))["final"]
    if not trouble and final["not_finite"]:
        code, trouble = 1, f"rnnspec train: {unfit(this, final)}"
    if trouble:
        say(trouble, error=True)
    elif stopped.number is not None and fraction(this) < 1:
        say(f"stopped at step {this.step}. Go on with: rnnspec train --resume {folder}", error=True)
        code = 128 + stopped.number
    conclude(this, folder, final)
    return code


def choose_folder(args: argparse.Namespace, setup: Setup) -> Path:
    """Where the results go; nothing is made yet. A folder with another run in it is refused."""
    if args.out is None and args.resume is not None:
        return Path(args.resume)
    if args.out is None:
        config = setup.run.config
        name = title_of(config) + ("" if config.task == "text" else f"-{config.task_name}")
        base = Path("runs") / name
        folder = next(
            f for i in range(1, 10_000) if not (f := base if i == 1 else base.with_name(f"{base.name}-{i}")).exists()
        )
    else:
        folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise TrainError(f"--out {folder} is a file, not a folder")
    check_folder(args, folder)
    parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise TrainError(f"can't write to {parent}, where the results should go; choose another --out")
    return folder


def check_folder(args: argparse.Namespace, folder: Path) -> None:
    """TrainError if there is a run in the folder, other than the one that is resumed."""
    if args.resume is None or folder.resolve() != Path(args.resume).resolve():
        found = [name for name in FILES if (folder / name).exists()]
        if found:
            raise TrainError(
                f"{folder} holds another run already ({', '.join(found)}). Choose another --out, or go on with it:"
                f" --resume {folder}"
            )


# what is printed


def _row(text: str, error: bool = False) -> None:
    """Lines that begin with what they are about, in twelve columns."""
    say_wrapped(text, further=12, error=error)


def announce(run: TrainingRun, folder: Path, retained: tuple[str, ...] | None) -> None:
    parameters, fixed = counted(run.model)
    layers = f"{run.config.layers} layers of " if run.config.layers > 1 else ""
    beside = f", {fixed:,} fixed numbers beside them" if fixed else ""
    _row(
        f"cell        {title_of(run.config)}, {layers}{run.config.hidden} units, {parameters:,} parameters"
        f"{around_text(run)}{beside}\n{run.config.task_name.ljust(11)} {run.problem.summary()}\n"
        f"{retain_text(run, retained)}results     {folder}{os.sep}",
        error=True,
    )


def around_text(run: TrainingRun) -> str:
    """Which parts of the model beside the recurrent layer are counted with it."""
    groups = {name.partition(".")[0] for name in run.model.params}
    parts = dict.fromkeys(word for group, word in PARTS.items() if group in groups)
    return f" with {' and '.join(parts)}" if parts else ""


def retain_text(run: TrainingRun, retained: tuple[str, ...] | None) -> str:
    """A line about what `retain` sets; that it sets nothing too."""
    if retained is None:
        return ""
    cell = title_of(run.config)
    begin = "begins" if retained and len(retained) == 1 else "begin"
    what = (
        f"{', '.join(retained)} {begin} so that gates keep a state for up to {run.config.retain} steps"
        if retained
        else f"nothing is set for {run.config.retain} steps: {cell} has {nothing_to_keep(loads(run.config.cell_text))}"
    )
    return f"retain      {what}\n"


def conclude(run: TrainingRun, folder: Path, final: dict[str, Any]) -> None:
    if final["sample"]:
        say(f"{final['sample']}\n{'-' * 72}")
    metric, baseline = run.problem.metric, run.problem.baseline
    known = f" ({baseline[0]} {shown(baseline[1])})" if baseline and metric.unit == run.problem.loss_unit else ""
    _row(f"held-out    {shown(final['score'])} {metric.unit}{known}")
    others = [f"{name} {shown(score)}" for name, score in final["scores"].items() if name != metric.name]
    if others:
        _row(f"also        {', '.join(others)}")
    speed = final["tokens_per_second"] or 0
    early = (
        ", stopped early: the weights are those of step " + str(run.best.step) if run.best and exhausted(run) else ""
    )
    _row(
        f"steps       {run.step:,} in {run.seconds:.1f} s{early}, {speed:,.0f} steps of rows per second; compiling"
        f" {final['compile_seconds']:.1f} s"
    )
    if run.skipped:
        _row(f"skipped     {run.skipped} steps whose gradients were not finite")
    alone = " (weights alone)" if final["weights_only"] else ""
    _row(f"written     {', '.join(str(folder / name) for name in final['files'])}{alone}")


def unfit(run: TrainingRun, final: dict[str, Any]) -> str:
    """What is wrong with a run that ends with scores that are no numbers."""
    names = " and ".join(f"{n} ({final['scores'][n]})" for n in final["not_finite"])
    return (
        f"the scores on held-out data are not finite after {run.step} steps: {names}. What was learnt is of no use: try"
        f" a smaller --lr (it is {run.config.lr:g}), and look for numbers in the data that are far from all others"
    )


def tasks_text() -> str:
    """Every task, what it takes and its settings."""
    from rnnspec.train.config import TrainingConfig
    from rnnspec.train.tasks import load_task, task_names

    parts = []
    for name in task_names():
        task = load_task(name)
        own = {
            **{f: getattr(TrainingConfig(""), f) for f in ("hidden", *task.fields, "batch", "steps", "lr")},
            **task.defaults,
        }
        if task.epochs:
            own |= {"epochs": task.epochs}
        lines = [f"{name} ({task.shape}): {task.about}", f"  --data      {task.data}"]
        lines += [f"  --length    {task.length}"] if task.length else []
        lines += [f"  --set {option}={value!r}: {task.about_options[option]}" for option, value in task.options.items()]
        lines.append("  defaults    " + ", ".join(f"{k} {v}" for k, v in own.items() if v is not None))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
