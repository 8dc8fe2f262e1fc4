"""Exported C against the steps of torch and ONNX Runtime: one row, one core, one step at a time.

The C is compiled here by gcc -O3 -march=native. torch's and ONNX Runtime's step is a call with one
step, and beside it their time a step within one call of many. Cells that have no operator of ONNX
are a Scan there. With --rtneural, RTNeural's compile-time layers too. Sizes: of the object file's
sections, over the weights.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine, rtneural
from bench.compare import positive
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import table
from bench.timing import repeats, seconds

EXAMPLE = "python -m bench export lstm,1,16 mgu,1,32"
CASES = [
    *(("lstm", 1, 16), ("lstm", 2, 16), ("lstm", 1, 64), ("lstm", 1, 256)),
    *(("gru", 1, 8), ("gru", 1, 16), ("gru", 1, 32), ("gru", 1, 64)),
    *(("mgu", 1, 32), ("ln_lstm_haste", 1, 32), ("indrnn", 1, 32)),
]
NATIVE = {"lstm": "LSTM", "gru": "GRU"}  # what torch has a module of
STEPS = 256
GOALS = {"operator": 3.0, "Scan": 10.0}
SIZE, ROOM = 1.1, 8 * 1024


def case(text: str) -> tuple[str, int, int]:
    cell, layers, hidden = text.split(",")
    return cell, int(layers), int(hidden)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", nargs="*", type=case, metavar="CELL,LAYERS,H", help="(eleven)")
    parser.add_argument("--rounds", type=positive, default=9, help="of all in turn (9)")
    parser.add_argument("--compiler", default="gcc", help="(gcc)")
    parser.add_argument(
        "--rtneural", type=rtneural.folder, metavar="DIR", help="a checkout of RTNeural: LSTM and GRU beside its layers"
    )
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {"cases": args.cases or CASES, "rounds": args.rounds, "compiler": args.compiler}
    settings["checkout"] = args.rtneural
    return finish("export", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with progress(len(settings["cases"])) as done:
        for row in records("bench.export:measure", settings, 1):
            done(row["cell"])
            yield row


def measure(
    cases: list[tuple[str, int, int]], rounds: int, compiler: str, checkout: str | None
) -> Iterator[dict[str, Any]]:
    """A record per case: seconds a step of everything there is, and bytes."""
    import rnnspec

    for cell, layers, hidden in cases:
        layer = rnnspec.Recurrent(cell, 1, hidden, num_layers=layers, seed=0, threads=1)
        x = np.random.default_rng(0).normal(size=(STEPS, 1, 1)).astype(np.float32)
        with tempfile.TemporaryDirectory(prefix="rnnspec-bench-") as folder:
            calls, sizes = _exported(layer, x, Path(folder), compiler)
            calls |= _runtime(layer, x)
            calls |= _torch(cell, layers, hidden, x) if cell in NATIVE else {}
            if checkout is not None and cell in rtneural.KINDS:
                calls |= rtneural.calls(checkout, (cell, layers, hidden), layer, x, Path(folder))
            times = _times(calls, rounds)
        yield {"cell": cell, "layers": layers, "hidden": hidden, "native": cell in NATIVE, "seconds": times, **sizes}


def _times(calls: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Medians of seconds a step. calls: name -> what is called, and its steps."""
    many = {}
    for who, (call, _) in calls.items():
        call()
        many[who] = repeats(call)
    found: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, (call, steps) in calls.items():
            call()
            found[who].append(seconds(call, many[who]) / steps)
    return {who: statistics.median(times) for who, times in found.items()}


