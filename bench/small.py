"""Small calls, where the call costs more than the work: `Recurrent` against JAX (a jitted scan) and
torch.nn, and our layers in PyTorch against torch.nn's.

One process bound to one processor, float32; values are compared first, then alternating pairs of
wall-clock times, medians. In training weights are changed before each of our calls, so that nothing
packed of earlier ones serves; elsewhere they stay as they are.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from bench import goals, machine, peers
from bench.case import CHECKED_STEPS, IN_TORCH, Array, Case, Data, cases
from bench.compare import installed, positive, shape
from bench.goals import Goal, against
from bench.peers import Prepared, named
from bench.progress import progress
from bench.report import add_json, finish
from bench.rows import TOLERANCES, difference
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import LEAST, pairs, repeats

EXAMPLE = "python -m bench small lstm --shape 1,1,8 100,1,32"
SHAPES = [(1, 1, 8), (10, 1, 16), (100, 1, 8), (100, 1, 32), (20, 8, 16), (50, 32, 32), (100, 1, 64)]
MODES = ("inference", "training")
STREAMS = ("stream", "stream in torch")
NAMES = ("jax", "torch")
# of layers in PyTorch: cell, T, B, D, H
TORCH_STEP = ("gru", 1, 16, 32, 128)
TORCH_WINDOW = ("lstm", 32, 16, 64, 64)
STREAM = ("lstm", 1, 1, 64, 64)
LAYOUTS = {"lstm": "torch.LSTM", "gru": "torch.GRU", "rnn": "torch.RNN"}


def _of(*modes: str) -> Callable[[goals.Row], bool]:
    return lambda row: row["mode"] in modes


GOALS = (
    Goal("over jax", against(("jax",), _of(*MODES)), 1.0, 1.3),
    Goal("over torch.nn", against(("torch",), _of(*MODES)), 1.0, 3.0),
    Goal("a step in torch: over torch.nn.GRUCell", against(("torch",), _of("step in torch")), 1.0),
    Goal("training a window in torch: over torch.nn", against(("torch",), _of("window in torch")), 2.0),
    Goal("a step of a stream: over torch.nn.LSTMCell", against(("torch",), _of(*STREAMS)), 5.0),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(IN_TORCH)} (all)")
    parser.add_argument("--shape", type=shape, nargs="+", metavar="T,B,H", default=SHAPES, help="(seven shapes)")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="(both)")
    parser.add_argument("--pairs", type=positive, default=7, help="alternating measurements of each pair (7)")
    parser.add_argument("--no-torch", action="store_true", help="without the rows of layers in PyTorch")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {"cells": args.cells or list(IN_TORCH), "shape": args.shape, "mode": args.mode, "pairs": args.pairs}
    return finish("small", settings | {"torch": not args.no_torch}, _rows(args, settings), render, args.json)


def _rows(args: argparse.Namespace, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = installed(NAMES)
    found = [asdict(c) for c in cases(settings["cells"], settings["shape"], "float32", settings["mode"])]
    work: list[tuple[str, dict[str, Any]]] = [("bench.small:measure", {"cases": found, "names": names})]
    if not args.no_torch and "torch" in names:
        work.append(("bench.small:in_torch", {}))
    with progress(len(found) + 4 * (len(work) - 1)) as done:
        for function, arguments in work:
            for row in records(function, arguments | {"count": settings["pairs"]}, 1):
                done(f"{row['cell']} T{row['T']} {row['mode']}")
                yield row


def measure(cases: list[dict[str, Any]], names: list[str], count: int) -> Iterator[dict[str, Any]]:
    """A record per case. peers: who -> {"pairs": [[theirs, ours], ...], "ratio": median theirs /
    ours, "difference"}."""
    for fields in cases:
        case = Case(**fields)
        data = Data(case)
        makers = {name: partial(peers.module(name).prepare, case, data, 1) for name in names}
        yield _row(case, layer(case, data), makers, count)


def _row(case: Case, ours: Prepared, makers: Mapping[str, Callable[[], Prepared]], count: int) -> dict[str, Any]:
    wanted, many, found = ours.values(), repeats(ours.call), {}
    for name, make in makers.items():
        peer = make()
        apart = difference(wanted, peer.values(), TOLERANCES["float32"])
        measured = pairs(peer.call, ours.call, (repeats(peer.call, LEAST), many), count)
        ratio = statistics.median(theirs / own for theirs, own in measured)
        found[name] = {"pairs": measured, "ratio": ratio, "difference": apart}
    each = statistics.median(own for peer in found.values() for _, own in peer["pairs"])
    return asdict(case) | {"threads": 1, "seconds": each, "peers": found}


def layer(case: Case, data: Data) -> Prepared:
    """rnnspec.Recurrent with the weights of `data`; results by the spec's names, as the peers'."""
    import rnnspec
    from rnnspec.language.layouts import pack

    layout = LAYOUTS[case.cell]
    made = rnnspec.Recurrent(case.cell, case.D, case.H, dtype=case.dtype, threads=1)
    made.load_state_dict({f"{n}_l0": a for n, a in pack(data.spec, layout, data.params).items()})
    x, dy, last = data.x, data.dy, list(made.params.values())[-1]
    if case.mode == "inference":
        return Prepared(lambda: made.infer(x), lambda: {"h": made.infer(x)[0]})

    def train() -> tuple[Array, Array]:
        last[0] += 1e-6
        y, _ = made(x)
        return y, made.backward(dy)[0]

    def values() -> dict[str, Array]:
        last[0] -= 1e-6
        y, dx = train()
        blocks = {n.removesuffix("_l0"): a for n, a in made.grads.items()}
        return {"h": y, "x": dx} | named(data.spec.layouts[layout], blocks)

    return Prepared(train, values)


# --- layers in PyTorch


def in_torch(count: int) -> Iterator[dict[str, Any]]:
    """A record for a step, a window in training, and a step of each kind of stream."""
    import torch

    torch.set_num_threads(1)
    for make, sizes, mode in (
        (_torch_step, TORCH_STEP, "step in torch"),
        (_torch_window, TORCH_WINDOW, "window in torch"),
        (partial(_stream, inside=False), STREAM, STREAMS[0]),
        (partial(_stream, inside=True), STREAM, STREAMS[1]),
    ):
        case = Case(*sizes, mode=mode)
        torch.manual_seed(0)
        ours, theirs = make(case, Data(case))
        yield _row(case, ours, {"torch": lambda made=theirs: made}, count)


def _torch_step(case: Case, data: Data) -> tuple[Prepared, Prepared]:
    """One call of a layer over one step, without gradients, and one of torch's cell."""
    import torch

    from bench.peers.torch_nn import CELLS
    from rnnspec.interop.torch import Recurrent

    cell, ours = CELLS[case.cell](case.D, case.H), Recurrent(case.cell, case.D, case.H)
    ours.load_state_dict({f"{n}_l0": a for n, a in cell.state_dict().items()})
    x, before = torch.from_numpy(data.x), torch.zeros(1, case.B, case.H)
    x_t, before_t = x[0], before[0]

    def run() -> Any:
        with torch.no_grad():
            return ours(x, before)

    def theirs() -> Any:
        with torch.no_grad():
            return cell(x_t, before_t)

    return Prepared(run, lambda: {"h": run()[0][0].numpy()}), Prepared(theirs, lambda: {"h": theirs().numpy()})


