"""Kernels for a GPU, compiled and assembled where there is none: a stand-in for a device that keeps
every kernel it is asked to run.

`python -m bench gpu --build FOLDER` fills a folder, and --prebuilt FOLDER, on the machine with the
GPU, takes them from there: neither numba-cuda nor a CUDA toolkit is needed then.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.backends.cuda.compile.build import architecture, store
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.launch.driver import Device
from rnnspec.errors import BackendUnavailable


def ptxas() -> str | None:
    """The assembler: on the path, or of the package nvidia-cuda-nvcc."""
    if found := shutil.which("ptxas"):
        return found
    try:
        entries = files("nvidia-cuda-nvcc") or []
    except PackageNotFoundError:
        return None
    return next((str(e.locate()) for e in entries if e.name == "ptxas"), None)


@dataclass(frozen=True)
class Assembled:
    """What ptxas makes of a PTX text: machine code, registers of a thread, and bytes that it spills
    of them."""

    cubin: bytes
    registers: int
    spilled: int


def assemble(ptx: bytes, arch: str) -> Assembled:
    """Raises BackendUnavailable where there is no ptxas, RuntimeError with its words where it
    fails."""
    program = ptxas()
    if program is None:
        raise BackendUnavailable("ptxas is not installed: pip install 'rnnspec[cuda-test]' brings it.")
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        path.write_bytes(ptx)
        done = subprocess.run([program, f"-arch={arch}", "-v", path, "-o", made], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ptxas: {done.stderr}")
        registers, spilled = (
            re.search(r"Used (\d+) registers", done.stderr),
            re.search(r"(\d+) bytes spill stores", done.stderr),
        )
        assert registers and spilled
        return Assembled(made.read_bytes(), int(registers[1]), int(spilled[1]))


class Recorder(Device):
    """Compiles what it is asked to run, and runs nothing; results are zero. made: the PTX of every
    kernel, by its Source; folder: where cubins go too, if there is one."""

    cooperative, number = True, 0

    def __init__(self, capability: tuple[int, int], processors: int, shared: int, folder: Path | None = None):
        self.capability, self.processors, self.shared, self.folder = capability, processors, shared, folder
        self.made: dict[Hashable, bytes] = {}
        self.next = 1 << 20

    def use(self) -> None:
        pass

    def function(self, key: Hashable, make: Callable[[], tuple[bytes, str]], shared: int) -> Any:
        if key not in self.made:
            assert isinstance(key, Source)
            ptx, entry = make()
            if self.folder is not None:
                target = architecture(self.capability)
                store(self.folder, key, target, assemble(ptx, "sm_{}{}".format(*target)).cubin, entry)
            self.made[key] = ptx

    def launch(self, *args: Any, **options: Any) -> None:
        pass

    launch_together = launch

    def allocate(self, count: int, stream: int) -> int:
        address, self.next = self.next, self.next + -(-max(1, count) // 256) * 256
        return address

    def free(self, address: int, stream: int) -> None:
        pass

    def number_of(self, address: int) -> int:
        return self.number

    def to_device(self, address: int, array: np.ndarray, stream: int) -> None:
        pass

    def to_host(self, array: np.ndarray, address: int, stream: int) -> None:
        array[...] = 0

    def zero(self, address: int, count: int, stream: int) -> None:
        pass

    def synchronise(self, stream: int) -> None:
        pass
