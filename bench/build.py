"""Seconds to import rnnspec, to build kernels from an empty cache, and from a new process to its
first result.

Every number is of fresh processes on one thread. total: from starting the process to the result;
net: without what `import numba` took. cold: an empty cache folder; the machine runtime (the
products that all cells share) is compiled with it or was there before. warm: all is cached.
Medians, wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import machine
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import ROOT, ChildFailed, environment, processors
from bench.tables import table

EXAMPLE = "python -m bench build --cell gru"
WORK = ("inference", "forward and backward")
STATES = ("cold, nothing compiled", "cold, runtime compiled", "warm")
CHILD = """
import json, os, sys, time
cell, work, cpus = json.loads(sys.argv[1])
if cpus: os.sched_setaffinity(0, cpus)
start = time.monotonic()
import rnnspec
imported = time.monotonic()
if work != "import":
    import numba
numba = time.monotonic()
if work == "runtime":
    from rnnspec.backends.cpu.runtime.addresses import runtime
    runtime("float32")
elif work != "import":
    import numpy as np
    kernel = rnnspec.compile(cell, threads=1)
    params, x = kernel.init(D=8, H=16, seed=0), np.ones((4, 2, 8), np.float32)
    if work == "inference":
        kernel.infer(params, {"x": x})
    else:
        run = kernel.forward(params, {"x": x})
        kernel.backward(run, {name: np.ones_like(y) for name, y in run.outputs.items()})
print(json.dumps({"import": imported - start, "numba": numba - imported, "end": time.monotonic()}))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cell", default="lstm", help="one whose input is x [D] (lstm)")
    parser.add_argument("--cold", type=int, default=3, metavar="N", help="cold builds of each kind (3)")
    parser.add_argument("--warm", type=int, default=5, metavar="N", help="warm starts of each kind, and imports (5)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {"cell": args.cell, "cold": args.cold, "warm": args.warm}
    return finish("build", settings, _rows(args.cell, args.cold, args.warm), render, args.json)


def once(cell: str, work: str, cache: Path) -> dict[str, float]:
    """Seconds of one fresh process: total, net of importing numba, and of importing rnnspec."""
    start = time.monotonic()  # one clock for all processes of the machine
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([cell, work, processors(1)])],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(1) | {"RNNSPEC_CACHE_DIR": os.fspath(cache)},
    )
    if done.returncode:
        raise ChildFailed(f"building {cell} for {work} ended with exit code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    total = found["end"] - start
    return {"total": total, "net": total - found["numba"], "import": found["import"]}


def _rows(cell: str, cold: int, warm: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="rnnspec-bench-") as folder, progress(1 + len(WORK) * len(STATES)) as done:
        base, runtime = Path(folder), Path(folder) / "runtime"
        once(cell, "import", base)  # Python's own files, not measured
        yield {
            "what": "import rnnspec",
            "state": "warm",
            "runs": [once(cell, "import", base) for _ in range(max(1, warm))],
        }
        done("import")
        once(cell, "runtime", runtime)
        for work in WORK:
            for state in STATES:
                yield {
                    "what": work,
                    "state": state,
                    "runs": list(_runs(cell, work, state, base, runtime, warm if state == "warm" else cold)),
                }
                done(f"{work}, {state}")


def _runs(cell: str, work: str, state: str, base: Path, runtime: Path, count: int) -> Iterator[dict[str, float]]:
    cache = base / "cache"
    if state == "warm":
        once(cell, work, cache)
    for _ in range(max(1, count)):
        if state == STATES[1]:
            shutil.copytree(runtime, cache)
        yield once(cell, work, cache)
        if state != "warm":
            shutil.rmtree(cache)
    shutil.rmtree(cache, ignore_errors=True)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    head = ["", "cache", "total s", "net of numba s", "runs"]
    lines = []
    for row in report["rows"]:
        runs = row["runs"]
        if row["what"] == "import rnnspec":
            lines.append([row["what"], "", f"{statistics.median(r['import'] for r in runs):.3f}", "", str(len(runs))])
        else:
            total, net = (statistics.median(r[f] for r in runs) for f in ("total", "net"))
            lines.append(
                [
                    f"{report['settings']['cell']}, {row['what']}",
                    row["state"],
                    f"{total:.2f}",
                    f"{net:.2f}",
                    str(len(runs)),
                ]
            )
    about = (
        "From the start of a process to its first result (the import: the statement alone); medians, one thread,"
        " float32."
    )
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
