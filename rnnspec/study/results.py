"""What a study's storage and run folders say, as plain rows.

In: the folder of a study, which may be running. Out: a `Results`: every trial with its run folder,
and for each group the point that is best over its seeds. Nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rnnspec.language.sizes import SizeError, unit_size, with_default_sizes
from rnnspec.show.counts import count_operations
from rnnspec.storage import guarded
from rnnspec.storage.locks import once_only
from rnnspec.study.drive import about_of, run_folder
from rnnspec.study.errors import StudyError
from rnnspec.study.needed import needed
from rnnspec.study.plan import key
from rnnspec.study.search import FOLDER, GROUP, METRIC, POINT, RESULT, SEED
from rnnspec.study.store import look_into, told
from rnnspec.train.errors import TrainError
from rnnspec.train.problem import Metric
from rnnspec.train.results import LOG
from rnnspec.train.sizes import data_input, fitted
from rnnspec.train.trained import TrainedRun, load_run


@dataclass(frozen=True)
class Row:
    """A trial. state: COMPLETE, FAIL, PRUNED, RUNNING. folder: of its run, from the study's.
    score: None where it has none. result: what the run said of itself."""

    cell: str
    task: str
    number: int
    point: Mapping[str, Any]
    seed: int
    state: str
    score: float | None
    result: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return run_folder(Path(), self.cell, self.task, self.number)


@dataclass(frozen=True)
class GroupResults:
    """The trials of a cell on a task. inner: Optuna's study of them."""

    cell: str
    task: str
    metric: Metric
    rows: tuple[Row, ...]
    inner: Any

    @once_only
    def complete(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == "COMPLETE" and row.score is not None)

    @once_only
    def best(self) -> tuple[Row, ...]:
        """The trials of the point with the best mean score, one for each seed; of the points that
        ended well with most seeds. None are there where no trial ended well."""
        points: dict[str, list[Row]] = {}
        for row in self.complete:
            points.setdefault(key(row.point, 0), []).append(row)
        most = max(map(len, points.values()), default=0)
        found = [rows for rows in points.values() if len(rows) == most]
        sign = 1 if self.metric.less else -1
        chosen = min(found, key=lambda rows: sign * fmean(scores(rows)), default=[])
        return tuple(sorted(chosen, key=lambda row: row.seed))


def scores(rows: Sequence[Row]) -> list[float]:
    return [row.score for row in rows if row.score is not None]


@dataclass(frozen=True)
class Results:
    """A study's results. groups: in the order of the file, task by task."""

    name: str
    folder: Path
    groups: tuple[GroupResults, ...]

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(group.task for group in self.groups))

    @property
    def cells(self) -> list[str]:
        return list(dict.fromkeys(group.cell for group in self.groups))

    def of_task(self, task: str) -> list[GroupResults]:
        return [group for group in self.groups if group.task == task]

    def curve(self, row: Row) -> list[tuple[int, float]]:
        """(step, score) at each look at held-out data, from the run's log. StudyError where the log
        is not there whole."""
        name = next(g.metric.name for g in self.groups if (g.cell, g.task) == (row.cell, row.task))
        log, found = self.folder / row.folder / LOG, []
        try:
            for line in guarded.text(log, 2**31).splitlines():
                told_there = json.loads(line)
                if isinstance(told_there.get(name), int | float):
                    found.append((int(told_there["step"]), float(told_there[name])))
        except (OSError, guarded.Refused, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StudyError(
                f"the log of an ended trial, {log}, is gone or damaged ({type(error).__name__}): put its run folder"
                " back, or run the study anew with another --out"
            ) from None
        return found

    def flop(self, row: Row) -> int | None:
        """Operations of one step of one row of the recurrent layers, None where the folder does not
        tell."""
        try:
            return operations(load_run(self.folder / row.folder))
        except (TrainError, SizeError, OSError):
            return None


def operations(run: TrainedRun) -> int:
    """Floating-point operations of one step of one row of all recurrent layers of a run."""
    spec, config = run.spec, run.config
    (axis,), units = spec.inputs[data_input(spec)], unit_size(spec)
    total = 0
    for layer in run.layers:
        for below in (layer.input_size, *[layer.output_size] * (config.layers - 1)):
            width, sizes = fitted(spec, config.hidden, below, config.sizes)
            known = {
                **sizes,
                **({units: config.hidden} if units else {}),
                **({axis: width} if axis.isidentifier() else {}),
            }
            total += count_operations(spec, with_default_sizes(spec.sizes, known)) * (1 + config.bidirectional)
    return total


def read_results(folder: Path) -> Results:
    """The results in a study's folder. StudyError where there is none."""
    about = about_of(folder)
    optuna = needed("optuna", "a report")
    storage = look_into(folder, about["storage"])
    with told(about["storage"] or str(folder)):
        names = [s.study_name for s in optuna.get_all_study_summaries(storage, include_best_trial=False)]
        studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
        ours = [study for study in studies if study.user_attrs.get(FOLDER) == about["token"]]
        groups = [_group(study) for study in ours if GROUP in study.user_attrs and METRIC in study.user_attrs]
    if not groups:
        raise StudyError(f"{folder} has no trials yet")
    tasks = list(dict.fromkeys(group.task for group in groups))
    return Results(about["name"], folder, tuple(sorted(groups, key=lambda group: tasks.index(group.task))))


def _group(study: Any) -> GroupResults:
    place = study.user_attrs[GROUP]
    rows = tuple(_rows(study, place["cell"], place["task"]))
    return GroupResults(place["cell"], place["task"], Metric(**study.user_attrs[METRIC]), rows, study)


def _rows(study: Any, cell: str, task: str) -> Iterator[Row]:
    for trial in study.get_trials(deepcopy=False):
        if POINT in trial.user_attrs:
            attributes = trial.user_attrs
            value = trial.value if trial.state.name == "COMPLETE" else None
            yield Row(
                cell, task, trial.number, attributes[POINT], attributes[SEED], trial.state.name, value,
                attributes.get(RESULT, {}),
            )  # fmt: skip
