"""Tasks of one's own: a Python file with a `TASK`, by the interface that those of `tasks/` have.

In: a path that the user names; a run folder may name one too, and that is never run. Out: a `Task`
whose problems are looked over before anything is trained.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rnnspec.errors import DtypeError, RnnspecError, ShapeError
from rnnspec.storage.sources import import_file
from rnnspec.train.batches import Batch
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.problem import OPTIONAL, Metric, Task, TrainingProblem
from rnnspec.train.tables import read_bytes
from rnnspec.train.tasks import load_task

SUFFIX = ".py"
MEMBERS = tuple(name for name in vars(TrainingProblem) if not name.startswith("_"))


def find_task(name: str) -> Task:
    """A task by its name, or the one in a Python file, which is run: only for a name that the user
    gave."""
    return task_in(name) if name.endswith(SUFFIX) else load_task(name)


def task_in(path: str | Path) -> Task:
    """The `TASK` of a Python file. TrainError says what is wrong with the file, and in which
    line."""
    path = Path(path).absolute()
    content = read_bytes(path)
    with told(path):
        task = getattr(import_file(path, importlib.util.decode_source(content)), "TASK", None)
    if not isinstance(task, Task):
        found = "it has none" if task is None else f"there it is {type(task).__name__}"
        raise TrainError(f"{path}: a task is a `TASK = rnnspec.train.Task(...)` at the top of its file; {found}")
    known = {field.name for field in fields(TrainingConfig)}
    for what, names, allowed in (("defaults", task.defaults, known), ("fields", task.fields, OPTIONAL)):
        if unknown := [name for name in names if name not in allowed]:
            raise TrainError(
                f"{path}: {what} of TASK has {unknown[0]!r}, which is none of {', '.join(sorted(allowed))}"
            )

    def make(config: TrainingConfig, memory: Mapping[str, Any]) -> TrainingProblem:
        with told(path):
            problem = task.make(config, memory)
            _check(problem)
        return problem

    digest = hashlib.sha256(content).hexdigest()
    return replace(task, name=path.stem, make=make, file=str(path), digest=digest)


@contextmanager
def told_of(name: str | None) -> Iterator[None]:
    """What a task that is named raises later is told as what it raises in `make`, where it is one
    of a file; what does not come through the file is raised as it is."""
    if name is None or not name.endswith(SUFFIX):
        yield
        return
    with told(Path(name).absolute(), only=True):
        yield


@contextmanager
def told(path: Path, *, only: bool = False) -> Iterator[None]:
    """What a file of the user's raises is a TrainError with its line. only: nothing else is told
    so."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename == str(path)]
        known = isinstance(error, RnnspecError) and not (own and isinstance(error, ShapeError | DtypeError))
        if known or isinstance(error, MemoryError) or (only and not own):
            raise
        if isinstance(error, SyntaxError):
            raise TrainError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
        where = f"{path}, line {own[-1].lineno}" if own else str(path)
        what = f": {error}" if str(error) else f" in {frames[-1].name}"
        raise TrainError(f"{where}: {type(error).__name__}{what}") from error


def _check(problem: Any) -> None:
    """TypeError where a problem is not what the loop, the checkpoint and the command read."""
    if missing := [name for name in MEMBERS if not hasattr(problem, name)]:
        raise TypeError(
            f"what make gives has no {', '.join(missing)}: TrainingProblem has them, and rnnspec.train.Drawn and Stored"
            " have most of them"
        )
    if not isinstance(problem.metric, Metric):
        raise TypeError(f"metric must be an rnnspec.train.Metric, not {type(problem.metric).__name__}")
    if not isinstance(problem.digest, str):
        raise TypeError(f"digest must be a text, not {type(problem.digest).__name__}")
    if json.loads(json.dumps(dict(problem.memory))) != problem.memory:
        raise TypeError("memory must be the same once it has been written as JSON: no tuples, keys are texts")
    batch, cursor = problem.next({})
    if not isinstance(batch, Batch):
        raise TypeError(f"next must give an rnnspec.train.Batch first, not {type(batch).__name__}")
    if not isinstance(cursor, dict) or not all(type(place) is int and place >= 0 for place in cursor.values()):
        raise TypeError(f"next must give a cursor second, a dict of whole numbers from 0; got {str(cursor)[:60]}")
