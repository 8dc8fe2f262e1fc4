"""Progress of long work on stderr: a live bar on a terminal, plain lines elsewhere. rich is
imported for a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rnnspec.commands.output import say
from rnnspec.errors import visible
from rnnspec.study.drive import Progress as StudyProgress
from rnnspec.train.loop import TrainingReport
from rnnspec.train.problem import TrainingProblem

RECENT = 50
SAMPLE, LEAST = 40, 12  # letters of a sample beside a snapshot, and how many are worth showing


@dataclass
class Pace:
    """Speed and time left, from the reports so far: only steps of this session count."""

    first: TrainingReport | None = None
    recent: list[float] = field(default_factory=list)

    def add(self, report: TrainingReport) -> None:
        self.first = self.first or report
        if report.loss == report.loss:
            self.recent = [*self.recent, report.loss][-RECENT:]

    def loss(self) -> float | None:
        """Training loss, mean of the last 50 steps."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    def speed(self, report: TrainingReport) -> float | None:
        """Steps of rows per second: characters, words, values."""
        first = self.first or report
        seconds = report.seconds - first.seconds
        return (report.tokens - first.tokens) / seconds if seconds > 0 else None

    def left(self, report: TrainingReport) -> float | None:
        """Seconds."""
        first = self.first or report
        done = report.fraction - first.fraction
        return (report.seconds - first.seconds) * (1 - report.fraction) / done if done > 0 else None


def line(report: TrainingReport, pace: Pace, problem: TrainingProblem, width: int | None = None) -> str:
    """One snapshot on one line; of its sample what has room in `width` columns."""
    loss, speed, left = pace.loss(), pace.speed(report), pace.left(report)
    parts = [f"step {report.step:>5}", f"loss {'  -  ' if loss is None else f'{loss:5.3f}'}"]
    metric = problem.metric
    parts.append(
        f"held-out {report.scores[metric.name]:5.3f} {metric.unit}"
        if report.scores is not None
        else " " * (15 + len(metric.unit))
    )
    parts.append(f"{speed:>7,.0f}/s" if speed else " " * 9)
    parts.append(f"{clock(left)} left" if left is not None else " " * 9)
    told = "  ".join(parts)
    room = SAMPLE if width is None else min(SAMPLE, width - len(told) - 4)
    sample = visible(" ".join(report.sample.split())[:room]) if room >= LEAST else ""
    return told + (f"  | {sample}" if sample else "")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


@contextmanager
def training(title: str, problem: TrainingProblem) -> Iterator[Callable[[TrainingReport], None]]:
    """Yields show(report), to be called after every step; snapshots leave a line behind, other
    steps only move the bar."""
    pace = Pace()
    if not sys.stderr.isatty():

        def show_plain(report: TrainingReport) -> None:
            pace.add(report)
            if report.trouble:
                say(f"step {report.step:>5}  skipped: gradients not finite in {report.trouble}", error=True)
            if report.scores is not None:
                say(line(report, pace, problem), error=True)

        yield show_plain
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.text import Text

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(visible(title), total=1.0, status="")

        def show(report: TrainingReport) -> None:
            pace.add(report)
            if report.trouble:
                console.print(Text(visible(f"step {report.step}: skipped, gradients not finite in {report.trouble}")))
            if report.scores is not None:
                console.print(
                    Text(line(report, pace, problem, console.width)), overflow="ellipsis", no_wrap=True, crop=True
                )
            loss, speed, left = pace.loss(), pace.speed(report), pace.left(report)
            status = (
                "" if loss is None or speed is None else f"{loss:.3f}  {speed:,.0f} a second  {clock(left or 0)} left"
            )
            bar.update(task, completed=report.fraction, status=status)

        yield show


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Says what is being waited for."""
    if not sys.stderr.isatty():
        say(f"{text} ...", error=True)
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(visible(text)):
        yield


@contextmanager
def counting(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yields progress(what, done, total). label: what is done with each. What is said meanwhile
    stands above the bar: it is drawn on stdout where that is a terminal, on stderr where that alone
    is one."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        yield lambda what, done, total: None
        return
    from rich import get_console
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn(label, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        console=get_console() if sys.stdout.isatty() else Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
        transient=True,
    ) as bar:
        task = bar.add_task("")
        yield lambda what, done, total: bar.update(task, description=visible(what), completed=done, total=total)


EVERY = 10.0  # seconds between lines about a study where there is no terminal


class StudyView:
    """What is told of a study while it runs: `last` is how it stood when it was told of last."""

    def __init__(self, draw: Callable[[StudyProgress], None]):
        self.draw = draw
        self.last: StudyProgress | None = None

    def __call__(self, told: StudyProgress) -> None:
        self.last = told
        if told.ended is not None and told.ended.error:
            where = f"{told.ended.group}, trial {told.ended.number}"
            say(f"{where} {told.ended.state}: {told.ended.error}", error=True)
        self.draw(told)


def standing(told: StudyProgress) -> str:
    """How a study stands, on one line."""
    parts = [f"{told.done + told.failed + told.pruned} of {told.total} done"]
    parts += [f"{told.failed} failed"] * bool(told.failed) + [f"{told.pruned} given up"] * bool(told.pruned)
    parts += [f"{told.running} running"] * bool(told.running)
    parts += [f"{clock(told.left)} left"] if told.left is not None else []
    if told.ended is not None and (best := told.best[told.ended.group]) is not None:
        parts.append(f"{told.ended.group} best {best:.4g}")
    return ", ".join(parts)


@contextmanager
def studying(title: str) -> Iterator[StudyView]:
    """Yields show(progress) of a study: a bar on a terminal, elsewhere a line every ten seconds."""
    if not sys.stderr.isatty():
        before = [-EVERY]

        def draw_plain(told: StudyProgress) -> None:
            now = time.monotonic()
            if now - before[0] >= EVERY or told.done + told.failed + told.pruned == told.total:
                before[0] = now
                say(standing(told), error=True)

        yield StudyView(draw_plain)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bars = (TextColumn(visible(title), markup=False), BarColumn(), MofNCompleteColumn())
    text = TextColumn("{task.description}", markup=False)
    with Progress(*bars, text, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def draw(told: StudyProgress) -> None:
            done = told.done + told.failed + told.pruned
            bar.update(task, completed=done, total=told.total, description=visible(standing(told)))

        yield StudyView(draw)
