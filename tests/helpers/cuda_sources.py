"""All kernels of a cell, and what must not stand in their PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import rnnspec
from rnnspec.backends.cuda.choice import DEVICES, choose
from rnnspec.backends.cuda.compile.build import build
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.stage import has_work, stage_source
from rnnspec.backends.cuda.loop.facts import Facts
from rnnspec.backends.cuda.loop.kernel import loop_source
from rnnspec.lowering.pipeline import MODES, Stages, stages
from rnnspec.lowering.program import Program

MANY_ROWS = 10**6  # so that a block has as many as it can
# expf is made of ex2.approx and tanhf of rcp.approx, both with corrections; the others would be
# approximations that nobody asked for
APPROXIMATE = re.compile(r"\b(?:tanh|sin|cos|lg2|sqrt|rsqrt|div)\.(?:approx|full)[\w.]*")


@cache
def programs(cell: str) -> Stages:
    return stages(rnnspec.load(cell))


def loop_kernel(
    cell: str, mode: str, size: int, arch: str = "sm_90", dtype: str = "float32", tier: int | None = None
) -> Source | None:
    """The kernel of the loop with every free size `size`; None where none fits. tier: 1, 2, or what
    is chosen."""
    spec = rnnspec.load(cell)
    facts = Facts(getattr(programs(cell), mode))
    sizes = dict.fromkeys(spec.sizes, size) | {"D": size, "H": size}
    choice = choose(facts, sizes, 4 if dtype == "float32" else 8, MANY_ROWS, *DEVICES[arch], tier)
    return loop_source(facts.program, facts, choice.shape, sizes, dtype) if choice.shape else None


def stage_kernels(program: Program, dtype: str) -> Iterator[Source]:
    """Those of stages: before and after the loop in every tier, in it in tier 3."""
    for stage in program.stages():
        if has_work(stage):
            yield stage_source(program, stage, dtype)


def kernels(cell: str, dtype: str = "float32", size: int = 16) -> Iterator[tuple[str, Source]]:
    """Tier and pass, and the kernel, of every one but those that all cells share."""
    for mode in MODES:
        if (source := loop_kernel(cell, mode, size, dtype=dtype)) is not None:
            yield f"tier 1, {mode}", source
        for source in stage_kernels(getattr(programs(cell), mode), dtype):
            yield f"a stage, {mode}", source


def ptx_of(source: Source, arch: str = "sm_90") -> str:
    return build(source, (int(arch[3]), int(arch[4])))[0].decode()


def faults(ptx: str, dtype: str) -> list[str]:
    """What the PTX of a kernel must not have."""
    found = [] if dtype == "float64" else [f"float64: {m}" for m in re.findall(r"\b[\w.]+\.f64\b", ptx)[:3]]
    found += [f"local memory: {m}" for m in re.findall(r"\.local[\w.\s]*", ptx)[:1]]
    return found + [f"an approximation: {m[0]}" for m in list(APPROXIMATE.finditer(ptx))[:3]]
