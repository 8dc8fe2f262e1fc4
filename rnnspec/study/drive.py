"""A study from its start, or from where it was, to its end.

In: a Study, a folder, and what runs jobs. Out: counts, and the trials in the storage with a run
folder each. One process drives a study: it alone asks, tells and writes to the storage.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnspec.storage import atomic, guarded
from rnnspec.storage.atomic import held
from rnnspec.study.errors import StorageLost, StudyError
from rnnspec.study.plan import Study
from rnnspec.study.search import METRIC, Asked, Search, searches
from rnnspec.study.store import open_storage, told
from rnnspec.study.trial import FULL, STOPPED, Ended, Job
from rnnspec.study.workers import Decide, Workers
from rnnspec.train.errors import Full

ABOUT, TEXT, RUNS = "study.json", "study.yaml", "runs"
WAIT = 0.2  # seconds between looks at whether to stop


@dataclass(frozen=True)
class Progress:
    """How a study stands. done, failed, pruned: trials that ended, of this session and before.
    ended: the trial that ended last, None at the start. left: seconds, None while unknown."""

    total: int
    done: int
    failed: int
    pruned: int
    running: int
    best: Mapping[str, float | None]
    left: float | None
    ended: Ended | None = None


@dataclass
class Driver:
    """A study that is being run. make: of the workers, given what decides over looks."""

    study: Study
    folder: Path
    storage_name: str
    searches: dict[str, Search]
    show: Callable[[Progress], None]
    began: float = field(default_factory=time.monotonic)
    running: set[tuple[str, int]] = field(default_factory=set)
    prepared: list[Asked] = field(default_factory=list)  # asked for, and not begun
    ended_here: int = 0

    def decide(self, group: str, number: int, step: int, scores: dict[str, float]) -> bool:
        search = self.searches[group]
        with told(self.storage_name):
            return search.look(number, step, scores[search.inner.user_attrs[METRIC]["name"]])

    def run(self, workers: Workers, stop: Callable[[], bool]) -> bool:
        """Runs all that is left; whether it all ended."""
        self.tell_progress(None)
        try:
            while not stop():
                self.fill(workers)
                if not self.running:
                    break
                self.prepare(workers.size)
                for ended in workers.ended(WAIT):
                    self.running.discard((ended.group, ended.number))
                    self.hand_over(workers)  # a worker works again while the storage is told
                    self.take(ended)
        except BaseException:  # their trials go on when the study does
            workers.close()
            raise
        for ended in workers.close():
            self.take(ended)
        return not (self.running or self.prepared) and not any(search.left for search in self.searches.values())

    def fill(self, workers: Workers) -> None:
        """Gives every free worker a trial: of each group in turn."""
        self.hand_over(workers)
        while len(self.running) < workers.size:
            with told(self.storage_name):
                found = self.next_trial()
            if found is None:
                return
            self.submit(workers, found)

    def prepare(self, size: int) -> None:
        """Asks for trials ahead while workers work: the storage waits for the disk. A search that
        goes by what it was told asks for none."""
        while self.study.sampler != "tpe" and len(self.prepared) < size:
            with told(self.storage_name):
                found = self.next_trial()
            if found is None:
                return
            self.prepared.append(found)

    def hand_over(self, workers: Workers) -> None:
        while self.prepared and len(self.running) < workers.size:
            self.submit(workers, self.prepared.pop(0))

    def submit(self, workers: Workers, found: Asked) -> None:
        self.running.add((found.group.name, found.number))
        workers.submit(Job(found.group.name, found.number, found.config, str(self.place(found))))

    def next_trial(self) -> Asked | None:
        """Of the group that has started the smallest part of its trials."""
        for search in sorted(self.searches.values(), key=lambda s: -s.left / max(1, self.study.count(s.group))):
            if (asked := search.next()) is not None:
                return asked
        return None

    def place(self, asked: Asked) -> Path:
        return run_folder(self.folder, asked.group.cell, asked.group.task, asked.number)

    def take(self, ended: Ended) -> None:
        """Tells the storage how a trial ended, once its files are there."""
        self.running.discard((ended.group, ended.number))
        if ended.state == STOPPED:
            return
        if ended.state == FULL:
            raise StorageLost(f"{ended.error}. Make room and start again: the study goes on from there")
        with told(self.storage_name):
            self.searches[ended.group].tell(ended)
        self.ended_here += 1
        self.tell_progress(ended)

    def tell_progress(self, ended: Ended | None) -> None:
        counts = {
            name: sum(s.done.get(name, 0) for s in self.searches.values()) for name in ("COMPLETE", "FAIL", "PRUNED")
        }
        seconds = time.monotonic() - self.began
        rest = self.study.total - sum(counts.values())
        left = seconds / self.ended_here * rest if self.ended_here else None
        best = {name: search.best for name, search in self.searches.items()}
        self.show(
            Progress(
                self.study.total,
                counts["COMPLETE"],
                counts["FAIL"],
                counts["PRUNED"],
                len(self.running),
                best,
                left,
                ended,
            )
        )


def run_folder(folder: Path, cell: str, task: str, number: int) -> Path:
    """Where a trial's run is: every number of a report is from such a folder."""
    return folder / RUNS / cell / task / str(number)


