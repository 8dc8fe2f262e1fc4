"""A trial for another machine: the files that its configuration names go with it, and those of its
run come back.

In: a `Job` of this machine. Out: the `Job` to send; and from what comes back the run folder here.
The worker has rnnspec installed, and nothing of the study.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rnnspec.errors import SpecError
from rnnspec.language.load import is_path, load, loads
from rnnspec.language.rewrite import to_yaml
from rnnspec.storage import atomic, guarded
from rnnspec.study.trial import SENT, Ended, Job
from rnnspec.train.own_task import SUFFIX

MOST_DATA = 2**28  # bytes of a file of data that is sent with every trial


def sent(job: Job) -> Job:
    """The job with its files in it, to be run in a folder of the worker's own. A cell that extends
    another file goes as one text. Refused or OSError where a file can't be read."""
    config, files = job.config, dict[str, tuple[str, bytes]]()
    cell, task, data = (str(config.get(name) or "") for name in ("cell", "task", "data"))
    if is_path(cell):
        files["cell"] = (Path(cell).name, whole_text(cell).encode())
    if task.endswith(SUFFIX):
        files["task"] = (Path(task).name, guarded.read(task))
    if data:
        files["data"] = (Path(data).name, guarded.read(data, MOST_DATA))
    return replace(job, folder=None, files=files)


def whole_text(path: str) -> str:
    """The text of a cell's file, with what it extends in it."""
    text = guarded.text(path, 2**20)
    try:
        loads(text)
    except SpecError:  # it names a file beside it
        return to_yaml(load(path))
    return text


def received(ended: Ended, folder: Path) -> Ended:
    """Writes the files of a run into its folder here, each whole. Raises OSError."""
    if ended.files:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_all({folder / name: ended.files[name] for name in SENT if name in ended.files})
    return replace(ended, files={})
