"""What a study costs beside its training runs, and what a second process brings.

Trivial trials (an RNN of 2 units, 2 steps) with warm kernels: the time from one end to the next
with one process, less that of `rnnspec.train.run` alone in a folder; then trials of --steps with
one process and with two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from rnnspec.study.document import parse_study
from rnnspec.study.drive import run_study
from rnnspec.study.plan import Study
from rnnspec.study.workers import Processes
from rnnspec.train import run

EXAMPLE = "python -m bench study --trials 1000 --json study.json"
MOST_OVERHEAD, LEAST_SPEEDUP = 0.030, 1.8  # seconds a trial, and times one process
WARM = 3  # ends before time is taken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=1000, help="trivial trials (1000)")
    parser.add_argument("--long", type=int, default=40, help="longer trials with one process and with two (40)")
    parser.add_argument("--steps", type=int, default=2000, help="steps of a longer trial (2000)")
    parser.add_argument("--json", help="write the figures into this file")


def study_of(seeds: int, steps: int) -> Study:
    task = f"{{task: adding, length: 4, batch: 2, hidden: 2, steps: {steps}, every: {steps}}}"
    return parse_study(f"study: 1\ncells: rnn\ntasks: {task}\nseeds: {seeds + WARM}\n", Path("bench.yaml"))


def alone(study: Study, place: Path) -> float:
    """Seconds of one run of the study's, in a folder, the mean."""
    group, ends = study.groups[0], []
    for seed in study.seeds:
        run(group.config({}, seed), folder=place / str(seed))
        ends.append(time.perf_counter())
    return (ends[-1] - ends[WARM - 1]) / (len(ends) - WARM)


def in_study(study: Study, place: Path, processes: int) -> float:
    """Seconds from the end of one trial to that of the next, the mean."""
    ends: list[float] = []
    run_study(
        study,
        place,
        lambda decide: Processes(processes, decide),
        show=lambda told: ends.append(time.perf_counter()) if told.ended else None,
    )
    return (ends[-1] - ends[WARM - 1]) / (len(ends) - WARM)


def main(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        trivial, longer = study_of(args.trials, 2), study_of(args.long, args.steps)
        bare, driven = alone(trivial, place / "alone"), in_study(trivial, place / "trivial", 1)
        one, two = (in_study(longer, place / f"long-{n}", n) for n in (1, 2))
    found = {"alone_ms": 1e3 * bare, "in_study_ms": 1e3 * driven, "overhead_ms": 1e3 * (driven - bare)}
    found |= {"one_process_s": one, "two_processes_s": two, "speedup": one / two}
    print(f"a trivial trial   {1e3 * bare:.1f} ms alone, {1e3 * driven:.1f} ms in a study of {args.trials}")
    good = driven - bare <= MOST_OVERHEAD
    print(f"overhead          {1e3 * (driven - bare):.1f} ms a trial (at most 30: {'met' if good else 'missed'})")
    good = one / two >= LEAST_SPEEDUP
    print(f"two processes     {one / two:.2f} times one (at least 1.8: {'met' if good else 'missed'})")
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0
