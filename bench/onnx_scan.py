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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rnnspec
from rnnspec.export import onnx
from rnnspec.export.ort import ort

EXAMPLE = "python -m bench onnx_scan ln_lstm_haste mingru --hidden 64"
CELLS = ("ln_lstm_haste", "mingru", "indrnn", "phased_lstm", "mut1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", default=list(CELLS), metavar="CELL", help=f"({', '.join(CELLS)})")
    parser.add_argument("--hidden", type=int, default=64, help="units, and features of the input (64)")
    parser.add_argument("--steps", type=int, default=200, help="(200)")
    parser.add_argument("--rows", type=int, action="append", help="of the batch; may be repeated (1 and 16)")
    parser.add_argument("--runs", type=int, default=30, help="of which the median is taken (30)")


def main(args: argparse.Namespace) -> int:
    print(f"{'cell':<20}{'rows':>5}{'Scan':>10}{'operator':>10}{'ours':>10}{'  operator':>10}{'  ours':>8}")
    for name in args.cells:
        layer = rnnspec.Recurrent(name, args.hidden, args.hidden, threads=1).eval()
        with tempfile.TemporaryDirectory() as folder:
            sessions = _sessions(layer, Path(folder))
            for rows in args.rows or (1, 16):
                given = _inputs(layer, args.steps, rows)
                calls = [partial(s.run, None, given) for s in sessions]
                calls.append(partial(layer.infer, given if len(given) > 1 else given["x"]))
                scan, operator, ours = (1e6 * _median(call, args.runs) / args.steps for call in calls)
                print(
                    f"{name:<20}{rows:>5}{scan:>10.2f}{operator:>10.2f}{ours:>10.2f}{scan / operator:>9.1f}x"
                    f"{scan / ours:>7.1f}x",
                    flush=True,
                )
    return 0


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