def _torch_window(case: Case, data: Data) -> tuple[Prepared, Prepared]:
    """Forward and backward of a window, from a state that came without its gradient; weights are
    changed before each call of ours."""
    import torch

    from bench.peers.torch_nn import LAYERS, passes
    from rnnspec.interop.torch import Recurrent

    plain, ours = LAYERS[case.cell](case.D, case.H), Recurrent(case.cell, case.D, case.H)
    ours.load_state_dict(plain.state_dict())
    made, last = passes(ours, data.x, data.dy), list(ours.parameters())[-1]

    def train() -> Any:
        with torch.no_grad():
            last[0] += 1e-6
        return made.call()

    return Prepared(train, made.values), passes(plain, data.x, data.dy)


def _stream(case: Case, data: Data, inside: bool) -> tuple[Prepared, Prepared]:
    """Steps of a stream of a layer, of ours or (inside) of that in PyTorch, and of torch's cell."""
    import torch

    import rnnspec
    from bench.peers.torch_nn import prepare
    from rnnspec.interop.torch import Recurrent
    from rnnspec.language.layouts import pack

    blocks = {f"{n}_l0": a for n, a in pack(data.spec, LAYOUTS[case.cell], data.params).items()}
    if inside:
        module, x = Recurrent(case.cell, case.D, case.H), torch.from_numpy(data.x[0])
        module.load_state_dict({n: torch.from_numpy(a) for n, a in blocks.items()})
        stream: Any = module.stream(rows=case.B)
    else:
        layer, x = rnnspec.Recurrent(case.cell, case.D, case.H, threads=1), data.x[0]
        layer.load_state_dict(blocks)
        stream = layer.stream(rows=case.B)

    def step() -> Any:
        with torch.no_grad():
            return stream.step(x)

    def values() -> dict[str, Array]:
        return {"h": np.asarray([step() for _ in range(CHECKED_STEPS)][-1])}

    call = step if inside else partial(stream.step, x)
    return Prepared(call, values), prepare(replace(case, mode="step"), data, 1)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    head = ["cell", "shape", "", "ms", "jax", "torch.nn"]
    lines = []
    for r in report["rows"]:
        width = f"H{r['H']}" if r["D"] == r["H"] else f"D{r['D']} H{r['H']}"
        ratios = [f"{r['peers'][n]['ratio']:.2f}" if n in r["peers"] else "" for n in NAMES]
        lines.append([r["cell"], f"T{r['T']} B{r['B']} {width}", r["mode"], milliseconds(r["seconds"]), *ratios])
    about = "jax, torch.nn: their time over ours, the median of alternating pairs. One thread, float32."
    parts = [machine.line(report), about, table(head, lines, as_markdown)]
    return "\n\n".join([*parts, goals.summary(report["rows"], as_markdown, GOALS)])
