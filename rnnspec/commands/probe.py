"""`rnnspec probe`: a table on stdout, figures where asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from rnnspec.commands.output import say, say_wrapped
from rnnspec.commands.probe_run import of_run
from rnnspec.commands.progress import waiting
from rnnspec.errors import RnnspecError
from rnnspec.probe import Probe, ProbeSubject, draw, initial, probe
from rnnspec.probe.online import Alignment, alignments, draw_alignments
from rnnspec.storage.jsontext import json_text
from rnnspec.train.errors import TrainError
from rnnspec.train.results import finite

OF_CELLS = ("hidden", "inputs", "retain", "choice", "size")
HIDDEN, INPUTS = 32, 16


def run(args: argparse.Namespace) -> int:
    """0 where all was measured, 2 where something was not; the rest is told nonetheless. Everything
    is measured before anything is written."""
    if not args.cells and not args.trained:
        raise TrainError("give a cell, like lstm, or a trained run: --run RUN_DIR")
    if folders := [cell for cell in args.cells if Path(cell).is_dir()]:
        raise TrainError(f"{folders[0]} is a folder, and no cell: a trained run is given by --run {folders[0]}")
    given = [name for name in OF_CELLS if getattr(args, name)]
    if given and not args.cells:
        raise TrainError(
            f"--{given[0]} is about cells at their initial weights, and would be ignored: a run has its own"
        )
    if args.online:
        return online(args)
    probes, failed = measured(subjects(args), args.seed)
    if args.json:
        found = {"cells": [p.to_json() for p in probes]} | ({"failed": failed} if failed else {})
        say(json_text(finite(found), indent=None))
    elif probes:
        say_wrapped(table(probes))
    if args.out and probes:
        _written(lambda: draw(probes, args.out), args.out)
    for trouble in failed:
        say(f"rnnspec probe: {trouble['name']}: {trouble['error']}", error=True)
    return 2 if failed else 0


def online(args: argparse.Namespace) -> int:
    """How near rules that learn step by step come to the gradient. As `run`."""
    found, failed = list[Alignment](), list[dict[str, str]]()
    for subject in subjects(args):
        with waiting(f"probing {subject.name}"):
            made, refused = alignments(subject, list(dict.fromkeys(args.online)), args.seed)
        found += made
        failed += [{"name": f"{subject.name}, {rule}", "error": error} for rule, error in refused.items()]
    if args.json:
        say(
            json_text(
                finite({"online": [a.to_json() for a in found]} | ({"failed": failed} if failed else {})), indent=None
            )
        )
    for one in [] if args.json else found:
        steps = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if t < len(one.cosine)] + [len(one.cosine)]
        at = ", ".join(f"{t}: {one.cosine[t - 1]:.3f}" for t in steps)
        say_wrapped(
            f"{one.name}, {one.rule}\n  cosine with the gradient at step {at}\n  mean {np.nanmean(one.cosine):.3f}"
        )
    if args.out and found:
        _written(lambda: draw_alignments(found, args.out), args.out)
    for trouble in failed:
        say(f"rnnspec probe: {trouble['name']}: {trouble['error']}", error=True)
    return 2 if failed else 0


def _written(write: Callable[[], list[Path]], name: str) -> None:
    """Writes figures, and tells which."""
    try:
        paths = write()
    except OSError as error:
        raise TrainError(f"can't write {name}.png: {error.strerror}") from None
    say("written     " + ", ".join(map(str, paths)), error=True)


def measured(subjects: Iterable[ProbeSubject], seed: int) -> tuple[list[Probe], list[dict[str, str]]]:
    """The probes of those that can be measured, and why the others can't: name and error."""
    probes, failed = [], []
    for subject in subjects:
        with waiting(f"probing {subject.name}"):
            try:
                probes.append(probe(subject, seed))
            except RnnspecError as error:
                failed.append({"name": subject.name, "error": str(error)})
            except MemoryError:
                failed.append({"name": subject.name, "error": "not enough memory: smaller sizes need less"})
    return probes, failed


def subjects(args: argparse.Namespace) -> list[ProbeSubject]:
    """What is probed: all of it, so that what is bad is told before the first is measured."""
    untrained = []
    for cell in args.cells:
        try:
            subject = initial(
                cell,
                hidden=args.hidden or HIDDEN,
                inputs=args.inputs or INPUTS,
                steps=args.length,
                rows=args.rows,
                seed=args.seed,
                retain=args.retain or 0,
                sizes=dict(args.size),
                choices=dict(args.choice),
            )
        except ValueError as error:
            raise error if isinstance(error, RnnspecError) else TrainError(f"{cell}: {error}") from error
        untrained.append(subject)
    return untrained + [of_run(folder, steps=args.length, rows=args.rows) for folder in args.trained]


def table(probes: Iterable[Probe]) -> str:
    """A block of lines for each."""
    parts = []
    for p in probes:
        last = len(p.norms) - 1
        lags = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if k < last] + [last]
        lines = [
            p.name,
            "  gradient at lag " + ", ".join(f"{k}: {p.norms[k]:.2g}" for k in lags),
            _rate(p, last),
            (
                f"  Jacobian of a step, means: spectral radius {p.radius.mean():.3f}, largest singular value"
                f" {p.gain.mean():.3f}"
            ),
        ]
        lines += [
            f"  {g.name} ({g.function}): mean {g.mean:.3f}, {g.low:.1%} in the lowest tenth, {g.high:.1%} in the"
            " highest"
            for g in p.gates
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _rate(p: Probe, last: int) -> str:
    if last < 2:
        return "  one step has no rate from lag to lag: give a larger --length"
    if not p.norms[1] > 0:
        return "  nothing of the gradient is left at lag 1"
    if p.reach < last:
        left = f"beyond lag {p.reach} less than a hundredth of lag 1 is left"
    else:
        left = f"{p.left:.2g} of lag 1 is left" if p.left <= 1 else f"{p.left:.2g} times lag 1"
        left += f" at lag {last}, the first step"
    return f"  {p.rate:.4f} times per step back; {left}"
