"""Runs a measuring function in a fresh process with a fixed number of threads and processors:
`records` here, `main` there.

The function is a generator of dicts, named "module:function"; its dicts come back one JSON line
each, as they are made.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class ChildFailed(RuntimeError):
    """The measuring process ended early; what it said is on stderr."""


def processors(threads: int) -> list[int]:
    """The processors that a process of so many threads is bound to: the last of those this process
    may use; all if too few."""
    return sorted(os.sched_getaffinity(0))[-threads:] if hasattr(os, "sched_getaffinity") else []


def environment(threads: int) -> dict[str, str]:
    """The environment of a process that may use so many threads."""
    variables = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    # NumPy's, as `rnnspec train` sets it: its other threads go on spinning, and take the cores from
    # whoever is next
    variables["OPENBLAS_NUM_THREADS"] = "1"
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if threads == 1:
        flags = (os.environ.get("XLA_FLAGS"), "--xla_cpu_multi_thread_eigen=false", "intra_op_parallelism_threads=1")
        variables["XLA_FLAGS"] = " ".join(filter(None, flags))
    return variables


def records(function: str, arguments: Mapping[str, Any], threads: int) -> Iterator[dict[str, Any]]:
    """What the generator `function(**arguments)` yields in a process bound to as many processors as
    threads. Raises ChildFailed."""
    task = {"function": function, "arguments": dict(arguments), "processors": processors(threads)}
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.spawn"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(threads),
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(json.dumps(task))
        child.stdin.close()
        for line in child.stdout:
            yield json.loads(line)
    except BaseException:
        child.kill()
        raise
    finally:
        code = child.wait()
        child.stdout.close()
    if code:
        raise ChildFailed(f"the process of {function} ended with exit code {code}")


def main() -> None:
    """The child: standard output is kept for records; what libraries print goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it too, and ends this process
    task = json.loads(sys.stdin.read())
    if task["processors"]:
        os.sched_setaffinity(0, task["processors"])
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        module, name = task["function"].split(":")
        for record in getattr(importlib.import_module(module), name)(**task["arguments"]):
            print(json.dumps(record), file=out, flush=True)


if __name__ == "__main__":
    main()
