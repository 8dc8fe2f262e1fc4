"""On a machine with an NVIDIA GPU: every cell's CUDA kernels against its CPU kernels, then their
speed.

Peers, where torch is installed with CUDA: torch.nn (cuDNN) in float32 and with TF32 allowed, the
same equations as a loop in torch, and that loop under torch.compile. Writes one dated JSON file and
one Markdown table, whatever was done by the end of --minutes. Exits 1 if a cell is wrong or fails,
or there is no GPU.

Compiling every cell takes longer than that: `python -m bench gpu --build FOLDER --arch sm_90`, on
any machine with the extra cuda-test, compiles and assembles the kernels that this command runs, and
--prebuilt FOLDER takes them from there, without numba-cuda or a CUDA toolkit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import rnnspec
from bench.cubins import Recorder
from bench.machine import describe
from bench.timing import measure, repeats
from rnnspec.backends.cuda.choice import DEVICES
from rnnspec.backends.cuda.compile.build import prebuilt
from rnnspec.backends.cuda.launch.driver import Device
from rnnspec.engine.cuda import CudaKernel
from rnnspec.engine.kernel import Kernel
from rnnspec.errors import BackendUnavailable, RnnspecError
from rnnspec.language.sizes import evaluate_size, with_default_sizes

EXAMPLE = "python -m bench gpu --minutes 8"
SHAPES = ((128, 1, 64), (128, 64, 64), (1024, 16, 64), (128, 256, 112), (128, 64, 256), (64, 64, 1024))  # T, B, D = H
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
TOLERANCE = 1e-4  # of the largest number, float32: two backends' functions over some steps
RUNS = 5
FOR_COMPILING, FOR_CHECKS = 0.5, 0.6  # of the time, and of what is left of it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="after which what is left is left out, and said to be (default 8)"
    )
    parser.add_argument("--out", type=Path, default=Path("bench"), help="folder of the two files (default: bench)")
    parser.add_argument("--cells", nargs="*", metavar="NAME", help="the cells to check (default: all)")
    parser.add_argument(
        "--build",
        type=Path,
        metavar="FOLDER",
        help="compile and assemble the kernels into this folder, and run nothing",
    )
    parser.add_argument(
        "--arch", choices=sorted(DEVICES), default="sm_90", help="what --build makes them for (default: sm_90)"
    )
    parser.add_argument(
        "--processors",
        type=int,
        metavar="N",
        help="of the GPU that --build makes them for (default: sm_80 108, sm_90 132)",
    )
    parser.add_argument("--prebuilt", type=Path, metavar="FOLDER", help="where --build has put kernels")


def main(args: argparse.Namespace) -> int:
    if args.build:
        return build(args)
    if args.prebuilt:
        if not args.prebuilt.is_dir():
            raise SystemExit(
                f"--prebuilt: there is no folder '{args.prebuilt}'. `python -m bench gpu --build FOLDER` makes one."
            )
        prebuilt([args.prebuilt])
    args.out.mkdir(parents=True, exist_ok=True)  # before the work, not after
    end = time.monotonic() + 60 * args.minutes
    try:
        device = rnnspec.compile("rnn", backend="cuda").device  # type: ignore[attr-defined]
    except BackendUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    about = describe() | {
        "gpu": {"compute capability": "{}.{}".format(*device.capability), "processors": device.processors}
    }
    names = args.cells or rnnspec.spec_names()
    if not args.prebuilt:
        compile_ahead(names, device, time.monotonic() + FOR_COMPILING * 60 * args.minutes)
    checked = dict(correctness(names, time.monotonic() + FOR_CHECKS * (end - time.monotonic())))
    timed = list(speed(end))
    found = {"about": about, "checked": checked, "timed": timed}
    stem = args.out / f"gpu_{datetime.now(timezone.utc):%Y-%m-%d_%H%M}"
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    stem.with_suffix(".md").write_text(render(found))
    print(render(found))
    wrong = any(isinstance(v, str) or v > TOLERANCE for v in checked.values() if v is not None)
    return int(wrong or any("error" in row for row in timed))


def build(args: argparse.Namespace) -> int:
    """Fills the folder of --build with what `correctness` and `speed` would run on such a GPU."""
    args.build.mkdir(parents=True, exist_ok=True)
    processors, shared = DEVICES[args.arch]
    device = Recorder((int(args.arch[3:-1]), int(args.arch[-1])), args.processors or processors, shared, args.build)
    failed = False
    for job in [*(args.cells or rnnspec.spec_names()), *((cell, shape) for cell in CELLS for shape in SHAPES)]:
        problem = compiled(job, device)
        failed = failed or bool(problem)
        print(f"{job}: {problem or f'{len(device.made)} kernels so far'}", flush=True)
    return int(failed)


def compiled(job: Any, device: Recorder) -> str:
    """Compiles all that a cell's check runs, or a pair of CELLS and SHAPES; returns what went
    wrong."""
    try:
        if isinstance(job, str):
            kernel = kernel_for(job, device)
            results(kernel, draw(kernel))
        else:
            for call in Timed(*job, device).calls().values():
                call()
    except (RnnspecError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def kernel_for(cell: str, device: Device | None = None) -> CudaKernel:
    """The kernels of a cell for a device, or for the first GPU."""
    return CudaKernel(rnnspec.load(cell), np.dtype(np.float32), device=device)


def compile_ahead(names: list[str], device: Device, end: float) -> None:
    """Everything, on all processors, into the cache: one at a time they would take longer than all
    the rest. What has not begun by the end is left to its first use."""
    about = device.capability, device.processors, device.shared
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs: list[Any] = [*((cell, shape) for cell in CELLS for shape in SHAPES), *names]
        wait([pool.submit(_compiled, job, about) for job in jobs], timeout=max(0.0, end - time.monotonic()))
        pool.shutdown(cancel_futures=True)


def _compiled(job: Any, about: tuple[Any, ...]) -> str:
    return compiled(job, Recorder(*about))


# --- right ---


def correctness(names: list[str], end: float = float("inf")) -> Iterator[tuple[str, float | str | None]]:
    """cell -> the largest difference between both backends, relative to the largest number or 1;
    what went wrong; None if no time was left."""
    for name in names:
        if time.monotonic() > end:
            yield name, None
            continue
        try:
            yield name, difference(name)
        except (RnnspecError, ValueError, MemoryError) as error:
            yield name, f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Arguments:
    """Of one call, forward and backward."""

    params: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    lengths: np.ndarray
    dy: dict[str, np.ndarray]
    dfinal: dict[str, np.ndarray]


def draw(kernel: Kernel, steps: int = 7, rows: int = 5) -> Arguments:
    """Random and ragged."""
    spec, rng = kernel.spec, np.random.default_rng(1)
    sizes = {n: 12 for n, size in spec.sizes.items() if size.default is None}
    params = kernel.init(seed=1, **sizes)
    sizes = with_default_sizes(spec.sizes, sizes)

    def some(lead: tuple[int, ...], shapes: Any) -> dict[str, np.ndarray]:
        return {
            n: rng.uniform(-1, 1, (*lead, *(evaluate_size(s, sizes) for s in shape))).astype(np.float32)
            for n, shape in shapes.items()
        }

    inputs, states = some((steps, rows), spec.inputs), some((rows,), kernel.states)
    lengths = rng.integers(0, steps + 1, rows)
    return Arguments(
        params,
        inputs,
        states,
        lengths,
        some((steps, rows), {o: spec.shapes[o] for o in spec.outputs}),
        some((rows,), kernel.states),
    )


def results(kernel: Kernel, given: Arguments) -> list[Any]:
    """Values and gradients, by kind and name."""
    noise: dict[str, Any] = {"noise": "mean"} if kernel.spec.noise else {}
    run = kernel.forward(given.params, given.inputs, given.states, given.lengths, **noise)
    grad = kernel.backward(run, given.dy, final=given.dfinal)
    return [run.outputs, run.final, grad.params, grad.inputs, grad.states]


def difference(name: str) -> float:
    """Of one cell, forward and backward, ragged."""
    own, cpu = rnnspec.compile(name, backend="cuda"), rnnspec.compile(name)
    given, worst = draw(own), 0.0
    for ours, theirs in zip(results(own, given), results(cpu, given)):
        for n, a in theirs.items():
            if a.size:
                worst = max(
                    worst, float(np.nan_to_num(np.abs(ours[n] - a), nan=np.inf).max() / max(1.0, np.abs(a).max()))
                )
    return worst


# --- fast ---


def speed(end: float) -> Iterator[dict[str, Any]]:
    """One row for each cell, shape and pass: microseconds a step of ours and of each peer."""
    for cell in CELLS:
        for shape in SHAPES:
            if time.monotonic() > end:
                yield {"cell": cell, "shape": shape, "left out": True}
                continue
            try:
                yield from rows_of(cell, shape, end)
            except (
                RnnspecError,
                ValueError,
                RuntimeError,
                MemoryError,
            ) as error:  # what was measured before is not lost
                yield {"cell": cell, "shape": shape, "error": f"{type(error).__name__}: {error}"}


class Timed:
    """One cell of ours at one shape, its arrays on the device."""

    def __init__(self, cell: str, shape: tuple[int, int, int], device: Device | None = None):
        kernel = kernel_for(cell, device)
        self.kernel, (steps, rows, self.size), rng = kernel, shape, np.random.default_rng(0)
        params = kernel.init(D=self.size, H=self.size)
        self.gates = sum(a.shape[0] for n, a in params.items() if n.startswith("U")) // self.size
        self.weights = kernel.pack(params)
        self.x, self.dy = (
            {name: kernel.launcher.upload(rng.uniform(-1, 1, (steps, rows, self.size)).astype(np.float32))}
            for name in ("x", "h")
        )

    def calls(self) -> dict[str, Callable[[], object]]:
        """By what they do."""
        return {"inference": self.inference, "training": self.training}

    def inference(self) -> None:
        self.kernel.infer(self.weights, self.x)
        self.kernel.device.synchronise(self.kernel.launcher.stream)

    def training(self) -> None:
        self.kernel.backward(self.kernel.forward(self.weights, self.x), self.dy)
        self.kernel.device.synchronise(self.kernel.launcher.stream)


def rows_of(cell: str, shape: tuple[int, int, int], end: float) -> Iterator[dict[str, Any]]:
    steps, rows, size = shape
    timed = Timed(cell, shape)
    for mode, ours in timed.calls().items():
        choice = timed.kernel.choice("forward", rows, D=size, H=size)
        row: dict[str, Any] = {"cell": cell, "shape": shape, "mode": mode, "tier": choice.tier, "us": {}}
        row["us"]["rnnspec"] = microseconds(ours, steps)
        products = 2.0 * timed.gates * rows * size * 2 * size * (1 if mode == "inference" else 3)
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
    lines = [
        f"# CUDA kernels, {about['date']} UTC",
        "",
        f"Compute capability {device['compute capability']}, {device['processors']} processors.",
        "",
        f"{right} of {len(checked)} cells agree with the CPU kernels within {TOLERANCE:g}, forward and backward.",
    ]
    lines += [f"- wrong: {n}: {v}" for n, v in wrong.items()] + (
        [f"- no time left for {', '.join(skipped)}"] if skipped else []
    )
    names = list(dict.fromkeys(n for row in found["timed"] for n in row.get("us", {})))
    lines += [
        "",
        "Microseconds a step:",
        "",
        f"| cell | T, B, D = H | pass | tier | GFLOP/s | {' | '.join(names)} |",
        "|---" * (5 + len(names)) + "|",
    ]
    for row in found["timed"]:
        shape = ", ".join(map(str, row["shape"]))
        if row.get("left out"):
            lines.append(f"| {row['cell']} | {shape} | no time left |" + " |" * (2 + len(names)))
            continue
        if "error" in row:
            lines.append(f"| {row['cell']} | {shape} | {row['error'].splitlines()[0]} |" + " |" * (2 + len(names)))
            continue
        times = " | ".join(f"{row['us'][n]:.2f}" if n in row["us"] else "" for n in names)
        lines.append(f"| {row['cell']} | {shape} | {row['mode']} | {row['tier']} | {row['gflops']:.0f} | {times} |")
    return "\n".join(lines) + "\n"
