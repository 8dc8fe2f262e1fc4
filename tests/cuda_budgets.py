"""What ptxas says of tier 1's kernels: registers of a thread and bytes of shared memory of a block, for the standard cells at 4 rows a block.

`python tests/cuda_budgets.py` measures anew and prints the table, to be put below; ptxas of CUDA 13.0, kernels by numba-cuda 0.30.
Compiled, not run on a GPU.
"""
from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import rnnspec
from rnnspec.backends.cuda.build import build
from rnnspec.backends.cuda.choice import DEVICES, choose
from rnnspec.backends.cuda.loop import loop_source
from rnnspec.backends.cuda.loop_facts import Facts
from rnnspec.backends.cuda.text import Source
from rnnspec.pipeline import stages

STANDARD = ("lstm", "gru", "gru_reset_before", "rnn", "lstm_peephole", "lstm_projected", "indrnn")
MODES = ("forward", "backward")
SIZES = (64,)
MANY_ROWS = 10**6  # so that a block has as many as it can


@dataclass(frozen=True)
class Resources:
    registers: int
    spilled: int
    shared: int


def loop_kernel(cell: str, mode: str, size: int, arch: str = "sm_90", dtype: str = "float32", tier: int | None = None) -> Source | None:
    """The loop's kernel with every free size `size`; None where none fits. tier: 1, 2, or what is chosen."""
    spec = rnnspec.load(cell)
    facts = Facts(getattr(stages(spec), mode))
    sizes = dict.fromkeys(spec.sizes, size) | {"D": size, "H": size}
    choice = choose(facts, sizes, 4 if dtype == "float32" else 8, MANY_ROWS, *DEVICES[arch], tier)
    return loop_source(facts.program, facts, choice.shape, sizes, dtype) if choice.shape else None


def ptx_of(source: Source, arch: str = "sm_90") -> str:
    return build(source, (int(arch[3]), int(arch[4])))[0].decode()


def assemble(ptx: str, arch: str, shared: int) -> Resources:
    """By ptxas. shared: bytes of dynamic shared memory, of which it knows nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        done = subprocess.run([ptxas(), f"-arch={arch}", "-v", path, "-o", Path(folder) / "kernel.cubin"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    registers, spilled = re.search(r"Used (\d+) registers", done.stderr), re.search(r"(\d+) bytes spill stores", done.stderr)
    assert registers and spilled
    return Resources(int(registers[1]), int(spilled[1]), shared)


def ptxas() -> str | None:
    """The assembler: on the path, or of the package nvidia-cuda-nvcc."""
    if found := shutil.which("ptxas"):
        return found
    from importlib.metadata import PackageNotFoundError, files

    try:
        entries = files("nvidia-cuda-nvcc") or []
    except PackageNotFoundError:
        return None
    return next((str(e.locate()) for e in entries if e.name == "ptxas"), None)


def measure(cell: str, mode: str, size: int, arch: str, tier: int | None = None) -> Resources | None:
    source = loop_kernel(cell, mode, size, arch, tier=tier)
    return None if source is None else assemble(ptx_of(source, arch), arch, 4 * source.shared)


# (cell, mode, size) -> {architecture: (registers, bytes of shared memory)}
TABLE: dict[tuple[str, str, int], dict[str, tuple[int, int]]] = {
    ("lstm", "forward", 64): {"sm_80": (126, 8192), "sm_90": (128, 8192)},
}

# the same of tier 2, sizes at which several blocks share up to 8 rows
GRID_SIZES = (128, 256)
GRID_TABLE: dict[tuple[str, str, int], dict[str, tuple[int, int]]] = {
}

if __name__ == "__main__":
    for tier, cell, mode in product((1, 2), STANDARD, MODES):
        for size in SIZES if tier == 1 else GRID_SIZES:
            found = {arch: measure(cell, mode, size, arch, tier) for arch in DEVICES}
            shown = ", ".join(f'"{a}": ({r.registers}, {r.shared})' if r else f'"{a}": None' for a, r in found.items())
            spilled = [a for a, r in found.items() if r and r.spilled]
            print(f'    ("{cell}", "{mode}", {size}): {{{shown}}},{f"  # spills: {spilled}" if spilled else ""}', flush=True)
