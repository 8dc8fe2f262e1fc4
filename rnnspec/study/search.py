"""The trials of one group, asked of Optuna and told to it.

A point is a value for each axis; each point is a trial with every seed. What a trial is stands in
its `user_attrs` (point, seed), so that whoever starts after a kill finds the trials that ran, and
runs them again under their own numbers: none is lost, and none is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rnnspec.study.errors import StudyError
from rnnspec.study.needed import needed
from rnnspec.study.plan import Axis, Group, Halving, Study, grid, key
from rnnspec.study.trial import DONE, FAILED, PRUNED, Ended
from rnnspec.train.problem import Metric
from rnnspec.train.request import Request
from rnnspec.train.setup import configured

POINT, SEED, STOP, RESULT = "point", "seed", "prune", "result"  # attributes of a trial
METRIC, FOLDER, GROUP = "metric", "folder", "group"  # attributes of a study


@dataclass(frozen=True)
class Asked:
    """A trial that is to be run."""

    group: Group
    number: int
    point: Mapping[str, Any]
    seed: int

    @property
    def config(self) -> dict[str, Any]:
        return self.group.config(self.point, self.seed)


def metric_of(group: Group) -> Metric:
    """The metric of a group's task, which only its problem knows."""
    found = configured(Request(**group.config(group.first(), 0)))
    return found.task.make(found.config, {}).metric


def distribution(axis: Axis) -> Any:
    """An axis as Optuna has it."""
    kinds = needed("optuna", "a study").distributions
    if axis.values is not None:
        return kinds.CategoricalDistribution(axis.values)
    if axis.whole:
        return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.log, step=int(axis.step or 1))
    return kinds.FloatDistribution(float(axis.low), float(axis.high), log=axis.log, step=axis.step)


def suggest(trial: Any, axis: Axis) -> None:
    """Gives a trial a value for an axis, if it has none."""
    if axis.values is not None:
        trial.suggest_categorical(axis.name, axis.values)
    elif axis.whole:
        trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log, step=int(axis.step or 1))
    else:
        trial.suggest_float(axis.name, float(axis.low), float(axis.high), log=axis.log, step=axis.step)


