"""A program's kernels for a GPU: which there are for some sizes, and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnspec.backends.cuda.choice import TierChoice, choose
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.stage import has_work, stage_source
from rnnspec.backends.cuda.launch.driver import Device
from rnnspec.backends.cuda.loop.facts import Facts
from rnnspec.backends.cuda.loop.kernel import loop_source
from rnnspec.lowering.program import Program, Stage
from rnnspec.lowering.signature import signature
from rnnspec.storage.locks import once_only


@dataclass
class CudaCode:
    """A program and its kernels, made when they are first needed.

    digest: of the spec. sources, choices: those that were made."""

    program: Program
    dtype: np.dtype
    digest: str
    sources: dict[Any, Source] = field(default_factory=dict)
    choices: dict[Any, TierChoice] = field(default_factory=dict)

    @once_only
    def facts(self) -> Facts:
        return Facts(self.program)

    @once_only
    def layout(self) -> Mapping[str, Any]:
        """What callers have to know of the kernels: the program's signature, by name."""
        return vars(signature(self.program))

    def stage(self, stage: Stage) -> Source:
        """The kernel of what a stage does beside its products."""
        if id(stage) not in self.sources:
            self.sources[id(stage)] = stage_source(self.program, stage, self.dtype.name, self.digest)
        return self.sources[id(stage)]

    def texts(self) -> str:
        """The texts of its stages' kernels."""
        return "\n".join(self.stage(stage).text for stage in self.program.stages() if has_work(stage))

    def choice(self, device: Device, rows: int, sizes: Mapping[str, int], tier: int | None) -> TierChoice:
        """Which kernels run the loop for so many rows, see choice.py. tier: what it has to be."""
        key = (device, rows, tuple(sizes.items()), tier)
        if key not in self.choices:
            together = device.processors if device.cooperative else 1
            self.choices[key] = choose(
                self.facts, sizes, self.dtype.itemsize, rows, device.processors, device.shared, tier, together
            )
        return self.choices[key]

    def loop(self, choice: TierChoice, sizes: Mapping[str, int]) -> Source:
        """The kernel of the loop, in tiers 1 and 2."""
        assert choice.shape is not None
        key = (choice.shape.rows, choice.shape.blocks, choice.shape.threads, choice.shape.weights, tuple(sizes.items()))
        if key not in self.sources:
            self.sources[key] = loop_source(self.program, self.facts, choice.shape, sizes, self.dtype.name, self.digest)
        return self.sources[key]
