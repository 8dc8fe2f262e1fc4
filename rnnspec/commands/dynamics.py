"""`rnnspec dynamics`: a table on stdout, a picture where one is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.commands.output import say, say_wrapped
from rnnspec.commands.probe_run import of_run
from rnnspec.commands.progress import counting, waiting
from rnnspec.dynamics.branch import continue_fixed_point
from rnnspec.dynamics.figure import draw
from rnnspec.dynamics.points import Points, cycles, slow_points
from rnnspec.dynamics.portrait import Portrait
from rnnspec.dynamics.similarity import compare
from rnnspec.dynamics.spectrum import Lyapunov, lyapunov
from rnnspec.dynamics.system import System, check_autonomous
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.errors import RnnspecError
from rnnspec.probe import ProbeSubject, initial
from rnnspec.storage.jsontext import json_text
from rnnspec.train.errors import TrainError
from rnnspec.train.results import finite

OF_CELLS = ("hidden", "inputs", "choice", "size")
HIDDEN, INPUTS = 32, 16
WARMUP, SETTLE = 500, 100
SLOWER = 1e-8  # the speed of what is slow enough
MOST_SHOWN = 12  # points in the table
Named = dict[str, Array]


def run(args: argparse.Namespace) -> int:
    """0 where all was found. Everything is found before anything is written."""
    _check(args)
    subject = of_run(args.trained, steps=args.length, rows=args.rows) if args.trained else _initial(args.cell, args)
    portrait = found(subject, args)
    if args.json:
        say(json_text(finite(portrait.to_json()), indent=None))
    else:
        say_wrapped("\n".join(table(portrait)))
    if args.out:
        try:
            paths = draw(portrait, args.out)
        except OSError as error:
            raise TrainError(f"can't write {args.out}: {error.strerror}") from None
        say("written     " + ", ".join(map(str, paths)), error=True)
    return 0


def _check(args: argparse.Namespace) -> None:
    """TrainError for arguments that do not go together."""
    if bool(args.cell) == bool(args.trained):
        raise TrainError("give a cell, like lstm, or a trained run, --run RUN_DIR: one of them")
    if args.cell and Path(args.cell).is_dir():
        raise TrainError(f"{args.cell} is a folder, and no cell: a trained run is given by --run {args.cell}")
    given = [name for name in OF_CELLS if getattr(args, name)]
    if given and args.trained:
        raise TrainError(
            f"--{given[0]} is about a cell at its initial weights, and would be ignored: a run has its own"
        )
    if bool(args.along) != bool(args.over):
        raise TrainError("--along and --over go together: what moves, and from where to where")
    if args.along and args.period > 1:
        raise TrainError("--along follows fixed points: leave --period out")
    if args.driven and not args.exponents:
        raise TrainError("--driven is about exponents, of which --exponents 0 asks for none")


def _initial(cell: str, args: argparse.Namespace) -> ProbeSubject:
    try:
        return initial(
            cell,
            hidden=args.hidden or HIDDEN,
            inputs=args.inputs or INPUTS,
            steps=args.length,
            rows=args.rows,
            seed=args.seed,
            sizes=dict(args.size),
            choices=dict(args.choice),
        )
    except ValueError as error:
        raise error if isinstance(error, RnnspecError) else TrainError(f"{cell}: {error}") from error


def found(subject: ProbeSubject, args: argparse.Namespace) -> Portrait:
    """All that was asked for of a cell."""
    check_autonomous(subject.spec)
    kernel = compile(subject.spec, dtype="float64")
    with waiting(f"running {subject.name}"):
        went, starts, held, states = _ran(kernel, subject, args)
    with counting("starts") as progress:
        points = cycles(
            kernel, subject.params, held, starts, args.period, progress=lambda n, of: progress(subject.name, n, of)
        )
    slow = branch = None
    if args.slow:
        with counting("slow points") as progress:
            slow = slow_points(
                kernel,
                subject.params,
                held,
                starts,
                slower=SLOWER,
                progress=lambda n, of: progress(subject.name, n, of),
            )
    exponents = _exponents(kernel, subject, held, states, args) if args.exponents else None
    if args.along:
        if not len(points):
            raise TrainError("no fixed point was found for --along to begin with: give more --starts")
        first = {n: a[0] for n, a in points.states.items()}
        with waiting(f"following a fixed point along {args.along}"):
            branch = continue_fixed_point(kernel, subject.params, held, first, args.along, tuple(args.over))
    if not args.against:
        return Portrait(subject.name, went, points, slow, exponents, branch)
    other, theirs = _other(args)
    with waiting(f"comparing with {other}"):
        similarity = compare(went, theirs, delays=args.delays, rank=args.rank, seed=args.seed)
    return Portrait(subject.name, went, points, slow, exponents, branch, similarity, other)


def _other(args: argparse.Namespace) -> tuple[str, Array]:
    """The name and the trajectories of what --against names."""
    is_run = Path(args.against).is_dir()
    subject = of_run(args.against, steps=args.length, rows=args.rows) if is_run else _initial(args.against, args)
    check_autonomous(subject.spec)
    with waiting(f"running {subject.name}"):
        return subject.name, _ran(compile(subject.spec, dtype="float64"), subject, args)[0]


def _ran(kernel: Kernel, subject: ProbeSubject, args: argparse.Namespace) -> tuple[Array, Named, Named, Named]:
    """Trajectories [T, B, N], states to start from, inputs that are held, and the last states."""
    steps, rows = subject.lead
    moved = np.random.default_rng([args.seed, 10])
    zero = {n: np.zeros((rows, *s)) for n, s in _shapes(kernel, subject).items()}
    first = {n: a if subject.inputs else moved.normal(0, args.noise, a.shape) for n, a in zero.items()}
    run = kernel.forward(subject.params, subject.inputs, first, steps=steps, rows=rows, noise="mean")
    flat = {n: a.reshape(-1, *a.shape[2:]) for n, a in run.states.items()}
    went = np.concatenate([a.reshape(steps, rows, -1) for a in run.states.values()], axis=2)
    if not np.isfinite(went).all():
        raise RnnspecError(f"the states of {subject.name} are not finite after {steps} steps: give a smaller --length")
    picked = moved.integers(steps * rows, size=args.starts)
    starts = {n: a[picked] + moved.normal(0, args.noise, (args.starts, *a.shape[1:])) for n, a in flat.items()}
    held = {n: a.mean(axis=(0, 1)) if args.hold == "mean" else np.zeros(a.shape[2:]) for n, a in subject.inputs.items()}
    return went, starts, held, dict(run.final)


def _shapes(kernel: Kernel, subject: ProbeSubject) -> dict[str, tuple[int, ...]]:
    """The shape of each state."""
    from rnnspec.language.sizes import full_shape

    return {n: full_shape(shape, subject.sizes) for n, shape in kernel.states.items()}


def _exponents(kernel: Kernel, subject: ProbeSubject, held: Named, states: Named, args: argparse.Namespace) -> Lyapunov:
    steps = subject.lead[0]
    k = min(args.exponents, System(kernel, subject.params, held, states).size)
    settings: dict[str, Any] = {"states": states, "warmup": WARMUP, "settle": SETTLE}
    inputs = held
    if args.driven:
        if not held:
            raise TrainError(f"{subject.name} has no inputs that could drive it: leave --driven out")
        if steps <= 20:
            raise TrainError(f"{steps} steps are too few to count exponents over: give a larger --length")
        inputs = dict(subject.inputs)
        settings |= {"warmup": steps // 10, "settle": steps // 10}
    with counting("exponents") as progress:
        return lyapunov(
            kernel,
            subject.params,
            inputs,
            k,
            seed=args.seed,
            steps=None if args.driven else args.steps,
            progress=lambda n, of: progress(subject.name, n, of),
            **settings,
        )


def table(portrait: Portrait) -> Iterator[str]:
    """Its lines."""
    points = portrait.points
    noun = "fixed point" if points.period == 1 else f"{points.period}-cycle"
    yield f"{portrait.name}: {len(points.names)} numbers in its states"
    yield from _points(points, noun)
    if portrait.slow is not None:
        yield from _points(portrait.slow, "slow point")
    if (e := portrait.exponents) is not None:
        yield "  Lyapunov exponents per step: " + ", ".join(f"{v:.5g}" for v in e.exponents)
        dimension = "more than that many tell" if np.isnan(e.dimension) else f"{e.dimension:.4g}"
        yield f"  Kaplan-Yorke dimension: {dimension}; {e.steps:,} steps, {e.qr:,} QR"
    if (b := portrait.branch) is not None:
        yield (
            f"  along {b.label}: {len(b)} points from {b.values[0]:.5g} to {b.values[-1]:.5g}; ends: {b.ends[0]},"
            f" {b.ends[1]}"
        )
        for at in b.special:
            yield f"    {at.kind} at {b.label} = {at.value:.8g}, eigenvalue {_complex(at.eigenvalue)}"
    if (s := portrait.similarity) is not None:
        yield (
            f"  dynamical similarity to {portrait.other}: {s.distance:.4g} (an angle, 0 to pi); the linear maps tell"
            f" {s.fit[0]:.1%} and {s.fit[1]:.1%} of the next step"
        )


def _points(points: Points, noun: str) -> Iterator[str]:
    missed = f"; {points.missed} starts came to none" if points.missed else ""
    yield f"  {len(points)} {noun}{'s' * (len(points) != 1)}, {int(points.stable.sum())} stable{missed}"
    for m in range(min(len(points), MOST_SHOWN)):
        kind = "stable" if points.stable[m] else f"{points.unstable[m]} unstable directions"
        largest = ", ".join(_complex(v) for v in points.eigenvalues[m][:3])
        yield (
            f"    {m + 1}: {kind}; eigenvalues {largest}{' ...' * (len(points.names) > 3)}; residual"
            f" {points.residual[m]:.1e}; {points.starts[m]} starts"
        )
    if len(points) > MOST_SHOWN:
        yield f"    ... and {len(points) - MOST_SHOWN} more (--json has all)"


def _complex(value: complex) -> str:
    return f"{value.real:.4g}" + (f"{value.imag:+.4g}i" if value.imag else "")
