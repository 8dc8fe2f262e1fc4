"""What a cell is compared with: an adapter's data, and the arrays of one comparison.

An adapter is a file of `bench/drift/packages/`. It has DISTRIBUTION, the name under which the
package is installed; NEEDS, the modules that must be importable; ENVIRONMENT, what is set before it
is imported; and comparisons(), its rows, which imports the package. A new file is found by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "packages"
STEPS, ROWS = 9, 3
SIZES = {"D": 3, "H": 4}
OTHER_SIZES = (5, 2, 6, 7)
TOLERANCES = {"float64": 1e-10, "float32": 2e-5}
"""Parts of the largest value, or gradient. What is equal in float64 differs by 1e-15 or so; sums in
another order, and another exp, cost more digits in float32."""


class Given(NamedTuple):
    """Arrays of the package's framework: params [...], inputs [T, B, ...], states [B, ...]."""

    params: Mapping[str, Any]
    inputs: Mapping[str, Any]
    states: Mapping[str, Any]
    sizes: Mapping[str, int]


class Found(NamedTuple):
    """What the package makes of them, by the spec's names: outputs [T, B, ...], final states
    [B, ...]; states that it does not give are left out."""

    outputs: Mapping[str, Any]
    final: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Comparison:
    """One cell beside one class or function of a package.

    theirs: its name. run: the same function in the package's framework, of the spec's parameters:
    it maps them to the package's, so that gradients come back by the spec's names. framework:
    "torch", "jax", or "numpy", which has no gradients. options: constants and choices of the cell.
    values: parameters that are set to a number, and not drawn; their gradients are not compared.
    bounds: the interval that arrays are drawn from, in place of the sampler's own. zero_start: the
    states are zero, as the package takes no others. dtype: float32 where the package computes in
    nothing else. gradients: names of the arrays whose gradients are compared, where not all are.
    differs: why values differ, or gradients alone where only_gradients is True; empty where all is
    equal. with_what: what was done so that they agree ("b_c = 0").
    """

    cell: str
    theirs: str
    run: Callable[[Given], Found]
    framework: str
    options: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    zero_start: bool = False
    dtype: str = "float64"
    gradients: Sequence[str] | None = None
    differs: str = ""
    only_gradients: bool = False
    with_what: str = ""

    def __str__(self) -> str:
        return self.theirs + (f", {self.with_what}" if self.with_what else "")


def names() -> list[str]:
    """The adapters, by the names of their files."""
    return sorted(module.name for module in pkgutil.iter_modules([str(FOLDER)]))


def adapter(name: str) -> ModuleType:
    return importlib.import_module(f"bench.drift.packages.{name}")


def missing(modules: Sequence[str]) -> list[str]:
    """Which of these modules are not installed; none is imported."""
    return [m for m in modules if PathFinder.find_spec(m) is None]
