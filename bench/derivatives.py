"""Derivatives: directions (jvp), Hessians times vectors (hvp), 16 directions at once, and gradients
of gradients in torch, beside our own forward run and gradient, JAX's scan, and torch.nn.

One process bound to one processor, float32; values are compared first, then rounds of all in turn,
medians of wall-clock times. Directions are of all parameters and of the inputs.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bench import machine
from bench.case import IN_TORCH, Array, Case, Data
from bench.compare import positive, shape
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import repeats, seconds

EXAMPLE = "python -m bench derivatives lstm --shape 128,32,128"
CELLS = [n for n in IN_TORCH if n != "rnn"]
SHAPES = [(128, 32, 128), (128, 1, 64)]
COLUMNS = 16
CLOSE = 1e-3  # relative to the largest value: float32, sums of some thousand terms in other orders
# what is measured: by what it is divided, and what the ratio is to be: at most, or (below 0) at
# least
GOALS: Mapping[str, tuple[str, float]] = {
    "jvp": ("forward", 2.5),
    "hvp": ("gradient", 4.0),
    "16 jvp": ("jvp", 8.0),
    "jax jvp": ("jvp", -1.5),
    "jax hvp": ("hvp", -1.5),
    "torch.nn twice": ("twice", -5.0),
}
Call = Callable[[], dict[str, Array]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)} (both)")
    parser.add_argument("--shape", type=shape, nargs="+", metavar="T,B,D", default=SHAPES, help="(two shapes)")
    parser.add_argument("--rounds", type=positive, default=9, help="of all in turn (9)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {"cells": args.cells or CELLS, "shape": args.shape, "rounds": args.rounds}
    return finish("derivatives", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cases = [asdict(Case(cell, T, B, D, D)) for cell in settings["cells"] for T, B, D in settings["shape"]]
    with progress(len(cases)) as done:
        for row in records("bench.derivatives:measure", {"cases": cases, "rounds": settings["rounds"]}, 1):
            done(f"{row['cell']} T{row['T']}")
            yield row


def measure(cases: list[dict[str, Any]], rounds: int) -> Iterator[dict[str, Any]]:
    """A record per case: the seconds of each, medians."""
    for fields in cases:
        case = Case(**fields)
        data = Data(case)
        calls = _ours(data) | _jax(data) | _torch(data)
        values = {who: call() for who, call in calls.items()}
        _compare(values, (("jvp", "jax jvp"), ("hvp", "jax hvp"), ("twice", "torch.nn twice")), str(case))
        many = {who: repeats(call) for who, call in calls.items()}
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _ in range(rounds):
            for who, call in calls.items():
                call()
                times[who].append(seconds(call, many[who]))
        yield fields | {"seconds": {who: statistics.median(found) for who, found in times.items()}}


def _compare(values: Mapping[str, dict[str, Array]], pairs: tuple[tuple[str, str], ...], about: str) -> None:
    for ours, theirs in pairs:
        for name, right in values.get(theirs, {}).items():
            gap = np.abs(values[ours][name] - right).max() / max(np.abs(right).max(), 1e-30)
            assert gap < CLOSE, f"{about}: {name} of {ours} and of {theirs} differ by {gap:.1e}"


def _ours(data: Data) -> dict[str, Call]:
    import rnnspec

    kernel = rnnspec.compile(data.case.cell, threads=1)
    params, inputs, dy = data.params, {"x": data.x}, {"h": data.dy}
    along = {"tangent_params": params, "tangent_inputs": {"x": data.dx}}
    many = {group: {n: np.stack([a] * COLUMNS) for n, a in arrays.items()} for group, arrays in along.items()}

    def hvp() -> dict[str, Array]:
        return dict(kernel.hvp(params, inputs, outputs=dy, **along).tangent_gradients.params)

    return {
        "forward": lambda: dict(kernel.forward(params, inputs).outputs),
        "gradient": lambda: dict(kernel.backward(kernel.forward(params, inputs), dy).params),
        "jvp": lambda: dict(kernel.jvp(params, inputs, **along).tangent_outputs),
        "16 jvp": lambda: dict(kernel.jvp(params, inputs, **many).tangent_outputs),
        "hvp": hvp,
    }


def _jax(data: Data) -> dict[str, Call]:
    """jax.jvp of a jitted scan, and of its gradient; nothing where JAX is not installed."""
    if importlib.util.find_spec("jax") is None:
        return {}
    import jax
    import jax.numpy as jnp

    from bench.peers.equations import CELLS as EQUATIONS
    from bench.peers.jax_scan import scan_forward

    case, cell = data.case, EQUATIONS[data.case.cell]
    zeros = (jnp.zeros((case.B, case.H), case.dtype),) * cell.states
    forward = scan_forward(cell, zeros)
    weights = {n: jnp.asarray(a) for n, a in cell.weights(data.params).items()}
    x, dx, dy = (jnp.asarray(a) for a in (data.x, data.dx, data.dy))

    def gradient(weights: Any, x: Any) -> Any:
        return jax.vjp(forward, weights, x)[1](dy)

    ahead = jax.jit(lambda w, x, dw, dx: jax.jvp(forward, (w, x), (dw, dx)))
    twice = jax.jit(lambda w, x, dw, dx: jax.jvp(gradient, (w, x), (dw, dx)))

    def jvp() -> dict[str, Array]:
        return {"h": np.asarray(jax.block_until_ready(ahead(weights, x, weights, dx))[1])}

    def hvp() -> dict[str, Array]:
        _, (of_weights, _) = jax.block_until_ready(twice(weights, x, weights, dx))
        return cell.gradients({n: np.asarray(a) for n, a in of_weights.items()})

    return {"jax jvp": jvp, "jax hvp": hvp}


def _torch(data: Data) -> dict[str, Call]:
    """A gradient by x, and the gradients of its square, by our layer and by torch.nn's; nothing
    where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    from rnnspec.interop.torch import Recurrent

    torch.set_num_threads(1)
    case = data.case
    plain = getattr(torch.nn, case.cell.upper())(case.D, case.H)
    ours = Recurrent(case.cell, case.D, case.H)
    ours.load_state_dict(plain.state_dict())

    def twice(layer: Any) -> Call:
        x = torch.from_numpy(data.x).requires_grad_()
        names, weights = zip(*sorted(layer.named_parameters()))

        def call() -> dict[str, Array]:
            (slope,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
            found = torch.autograd.grad(slope.square().sum(), weights, allow_unused=True)
            return {n: g.numpy() for n, g in zip(names, found) if g is not None}

        return call

    return {"twice": twice(ours), "torch.nn twice": twice(plain)}


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    head = ["cell", "shape", "", "ms", "over", "ratio", "goal", ""]
    lines, ratios = [], dict[str, list[float]]()
    for r in report["rows"]:
        for who, (below, goal) in GOALS.items():
            if who not in r["seconds"]:
                continue
            ratio = r["seconds"][who] / r["seconds"][below]
            ratios.setdefault(who, []).append(ratio)
            told = f"at {'most' if goal > 0 else 'least'} {abs(goal)}"
            met = ratio <= goal if goal > 0 else ratio >= -goal
            spent = milliseconds(r["seconds"][who])
            where = [r["cell"], f"T{r['T']} B{r['B']} H{r['H']}"]
            lines.append([*where, who, spent, below, f"{ratio:.2f}", told, "met" if met else "not met"])
    means = ", ".join(f"{who} {math.exp(statistics.fmean(map(math.log, found))):.2f}" for who, found in ratios.items())
    return "\n\n".join([machine.line(report), f"Geometric means: {means}", table(head, lines, as_markdown)])
