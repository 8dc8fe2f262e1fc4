"""One trial: from plain data to plain data, in whatever process it is run.

In: a `Job` as a mapping, picklable. Out: how it ended, with what a study keeps of it. Nothing of
the study's storage is known here.
"""

from __future__ import annotations

import math
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnspec.errors import RnnspecError
from rnnspec.storage.atomic import ROOMLESS
from rnnspec.train.errors import Busy, Diverged, Full
from rnnspec.train.loop import TrainingReport
from rnnspec.train.results import LOG, METRICS, WEIGHTS
from rnnspec.train.runs import run

Look = Callable[[int, dict[str, float] | None], str]
"""(step, scores at a look at held-out data or None) -> "go", "prune" or "stop"."""
DONE, PRUNED, FAILED, STOPPED, FULL = "done", "pruned", "failed", "stopped", "full"
PATIENCE = 30.0  # seconds for which a run folder may be another process's
SENT = (METRICS, LOG, WEIGHTS)


@dataclass(frozen=True)
class Job:
    """A trial to be run. group, number: which one it is. config: of its run. folder: where it is
    run, None for a place of the worker's own, whose files then come back. files: what stands in the
    places of paths in `config`, by the key: its name and its content."""

    group: str
    number: int
    config: Mapping[str, Any]
    folder: str | None
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a trial ended: `state` is DONE, PRUNED, FAILED, STOPPED (it goes on another time) or
    FULL. summary: what metrics.json says that a report needs. files: of the run, where it has no
    folder here."""

    group: str
    number: int
    state: str
    error: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def carry_out(job: Job, look: Look | None = None) -> Ended:
    """Runs a trial; whatever it raises is a FAILED one, but for a full disk, which is no fault of
    the trial's."""
    answers: list[str] = []

    def report(told: TrainingReport) -> bool:
        answer = "go" if look is None else look(told.step, told.scores)
        if answer != "go":
            answers.append(answer)
        return answer != "go"

    try:
        with tempfile.TemporaryDirectory() if job.folder is None or job.files else nullcontext() as own:
            place = Path(job.folder or f"{own}/run")
            metrics = patient(placed(job, own), report, place)
            files = {} if job.folder else {n: (place / n).read_bytes() for n in SENT if (place / n).exists()}
            return ended(job, metrics, answers, files)
    except Full as error:
        return Ended(job.group, job.number, FULL, f"{error}")
    except (RnnspecError, ArithmeticError) as error:
        kind = "diverged: " if isinstance(error, Diverged) else ""
        return Ended(job.group, job.number, FAILED, f"{kind}{error}")
    except MemoryError:
        return Ended(job.group, job.number, FAILED, "not enough memory")
    except OSError as error:
        return Ended(job.group, job.number, FULL if error.errno in ROOMLESS else FAILED, f"{error}")
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return Ended(job.group, job.number, FAILED, f"{type(error).__name__}: {error} ({at.filename}:{at.lineno})")


def patient(config: dict[str, Any], report: Callable[[TrainingReport], bool], place: Path) -> dict[str, Any]:
    """The run; a worker of a driver that was killed may be about to let go of its folder."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return run(config, report, place)
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def placed(job: Job, own: str | None) -> dict[str, Any]:
    """The configuration, with the files that came along written into a folder of this process."""
    config = dict(job.config)
    for number, (key, (name, content)) in enumerate(job.files.items()):
        path = Path(f"{own}/{number}") / name
        path.parent.mkdir()
        path.write_bytes(content)
        config[key] = str(path)
    return config


def ended(job: Job, metrics: Mapping[str, Any], answers: list[str], files: Mapping[str, bytes]) -> Ended:
    """What a run's results say about its trial."""
    final = metrics["final"]
    state, error = DONE, ""
    if answers and not final["finished"]:
        state = PRUNED if answers[0] == "prune" else STOPPED
    elif final["not_finite"] or not (isinstance(final["score"], float | int) and math.isfinite(final["score"])):
        state, error = FAILED, f"the score {final['not_finite'][0]} is not finite"
    summary = {
        "score": final["score"],
        "scores": final["scores"],
        "metric": metrics["metric"],
        "step": final["step"],
        "seconds": final["seconds"],
        "compile_seconds": final["compile_seconds"],
        "parameters": metrics["parameters"]["trained"],
    }
    return Ended(job.group, job.number, state, error, summary, files)
