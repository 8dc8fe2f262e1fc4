"""The arguments of public functions that are arrays, from their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rnnspec.engine.cpu import CpuKernel
from rnnspec.engine.online import Online
from rnnspec.engine.stream import Stream
from rnnspec.engine.weights import Weights
from rnnspec.layers.recurrent import Recurrent
from rnnspec.layers.stack import Stack
from rnnspec.train import clip, compiled, heads, losses, optimise

try:
    from rnnspec.interop import torch as interop
except ImportError:
    interop = None

# arguments that are no arrays, beside those whose annotation says that they are numbers or words
NOT_ARRAYS = {"self", "noise", "sizes", "seed", "run", "call", "config", "rng", "numbers", "of"}
PLAIN = {"int", "bool", "str", "float", "None", "np.dtype", "os.PathLike[str]"}
# what takes arguments that are ready (`run_resume` of a Stack checks)
READY = {"CpuKernel.run_forward", "CpuKernel.run_infer", "CpuKernel.run_record", "CpuKernel.run_resume"}
READY |= {
    "CpuKernel.stepper",
    "CpuKernel.refresh",
    "CpuKernel.run_readout",
    "Stack.known",
    "Stack.met",
    "CpuKernel.run_linear",
    "CpuKernel.run_jvp",
    "CpuKernel.run_vjp",
    "CpuKernel.bound_inference",
    "CpuKernel.bound_training",
    "Weights.packed",
    "Idle.borrow",
    "Idle.give_back",
}
CLASSES = [CpuKernel, Weights, Stream, Online, Recurrent, Stack, optimise.SGD, optimise.Adam, optimise.AdamW]
MODULES = [heads, losses, clip, compiled]


def public_arguments() -> dict[Callable[..., Any], set[str]]:
    """Each public function, and those of its arguments that are arrays."""
    found = {}
    for owner in [*CLASSES, *MODULES, *([interop, interop.Recurrent] if interop else [])]:
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            home = getattr(owner, "__name__", "") if inspect.ismodule(owner) else None
            hidden = name.startswith("_") and name != "__call__"
            of_torch = not inspect.ismodule(owner) and function.__module__.startswith("torch")
            if hidden or of_torch or (home is not None and function.__module__ != home):
                continue
            if function.__qualname__ not in READY and not function.__qualname__.startswith("Names."):
                found[function] = {n for n, p in inspect.signature(function).parameters.items() if _may_be_array(n, p)}
    return found


def _may_be_array(name: str, parameter: inspect.Parameter) -> bool:
    return name not in NOT_ARRAYS and not set(str(parameter.annotation).split(" | ")) <= PLAIN
