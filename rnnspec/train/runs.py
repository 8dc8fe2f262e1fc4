"""A whole run: from plain data to plain results, in a folder or without one.

In: a configuration as a mapping. Out: what `metrics.json` has. `rnnspec train` and `rnnspec study`
are made of the same pieces; what they print is theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.storage.atomic import held, sweep
from rnnspec.train import checkpoint
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import Busy, Diverged, Full, TrainError
from rnnspec.train.loop import TEMPERATURE, TrainingReport, TrainingRun, train
from rnnspec.train.own_batches import told_of_batch
from rnnspec.train.own_task import told_of
from rnnspec.train.request import Request, request_of
from rnnspec.train.results import FILES, LOG, WEIGHTS, Ending, MetricsLog, finite, write_results, written
from rnnspec.train.setup import Setup, configured, set_up

CHARACTERS = 400  # of the sample at the end
NOT_COMPARED = ("cell", "task", "data", "equations", "cell_text", "steps", "retain")
"""Fields of a configuration that say where something lies, or that are counted once the data are
read."""


def run(
    config: Mapping[str, Any],
    report: Callable[[TrainingReport], object] | None = None,
    folder: str | Path | None = None,
) -> dict[str, Any]:
    """Trains a cell on a task and returns what `metrics.json` has: plain data, the same for the
    same `config`, but for the times.

    config: plain data, by the names of `Request`: {"cell": "lstm", "task": "adding", "hidden": 32,
        "lr": 1e-3, "seed": 1, "steps": 500}. What is not given is the task's. Without `figures` no
        plots are drawn.
    report: called after every step; the run stops after that step where it gives True, and
        "finished" is false under "final" then.
    folder: where the files of a run go. If it has this run already, a finished one is read and
        returned, and one that was stopped, or killed, goes on where it was saved, to the same bits.

    Raises TrainError or SpecError for what is wrong with `config`, and where the folder has another
    run, Full where it can't be written to, and Diverged, with the results written.
    """
    request = request_of(config)
    if request.cell is None:
        raise TrainError("a run needs a cell, like {'cell': 'lstm'}")
    place = None if folder is None else Path(folder)
    with told_of(request.task), nullcontext() if place is None else taken(place):
        if place is not None and (place / WEIGHTS).exists():
            wanted = configured(request).config
            saved = checkpoint.load(place / WEIGHTS)
            check_same(request, wanted, saved.config, place)
            if (done := written(saved.meta["step"], place)) is not None:
                return done
            request = replace(request, resume=str(place), steps=None, epochs=None, seconds=None)
        setup = set_up(request)
        return _trained(setup, request, place, report)


def _trained(
    setup: Setup, request: Request, place: Path | None, report: Callable[[TrainingReport], object] | None
) -> dict[str, Any]:
    """Compiles, trains, and writes what came of it."""
    this, stopped = setup.run, False

    def show(told: TrainingReport) -> None:
        nonlocal stopped
        stopped = (report is not None and report(told) is True) or stopped

    first, compiled, trouble = (this.seconds, this.tokens), compile_kernels(this), ""
    with quiet():
        try:
            follow(this, place, show, lambda: stopped)
        except Diverged as error:
            trouble = str(error)
        metrics = write_results(this, place, first, compiled, ending(request, setup))
    if trouble:
        raise Diverged(trouble)
    return finite(metrics)


def check_same(request: Request, wanted: TrainingConfig, was: TrainingConfig, folder: Path) -> None:
    """TrainError where a folder has a run with another configuration."""
    names = [f.name for f in fields(TrainingConfig) if f.name not in NOT_COMPARED]
    names += [name for name in ("steps", "seconds", "retain") if getattr(request, name) is not None]
    lines = [
        f"{name} is {getattr(wanted, name)!r} now, and was {getattr(was, name)!r}"
        for name in dict.fromkeys(names)
        if getattr(wanted, name) != getattr(was, name)
    ]
    if not (wanted.task_digest or was.task_digest) and wanted.task != was.task:
        lines.insert(0, f"task is {wanted.task} now, and was {was.task}")
    if lines:
        raise TrainError(f"{folder} has another run: {'; '.join(lines)}. Give each run a folder of its own")


# the pieces, which `rnnspec train` is made of too


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """Holds a folder for one run, and makes it; one in which nothing came about is taken away
    again. Busy where another process writes a run there, Full where it can't be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Full(f"can't make the folder {folder}: {error.strerror}") from None
    with held(folder) as alone:
        if not alone:
            raise Busy(f"another process is writing a run into {folder}: choose another --out, or wait for it")
        for name in FILES:
            sweep(folder / name)
        try:
            yield
        except BaseException:
            with suppress(OSError):  # where there is something in it
                folder.rmdir()
            raise


def compile_kernels(run: TrainingRun) -> float:
    """Compiles what the first batch needs, or loads it from the cache; returns the seconds."""
    began = time.perf_counter()
    batch, _ = run.problem.next({})
    with told_of_batch(run.problem):
        run.model.warm_up(batch)
    return time.perf_counter() - began


def quiet() -> Any:
    """What isn't finite is told by name, and the step skipped: NumPy need not warn of it."""
    return np.errstate(over="ignore", invalid="ignore")


def ending(request: Request, setup: Setup) -> Ending:
    """How the run is to be written down."""
    return Ending(
        request.threads,
        CHARACTERS if request.sample is None else request.sample,
        TEMPERATURE if request.temperature is None else request.temperature,
        request.figures,
        setup.retained,
        bool(request.weights_only),
    )


def follow(
    run: TrainingRun, folder: Path | None, show: Callable[[TrainingReport], object], stop: Callable[[], bool]
) -> None:
    """Trains, shows and logs every report, and saves the run at every snapshot, the first before
    any step included. Nothing is written where there is no folder."""
    with nullcontext() if folder is None else MetricsLog(folder / LOG, run.step) as log:
        for report in train(run, stop):
            show(report)
            if log is not None and folder is not None:
                log.write(report)
                if report.scores is not None:
                    save(folder / WEIGHTS, run)


def save(path: Path, run: TrainingRun) -> None:
    """What can't be written is said, with what is there still."""
    try:
        checkpoint.save(path, run)
    except OSError as error:
        whole = (
            f"; the run as it was saved before is whole: rnnspec train --resume {path.parent}" if path.exists() else ""
        )
        raise Full(f"can't write {path} at step {run.step}: {error.strerror or error}{whole}") from None
