"""What ptxas says of tier 1's kernels: registers of a thread and bytes of shared memory of a block, for the standard cells, with as many rows
a block as fit (4, but where the table's comment says otherwise).

`python tests/cuda_budgets.py` measures anew and prints the table, to be put below; ptxas of CUDA 13.0, kernels by numba-cuda 0.30.
Compiled, not run on a GPU.
"""
from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cuda_sources import loop_kernel, ptx_of

from rnnspec.backends.cuda.choice import DEVICES

sys.path.append(str(Path(__file__).resolve().parent.parent))  # bench is not installed

from bench.cubins import assemble

STANDARD = ("lstm", "gru", "gru_reset_before", "rnn", "lstm_peephole", "lstm_projected", "indrnn")
MODES = ("forward", "backward")
SIZES = (16, 32, 64)


@dataclass(frozen=True)
class Resources:
    """registers: of a thread; spilled: bytes of them; shared: bytes of a block."""

    registers: int
    spilled: int
    shared: int
    threads: int


def measure(cell: str, mode: str, size: int, arch: str) -> Resources | None:
    """By ptxas; None where tier 1 does not fit."""
    source = loop_kernel(cell, mode, size, arch)
    if source is None:
        return None
    made = assemble(ptx_of(source, arch).encode(), arch)
    return Resources(made.registers, made.spilled, 4 * source.shared, source.threads)


# (cell, mode, size) -> {architecture: (registers, bytes of shared memory)}
TABLE: dict[tuple[str, str, int], dict[str, tuple[int, int]]] = {
    ("lstm", "forward", 64): {"sm_80": (126, 8192), "sm_90": (128, 8192)},
}

if __name__ == "__main__":
    for cell in STANDARD:
        for mode in MODES:
            for size in SIZES:
                found = {arch: measure(cell, mode, size, arch) for arch in DEVICES}
                shown = ", ".join(f'"{a}": ({r.registers}, {r.shared})' for a, r in found.items() if r)
                spilled = [a for a, r in found.items() if r and r.spilled]
                print(f'    ("{cell}", "{mode}", {size}): {{{shown}}},{f"  # spills: {spilled}" if spilled else ""}', flush=True)
