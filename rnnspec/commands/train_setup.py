"""From the arguments of `rnnspec train` to a run: the configuration, the problem, the model.
Nothing is written."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnspec.backends.cpu.launch.pool import default_threads
from rnnspec.language.load import digest, is_path, load
from rnnspec.language.spec import Spec
from rnnspec.language.transforms.retain import keepers
from rnnspec.train import checkpoint
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.layers import layer_maker
from rnnspec.train.loop import TrainingRun, exhausted, fraction, start_run
from rnnspec.train.problem import Task
from rnnspec.train.results import WEIGHTS, is_written
from rnnspec.train.tasks import load_task

PLAIN = (
    *("hidden", "embed", "layers", "dropout", "bidirectional", "batch", "length", "optimiser", "lr", "momentum"),
    *("decay", "schedule", "clip", "clip_value", "retain", "patience", "every", "seed"),
)
"""Arguments that are fields of TrainingConfig as they are."""
OPTIONAL = ("embed", "length", "bidirectional")  # fields that not every task has a use for


@dataclass(frozen=True)
class Setup:
    """A run ready to be trained."""

    run: TrainingRun
    saved: checkpoint.Checkpoint | None


def set_up(args: argparse.Namespace) -> Setup:
    """TrainError or SpecError for whatever is wrong with the arguments, the cell or the data."""
    if args.resume and args.start:
        raise TrainError("--resume goes on with a run and --from starts a new one: give one of them")
    saved = open_saved(args)
    task = load_task(args.task or (saved.config.task if saved else "text"))
    config = make_config(args, task, saved)
    spec = load(config.cell, **config.choices)
    if args.retain and not keepers(spec):
        raise TrainError(
            f"{title_of(config)} has no gate that keeps a state: --retain has no meaning for it, and would be ignored"
        )
    config = replace(config, equations=tuple(e.text for e in spec.equations), digest=digest(spec))
    return Setup(make_run(config, spec, task, saved, args), saved)


def open_saved(args: argparse.Namespace) -> checkpoint.Checkpoint | None:
    if args.resume is None and args.start is None:
        if args.cell is None:
            raise TrainError("give a cell, like lstm, or --resume RUN_DIR")
        return None
    folder = Path(args.resume or args.start)
    if not (folder / WEIGHTS).is_file():
        raise TrainError(
            f"{folder} holds no run to {'resume' if args.resume else 'start from'}: there is no {folder / WEIGHTS}"
        )
    return checkpoint.load(folder / WEIGHTS)


def make_config(args: argparse.Namespace, task: Task, saved: checkpoint.Checkpoint | None) -> TrainingConfig:
    """The task's defaults, or what the saved run had, with what the command line gives on top."""
    given: dict[str, Any] = {name: value for name in PLAIN if (value := getattr(args, name)) is not None}
    for name in OPTIONAL:
        if name in given and name not in task.fields:
            raise TrainError(f"--{name} has no meaning for the task {task.name}, and would be ignored")
    for name in ("sample", "temperature"):
        if getattr(args, name) is not None and not task.writes:
            raise TrainError(
                f"--{name} has no meaning for the task {task.name}, which writes no text, and would be ignored"
            )
    if args.cell is not None:
        given["cell"] = os.path.abspath(args.cell) if is_path(args.cell) else args.cell
    if args.data is not None:
        given["data"] = os.path.abspath(args.data)
    if args.size:
        given["sizes"] = dict(args.size)
    if args.choice:
        given["choices"] = dict(args.choice)
    base = start_config(args, task, saved)
    if given.get("dropout") and given.get("layers", base.layers) < 2:
        raise TrainError("--dropout acts between layers, and would be ignored with one: give --layers")
    config = replace(base, **given, options=options(task, base, args.set))
    told = {name: f"--set {name}" for name, _ in args.set} | {name: f"--{name}" for name in given}
    for name in task.of_files if config.data is None else task.of_made:
        if name in told:
            raise TrainError(
                f"{told[name]} has no meaning for {'made data' if config.data is None else 'data of a file'}, and would"
                " be ignored"
            )
    return replace(config, **duration(args, config, task, saved))


