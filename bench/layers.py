"""What a stack of layers costs: rnnspec.interop.torch.Recurrent against its bare kernels, and
against torch.nn.

One process per number of threads, bound to as many processors; values first, then alternating pairs
of wall-clock times. The bare kernels are one forward and one backward call for each layer and
direction, all forward and then all backward, on arrays that lie ready: nothing is joined, added or
put in order for the next. Weights count as changed at every call, so that packing them is part of
both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from bench import machine
from bench.case import Case
from bench.compare import positive, shape
from bench.peers import Prepared
from bench.progress import progress
from bench.report import add_json, finish
from bench.rows import TOLERANCES, difference
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import LEAST, pairs, repeats

EXAMPLE = "python -m bench layers --shape 128,32,128 --threads 1 2"
MODES = ("inference", "training")
GOALS = {"bare": 1 / 1.1, "torch": 1.0}  # their time over ours, at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cell", default="lstm", choices=("lstm", "gru", "rnn"), help="(lstm)")
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        metavar="T,B,D",
        default=[(128, 32, 128)],
        help="steps, rows, and features = units (128,32,128)",
    )
    parser.add_argument("--layers", type=positive, default=2, metavar="N", help="(2)")
    parser.add_argument("--one-direction", action="store_true", help="not bidirectional")
    parser.add_argument(
        "--threads", type=positive, nargs="+", metavar="N", default=[1, 2], help="numbers of threads (1 2)"
    )
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="(both)")
    parser.add_argument("--pairs", type=positive, default=7, help="alternating measurements of each pair (7)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {
        "cell": args.cell,
        "shape": args.shape,
        "layers": args.layers,
        "directions": 1 if args.one_direction else 2,
        "threads": args.threads,
        "mode": args.mode,
        "pairs": args.pairs,
    }
    return finish("layers", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cases = [
        asdict(Case(settings["cell"], T, B, D, D, mode=mode))
        for T, B, D in settings["shape"]
        for mode in settings["mode"]
    ]
    with progress(len(cases) * len(settings["threads"])) as done:
        for threads in settings["threads"]:
            arguments = {
                "cases": cases,
                "layers": settings["layers"],
                "directions": settings["directions"],
                "threads": threads,
                "count": settings["pairs"],
            }
            for row in records("bench.layers:measure", arguments, threads):
                done(f"{threads} threads, {row['mode']}")
                yield row


def measure(
    cases: list[dict[str, Any]], layers: int, directions: int, threads: int, count: int
) -> Iterator[dict[str, Any]]:
    """A record per case. against: who -> {"pairs": [[theirs, ours], ...], "ratio": median theirs /
    ours}."""
    import torch

    torch.set_num_threads(threads)
    for fields in cases:
        work = Work(Case(**fields), layers, directions, threads)
        ours, theirs = work.passes(work.ours()), work.passes(work.theirs())
        apart = difference(ours.values(), theirs.values(), TOLERANCES["float32"])
        against, many = {}, repeats(ours.call)
        for who, call in (("bare", work.bare()), ("torch", theirs.call)):
            call()
            found = pairs(call, ours.call, (repeats(call, LEAST), many), count)
            against[who] = {"pairs": found, "ratio": statistics.median(other / own for other, own in found)}
        seconds = statistics.median(own for peer in against.values() for _, own in peer["pairs"])
        yield fields | {
            "layers": layers,
            "directions": directions,
            "threads": threads,
            "difference": apart,
            "seconds": seconds,
            "against": against,
        }


class Work:
    """A case for a stack of layers, the same weights and arrays for all."""

    def __init__(self, case: Case, layers: int, directions: int, threads: int):
        self.case, self.layers, self.directions, self.threads = case, layers, directions, threads
        rng = np.random.default_rng(1)
        self.x = rng.standard_normal((case.T, case.B, case.D), dtype=np.float32)
        self.dy = rng.standard_normal((case.T, case.B, directions * case.H), dtype=np.float32)

    def theirs(self) -> Any:
        import torch

        from bench.peers import torch_nn

        torch.manual_seed(0)
        return torch_nn.LAYERS[self.case.cell](
            self.case.D, self.case.H, self.layers, bidirectional=self.directions == 2
        )

    def ours(self) -> Any:
        from rnnspec.interop.torch import Recurrent

        layer = Recurrent(
            self.case.cell,
            self.case.D,
            self.case.H,
            self.layers,
            bidirectional=self.directions == 2,
            threads=self.threads,
        )
        layer.load_state_dict(self.theirs().state_dict())
        return layer

    def passes(self, layer: Any) -> Prepared:
        from bench.peers import torch_nn

        return torch_nn.passes(layer, self.x, self.dy if self.case.mode == "training" else None)

    def bare(self) -> Callable[[], object]:
        """A call of every kernel, on random inputs of the layer's width: all forward, then all
        backward, for that is how a stack must run."""
        import rnnspec

        case, rng = self.case, np.random.default_rng(2)
        kernel, calls = rnnspec.compile(case.cell, threads=self.threads), []
        for number in range(self.layers * self.directions):
            width = case.D if number < self.directions else self.directions * case.H
            calls.append(
                (
                    kernel.init(D=width, H=case.H, seed=number),
                    {"x": rng.standard_normal((case.T, case.B, width), dtype=np.float32)},
                )
            )
        dy = {"h": np.ascontiguousarray(self.dy[..., : case.H])}

        def train() -> list[Any]:
            runs = [kernel.forward(params, inputs) for params, inputs in calls]
            return [kernel.backward(runs.pop(), dy) for _ in calls]

        return train if case.mode == "training" else lambda: [kernel.infer(params, inputs) for params, inputs in calls]


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    """A line per case: their time over ours, and whether the goal is met."""
    head = ["cell", "shape", "layers", "", "threads", "ms", "bare kernels / this", "torch.nn / this", "goals"]
    lines = []
    for r in report["rows"]:
        ratios = {who: r["against"][who]["ratio"] for who in GOALS}
        met = "met" if all(ratios[who] >= least for who, least in GOALS.items()) else "not met"
        stack = f"{r['layers']}{', both ways' if r['directions'] == 2 else ''}"
        lines.append(
            [
                r["cell"],
                f"T{r['T']} B{r['B']} H{r['H']}",
                stack,
                r["mode"],
                str(r["threads"]),
                milliseconds(r["seconds"]),
                *(f"{ratios[who]:.3f}" for who in GOALS),
                met,
            ]
        )
    about = (
        "Goals: at most 10 % more time than the bare kernels (0.909), and no more than torch.nn (1). Medians of"
        " alternating pairs."
    )
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
