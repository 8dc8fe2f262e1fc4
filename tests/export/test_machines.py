"""Exported cells on other machines: the check of each is compiled for them and run under emulation.

The compiler is that of the package `ziglang`; `qemu-aarch64-static` and `qemu-arm-static` run what
is for ARM, Node runs WebAssembly. What is not here is skipped and named.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from c_library import STRICT, exported

# one stage, two, a matrix as state, inner loops, whole rows, spikes, noise, taps, several inputs,
# complex numbers as pairs, running sums, projections, what is computed once per sequence
KINDS = (
    *("lstm", "gru", "gru_reset_before", "rnn", "lstm_peephole", "lstm_projected", "ln_lstm_haste", "mgu", "sru"),
    *("indrnn", "mingru", "fast_weights", "ltc", "alif", "clockwork_rnn", "zoneout_lstm", "phased_lstm", "t_lstm"),
    *("on_lstm", "mogrifier_lstm", "cornn", "rwkv7", "s5", "lmu", "deltanet", "izhikevich"),
)
# no system runs programs on M-profile machines: what is exported is compiled for one,
# and linked with a C library of a machine that has all of its instructions; its name alone does not
# give the compiler the unit for floating point
LIBRARY = ["-target", "thumb-linux-musleabihf", "-mcpu=cortex_a9", "-static"]
WASI = """\
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1", args: [process.argv[2]] });
const module = await WebAssembly.compile(await readFile(process.argv[2]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
"""


@dataclass(frozen=True)
class Machine:
    """How programs for a machine are made and run. compile: the compiler's arguments; link: those
    of linking; run: the command in front of the program's path."""

    compile: tuple[str, ...]
    link: tuple[str, ...]
    run: tuple[str, ...] = ()


MACHINES = {
    "x86-64, clang": Machine((), ()),
    "aarch64": Machine(("-target", "aarch64-linux-musl"), ("-static",), ("qemu-aarch64-static",)),
    "cortex-m7": Machine(
        ("-target", "thumb-linux-musleabihf", "-mcpu=cortex_m7+fp_armv8d16"), tuple(LIBRARY), ("qemu-arm-static",)
    ),
    "wasm": Machine(("-target", "wasm32-wasi", "-msimd128"), (), ("node", "--no-warnings", "run.mjs")),
}


def zig(folder: Path, *arguments: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *arguments], cwd=folder, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", KINDS)
def test_a_cell_passes_its_check_on_other_machines(name, machine, tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("there is no ziglang here: pip install ziglang")
    how = MACHINES[machine]
    if how.run and not shutil.which(how.run[0]):
        pytest.skip(f"there is no {how.run[0]} here")
    (tmp_path / "run.mjs").write_text(WASI)
    for dtype in ("float32", "float64"):
        source = exported(name, dtype)
        source.write(tmp_path, selftest=True)
        target = f"program_{dtype}"
        objects = []
        for file in (source.name, f"{source.name}_selftest"):
            zig(tmp_path, *how.compile, *STRICT, "-O3", "-c", f"{file}.c", "-o", f"{file}.o")
            objects.append(f"{file}.o")
        chosen = how.link if "-target" in how.link else (*how.compile, *how.link)
        zig(tmp_path, *chosen, *objects, "-lm", "-o", target)
        done = subprocess.run([*how.run, f"./{target}"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{machine}, {dtype}: {done.stdout}{done.stderr}"
        assert "largest error" in done.stdout