def run_study(
    study: Study,
    folder: Path,
    make: Callable[[Decide | None], Workers],
    *,
    storage: str | None = None,
    show: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs a study in a folder, or goes on with it; whether it all ended.

    make: the workers, given what decides over looks at held-out data (None without a pruner).
    storage: the URL of a database (a journal file in the folder). show: called as it goes on.
    stop: asked a few times a second. Raises StudyError, and StorageLost where the disk or the
    database can't be written: the study goes on from there when it is started again.
    """
    with alone(folder):
        about = checked(study, folder, storage)
        name = about["storage"] or str(folder)
        opened = open_storage(folder, about["storage"])
        with told(name):
            found = {search.group.name: search for search in searches(study, opened, about["token"])}
        driver = Driver(study, folder, name, found, show)
        return driver.run(make(driver.decide if study.pruner else None), stop)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a study's folder. StudyError where another process does, Full where it can't be
    made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Full(f"can't make the folder {folder}: {error.strerror}") from None
    with held(folder) as free:
        if not free:
            raise StudyError(f"another process runs the study in {folder}: wait for it, or choose another --out")
        yield


def checked(study: Study, folder: Path, storage: str | None) -> dict[str, Any]:
    """What the folder keeps of its study, written at its first start. StudyError where it has
    another one."""
    path = folder / ABOUT
    now: dict[str, Any] = {
        "name": study.name,
        "text": hashlib.sha256(study.text.encode()).hexdigest(),
        "digests": dict(study.digests),
    }
    if not path.exists():
        others = [p.name for p in folder.iterdir() if not p.name.startswith(".")]
        if others:
            raise StudyError(f"{folder} holds something else ({', '.join(sorted(others)[:5])}): choose another --out")
        about = {"rnnspec_study": 1, "token": uuid.uuid4().hex, "storage": storage, **now}
        with told(str(path)):
            atomic.write(path, json.dumps(about, indent=1).encode())
            atomic.write(folder / TEXT, study.text.encode())
        return about
    about = about_of(folder)
    if storage is not None and storage != about["storage"]:
        raise StudyError(f"the trials of {folder} are in {about['storage'] or 'its journal file'}, not in {storage}")
    if about["text"] != now["text"] or about["name"] != study.name:
        raise StudyError(
            f"{folder} holds the study of another text: give the changed one another --out, or put the file back as it"
            f" was ({folder / TEXT} has its text)"
        )
    changed = [p for p, digest in study.digests.items() if about["digests"].get(p, digest) != digest]
    if changed:
        raise StudyError(f"{changed[0]} was changed since {folder} was begun: give the study another --out")
    return about


def about_of(folder: Path) -> dict[str, Any]:
    """What the folder says about its study. StudyError where it is none."""
    try:
        about = guarded.values(folder / ABOUT, 2**24)
        if not isinstance(about, dict) or about["rnnspec_study"] != 1:
            raise KeyError("rnnspec_study")
        kinds = {"name": str, "text": str, "token": str, "digests": dict}
        if any(not isinstance(about[k], kind) for k, kind in kinds.items()) or not (
            about["storage"] is None or isinstance(about["storage"], str)
        ):
            raise ValueError("a part of it is of another kind")
        return about
    except FileNotFoundError:
        raise StudyError(f"{folder} holds no study: there is no {folder / ABOUT}") from None
    except (guarded.Refused, KeyError, ValueError) as error:
        raise StudyError(f"{folder / ABOUT} is damaged, or of another version ({error})") from None
