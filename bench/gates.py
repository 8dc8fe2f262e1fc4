"""Cells side by side: parameters, work and time of a step, tape, and what they learn on one task.

Parameters and FLOP of a step and row are counted from the equations, at D = H = 128. time: forward
and backward of T = 128 steps of B = 32 rows, per step and row; tape: what forward keeps for
backward, per step and row; both at those sizes, float32. score: of a task of `rnnspec train` with
its defaults (--steps to change how long), all with the same data and seed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import table

EXAMPLE = "python -m bench gates rnn gru lstm mgu --task copy"
T, B, SIZE, TIMES = 128, 32, 128, 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", default=["rnn", "gru", "lstm"], metavar="NAME", help="cells (rnn gru lstm)")
    parser.add_argument("--task", default="adding", help="of `rnnspec train` (adding)")
    parser.add_argument("--steps", type=int, metavar="N", help="of training (the task's default)")
    parser.add_argument("--threads", type=int, default=1, help="(1)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from rnnspec.errors import RnnspecError
    from rnnspec.language.load import load
    from rnnspec.train import load_task

    try:
        load_task(args.task)
        for name in args.names:
            load(name)
    except RnnspecError as error:
        print(error, file=sys.stderr)
        return 2
    settings = {"names": args.names, "task": args.task, "steps": args.steps, "threads": args.threads}
    return finish("gates", settings, _rows(**settings), render, args.json)


def _rows(names: list[str], task: str, steps: int | None, threads: int) -> Iterator[dict[str, Any]]:
    with progress(len(names)) as done:
        for name in names:
            for row in records(
                "bench.gates:measure", {"name": name, "task": task, "steps": steps, "threads": threads}, threads
            ):
                done(name)
                yield row


def measure(name: str, task: str, steps: int | None, threads: int) -> Iterator[dict[str, Any]]:
    """One record, made in a process of its own."""
    from rnnspec.language.load import load
    from rnnspec.show.counts import counts

    yield {"cell": name} | counts(load(name), SIZE) | speed(name, threads) | score(name, task, steps, threads)


def speed(name: str, threads: int) -> dict[str, Any]:
    """Seconds and tape bytes per step and row."""
    import numpy as np

    import rnnspec
    from bench.timing import measure as measured
    from bench.timing import repeats
    from rnnspec.train.sizes import fitted

    spec = rnnspec.load(name)
    width, more = fitted(spec, SIZE, SIZE, {})
    layer = rnnspec.Recurrent(spec, width, SIZE, threads=threads, sizes=more)
    x = np.random.default_rng(0).standard_normal((T, B, width), np.float32)
    tape = layer.stack.forward(layer.params, x).tape_bytes
    ones = layer(x)[0]
    dy = tuple(np.ones_like(y) for y in ones) if isinstance(ones, tuple) else np.ones_like(ones)

    def call() -> None:
        layer(x)
        layer.backward(dy)

    call()
    many = repeats(call)
    times = [measured(call, many) / (T * B) for _ in range(TIMES)]
    return {"seconds": statistics.median(times), "all_seconds": times, "tape_bytes": tape / (T * B)}


def score(name: str, task_name: str, steps: int | None, threads: int) -> dict[str, Any]:
    """The task's score after its default run, and the seconds of it: those of its looks at held-out
    data (the first, early ones, the last) too."""
    from rnnspec.language.load import load
    from rnnspec.train import layer_maker, load_task, start_run, train

    task = load_task(task_name)
    config = task.config(name, every=10**9)
    problem = task.make(config, {})
    steps = steps or config.steps or task.epochs * (problem.epoch_steps or 0)
    run = start_run(replace(config, steps=steps), problem, problem.model(layer_maker(load(name), config, threads)))
    for _ in train(run):
        pass
    found = problem.score(run.model, quick=False)
    metric = problem.metric
    return {
        "task": task_name,
        "metric": metric.name,
        "unit": metric.unit,
        "score": found[metric.name],
        "train_steps": steps,
        "train_seconds": run.seconds,
        "model_parameters": sum(a.size for a in run.model.params.values()),
    }


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    rows = report["rows"]
    if not rows:
        return machine.line(report)
    first = rows[0]
    head = [
        "cell",
        "parameters",
        "FLOP a step",
        "ns a step",
        "tape bytes a step",
        f"{first['task']}: {first['metric']}",
        "parameters of it",
        "s to train",
    ]
    counts = [["?" if r[count] is None else f"{r[count]:,}" for count in ("parameters", "flop")] for r in rows]
    lines = [
        [
            r["cell"],
            *own,
            f"{r['seconds'] * 1e9:.0f}",
            f"{r['tape_bytes']:.0f}",
            f"{r['score']:.4g}",
            f"{r['model_parameters']:,}",
            f"{r['train_seconds']:.1f}",
        ]
        for own, r in zip(counts, rows)
    ]
    about = (
        f"D = H = {SIZE}; time and tape of forward and backward per step and row, T = {T}, B = {B}, float32,"
        f" {report['settings']['threads']} thread(s). Score: {first['unit']}, task {first['task']},"
        f" {first['train_steps']:,} steps, its own sizes; the time to train has the looks at held-out data in it, at"
        " the first and last step and a few early ones."
    )
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
