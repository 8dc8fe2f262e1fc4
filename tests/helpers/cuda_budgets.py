"""What ptxas says of tier 1's kernels: registers of a thread and bytes of shared memory of a block,
for the standard cells, with as many rows a block as fit (4, but where the table's comment says
otherwise).

Tests hold what they find to the table's registers, rounded up to what a thread is given, and to its
shared memory. `python tests/helpers/cuda_budgets.py` measures anew and prints the table, to be put
below; ptxas of CUDA 13.0, kernels by numba-cuda 0.30. Compiled, not run on a GPU.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cuda_sources import loop_kernel, ptx_of

from rnnspec.backends.cuda.choice import DEVICES

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

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


def granted(registers: int) -> int:
    """Of a thread that needs so many: they are given out eight at a time."""
    return -(-registers // 8) * 8


def measure(cell: str, mode: str, size: int, arch: str, tier: int | None = None) -> Resources | None:
    """By ptxas; None where the kernel of no tier fits, or not that of this one."""
    source = loop_kernel(cell, mode, size, arch, tier=tier)
    if source is None:
        return None
    made = assemble(ptx_of(source, arch).encode(), arch)
    return Resources(made.registers, made.spilled, 4 * source.shared, source.threads)


# (cell, mode, size) -> {architecture: (registers, bytes of shared memory, bytes spilled if any)}.
# What is spilled is one register of a kernel
# that ptxas wants to have 64, so that four blocks fit a processor; nothing forces it to.
TABLE: dict[tuple[str, str, int], dict[str, tuple[int, ...]]] = {
    ("lstm", "forward", 16): {"sm_80": (64, 3072), "sm_90": (62, 3072)},
    ("lstm", "forward", 32): {"sm_80": (64, 6144), "sm_90": (64, 6144)},
    ("lstm", "forward", 64): {"sm_80": (126, 8192), "sm_90": (128, 8192)},
    ("lstm", "backward", 16): {"sm_80": (40, 4096), "sm_90": (40, 4096)},
    ("lstm", "backward", 32): {"sm_80": (48, 8192), "sm_90": (48, 8192)},
    ("lstm", "backward", 64): {"sm_80": (128, 12288), "sm_90": (128, 12288)},
    ("gru", "forward", 16): {"sm_80": (60, 2048), "sm_90": (62, 2048)},
    ("gru", "forward", 32): {"sm_80": (66, 4096), "sm_90": (80, 4096)},
    ("gru", "forward", 64): {"sm_80": (132, 5120), "sm_90": (130, 5120)},
    ("gru", "backward", 16): {"sm_80": (40, 3072), "sm_90": (42, 3072)},
    ("gru", "backward", 32): {"sm_80": (48, 6144), "sm_90": (56, 6144)},
    ("gru", "backward", 64): {"sm_80": (128, 9216), "sm_90": (132, 9216)},
    ("gru_reset_before", "forward", 16): {"sm_80": (64, 2048), "sm_90": (64, 2048)},
    ("gru_reset_before", "forward", 32): {"sm_80": (48, 6144), "sm_90": (64, 6144)},
    ("gru_reset_before", "forward", 64): {"sm_80": (80, 8192), "sm_90": (86, 8192)},
    ("gru_reset_before", "backward", 16): {"sm_80": (96, 3072), "sm_90": (96, 3072)},
    ("gru_reset_before", "backward", 32): {"sm_80": (62, 8192), "sm_90": (60, 8192)},
    ("gru_reset_before", "backward", 64): {"sm_80": (80, 16384), "sm_90": (80, 16384)},
    ("rnn", "forward", 16): {"sm_80": (64, 1024), "sm_90": (64, 1024)},
    ("rnn", "forward", 32): {"sm_80": (44, 3072), "sm_90": (44, 3072)},
    ("rnn", "forward", 64): {"sm_80": (64, 6144), "sm_90": (64, 6144)},
    ("rnn", "backward", 16): {"sm_80": (68, 1280), "sm_90": (64, 1280)},
    ("rnn", "backward", 32): {"sm_80": (40, 3584), "sm_90": (40, 3584)},
    ("rnn", "backward", 64): {"sm_80": (64, 7168), "sm_90": (48, 7168)},
    ("lstm_peephole", "forward", 16): {"sm_80": (66, 3072), "sm_90": (66, 3072)},
    ("lstm_peephole", "forward", 32): {"sm_80": (58, 6144), "sm_90": (60, 6144)},
    ("lstm_peephole", "forward", 64): {"sm_80": (128, 8192), "sm_90": (128, 8192)},
    ("lstm_peephole", "backward", 16): {"sm_80": (40, 4096), "sm_90": (40, 4096)},
    ("lstm_peephole", "backward", 32): {"sm_80": (68, 8192), "sm_90": (68, 8192)},
    ("lstm_peephole", "backward", 64): {"sm_80": (128, 12288), "sm_90": (128, 12288)},
    ("lstm_projected", "forward", 16): {"sm_80": (66, 3328), "sm_90": (64, 3328)},
    ("lstm_projected", "forward", 32): {"sm_80": (60, 6656), "sm_90": (68, 6656)},
    ("lstm_projected", "forward", 64): {"sm_80": (128, 9216), "sm_90": (128, 9216)},
    ("lstm_projected", "backward", 16): {"sm_80": (56, 4352), "sm_90": (58, 4352)},
    ("lstm_projected", "backward", 32): {"sm_80": (64, 8704), "sm_90": (64, 8704, 4)},
    ("lstm_projected", "backward", 64): {"sm_80": (128, 13312), "sm_90": (128, 13312)},
    ("indrnn", "forward", 16): {"sm_80": (46, 512), "sm_90": (48, 512)},
    ("indrnn", "forward", 32): {"sm_80": (63, 1024), "sm_90": (64, 1024)},
    ("indrnn", "forward", 64): {"sm_80": (56, 2048), "sm_90": (56, 2048)},
    ("indrnn", "backward", 16): {"sm_80": (48, 512), "sm_90": (54, 512)},
    ("indrnn", "backward", 32): {"sm_80": (64, 1024), "sm_90": (64, 1024)},
    ("indrnn", "backward", 64): {"sm_80": (56, 2048), "sm_90": (56, 2048)},
}

# The same of tier 2, at sizes where several blocks share up to 8 rows; nothing is spilled. At 1024
# an LSTM fits no A100.
GRID = [("lstm", 128), *((cell, 256) for cell in STANDARD), ("lstm", 1024)]
GRID_TABLE: dict[tuple[str, str, int], dict[str, tuple[int, int]]] = {
    ("lstm", "forward", 128): {"sm_80": (228, 20480), "sm_90": (224, 20480)},
    ("lstm", "forward", 256): {"sm_80": (234, 26624), "sm_90": (75, 200832)},
    ("lstm", "forward", 1024): {"sm_90": (230, 74240)},
    ("lstm", "backward", 128): {"sm_80": (233, 32768), "sm_90": (232, 32768)},
    ("lstm", "backward", 256): {"sm_80": (228, 45056), "sm_90": (80, 220032)},
    ("lstm", "backward", 1024): {"sm_90": (254, 140288)},
    ("gru", "forward", 256): {"sm_80": (242, 23488), "sm_90": (86, 219136)},
    ("gru", "backward", 256): {"sm_80": (248, 35520), "sm_90": (246, 35520)},
    ("gru_reset_before", "forward", 256): {"sm_80": (96, 163584), "sm_90": (80, 231424)},
    ("gru_reset_before", "backward", 256): {"sm_80": (127, 154112), "sm_90": (96, 174720)},
    ("rnn", "forward", 256): {"sm_80": (240, 24576), "sm_90": (247, 24576)},
    ("rnn", "backward", 256): {"sm_80": (244, 24576), "sm_90": (244, 24576)},
    ("lstm_peephole", "forward", 256): {"sm_80": (228, 26624), "sm_90": (92, 200832)},
    ("lstm_peephole", "backward", 256): {"sm_80": (236, 45056), "sm_90": (80, 220032)},
    ("lstm_projected", "forward", 256): {"sm_80": (254, 34816), "sm_90": (252, 34816)},
    ("lstm_projected", "backward", 256): {"sm_80": (254, 53248), "sm_90": (254, 53248)},
    ("indrnn", "forward", 256): {"sm_80": (60, 256), "sm_90": (43, 256)},
    ("indrnn", "backward", 256): {"sm_80": (48, 256), "sm_90": (43, 256)},
}

if __name__ == "__main__":
    for tier, wanted in ((1, [*product(STANDARD, SIZES)]), (2, GRID)):
        for (cell, size), mode in product(wanted, MODES):
            archs = DEVICES if size < 1024 else ["sm_90"]
            found = {arch: measure(cell, mode, size, arch, tier) for arch in archs}
            shown = ", ".join(
                f'"{a}": ({r.registers}, {r.shared}{f", {r.spilled}" * bool(r.spilled)})' for a, r in found.items() if r
            )
            print(f'    ("{cell}", "{mode}", {size}): {{{shown}}},', flush=True)
