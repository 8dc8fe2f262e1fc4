"""Texts become object files, and object files become functions: what is refused, what is put off,
what a new process needs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.backends.cpu import machine, native
from rnnspec.storage.cache import cache_folder, cached, uncollected

ROOT = Path(__file__).resolve().parents[2]
TEXT = """from rnnspec.backends.cpu.runtime.simd import get, pointer_int, put

LAYOUT = {"fields": ("a", "b")}


def half(n):
    return n // 2


def kernel(call):
    table = pointer_int(call)
    put(table, 0, get(table, 1) // 2)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "cache"))


def test_a_layout_is_read_without_compiling():
    made = native.CpuText("broken", TEXT.replace("get(table, 1)", "no_such_name"))
    assert made.LAYOUT == {"fields": ("a", "b")}
    with pytest.raises(Exception, match="no_such_name"):
        _ = made.kernel


def test_a_function_that_is_not_an_operation_is_refused():
    with pytest.raises(Exception, match="half"):
        native.compiled("calls", TEXT.replace("get(table, 1) // 2", "half(get(table, 1))"), ("kernel",))


def test_machine_code_that_needs_other_libraries_is_refused():
    """LLVM ends the process when it can't find a function."""
    with pytest.raises(NotImplementedError, match="elsewhere"):
        machine.object_file(
            ["declare void @elsewhere()\ndefine void @f() {\n  call void @elsewhere()\n  ret void\n}\n"], ["f"]
        )


def test_numbers_arrive():
    table = np.array([0, 10])
    native.CpuText("half", TEXT).kernel(table.ctypes.data)
    assert table.tolist() == [5, 10]


def test_inference_makes_no_more_than_it_needs():
    spec = cell(
        "h[t] = tanh(W @ x[t] - 2 * h[t-1])", name="frugal", inputs="{x: D}", states="{h: H}", parameters="{W: [H, D]}"
    )  # of no other test
    of = rnnspec.compile(rnnspec.loads(spec), dtype="float64")
    of.infer(of.init(D=2, H=3), {"x": np.zeros((2, 1, 2))})
    names = {path.name.rpartition("_")[0] for path in cache_folder().glob("*.kernel")}
    assert "frugal_infer_float64" in names and not any(
        name.startswith(("frugal_forward", "frugal_backward", "outer")) for name in names
    )


def test_the_garbage_collector_is_as_it_was():
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled()
        _ = cached("bad", "key", lambda: bytes(1 // 0))
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


WAVE = """
import sys, numpy as np, rnnspec
kernel = rnnspec.compile(sys.argv[1], dtype="float64")
y = kernel.infer({}, {"x": np.full((1, 1), 1e30)}).outputs["h"].item()
print(y, "rnnspec.backends.cpu.frontend" in sys.modules)
"""


def test_the_c_library_is_found_by_who_compiles_and_by_who_does_not(tmp_path):
    """sin of large numbers is the C library's."""
    path = tmp_path / "wave.yaml"
    path.write_text(cell("h[t] = sin(x[t])", name="wave"))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for compiles in ("True", "False"):
        done = subprocess.run(
            [sys.executable, "-c", WAVE, str(path)], env=env, capture_output=True, text=True, check=True
        )
        value, imported = done.stdout.split()
        assert float(value) == np.sin(1e30) and imported == compiles
