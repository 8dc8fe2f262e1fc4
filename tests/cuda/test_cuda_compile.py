"""Every kernel of every cell, compiled for both architectures that code is made for, and its PTX
looked through."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cells import case
from cuda_cells import CELLS
from cuda_sources import faults
from emulated import needs_compiler

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

import rnnspec
from bench.cubins import Recorder
from rnnspec.backends.cuda.choice import DEVICES
from rnnspec.backends.cuda.compile.build import ARCHITECTURES
from rnnspec.engine.cuda import CudaKernel

needs_compiler()
ALONE, TOGETHER = (1, 3), 2  # the tiers whose blocks do not wait for each other, and that whose do


def compiled(name: str, capability: tuple[int, int], tier: int, dtype: str = "float32") -> dict[str, str]:
    """The PTX of all kernels that forward, backward and infer launch, by what they are: in part
    those of tests/cuda/test_cuda_cells.py."""
    device = Recorder(capability, 5 if tier == TOGETHER else 1, DEVICES["sm_{}{}".format(*capability)][1])
    kernel = CudaKernel(rnnspec.load(name), np.dtype(dtype), tier, device=device)
    c = case(kernel, 2, 3, lengths=(1, 2, 0))
    c.backward(c.forward())
    kernel.infer(c.params, c.inputs, c.states, c.lengths)
    return {f"{source.name} {number}": ptx.decode() for number, (source, ptx) in enumerate(device.made.items())}


@pytest.mark.parametrize("name", CELLS)
def test_every_tier_and_pass_compiles_for_every_architecture(name):
    """Float32 kernels hold no float64, no local memory, and no approximations that nobody asked
    for."""
    for tier in ALONE:
        sound(name, tier)


@pytest.mark.parametrize(
    "name", [n if n in ("lstm", "on_lstm") else pytest.param(n, marks=pytest.mark.slow) for n in rnnspec.spec_names()]
)
def test_every_pass_compiles_where_blocks_wait_for_each_other(name):
    sound(name, TOGETHER)


def sound(name: str, tier: int) -> None:
    for capability in ARCHITECTURES:
        texts = compiled(name, capability, tier)
        found = {about: faults(ptx, "float32") for about, ptx in texts.items()}
        # a cell whose weights are all fixed sums nothing, and has the fewest kernels: five
        assert len(texts) >= 5 and not any(found.values()), found
        assert all(".target sm_{}{}".format(*capability) in ptx for ptx in texts.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_every_tier_and_pass_compiles_in_float64(name):
    for tier in ALONE:
        assert len(compiled(name, (9, 0), tier, "float64")) > 5
