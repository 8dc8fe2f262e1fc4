"""Peak memory and tape of one forward and backward, rnnspec (memory="full" and "low") against
torch.nn.

A fresh process per case. peak: the rise of its peak resident set from after a tiny case, arrays of
the call already made, to after the first call at size, so that it counts outputs, tape, scratch and
gradients. tape: the bytes kept between forward and backward; for torch the saved tensors that are
neither x nor a weight, each storage once. Wall-clock ms of forward and backward, one thread, the
median of five.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import machine, peers
from bench.case import Case, Data
from bench.compare import shape
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import groups, milliseconds, table
from bench.timing import seconds

EXAMPLE = "python -m bench memory --cell lstm --shape 2048,16,256"
SHAPES = [(128, 32, 256), (2048, 16, 256)]
WHO = ("full", "low", "torch")
CALLS = 5
MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cell", default="lstm", choices=("lstm", "gru", "rnn"), help="(lstm)")
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        metavar="T,B,D",
        default=SHAPES,
        help="steps, rows, features = units (128,32,256 2048,16,256)",
    )
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    who = [w for w in WHO if w != "torch" or not peers.missing("torch")]
    if "torch" not in who:
        print("torch is left out: not installed", file=sys.stderr)
    settings = {"cell": args.cell, "shape": args.shape}
    return finish("memory", settings, _rows(args.cell, args.shape, who), render, args.json)


def _rows(cell: str, shapes: list[tuple[int, int, int]], who: list[str]) -> Iterator[dict[str, Any]]:
    todo = [(w, asdict(Case(cell, T, B, D, D, mode="training"))) for T, B, D in shapes for w in who]
    with progress(len(todo)) as done:
        for w, fields in todo:
            list(
                records("bench.memory:measure", {"who": w, "case": fields | {"T": 3, "B": 2}}, 1)
            )  # kernels are compiled before memory counts
            for row in records("bench.memory:measure", {"who": w, "case": fields}, 1):
                done(f"{w} {Case(**fields)}")
                yield row


def measure(who: str, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One record: bytes of peak and tape, seconds."""
    make = _torch if who == "torch" else lambda c: _ours(c, who)
    make(Case(**case | {"T": 2, "B": 1}))[0]()
    call, tape = make(Case(**case))
    before = peak_bytes(reset=True)
    call()
    peak = peak_bytes() - before
    times = [seconds(call) for _ in range(CALLS)]
    yield case | {
        "who": who,
        "peak_bytes": peak,
        "tape_bytes": tape(),
        "seconds": statistics.median(times),
        "all_seconds": times,
    }


def peak_bytes(reset: bool = False) -> int:
    """The peak resident set of this process so far; on Linux counted anew from here after a
    reset."""
    if reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def tape_bytes(run: Any) -> int:
    """The memory that a Run keeps for backward."""
    return run.tape_bytes


def _ours(case: Case, memory: str) -> tuple[Callable[[], object], Callable[[], int]]:
    import rnnspec

    kernel, data = rnnspec.compile(case.cell, dtype=case.dtype, threads=1, memory=memory), Data(case)
    params, inputs, dy = data.params, {"x": data.x}, {"h": data.dy}
    return lambda: kernel.backward(kernel.forward(params, inputs), dy), lambda: tape_bytes(
        kernel.forward(params, inputs)
    )


def _torch(case: Case) -> tuple[Callable[[], object], Callable[[], int]]:
    import torch

    torch.set_num_threads(1)
    data = Data(case)
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[case.cell](case.D, case.H)
    x, dy = torch.tensor(data.x, requires_grad=True), torch.tensor(data.dy)

    def call() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x)[0].backward(dy)

    def tape() -> int:
        saved: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = layer(x)[0]
        known = {t.untyped_storage().data_ptr() for t in (x, *layer.parameters())}
        del y
        return sum(size for start, size in saved.items() if start not in known)

    return call, tape


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    """A line per case; ratios are torch's over ours (above 1 we take less), and low's over
    full's."""
    head = [
        "cell",
        "shape",
        "",
        "peak MiB",
        "tape MiB",
        "ms",
        "torch / this: peak",
        "tape",
        "time",
        "this / full: tape",
        "time ",
    ]
    lines = []
    for found in groups(report["rows"], "cell", "T", "B", "H").values():
        by = {r["who"]: r for r in found}
        for r in found:
            over = [
                _ratio(by.get("torch"), r, f) if r["who"] != "torch" else ""
                for f in ("peak_bytes", "tape_bytes", "seconds")
            ]
            low = [_ratio(r, by.get("full"), f) if r["who"] == "low" else "" for f in ("tape_bytes", "seconds")]
            name = "torch.nn" if r["who"] == "torch" else f"memory={r['who']}"
            lines.append(
                [
                    r["cell"],
                    f"T{r['T']} B{r['B']} H{r['H']}",
                    name,
                    f"{r['peak_bytes'] / MIB:.1f}",
                    f"{r['tape_bytes'] / MIB:.1f}",
                    milliseconds(r["seconds"]),
                    *over,
                    *low,
                ]
            )
    return "\n\n".join(
        [
            machine.line(report),
            (
                "Forward and backward, one thread, float32."
                " peak: the rise of the peak resident set over that after a tiny case."
            ),
            table(head, lines, as_markdown),
        ]
    )


def _ratio(above: dict[str, Any] | None, below: dict[str, Any] | None, field: str) -> str:
    return f"{above[field] / below[field]:.3g}" if above and below and below[field] > 0 else ""
