"""The training loop, the same for every task.

In: a `TrainingRun`, which holds everything that changes. Out: one `TrainingReport` a step; the run
is advanced in place between them, so whoever iterates may save it, stop, or draw a progress bar. No
file is touched here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.train.batches import Batch, Cursor
from rnnspec.train.clip import clip_global_norm, clip_value, not_finite
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import Diverged, TrainError
from rnnspec.train.model import Model, State
from rnnspec.train.obey import obey
from rnnspec.train.optimise import SGD, Adam, make_optimiser
from rnnspec.train.own_batches import told_of_batch
from rnnspec.train.problem import TrainingProblem
from rnnspec.train.schedules import SCHEDULES, learning_rate

EARLY_SNAPSHOTS = frozenset({0, 25, 50, 100, 200})
SNAPSHOT_SAMPLE = 60
TEMPERATURE = 0.8
DIVERGED_AFTER = 20


@dataclass
class History:
    """Training loss of every step in the problem's unit (NaN where a step was skipped), and the
    held-out snapshots."""

    loss: list[float] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)  # step, the scores, sample


@dataclass
class Best:
    """The snapshot with the best score so far, and its weights: kept only where a run may stop
    early."""

    step: int
    value: float
    params: dict[str, np.ndarray]

    __repr__ = brief_repr


@dataclass
class TrainingRun:
    """All that a checkpoint must hold to go on bit for bit."""

    config: TrainingConfig
    problem: TrainingProblem
    model: Model
    optimiser: dict[str, np.ndarray]
    threads: int = 1
    step: int = 0
    cursor: Cursor = field(default_factory=dict)
    state: State = None  # what the layer carries into the next batch, where batches go on
    seconds: float = 0.0
    skipped: int = 0
    tokens: int = 0
    best: Best | None = None
    history: History = field(default_factory=History)

    __repr__ = brief_repr


@dataclass(frozen=True)
class TrainingReport:
    """What one step did. `scores` are given at snapshots only; `trouble` names gradients that were
    not finite."""

    step: int
    fraction: float  # of the run, 0 to 1
    loss: float
    norm: float
    rate: float
    tokens: int
    seconds: float
    scores: dict[str, float] | None = None
    sample: str = ""
    trouble: str = ""


def start_run(config: TrainingConfig, problem: TrainingProblem, model: Model, threads: int = 1) -> TrainingRun:
    """A run at step 0. threads: of the optimiser; a run's numbers don't depend on them."""
    if config.steps is None and config.seconds is None:
        raise TrainError("give a number of steps or of seconds")
    if config.schedule not in SCHEDULES:
        raise TrainError(f"unknown schedule {config.schedule!r}: {', '.join(SCHEDULES)}")
    return TrainingRun(config, problem, model, optimiser_of(config).init(model.params), threads)


def optimiser_of(config: TrainingConfig, threads: int = 1) -> SGD | Adam:
    return make_optimiser(config.optimiser, config.lr, config.decay, config.momentum, threads)


def train(run: TrainingRun, stop: Callable[[], bool] = lambda: False) -> Iterator[TrainingReport]:
    """Trains until the run's steps or seconds are used up, patience ends or `stop()` is true, one
    report a step.

    Each step: a batch, its gradient g (state carried over from the batch before where the task says
    so, and no gradient with it), g clipped, the optimiser. If the norm isn't finite the step is
    skipped and a carried state starts from zero again; after 20 such steps in a row Diverged is
    raised. Snapshots (scores on held-out data) come early (0, 25, 50, 100, 200), then every 250
    steps. With patience the weights at the end are those of the best snapshot.
    """
    began = time.perf_counter() - run.seconds
    in_a_row = 0
    if run.step == 0 and not run.history.snapshots:
        found = snapshot(run)
        run.seconds = time.perf_counter() - began
        yield TrainingReport(0, 0.0, math.nan, math.nan, 0.0, 0, run.seconds, *found)
    while (done := fraction(run)) < 1 and not exhausted(run) and not stop():
        rate = learning_rate(run.config.schedule, run.config.lr, done)
        loss, norm, trouble = train_step(run, rate)
        in_a_row = 0 if math.isfinite(norm) else in_a_row + 1
        if in_a_row == DIVERGED_AFTER:
            raise Diverged(
                f"the gradients were not finite for {DIVERGED_AFTER} steps in a row, up to step {run.step} (in"
                f" {trouble}). Try a smaller --lr (it is {run.config.lr:g})"
            )
        scores, sample = snapshot(run) if due(run) else (None, "")
        run.seconds = time.perf_counter() - began
        yield TrainingReport(
            run.step, fraction(run), loss, norm, rate, run.tokens, run.seconds, scores, sample, trouble
        )
    restore_best(run)


def train_step(run: TrainingRun, rate: float) -> tuple[float, float, str]:
    """One batch: its loss, the norm of its gradients before clipping, and the names of gradients
    that are not finite."""
    batch = next_batch(run)
    run.model.at_step(run.step)
    with told_of_batch(run.problem):
        loss, grads, state = run.model.gradients(batch, run.state)
    if run.config.clip_value < math.inf:
        clip_value(grads, run.config.clip_value)
    norm, trouble = clip_global_norm(grads, run.config.clip), ""
    if math.isfinite(norm):
        optimiser_of(run.config, run.threads).step(run.model.params, grads, run.optimiser, rate)
        obey(run.model)
        run.state = state
    else:
        run.state, trouble = None, ", ".join(not_finite(grads)) or "the sum of all"
        run.skipped += 1
    run.step += 1
    run.tokens += batch.tokens
    loss = loss * run.problem.loss_scale if math.isfinite(norm) else math.nan
    run.history.loss.append(loss)
    return loss, norm, trouble


def next_batch(run: TrainingRun) -> Batch:
    """The next batch; the cursor moves on, and a state that it doesn't carry over is dropped."""
    batch, run.cursor = run.problem.next(run.cursor)
    if not batch.carried:
        run.state = None
    return batch


