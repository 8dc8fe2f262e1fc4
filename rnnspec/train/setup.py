"""From what a run is asked for to the run: the configuration, the problem, the model.

In: a `Request`. Out: a `Setup`, ready to be trained. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnspec.backends.cpu.launch.pool import default_threads
from rnnspec.language.load import digest, is_path, load
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.spec import Spec
from rnnspec.language.transforms.retain import keepers, kept_biases
from rnnspec.train import checkpoint
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.layers import layer_maker
from rnnspec.train.loop import TrainingRun, exhausted, fraction, start_run
from rnnspec.train.obey import check_can_obey, obey
from rnnspec.train.own_task import find_task
from rnnspec.train.problem import OPTIONAL, Task, TrainingProblem
from rnnspec.train.request import PLAIN, Request
from rnnspec.train.results import WEIGHTS, written
from rnnspec.train.tasks import load_task


@dataclass(frozen=True)
class Setup:
    """A run ready to be trained."""

    run: TrainingRun
    saved: checkpoint.Checkpoint | None
    retained: tuple[str, ...] | None  # the biases that `retain` sets; None where it asks for nothing


@dataclass(frozen=True)
class Configured:
    """What a request means, before anything of the data was read."""

    config: TrainingConfig
    spec: Spec
    task: Task
    saved: checkpoint.Checkpoint | None
    retained: tuple[str, ...] | None


def set_up(request: Request) -> Setup:
    """TrainError or SpecError for whatever is wrong with the request, the cell or the data."""
    found = configured(request)
    run = make_run(found.config, found.spec, found.task, found.saved, request)
    return Setup(run, found.saved, found.retained)


def configured(request: Request) -> Configured:
    """The configuration, the cell and the task. TrainError or SpecError for what is wrong with
    them."""
    if request.resume and request.start:
        raise TrainError("--resume goes on with a run and --from starts a new one: give one of them")
    saved = open_saved(request)
    task = choose_task(request, saved)
    config = make_config(request, task, saved)
    spec = load(config.cell, **config.choices)
    if request.retain and request.start:
        raise TrainError("--retain is about initial weights, and would be ignored: those of --from are trained")
    retained = tuple(kept_biases(spec, config.retain)) if config.retain and not request.start else None
    if request.retain and not retained:
        raise TrainError(
            f"{title_of(config)} has {nothing_to_keep(spec)}: --retain has no meaning for it, and would be ignored"
        )
    config = replace(
        config, equations=tuple(e.text for e in spec.equations), digest=digest(spec), cell_text=to_yaml(spec)
    )
    return Configured(config, spec, task, saved, retained)


def nothing_to_keep(spec: Spec) -> str:
    """Why `retain` sets nothing in this cell."""
    gates = [keeper.gate for keeper in keepers(spec)]
    return f"no bias in its gates that keep a state ({', '.join(gates)})" if gates else "no gate that keeps a state"


def choose_task(request: Request, saved: checkpoint.Checkpoint | None) -> Task:
    """The task that is named, else the saved run's; a file is run only where the user names it."""
    if request.task is not None or saved is None:
        return find_task(request.task or "text")
    was = saved.config
    if was.task_digest:
        raise TrainError(
            f"{saved.path.parent} was trained on the task of a file, whose Python is run only if you name it:"
            f" --task {was.task}"
        )
    return load_task(was.task)


def is_task_of(task: Task, config: TrainingConfig) -> bool:
    """Whether a run with this configuration was trained on this task."""
    return (task.digest or task.name) == (config.task_digest or config.task)


def open_saved(request: Request) -> checkpoint.Checkpoint | None:
    if request.resume is None and request.start is None:
        if request.cell is None:
            raise TrainError("give a cell, like lstm, or --resume RUN_DIR")
        return None
    folder = Path(request.resume or request.start or "")
    if not (folder / WEIGHTS).is_file():
        raise TrainError(
            f"{folder} holds no run to {'resume' if request.resume else 'start from'}: there is no {folder / WEIGHTS}"
        )
    return checkpoint.load(folder / WEIGHTS)


def make_config(request: Request, task: Task, saved: checkpoint.Checkpoint | None) -> TrainingConfig:
    """The task's defaults, or what the saved run had, with what the command line gives on top."""
    given: dict[str, Any] = {name: value for name in PLAIN if (value := getattr(request, name)) is not None}
    for name in OPTIONAL:
        if name in given and name not in task.fields:
            raise TrainError(f"--{name} has no meaning for the task {task.name}, and would be ignored")
    for name in ("sample", "temperature"):
        if getattr(request, name) is not None and not task.writes:
            raise TrainError(
                f"--{name} has no meaning for the task {task.name}, which writes no text, and would be ignored"
            )
    if request.cell is not None:
        given["cell"] = os.path.abspath(request.cell) if is_path(request.cell) else request.cell
    if request.data is not None:
        given["data"] = os.path.abspath(request.data)
    if request.sizes:
        given["sizes"] = dict(request.sizes)
    if request.choices:
        given["choices"] = dict(request.choices)
    base = start_config(request, task, saved)
    if given.get("dropout") and given.get("layers", base.layers) < 2:
        raise TrainError("--dropout acts between layers, and would be ignored with one: give --layers")
    config = replace(base, **given, options=options(task, base, request.options))
    told = {name: f"--set {name}" for name in request.options} | {name: f"--{name}" for name in given}
    for name in task.of_files if config.data is None else task.of_made:
        if name in told:
            raise TrainError(
                f"{told[name]} has no meaning for {'made data' if config.data is None else 'data of a file'}, and would"
                " be ignored"
            )
    return replace(config, **duration(request, config, task, saved))


