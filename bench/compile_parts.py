"""What `bench compile` runs in a fresh process, as a text (`python -c`), for any version: a first
result of a cell from an empty cache, with the seconds that each part of the way took.

A part is a function that is wrapped where a version has it. What runs inside another part counts
there alone. In: sys.argv[1], JSON of [cell, processors]. Out: JSON.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PACKAGES = ("sympy", "numba", "llvmlite", "numpy", "yaml")
# module, what is in it, the part that it is
FUNCTIONS = (
    ("rnnspec.backends.cpu.emit.texts", "programs", "spec to programs"),
    ("rnnspec.backends.cpu.emit.kernel", "emit", "text of kernels"),
    ("rnnspec.backends.cpu.frontend", "lower", "front end"),
    ("rnnspec.backends.cpu.runtime.tile", "tiles", "tiles, written"),
    ("llvmlite.binding", "parse_assembly", "LLVM, read"),
    ("llvmlite.binding", "ModulePassManager.run", "LLVM, optimised"),
    ("llvmlite.binding", "TargetMachine.emit_object", "LLVM, machine code"),
    ("llvmlite.binding", "create_mcjit_compiler", "loaded"),
    ("llvmlite.binding", "ExecutionEngine.finalize_object", "loaded"),
)


class Clock:
    """Seconds of processor time by part, each without those inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside: list[str] = ["the rest"]
        self.since = time.process_time()

    def turn(self) -> None:
        now = time.process_time()
        self.seconds[self.inside[-1]] = self.seconds.get(self.inside[-1], 0.0) + now - self.since
        self.since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **keywords: Any) -> Any:
            self.turn()
            self.inside.append(part)
            try:
                return function(*args, **keywords)
            finally:
                self.turn()
                self.inside.pop()

        return run

    def watch_imports(self) -> None:
        """Packages of others as parts: the first import of each, wherever it stands."""
        original = builtins.__import__

        def watched(name: str, *args: Any, **keywords: Any) -> Any:
            root = name.partition(".")[0]
            if root not in PACKAGES or name in sys.modules or self.inside[-1].startswith("import "):
                return original(name, *args, **keywords)
            return self.timed(f"import {root}", original)(name, *args, **keywords)

        builtins.__import__ = watched

    def watch_functions(self, place: str) -> None:
        """The functions of one module, now that it is there."""
        for module, name, part in FUNCTIONS:
            if module == place:
                *owner, name = name.split(".")
                holder = importlib.import_module(module)
                with suppress(AttributeError):  # a version without it
                    for inner in owner:
                        holder = getattr(holder, inner)
                    setattr(holder, name, self.timed(part, getattr(holder, name)))


class Finder:
    """Wraps a module's functions as soon as it is imported: none is imported for that."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.left = clock, {module for module, _, _ in FUNCTIONS}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.left:
            return None
        self.left.discard(name)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                sys.modules[name] = module
                self.clock.watch_functions(name)

            found.loader.exec_module = executed  # type: ignore[method-assign]
        return found


def main(cell: str, processors: list[int]) -> None:
    import importlib.util

    if processors:
        os.sched_setaffinity(0, processors)
    clock = Clock()
    sys.meta_path.insert(0, Finder(clock))  # type: ignore[arg-type]
    clock.watch_imports()
    import numpy as np

    rnnspec = clock.timed("import rnnspec", lambda: importlib.import_module("rnnspec"))()
    layer = clock.timed("spec", lambda: rnnspec.Recurrent(cell, 8, 16, threads=1))()
    y, _ = layer(np.ones((4, 2, 8), np.float32))
    layer.backward(np.ones_like(y))
    clock.turn()
    print(json.dumps({"parts": clock.seconds, "end": time.monotonic(), "processor": time.process_time()}))


main(*json.loads(sys.argv[1]))