def fraction(run: TrainingRun) -> float:
    """How much of the run is done: of its steps or of its seconds, whichever is more."""
    config = run.config
    if config.steps == 0:
        return 1.0
    return max(
        run.step / config.steps if config.steps else 0.0, run.seconds / config.seconds if config.seconds else 0.0
    )


def due(run: TrainingRun) -> bool:
    """Whether a snapshot follows this step."""
    return (
        (run.step in EARLY_SNAPSHOTS and run.step < run.config.every)
        or run.step % run.config.every == 0
        or run.step == run.config.steps
    )


def snapshot(run: TrainingRun) -> tuple[dict[str, float], str]:
    """Scores on held-out data and a sample; both go into the history, and the weights are kept if
    they are the best so far."""
    scores = scores_of(run, quick=True)
    sample = run.problem.sample(run.model, SNAPSHOT_SAMPLE, TEMPERATURE)
    run.history.snapshots.append({"step": run.step, **scores, "sample": sample})
    if run.config.patience:
        value = scores[run.problem.metric.name]
        if run.best is None or run.problem.metric.better(value, run.best.value):
            run.best = Best(run.step, value, {name: p.copy() for name, p in run.model.params.items()})
    return scores, sample


def scores_of(run: TrainingRun, quick: bool) -> dict[str, float]:
    """The scores on held-out data, as Python's numbers. TrainError where the task's own metric is
    none of them."""
    scores = {name: float(score) for name, score in run.problem.score(run.model, quick=quick).items()}
    if run.problem.metric.name not in scores:
        raise TrainError(
            f"the task {run.config.task_name} gives no score {run.problem.metric.name!r}, by which it is to be judged;"
            f" it gives {', '.join(scores) or 'none'}"
        )
    return scores


def exhausted(run: TrainingRun) -> bool:
    """Whether as many snapshots as patience allows came after the best one."""
    if not run.config.patience or run.best is None:
        return False
    return sum(s["step"] > run.best.step for s in run.history.snapshots) >= run.config.patience


def restore_best(run: TrainingRun) -> None:
    """At the end of a run with patience: the weights of the best snapshot."""
    if run.best is not None and (fraction(run) >= 1 or exhausted(run)):
        for name, p in run.model.params.items():
            p[...] = run.best.params[name]
