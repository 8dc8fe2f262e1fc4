"""`rnnspec study`: many runs from one file."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from rnnspec.backends.cpu.launch.pool import default_threads
from rnnspec.commands import progress
from rnnspec.commands.output import say, say_wrapped
from rnnspec.commands.stopping import stop_signals
from rnnspec.commands.study_arguments import OF_REPORT, OF_RUN
from rnnspec.study.clusters import cluster
from rnnspec.study.document import read_study
from rnnspec.study.drive import run_folder, run_study
from rnnspec.study.needed import needed
from rnnspec.study.plan import Axis, Group, Study, grid
from rnnspec.study.report import Asked, write_report
from rnnspec.study.workers import Decide, Processes, Workers

SHOWN = 40  # points of a group that --dry-run lists


def run(args: argparse.Namespace) -> int:
    report = args.file == "report"
    for option in OF_RUN if report else OF_REPORT:
        if getattr(args, option) is not None:
            other = "running a study" if report else "rnnspec study report"
            args.refuse(f"--{option.replace('_', '-')} is for {other}, and would be ignored")
    if report != (args.folder is not None):
        args.refuse(
            "report takes the folder of a study" if report else f"what is {args.folder} for? Only report takes a folder"
        )
    return write(args) if report else study(args)


def write(args: argparse.Namespace) -> int:
    """The report of a study that has run, or is running."""
    folder = Path(args.folder)
    given = {"against": args.against, "test": args.test, "pairs": args.pairs, "kind": args.figures}
    asked = Asked(**{k: v for k, v in given.items() if v is not None}, importance=args.importance)
    with progress.waiting("reading the trials and drawing"):
        files = write_report(folder, Path(args.out) if args.out else folder / "report", asked)
    say_wrapped(f"written     {', '.join(map(str, files))}", further=12)
    return 0


def study(args: argparse.Namespace) -> int:
    """A study, from where it is to its end."""
    found = read_study(args.file)
    if args.dry_run:
        say_wrapped(listing(found), further=4)
        return 0
    needed("optuna", "a study")
    folder = Path(args.out) if args.out else Path("studies") / found.name
    if args.address and not args.on:
        args.refuse("--address is of a cluster, and would be ignored: give --on ray or --on dask")
    size = min(args.processes or default_threads(), found.total)

    def make(decide: Decide | None) -> Workers:
        return cluster(args.on, args.address, args.processes, decide) if args.on else Processes(size, decide)

    where = f"on {args.on}" if args.on else f"{size} at once"

    say(f"{found.name}: {found.total:,} trials, {where}, in {folder}", error=True)
    with stop_signals() as stopped, progress.studying(found.name) as view:
        ended = run_study(found, folder, make, storage=args.storage, show=view, stop=lambda: stopped.number is not None)
    if not ended and stopped.number is not None:
        say(f"stopped. Go on with: rnnspec study {args.file} --out {folder}", error=True)
        return 128 + stopped.number
    return conclude(view.last, folder)


def conclude(last: progress.StudyProgress | None, folder: Path) -> int:
    """What came of it; 1 where a group has no trial that ended well."""
    if last is None:
        return 0
    failed = f", {last.failed} failed" if last.failed else ""
    pruned = f", {last.pruned} given up early" if last.pruned else ""
    say(f"{last.done} of {last.total} trials done{failed}{pruned}. A report: rnnspec study report {folder}")
    return 0 if all(best is not None for best in last.best.values()) else 1


def listing(study: Study) -> str:
    """Every group with its points, as far as they are known before anything is run."""
    lines = [f"{study.name}: {study.total:,} trials"]
    for group in study.groups:
        lines.append(
            f"{group.name}: {study.count(group):,} trials, in {run_folder(Path(), group.cell, group.task, 0).parent}"
        )
        lines += [f"    {axis.name} {axis_text(axis)}" for axis in group.axes]
        if study.sampler == "grid":
            lines += points_of(study, group)
        else:
            lines.append(f"    {study.points} points by {study.sampler}, each with seeds {seeds_text(study)}")
    return "\n".join(lines)


def points_of(study: Study, group: Group) -> list[str]:
    """The points of a grid, the first of many."""
    points = [
        ", ".join(f"{k} {v}" for k, v in point.items()) or "as the task has it" for point in islice(grid(group), SHOWN)
    ]
    more = study.count(group) // len(study.seeds) - len(points)
    return [f"    {p}; seeds {seeds_text(study)}" for p in points] + ([f"    and {more} more points"] if more else [])


def axis_text(axis: Axis) -> str:
    if axis.values is not None:
        return ", ".join(map(str, axis.values))
    kind = " by the logarithm" * axis.log + " in whole numbers" * axis.whole
    return f"{axis.low:g} to {axis.high:g}{kind}{f' in steps of {axis.step:g}' if axis.step else ''}"


def seeds_text(study: Study) -> str:
    return ", ".join(map(str, study.seeds[:10])) + (f", ... ({len(study.seeds)})" if len(study.seeds) > 10 else "")
