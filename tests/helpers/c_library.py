"""Exported programs, built by the C compiler that is here; as a library, to be called from here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

from rnnspec.check.sampling import size_values
from rnnspec.engine.initialise import initialise
from rnnspec.export import c
from rnnspec.export.c import CSource
from rnnspec.language.load import load

COMPILER = shutil.which("gcc") or shutil.which("cc")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
SANE = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"]


def exported(name: str, dtype: str) -> CSource:
    """A cell with initial weights, of awkward sizes."""
    spec = load(name)
    sizes = size_values(spec, (9, 13, 5))
    return c(spec, initialise(spec, sizes, 1, np.dtype(dtype)), sizes=sizes, dtype=dtype, name=f"a_{name}")


def built(source: CSource, folder: Path, *flags: str, test: bool = True) -> Path:
    """The program that checks a source, or its shared library."""
    source.write(folder, selftest=test)
    files, target = [f"{source.name}.c"], folder / source.name
    files += [f"{source.name}_selftest.c"] if test else ["-shared", "-fPIC"]
    made = subprocess.run(
        [COMPILER, *STRICT, *flags, *files, "-o", target, "-lm"], cwd=folder, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return target


class Library:
    """A program with one float32 input and output, to be called from here."""

    def __init__(self, source: CSource, folder: Path, *, begin: bool = True):
        self.name, self.library = source.name, ctypes.CDLL(str(built(source, folder, "-O1", test=False)))
        self.memory = np.zeros(1 << 16)
        if begin:
            assert self.call("init", None, ctypes.c_size_t(0)) == 0

    def call(self, name: str, *arguments):
        pointers = [
            a if a is None or isinstance(a, ctypes._SimpleCData) else a.ctypes.data_as(ctypes.c_void_p)
            for a in arguments
        ]
        return getattr(self.library, f"{self.name}_{name}")(self.memory.ctypes.data_as(ctypes.c_void_p), *pointers)

    def block(self, x: np.ndarray, width: int) -> np.ndarray:
        y = np.zeros((len(x), width), np.float32)
        self.call("block", ctypes.c_size_t(len(x)), x, y)
        return y
