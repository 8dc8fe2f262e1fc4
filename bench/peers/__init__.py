"""The libraries that rnnspec is compared with, each behind the same two functions.

supports(case) -> bool; prepare(case, data, threads) -> Prepared, everything that is no part of the
measured time done.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np

MODULES = {"torch": "torch_nn", "torch-loop": "torch_loop", "jax": "jax_scan", "onnxruntime": "onnx_ops"}
PACKAGES = {"torch": ("torch",), "torch-loop": ("torch",), "jax": ("jax",), "onnxruntime": ("onnx", "onnxruntime")}
NAMES = tuple(MODULES)


@dataclass(frozen=True)
class Prepared:
    """call: the measured work. values: runs it and gives its results by the spec's names, to be
    compared before any timing.

    In mode step a call takes the next step of a stream of equal inputs, and values the first
    CHECKED_STEPS of it.
    """

    call: Callable[[], object]
    values: Callable[[], Mapping[str, np.ndarray]]


def missing(name: str) -> list[str]:
    """The packages that a peer needs and that are not installed."""
    return [p for p in PACKAGES[name] if importlib.util.find_spec(p) is None]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.peers.{MODULES[name]}")


def named(names: Mapping[str, tuple[str, ...]], blocks: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One array per parameter from arrays in which several stand one under another."""
    return {n: part for block, within in names.items() for n, part in zip(within, np.split(blocks[block], len(within)))}