def start_config(args: argparse.Namespace, task: Task, saved: checkpoint.Checkpoint | None) -> TrainingConfig:
    if saved is None:
        return task.config(args.cell)
    if task.name == saved.config.task:
        return saved.config
    if args.resume:
        raise TrainError(
            f"{saved.path.parent} was trained on the task {saved.config.task}; another task starts from its weights"
            " with --from"
        )
    data = (
        saved.config.data if task.writes and load_task(saved.config.task).writes else None
    )  # a text is no table of another task
    return replace(saved.config, task=task.name, data=data, options=dict(task.options))


def options(task: Task, base: TrainingConfig, settings: list[tuple[str, str]]) -> dict[str, Any]:
    """The task's own settings, with those of the command line in the type of their defaults."""
    found = dict(base.options)
    for name, text in settings:
        if name not in task.options:
            raise TrainError(
                f"the task {task.name} has no setting {name!r}; it has {', '.join(task.options) or 'none'}"
            )
        kind = type(task.options[name])
        try:
            found[name] = kind(text)
        except ValueError:
            raise TrainError(
                f"--set {name} must be {'a whole number' if kind is int else 'a number'}, not {text!r}"
            ) from None
    return found


def duration(
    args: argparse.Namespace, config: TrainingConfig, task: Task, saved: checkpoint.Checkpoint | None
) -> dict[str, Any]:
    """steps and seconds: as given, else the saved run's, else the task's; a run that only starts
    from another for `generate` writes at once."""
    if args.steps is not None and args.epochs is not None:
        raise TrainError("--steps and --epochs both say how long to train: give one of them")
    if args.steps is not None or args.seconds is not None or args.epochs is not None:
        spent = saved.meta["seconds"] if saved and args.resume else 0.0
        return {"steps": args.steps, "seconds": None if args.seconds is None else spent + args.seconds}
    if args.start is not None:
        return {
            "steps": 0 if task.name == "generate" else task.defaults.get("steps", TrainingConfig("").steps),
            "seconds": None,
        }
    return {}


def make_run(
    config: TrainingConfig, spec: Spec, task: Task, saved: checkpoint.Checkpoint | None, args: argparse.Namespace
) -> TrainingRun:
    memory = saved.memory if saved else {}
    with checkpoint.told(saved.path) if saved else nullcontext():
        problem = task.make(config, memory)
    epochs = args.epochs or (task.epochs if config.steps is None and config.seconds is None else 0)
    if epochs:
        if problem.epoch_steps is None:
            raise TrainError(f"the task {task.name} makes its data step by step and has no epochs: give --steps")
        config = replace(config, steps=epochs * problem.epoch_steps)
    try:
        run = start_run(
            config,
            problem,
            problem.model(layer_maker(spec, config, args.threads, chosen=args.embed is not None)),
            args.threads or default_threads(),
        )
    except MemoryError:
        raise TrainError(
            f"not enough memory for --layers {config.layers}, --hidden {config.hidden} and --embed {config.embed}"
        ) from None
    if saved and args.resume:
        with checkpoint.told(saved.path):
            checkpoint.restore(run, saved)
        # a run that was killed after its last step may lack its summary: it is written now
        ended = is_written(run, saved.path.parent)
        if fraction(run) >= 1 and ended:
            raise TrainError(
                f"{saved.path.parent} is finished at step {run.step}. To train on, give --steps (more than {run.step})"
                " or --seconds"
            )
        if exhausted(run) and ended:
            raise TrainError(
                f"{saved.path.parent} has stopped early at step {run.step}. To train on, give --patience (more than"
                f" {config.patience})"
            )
    elif saved:
        checkpoint.begin_from(run, saved)
    return run


def title_of(config: TrainingConfig) -> str:
    return Path(config.cell).stem
