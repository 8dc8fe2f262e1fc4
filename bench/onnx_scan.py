"""Cells that ONNX has no operator for, in ONNX Runtime and here: a Scan, one operator compiled from
the C export, and our kernel, each on one core.

A row is a cell at some sizes: microseconds a step of the whole batch (median of the runs), and how
many times the Scan takes what the others take.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rnnspec
from bench import machine
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import table
from rnnspec.export import onnx
from rnnspec.export.ort import ort

EXAMPLE = "python -m bench onnx_scan ln_lstm_haste mingru --hidden 64"
WHO = ("Scan", "operator", "ours")
CELLS = ("ln_lstm_haste", "mingru", "indrnn", "phased_lstm", "mut1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", default=list(CELLS), metavar="CELL", help=f"({', '.join(CELLS)})")
    parser.add_argument("--hidden", type=int, default=64, help="units, and features of the input (64)")
    parser.add_argument("--steps", type=int, default=200, help="(200)")
    parser.add_argument("--rows", type=int, action="append", help="of the batch; may be repeated (1 and 16)")
    parser.add_argument("--runs", type=int, default=30, help="of which the median is taken (30)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {
        "cells": args.cells,
        "hidden": args.hidden,
        "steps": args.steps,
        "rows": args.rows or [1, 16],
        "runs": args.runs,
    }
    return finish("onnx_scan", settings, records("bench.onnx_scan:measure", settings, 1), render, args.json)


def measure(cells: list[str], hidden: int, steps: int, rows: list[int], runs: int) -> Iterator[dict[str, Any]]:
    """A record per cell and number of rows: seconds of a step of the whole batch."""
    for name in cells:
        layer = rnnspec.Recurrent(name, hidden, hidden, threads=1).eval()
        with tempfile.TemporaryDirectory() as folder:
            sessions = _sessions(layer, Path(folder))
            for count in rows:
                given = _inputs(layer, steps, count)
                calls = [partial(s.run, None, given) for s in sessions]
                calls.append(partial(layer.infer, given if len(given) > 1 else given["x"]))
                found = dict(zip(WHO, (_median(call, runs) / steps for call in calls)))
                yield {"cell": name, "B": count, "H": hidden, "T": steps, "seconds": found}


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    head = ["cell", "T", "B", "H", *(f"us, {who}" for who in WHO), "Scan / operator", "Scan / ours"]
    lines = []
    for r in report["rows"]:
        scan, operator, ours = (r["seconds"][who] for who in WHO)
        times = [f"{1e6 * s:.2f}" for s in (scan, operator, ours)]
        sizes = [str(r[size]) for size in ("T", "B", "H")]
        lines.append([r["cell"], *sizes, *times, f"{scan / operator:.1f}", f"{scan / ours:.1f}"])
    return "\n\n".join([machine.line(report), table(head, lines, as_markdown)])


def _sessions(layer: rnnspec.Recurrent, folder: Path) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model, library = ort(layer).write(folder)
    contents = [(onnx(layer).content, ""), (model.read_bytes(), str(library))]
    made = []
    for content, needed in contents:
        if needed:
            options.register_custom_ops_library(needed)
        made.append(onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))
    return made


def _inputs(layer: rnnspec.Recurrent, steps: int, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = layer.stack.description.inputs
    return {n: rng.uniform(0.1, 1, (steps, rows, *shape)).astype(np.float32) for n, shape in shapes.items()}


def _median(call: Callable[[], Any], runs: int) -> float:
    """Seconds of a call, after two that warm up."""
    times = []
    for number in range(runs + 2):
        start = time.perf_counter()
        call()
        if number > 1:
            times.append(time.perf_counter() - start)
    return statistics.median(times)