@dataclass
class Search:
    """The search of one group. inner: Optuna's study of it. taken: the trials that this process
    runs now. queue: points and seeds that no trial has yet, in order."""

    study: Study
    group: Group
    inner: Any
    stale: list[Asked] = field(default_factory=list)
    queue: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    asked: int = 0  # points of a search that goes by what it was told
    done: dict[str, int] = field(default_factory=dict)  # state -> trials
    best: float | None = None

    def __post_init__(self) -> None:
        self.space = {axis.name: distribution(axis) for axis in self.group.axes}
        trials = self.inner.get_trials(deepcopy=False)
        seen, points = set[str](), dict[str, dict[str, Any]]()
        for trial in trials:
            asked = self.again(trial)
            seen.add(key(asked.point, asked.seed))
            points.setdefault(key(asked.point, 0), dict(asked.point))
            if trial.state.is_finished():
                self.count(trial.state.name, trial.value)
            elif STOP in trial.user_attrs:
                self.finish(trial.number, PRUNED, None)
            else:
                self.stale.append(asked)
        known = self.plan() if self.study.sampler != "tpe" else [*points.values()]
        self.asked = len(points)
        self.queue = [(p, s) for s in self.study.seeds for p in known if key(p, s) not in seen]

    def plan(self) -> list[dict[str, Any]]:
        """The points that do not depend on what was found: of a grid, or drawn by Optuna."""
        if self.study.sampler == "grid":
            return [*grid(self.group)]
        optuna = needed("optuna", "a study")
        drawn = optuna.create_study(sampler=optuna.samplers.RandomSampler(self.study.seed))
        return [dict(drawn.ask(self.space).params) for _ in range(self.study.points)]

    def again(self, trial: Any) -> Asked:
        """What a trial of the storage is; one whose process was killed while it was made is
        completed."""
        attributes = trial.user_attrs
        if POINT not in attributes:
            return self.noted(self.completed(trial._trial_id))
        if not trial.state.is_finished() and (trial.state.name == "WAITING" or set(trial.params) != set(self.space)):
            if trial.state.name == "WAITING":
                self.inner.ask(self.space)  # takes the oldest that waits: there is at most one
            else:
                self.completed(trial._trial_id)
        return Asked(self.group, trial.number, attributes[POINT], attributes[SEED])

    def completed(self, trial_id: int) -> Any:
        """A trial with a value for each axis, drawn where it had none."""
        trial = needed("optuna", "a study").trial.Trial(self.inner, trial_id)
        for axis in self.group.axes:
            suggest(trial, axis)
        return trial

    def noted(self, trial: Any) -> Asked:
        """A trial that the search has chosen, with its point and its seed in the storage."""
        asked = Asked(self.group, trial.number, dict(trial.params), self.study.seeds[0])
        trial.set_user_attr(SEED, asked.seed)
        trial.set_user_attr(POINT, dict(asked.point))
        return asked

    def next(self) -> Asked | None:
        """The next trial to run, None where there is none (now)."""
        if self.stale:
            return self.stale.pop(0)
        if self.queue:
            point, seed = self.queue.pop(0)
            self.inner.enqueue_trial(point, user_attrs={POINT: point, SEED: seed})
            return Asked(self.group, self.inner.ask(self.space).number, point, seed)
        if self.study.sampler == "tpe" and self.asked < self.study.points:
            self.asked += 1
            self.inner.sampler = sampler(self.study, self.asked)
            asked = self.noted(self.inner.ask(self.space))
            self.queue += [(dict(asked.point), seed) for seed in self.study.seeds[1:]]
            return asked
        return None

    def look(self, number: int, step: int, score: float) -> bool:
        """Tells how a trial stands at a step; whether it is to be given up."""
        if self.study.pruner is None:
            return False
        trial = self.trial(number)
        trial.report(score, step)
        if not trial.should_prune():
            return False
        trial.set_user_attr(STOP, step)
        return True

    def trial(self, number: int) -> Any:
        trials = self.inner.get_trials(deepcopy=False)
        return needed("optuna", "a study").trial.Trial(self.inner, trials[number]._trial_id)

    def tell(self, ended: Ended) -> None:
        """How a trial ended; only then it counts."""
        trial = self.trial(ended.number)
        trial.set_user_attr(RESULT, {"error": ended.error, **ended.summary})
        self.finish(ended.number, ended.state, ended.summary.get("score"))

    def finish(self, number: int, state: str, value: float | None) -> None:
        states = needed("optuna", "a study").trial.TrialState
        as_optuna = {DONE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[state]
        self.inner.tell(number, value if state == DONE else None, as_optuna)
        self.count(as_optuna.name, value)

    def count(self, state: str, value: float | None) -> None:
        self.done[state] = self.done.get(state, 0) + 1
        less = self.inner.direction.name == "MINIMIZE"
        if (
            state == "COMPLETE"
            and value is not None
            and (self.best is None or (value < self.best if less else value > self.best))
        ):
            self.best = value

    @property
    def left(self) -> int:
        """How many trials there are still to start."""
        points = self.study.points - self.asked if self.study.sampler == "tpe" else 0
        return len(self.stale) + len(self.queue) + max(0, points) * len(self.study.seeds)


def sampler(study: Study, number: int) -> Any:
    """Optuna's sampler for the point of this number; it has a seed of its own, so that a search
    that goes on draws other points than before. Points that are being tried count as bad ones, so
    that the processes do not all try the same."""
    optuna = needed("optuna", "a study")
    if study.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=(study.seed * 1_000_003 + number) % 2**32, constant_liar=True)
    return optuna.samplers.RandomSampler(study.seed)


def pruner(halving: Halving | None) -> Any:
    pruners = needed("optuna", "a study").pruners
    if halving is None:
        return pruners.NopPruner()
    return pruners.SuccessiveHalvingPruner(min_resource=halving.least, reduction_factor=halving.factor)


def searches(study: Study, storage: Any, token: str) -> Iterator[Search]:
    """The search of each group. token: of the study's folder; a study of the same name in the same
    storage that belongs to another folder is refused."""
    optuna = needed("optuna", "a study")
    known = {summary.study_name for summary in optuna.get_all_study_summaries(storage, include_best_trial=False)}
    for group in study.groups:
        name = f"{study.name}: {group.name}"
        more = {"sampler": sampler(study, 0), "pruner": pruner(study.pruner)}
        if name in known:
            inner = optuna.load_study(study_name=name, storage=storage, **more)
            check_owner(inner, name, token)
        else:
            metric = metric_of(group)
            direction = "minimize" if metric.less else "maximize"
            inner = optuna.create_study(study_name=name, storage=storage, direction=direction, **more)
        described(inner, group, token)
        yield Search(study, group, inner)


def described(inner: Any, group: Group, token: str) -> None:
    """Notes what a study is of: whose it is first, its metric last, so that one with a metric has
    it all."""
    if METRIC not in inner.user_attrs:
        inner.set_user_attr(FOLDER, token)
        inner.set_user_attr(GROUP, {"cell": group.cell, "task": group.task})
        inner.set_user_attr(METRIC, asdict(metric_of(group)))


def check_owner(inner: Any, name: str, token: str) -> None:
    if inner.user_attrs.get(FOLDER, token) != token:
        raise StudyError(
            f"the storage has a study {name!r} already, of another folder. Give this one another name: in its file, or"
            " another --storage"
        )
