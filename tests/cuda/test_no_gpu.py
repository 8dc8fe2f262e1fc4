"""A machine on which no GPU can be seen: the CPU works, and asking for a GPU says why there is
none. Needs no compiler for GPUs."""

from __future__ import annotations

import os
import subprocess
import sys

from emulated import gpu

import rnnspec
from rnnspec.engine.cpu import CpuKernel
from rnnspec.engine.cuda import CudaKernel


def test_H70_without_a_gpu_the_cpu_works_and_cuda_says_why() -> None:
    code = """
import numpy, rnnspec
try:
    rnnspec.compile("rnn", backend="cuda")
except rnnspec.BackendUnavailable as error:
    print(error)
kernel = rnnspec.compile("rnn", backend="auto")
kernel.infer(kernel.init(D=2, H=3), {"x": numpy.ones((1, 1, 2), numpy.float32)})
print(type(kernel).__name__)
one, low = rnnspec.compile("rnn", backend="auto", threads=1), rnnspec.compile("rnn", backend="auto", memory="low")
print(one.threads, low.memory)
try:
    rnnspec.compile("rnn", backend="auto", threads=1, tier=1)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    reason, chosen, asked, clash = done.stdout.splitlines()
    assert "NVIDIA GPU" in reason and "backend='cpu'" in reason and chosen == "CpuKernel"
    assert asked == "1 low" and "tier chooses among the kernels of a GPU" in clash


def test_auto_takes_no_gpu_whose_kernels_can_not_be_compiled(monkeypatch) -> None:
    """With a driver and a GPU, but without numba-cuda, `auto` was a kernel that failed at its first
    call."""
    with gpu():
        monkeypatch.setattr("rnnspec.engine.compile.find_spec", lambda name: None)
        assert type(rnnspec.compile("rnn", backend="auto")) is CpuKernel
        monkeypatch.setattr("rnnspec.engine.compile.find_spec", lambda name: object())
        assert type(rnnspec.compile("rnn", backend="auto")) is CudaKernel
