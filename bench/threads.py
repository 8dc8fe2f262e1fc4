"""What `threads=None` takes: its time against one thread's, and against that of all threads, taken
whether they pay or not.

One process bound to all the processors asked for; values first, then rounds of one, default and all
in turn, medians of wall-clock times.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from bench import machine
from bench.case import CELLS, Case, Data
from bench.compare import positive, shape
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import repeats, seconds

EXAMPLE = "python -m bench threads lstm --shape 128,16,32 128,1,256"
SHAPES = [
    (128, 1, 64),
    (128, 1, 256),
    (128, 16, 32),
    (100, 20, 100),
    (128, 32, 128),
    (128, 32, 256),
    (64, 64, 512),
    (32, 64, 1024),
]
MODES = ("inference", "training")
GOAL = 0.97  # of one thread's time over the default's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)} (lstm gru rnn)")
    parser.add_argument("--shape", type=shape, nargs="+", metavar="T,B,D", default=SHAPES, help="(eight shapes)")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="(both)")
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="all there are (2)")
    parser.add_argument("--rounds", type=positive, default=9, help="of all three in turn (9)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {
        "cells": args.cells or ["lstm", "gru", "rnn"],
        "shape": args.shape,
        "mode": args.mode,
        "threads": args.threads,
        "rounds": args.rounds,
    }
    return finish("threads", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cases = [
        asdict(Case(cell, T, B, D, D, mode=mode))
        for cell in settings["cells"]
        for mode in settings["mode"]
        for T, B, D in settings["shape"]
    ]
    arguments = {"cases": cases, "threads": settings["threads"], "rounds": settings["rounds"]}
    with progress(len(cases)) as done:
        for row in records("bench.threads:measure", arguments, settings["threads"]):
            done(f"{row['cell']} {row['mode']}")
            yield row


def measure(cases: list[dict[str, Any]], threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A record per case: seconds of one thread, of the default, and of all; what was measured of
    the machine stands in each."""
    import rnnspec
    from rnnspec.backends.cpu.launch.costs import costs
    from rnnspec.backends.cpu.launch.rows import Limits

    for fields in cases:
        case = Case(**fields)
        kernels = {
            "one": rnnspec.compile(case.cell, threads=1),
            "default": rnnspec.compile(case.cell),
            "all": rnnspec.compile(case.cell, threads=threads),
        }
        kernels["all"].limits = Limits(flops_per_thread=1, flops_per_barrier=1)
        calls = {who: _call(kernel, Data(case)) for who, kernel in kernels.items()}
        values = {who: call() for who, call in calls.items()}
        for found in values.values():  # bit for bit
            for name, array in values["one"].items():
                np.testing.assert_array_equal(array, found[name], err_msg=f"{case}, {name}")
        many = repeats(calls["one"])
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(rounds):
            for who, call in calls.items():
                call()
                times[who].append(seconds(call, many))
        medians = {who: statistics.median(found) for who, found in times.items()}
        yield fields | {"seconds": medians, "costs": asdict(costs())}


def _call(kernel: Any, data: Data) -> Callable[[], dict[str, Any]]:
    weights, inputs, dy = kernel.pack(data.params), {"x": data.x}, {"h": data.dy}

    def train() -> dict[str, Any]:
        return dict(kernel.backward(kernel.forward(data.params, inputs), dy).params)

    return train if data.case.mode == "training" else lambda: dict(kernel.infer(weights, inputs).outputs)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    head = ["cell", "shape", "", "ms, one", "default", "all", "one / default", "one / all", "goal"]
    lines = []
    for r in report["rows"]:
        one, default, every = (r["seconds"][who] for who in ("one", "default", "all"))
        lines.append(
            [
                r["cell"],
                f"T{r['T']} B{r['B']} H{r['H']}",
                r["mode"],
                *(milliseconds(s) for s in (one, default, every)),
                f"{one / default:.2f}",
                f"{one / every:.2f}",
                "met" if one / default >= GOAL else "not met",
            ]
        )
    measured = report["rows"][0]["costs"] if report["rows"] else {}
    about = f"Goal: one thread's time over the default's at least {GOAL}. Measured of the machine: {measured}"
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