def start_config(request: Request, task: Task, saved: checkpoint.Checkpoint | None) -> TrainingConfig:
    if saved is None:
        return task.config(request.cell or "")
    was = saved.config
    named: dict[str, Any] = {"task": task.file or task.name, "task_digest": task.digest}
    if is_task_of(task, was):
        return replace(was, **named)  # its file may have moved
    if request.resume:
        changed = f" {task.file} is another file, or was changed since." if task.file and was.task_digest else ""
        raise TrainError(
            f"{saved.path.parent} was trained on the task {was.task};{changed} another task starts from its weights"
            " with --from"
        )
    data = was.data if remembers(task, was) else None  # a text is no table of another task
    return replace(was, **named, data=data, options=dict(task.options))


def remembers(task: Task, was: TrainingConfig) -> bool:
    """Whether what the task of a saved run keeps of its data means the same to this one."""
    return is_task_of(task, was) or (task.writes and not was.task_digest and load_task(was.task).writes)


def options(task: Task, base: TrainingConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The task's own settings, with those that are given, texts or numbers, in the type of their
    defaults."""
    found = dict(base.options)
    for name, given in settings.items():
        if name not in task.options:
            raise TrainError(
                f"the task {task.name} has no setting {name!r}; it has {', '.join(task.options) or 'none'}"
            )
        kind = type(task.options[name])
        try:
            found[name] = kind(str(given))
        except ValueError:
            raise TrainError(
                f"--set {name} must be {'a whole number' if kind is int else 'a number'}, not {given!r}"
            ) from None
    return found


def duration(
    request: Request, config: TrainingConfig, task: Task, saved: checkpoint.Checkpoint | None
) -> dict[str, Any]:
    """steps and seconds: as given, else the saved run's, else the task's; a run that only starts
    from another for `generate` writes at once."""
    if request.steps is not None and request.epochs is not None:
        raise TrainError("--steps and --epochs both say how long to train: give one of them")
    if request.steps is not None or request.seconds is not None or request.epochs is not None:
        spent = saved.meta["seconds"] if saved and request.resume else 0.0
        return {"steps": request.steps, "seconds": None if request.seconds is None else spent + request.seconds}
    if request.start is not None:
        return {
            "steps": 0 if task.name == "generate" else task.defaults.get("steps", TrainingConfig("").steps),
            "seconds": None,
        }
    return {}


def make_run(
    config: TrainingConfig, spec: Spec, task: Task, saved: checkpoint.Checkpoint | None, request: Request
) -> TrainingRun:
    memory = saved.memory if saved and remembers(task, saved.config) else {}
    if saved and request.data is None and config.data is not None and not os.path.exists(config.data):
        raise TrainError(
            f"{config.data}, which {saved.path.parent} was trained on, is not there any more: --data FILE says where it"
            " is now"
        )
    with checkpoint.told(saved.path) if saved else nullcontext():
        problem = task.make(config, memory)
    if config.retain and request.retain is None and saved is None:
        config = replace(config, retain=min(config.retain, longest(problem, config.retain)))
    epochs = request.epochs or (task.epochs if config.steps is None and config.seconds is None else 0)
    if epochs:
        if problem.epoch_steps is None:
            raise TrainError(f"the task {task.name} makes its data step by step and has no epochs: give --steps")
        config = replace(config, steps=epochs * problem.epoch_steps)
    try:
        model = problem.model(layer_maker(spec, config, request.threads, chosen=request.embed is not None))
        check_can_obey(spec, model)
        run = start_run(config, problem, model, request.threads or default_threads())
    except MemoryError:
        raise TrainError(
            f"not enough memory for --layers {config.layers}, --hidden {config.hidden} and --embed {config.embed}"
        ) from None
    if saved and request.resume:
        with checkpoint.told(saved.path):
            checkpoint.restore(run, saved)
        # a run that was killed after its last step may lack its summary: it is written now
        ended = written(run.step, saved.path.parent) is not None
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
        checkpoint.take(run.model, saved)
        obey(run.model)
    return run


def longest(problem: TrainingProblem, most: int) -> int:
    """How many steps there are to keep a state for: those of a sequence where all have as many,
    `most` where they differ or a state goes on from one batch to the next."""
    first, cursor = problem.next({})
    second, _ = problem.next(cursor)
    fixed = first.lengths is None and second.lengths is None and len(first.x) == len(second.x)
    return len(first.x) if fixed and not second.carried else most


def title_of(config: TrainingConfig) -> str:
    return Path(config.cell).stem
