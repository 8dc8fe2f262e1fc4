"""What a study asks for, as frozen data: its groups (a cell on a task), the axes along which
settings vary, and the runs that follow.

No file is read here, and nothing is searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

SAMPLERS = ("grid", "random", "tpe")


@dataclass(frozen=True)
class Axis:
    """A setting that varies: one of `values`, or a number from `low` to `high`, both included.

    name: of a `Request`, or with a part of one, such as "choices.phi". log: drawn by its logarithm.
    whole: a whole number. step: only low, low + step, ...
    """

    name: str
    values: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    step: float | None = None


@dataclass(frozen=True)
class Group:
    """A cell on a task. cell, task: what they are called in the study. fixed: the settings that do
    not vary, cell and task among them, by the names of a `Request`. axes: those that do."""

    cell: str
    task: str
    fixed: Mapping[str, Any]
    axes: tuple[Axis, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.cell} on {self.task}"

    def first(self) -> dict[str, Any]:
        """A point: the first value, or the lower end, of each axis."""
        return {axis.name: axis.values[0] if axis.values else axis.low for axis in self.axes}

    def config(self, point: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """The configuration of one run. point: a value for each axis."""
        config: dict[str, Any] = {**self.fixed}
        for name, value in point.items():
            whole, _, part = name.partition(".")
            config[whole] = {**config.get(whole, {}), part: value} if part else value
        return config | {"seed": seed}


@dataclass(frozen=True)
class Halving:
    """Successive halving (Li et al. 2020, as Optuna has it): at `least` steps, and at `factor`
    times as many each time, the best one in `factor` goes on."""

    least: int
    factor: int = 4


@dataclass(frozen=True)
class Study:
    """A study as its file has it. points: how many a search tries for each group (a grid has its
    own). seeds: each point is run with each. seed: of the search. digests: of the files of cells
    and tasks, by their paths. text: of the file itself."""

    name: str
    groups: tuple[Group, ...]
    seeds: tuple[int, ...] = (0,)
    sampler: str = "grid"
    points: int = 0
    seed: int = 0
    pruner: Halving | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def count(self, group: Group) -> int:
        """The trials of a group."""
        points = prod(len(axis.values or ()) for axis in group.axes) if self.sampler == "grid" else self.points
        return points * len(self.seeds)

    @property
    def total(self) -> int:
        return sum(map(self.count, self.groups))


def grid(group: Group) -> Iterator[dict[str, Any]]:
    """Every combination of the values of a group's axes."""
    names = [axis.name for axis in group.axes]
    for values in product(*(axis.values or () for axis in group.axes)):
        yield dict(zip(names, values))


def key(point: Mapping[str, Any], seed: int) -> str:
    """What tells a trial from the others of its group."""
    return json.dumps([dict(sorted(point.items())), seed])
