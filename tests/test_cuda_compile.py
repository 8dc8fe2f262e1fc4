"""Every kernel of every cell, compiled for both architectures that code is made for, and its PTX looked through."""
from __future__ import annotations

import pytest
from cuda_sources import faults, kernels, ptx_of
from emulated import needs_compiler

import rnnspec
from rnnspec.backends.cuda.build import ARCHITECTURES

needs_compiler()
ALWAYS = ("lstm", "gru_reset_before", "lru", "on_lstm")


@pytest.mark.parametrize("name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in rnnspec.spec_names()])
def test_every_tier_and_pass_compiles_for_every_architecture(name):
    """Float32 kernels hold no float64, no local memory, and no approximations that nobody asked for."""
    for major, minor in ARCHITECTURES:
        found = {about: faults(ptx_of(source, f"sm_{major}{minor}"), "float32") for about, source in kernels(name)}
        assert found and not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("name", rnnspec.spec_names())
def test_every_tier_and_pass_compiles_in_float64(name):
    for about, source in kernels(name, "float64"):
        assert ".entry" in ptx_of(source), about
