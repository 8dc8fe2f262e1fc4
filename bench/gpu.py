"""On a machine with an NVIDIA GPU: every cell's CUDA kernels against its CPU kernels, then their speed.

Peers, where torch is installed with CUDA: torch.nn (cuDNN) in float32 and with TF32 allowed, the same equations as a loop in torch, and that loop
under torch.compile. Writes one dated JSON file and one Markdown table, whatever was done by the end of --minutes. Exits 1 if a cell is wrong.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import rnnspec
from bench.machine import describe
from bench.timing import measure, repeats
from rnnspec.device import DeviceKernel
from rnnspec.errors import BackendUnavailable, RnnspecError
from rnnspec.language.sizes import evaluate_size, with_default_sizes

EXAMPLE = "python -m bench gpu --minutes 8"
SHAPES = ((128, 1, 64), (128, 64, 64), (1024, 16, 64), (128, 256, 112), (128, 64, 256), (64, 64, 1024))  # T, B, D = H
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
TOLERANCE = 1e-4  # of the largest number, float32: two backends' functions over some steps
RUNS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=8.0, help="after which what is left is left out, and said to be (default 8)")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="folder of the two files (default: bench)")
    parser.add_argument("--cells", nargs="*", metavar="NAME", help="the cells to check (default: all)")


def main(args: argparse.Namespace) -> int:
    end = time.monotonic() + 60 * args.minutes
    try:
        device = rnnspec.compile("rnn", backend="cuda").device  # type: ignore[attr-defined]
    except BackendUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    about = describe() | {"gpu": {"compute capability": "{}.{}".format(*device.capability), "processors": device.processors}}
    checked = dict(correctness(args.cells or rnnspec.spec_names(), end))
    timed = list(speed(end))
    found = {"about": about, "checked": checked, "timed": timed}
    stem = args.out / f"gpu_{datetime.now(timezone.utc):%Y-%m-%d_%H%M}"
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    stem.with_suffix(".md").write_text(render(found))
    print(render(found))
    return int(any(isinstance(v, str) or v > TOLERANCE for v in checked.values() if v is not None))


# --- right -----------------------------------------------------------------------------------------------------------


def correctness(names: list[str], end: float = float("inf")) -> Iterator[tuple[str, float | str | None]]:
    """cell -> the largest difference between both backends, relative to the largest number or 1; what went wrong; None if no time was left."""
    for name in names:
        if time.monotonic() > end:
            yield name, None
            continue
        try:
            yield name, difference(name)
        except (RnnspecError, ValueError, MemoryError) as error:
            yield name, f"{type(error).__name__}: {error}"


def difference(name: str, steps: int = 7, rows: int = 5) -> float:
    """Of one cell, forward and backward, ragged."""
    own, cpu = rnnspec.compile(name, backend="cuda"), rnnspec.compile(name)
    sizes = {n: 12 for n, size in own.spec.sizes.items() if size.default is None}
    params, rng = own.init(seed=1, **sizes), np.random.default_rng(1)
    sizes = with_default_sizes(own.spec.sizes, sizes)

    def draw(lead: tuple[int, ...], shapes: Any) -> dict[str, np.ndarray]:
        return {n: rng.uniform(-1, 1, (*lead, *(evaluate_size(s, sizes) for s in shape))).astype(np.float32) for n, shape in shapes.items()}

    inputs, states = draw((steps, rows), own.spec.inputs), draw((rows,), own.states)
    lengths = rng.integers(0, steps + 1, rows)
    dy, dfinal = draw((steps, rows), {o: own.spec.shapes[o] for o in own.spec.outputs}), draw((rows,), own.states)
    worst = 0.0
    noise: dict[str, Any] = {"noise": "mean"} if own.spec.noise else {}
    runs = [k.forward(params, inputs, states, lengths, **noise) for k in (own, cpu)]
    grads = [k.backward(run, dy, final=dfinal) for k, run in zip((own, cpu), runs)]
    for ours, theirs in ((runs[0].outputs, runs[1].outputs), (runs[0].final, runs[1].final), (grads[0].params, grads[1].params),
                         (grads[0].inputs, grads[1].inputs), (grads[0].states, grads[1].states)):
        for n, a in theirs.items():
            if a.size:
                worst = max(worst, float(np.nan_to_num(np.abs(ours[n] - a), nan=np.inf).max() / max(1.0, np.abs(a).max())))
    return worst


# --- fast ------------------------------------------------------------------------------------------------------------


def speed(end: float) -> Iterator[dict[str, Any]]:
    """One row for each cell, shape and pass: microseconds a step of ours and of each peer."""
    for cell in CELLS:
        for shape in SHAPES:
            if time.monotonic() > end:
                yield {"cell": cell, "shape": shape, "left out": True}
                continue
            yield from rows_of(cell, shape, end)


def rows_of(cell: str, shape: tuple[int, int, int], end: float) -> Iterator[dict[str, Any]]:
    steps, rows, size = shape
    kernel = rnnspec.compile(cell, backend="cuda")
    assert isinstance(kernel, DeviceKernel)
    params, rng = kernel.init(D=size, H=size), np.random.default_rng(0)
    weights = kernel.pack(params)
    x = kernel.launcher.upload(rng.uniform(-1, 1, (steps, rows, size)).astype(np.float32))
    dy = {"h": kernel.launcher.upload(rng.uniform(-1, 1, (steps, rows, size)).astype(np.float32))}
    gates = sum(a.shape[0] for n, a in params.items() if n.startswith("U")) // size
    for mode in ("inference", "training"):
        def ours(mode: str = mode) -> None:
            if mode == "inference":
                kernel.infer(weights, {"x": x})
            else:
                kernel.backward(kernel.forward(weights, {"x": x}), dy)
            kernel.device.synchronise(kernel.launcher.stream)

        row: dict[str, Any] = {"cell": cell, "shape": shape, "mode": mode, "tier": kernel.choice("forward", rows, D=size, H=size).tier, "us": {}}
        row["us"]["rnnspec"] = microseconds(ours, steps)
        products = 2.0 * gates * rows * size * 2 * size * (1 if mode == "inference" else 3)
        row["gflops"] = products / row["us"]["rnnspec"] / 1000
        for name, call in peers(cell, shape, mode):
            if time.monotonic() > end:
                break
            try:
                row["us"][name] = microseconds(call, steps)
            except RuntimeError as error:
                row.setdefault("failed", {})[name] = str(error).splitlines()[0]
        yield row


def microseconds(call: Callable[[], object], steps: int) -> float:
    """Of a step; the least of some runs."""
    call()
    count = repeats(call)
    return min(measure(call, count) for _ in range(RUNS)) / steps * 1e6


def peers(cell: str, shape: tuple[int, int, int], mode: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """torch's own, if it is there and sees the GPU."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    steps, rows, size = shape
    x = torch.randn(steps, rows, size, device="cuda", requires_grad=mode == "training")
    layer = getattr(torch.nn, CELLS[cell])(size, size).cuda()
    step_cell = getattr(torch.nn, f"{CELLS[cell]}Cell")(size, size).cuda()

    def loop(x: Any) -> Any:
        state, found = None, []
        for now in x.unbind():
            state = step_cell(now, state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(found)

    def call(function: Callable[[Any], Any], tf32: bool = False) -> Callable[[], object]:
        def run() -> None:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
            if mode == "inference":
                with torch.inference_mode():
                    function(x)
            else:
                function(x).sum().backward()
            torch.cuda.synchronize()
        return run

    yield "torch.nn, float32", call(lambda x: layer(x)[0])
    yield "torch.nn, TF32", call(lambda x: layer(x)[0], True)
    yield "a loop in torch", call(loop)
    if steps <= 128:
        yield "torch.compile of that loop", call(torch.compile(loop))


def render(found: dict[str, Any]) -> str:
    """The Markdown page."""
    about, checked = found["about"], found["checked"]
    wrong = {n: v for n, v in checked.items() if isinstance(v, str) or (v is not None and v > TOLERANCE)}
    skipped = [n for n, v in checked.items() if v is None]
    right = len(checked) - len(wrong) - len(skipped)
    device = about["gpu"]
    lines = [f"# CUDA kernels, {about['date']} UTC", "", f"Compute capability {device['compute capability']}, {device['processors']} processors.", "",
             f"{right} of {len(checked)} cells agree with the CPU kernels within {TOLERANCE:g}, forward and backward."]
    lines += [f"- wrong: {n}: {v}" for n, v in wrong.items()] + ([f"- no time left for {', '.join(skipped)}"] if skipped else [])
    names = list(dict.fromkeys(n for row in found["timed"] for n in row.get("us", {})))
    lines += ["", "Microseconds a step:", "", f"| cell | T, B, D = H | pass | tier | GFLOP/s | {' | '.join(names)} |", "|---" * (5 + len(names)) + "|"]
    for row in found["timed"]:
        shape = ", ".join(map(str, row["shape"]))
        if row.get("left out"):
            lines.append(f"| {row['cell']} | {shape} | no time left |" + " |" * (2 + len(names)))
            continue
        times = " | ".join(f"{row['us'][n]:.2f}" if n in row["us"] else "" for n in names)
        lines.append(f"| {row['cell']} | {shape} | {row['mode']} | {row['tier']} | {row['gflops']:.0f} | {times} |")
    return "\n".join(lines) + "\n"