def _exported(layer: Any, x: np.ndarray, folder: Path, compiler: str) -> tuple[dict[str, Any], dict[str, int]]:
    from rnnspec.export import c

    source = c(layer, name="bench")
    source.write(folder)
    build = [compiler, "-O3", "-march=native", "-fPIC"]
    subprocess.run([*build, "-c", "bench.c", "-o", "bench.o"], cwd=folder, check=True)
    subprocess.run([*build, "-shared", "bench.o", "-o", "bench.so", "-lm"], cwd=folder, check=True)
    sections = subprocess.run(["size", "bench.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    library = ctypes.CDLL(str(folder / "bench.so"))
    weights = sum(array.nbytes for array in source.program.numbers().values())
    memory, y = np.zeros(weights // 8 + (1 << 16)), np.zeros((STEPS, layer.hidden_size), np.float32)
    memory = memory[-memory.ctypes.data % 64 // 8 :]  # where a compiler puts a static struct
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (memory, x, y)]
    assert library.bench_init(pointers[0], None, ctypes.c_size_t(0)) == 0
    library.bench_block(pointers[0], ctypes.c_size_t(STEPS), *pointers[1:])
    # what rounding does grows from step to step where a layer norm divides by little
    np.testing.assert_allclose(y[:16], layer.infer(x[:16])[0][:, 0], atol=1e-5)
    block, count = library.bench_block, ctypes.c_size_t(STEPS)
    sizes = {"weights": weights, "object": sum(map(int, sections.splitlines()[1].split()[:3]))}
    params = sum(a.nbytes for a in {**layer.params, **layer.fixed}.values())
    return {"C": (lambda: block(pointers[0], count, *pointers[1:]), STEPS)}, {**sizes, "params": params}


def _runtime(layer: Any, x: np.ndarray) -> dict[str, Any]:
    """ONNX Runtime's step, with its states handed on, and many steps in one call."""
    import onnxruntime

    from rnnspec.export import onnx

    made = onnx(layer, states=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.content, options, providers=["CPUExecutionProvider"])
    feeds = {
        i.name: x[:1] if i.name == "x" else np.zeros([n if isinstance(n, int) else 1 for n in i.shape], np.float32)
        for i in session.get_inputs()
    }
    many = {**feeds, "x": x}
    return {"ORT step": (lambda: session.run(None, feeds), 1), "ORT": (lambda: session.run(None, many), STEPS)}


def _torch(cell: str, layers: int, hidden: int, x: np.ndarray) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    module = getattr(torch.nn, NATIVE[cell])(1, hidden, layers).eval()
    sequence = torch.from_numpy(x)
    with torch.inference_mode():
        state = module(sequence[:1])[1]

    def run(part: Any) -> object:
        with torch.inference_mode():
            return module(part, state)

    return {"torch step": (lambda: run(sequence[:1]), 1), "torch": (lambda: run(sequence), STEPS)}


def _with_best(times: dict[str, float]) -> dict[str, float]:
    """With "RTNeural": that of its backends which is fastest."""
    found = [t for name, t in times.items() if name.startswith("RTNeural ")]
    return {**times, "RTNeural": min(found)} if found else times


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    others = ["ORT step", "torch step", "ORT", "torch"]
    others += ["RTNeural"] if report["settings"].get("checkout") else []
    head = ["cell", "ns a step, C", *others, *(f"{n} / C" for n in others), "goal", "object - 1.1 weights", "size"]
    lines = []
    for row in report["rows"]:
        times, goal = _with_best(row["seconds"]), GOALS["operator" if row["native"] else "Scan"]
        ratios = {n: times[n] / times["C"] if n in times else math.nan for n in others}
        beside = [ratios[n] for n in (("ORT step", "torch step") if row["native"] else ("ORT",))]
        over = row["object"] - SIZE * row["params"]
        lines.append(
            [
                f"{row['cell']} {row['layers']}x{row['hidden']}",
                f"{times['C'] * 1e9:.0f}",
                *(f"{times[n] * 1e9:.0f}" if n in times else "-" for n in others),
                *("-" if math.isnan(ratios[n]) else f"{ratios[n]:.1f}" for n in others),
                f"{goal:.0f}x {'met' if min(beside) >= goal else 'not met'}",
                f"{over:.0f}",
                "met" if over <= ROOM else "not met",
            ]
        )
    about = (
        f"Goals: {GOALS['operator']:.0f} times as fast as a step of ONNX Runtime and of torch,"
        f" {GOALS['Scan']:.0f} times as ONNX Runtime's Scan ({STEPS} steps in one call); code and weights at most"
        f" {SIZE} times the parameters and {ROOM} bytes."
    )
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
