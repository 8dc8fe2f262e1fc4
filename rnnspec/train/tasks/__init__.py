"""The tasks, one file each: every module of this folder but those of NO_TASKS has a `TASK`. A new
task is a new file."""

from __future__ import annotations

import pkgutil
from difflib import get_close_matches
from importlib import import_module

from rnnspec.train.errors import TrainError
from rnnspec.train.problem import Task

NO_TASKS = ("gym", "shared", "trials")  # parts of several tasks


def task_names() -> tuple[str, ...]:
    """All tasks, in the order of the alphabet; nothing is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in NO_TASKS))


def load_task(name: str) -> Task:
    """The row of the table: TrainError if there is none of this name."""
    if name.startswith("neurogym:"):
        task: Task = import_module(f"{__name__}.gym").gym_task(name)
        return task
    if name not in task_names():
        near = get_close_matches(name, task_names(), 1)
        raise TrainError(
            f"unknown task {name!r}: {', '.join(task_names())}, neurogym:NAME, or a Python file of your own, like"
            " my_task.py" + (f". Did you mean {near[0]!r}?" if near else "")
        )
    return import_module(f"{__name__}.{name}").TASK
