"""Gradients of parameters by row: one pass of `backward(per_row=True)` and of `row_norms`, against
B backward passes over the batch with the gradient of one row each, B passes of one row each, one
backward pass, and torch.func.vmap(grad) of a loop in torch.

One thread; values first, then rounds of all in turn, medians of wall-clock times. Forward passes
are not in the times of ours, and are in torch's, whose vmap has both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench import machine
from bench.compare import positive, shape
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import repeats, seconds

EXAMPLE = "python -m bench by_row lstm --shape 128,32,128"
SIDES = ("one pass", "by row", "norms", "B passes", "B rows alone", "forward, by row", "torch vmap(grad)")
GOAL = 10  # of B passes over one by row, and 1 of torch's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help="lstm or gru (both)")
    parser.add_argument("--shape", type=shape, nargs="+", metavar="T,B,D", default=[(128, 32, 128)])
    parser.add_argument("--rounds", type=positive, default=5, help="of all in turn (5)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {"cells": args.cells or ["lstm", "gru"], "shapes": args.shape, "rounds": args.rounds}
    return finish("by_row", settings, records("bench.by_row:measure", settings, 1), render, args.json)


def measure(cells: list[str], shapes: list[tuple[int, int, int]], rounds: int) -> Iterator[dict[str, Any]]:
    """A record for each cell and shape: seconds of each side."""
    import rnnspec

    for cell in cells:
        kernel = rnnspec.compile(cell, threads=1)
        for T, B, H in shapes:
            calls = _calls(kernel, T, B, H) | (_torch(cell, T, B, H) if cell in ("lstm", "gru") else {})
            each, passes = calls["by row"](), calls["B passes"]()
            for name, array in each.params.items():
                right = np.stack([p.params[name] for p in passes])
                np.testing.assert_allclose(array, right, rtol=1e-3, atol=1e-3 * np.abs(right).max())
            many = {name: repeats(call) for name, call in calls.items()}
            times = [{name: seconds(call, many[name]) for name, call in calls.items()} for _ in range(rounds)]
            medians = {name: statistics.median(t[name] for t in times) for name in calls}
            yield {"cell": cell, "T": T, "B": B, "H": H, "seconds": medians}


def _calls(kernel: Any, T: int, B: int, H: int) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((T, B, H)).astype(np.float32) for _ in range(2))
    params = kernel.pack(kernel.init(D=H, H=H))
    run = kernel.forward(params, {"x": x})
    single = [kernel.forward(params, {"x": x[:, b : b + 1]}) for b in range(B)]
    only = [dy * (np.arange(B) == b)[:, None].astype(np.float32) for b in range(B)]
    return {
        "one pass": lambda: kernel.backward(run, {"h": dy}),
        "by row": lambda: kernel.backward(run, {"h": dy}, per_row=True),
        "norms": lambda: kernel.row_norms(run, {"h": dy}),
        "B passes": lambda: [kernel.backward(run, {"h": d}) for d in only],
        "B rows alone": lambda: [kernel.backward(single[b], {"h": dy[:, b : b + 1]}) for b in range(B)],
        "forward, by row": lambda: kernel.backward(kernel.forward(params, {"x": x}), {"h": dy}, per_row=True),
    }


def _torch(cell: str, T: int, B: int, size: int) -> dict[str, Callable[[], Any]]:
    """Gradients of each row by torch.func, of the cell as a loop; nothing without torch."""
    try:
        import torch
        from torch.func import grad, vmap
    except ImportError:
        return {}
    torch.set_num_threads(1)
    weights = {name: torch.randn(4 * size, size) * 0.1 for name in "WU"}
    weights["b"] = torch.zeros(4 * size)

    def lstm(w: Any, x: Any, d: Any) -> Any:
        h = c = x.new_zeros(size)
        total = x.new_zeros(())
        for step, flow in zip(x @ w["W"].T + w["b"], d):
            i, f, g, o = (step + w["U"] @ h).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            total = total + (h * flow).sum()
        return total

    def gru(w: Any, x: Any, d: Any) -> Any:
        h = x.new_zeros(size)
        total = x.new_zeros(())
        for step, flow in zip((x @ w["W"].T + w["b"])[:, : 3 * size], d):
            (r, z, n), (hr, hz, hn) = step.chunk(3), (w["U"][: 3 * size] @ h).chunk(3)
            r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
            h = z * h + (1 - z) * (n + r * hn).tanh()
            total = total + (h * flow).sum()
        return total

    each = vmap(grad({"lstm": lstm, "gru": gru}[cell]), (None, 1, 1))
    rows, flows = torch.randn(T, B, size), torch.randn(T, B, size)
    return {"torch vmap(grad)": lambda: each(weights, rows, flows)}


def render(report: dict[str, Any]) -> str:
    head = ["cell", "shape", *(f"{side}, ms" for side in SIDES), "B passes / by row", "torch / ours", "goal"]
    lines = []
    for r in report["rows"]:
        took = r["seconds"]
        against = took["B passes"] / took["by row"]
        other = took["torch vmap(grad)"] / took["forward, by row"] if "torch vmap(grad)" in took else None
        met = against >= GOAL and (other is None or other > 1)
        lines.append(
            [
                r["cell"],
                f"T{r['T']} B{r['B']} H{r['H']}",
                *(milliseconds(took[side]) if side in took else "-" for side in SIDES),
                f"{against:.1f}",
                "-" if other is None else f"{other:.1f}",
                "met" if met else "not met",
            ]
        )
    return "\n\n".join([machine.line(report), table(head, lines, False)])
