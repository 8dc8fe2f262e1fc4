"""Cells, layers and runs as a WebAssembly module with an ES module around it: see `wasm`.

The module is the C of export/c.py, compiled here. The script has it within, so that a page or an
AudioWorklet asks nobody for anything; its text is export/script.py's.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rnnspec.errors import UnsupportedError
from rnnspec.export.c import CSource
from rnnspec.export.script import cell_script, check_script
from rnnspec.storage import atomic

# fixed SIMD of 128 bits, which browsers have had since 2021 to 2023; no function that asks a system
FLAGS = ("-std=c99", "-O3", "-msimd128", "-mexec-model=reactor", "-nostartfiles", "-Wl,--no-entry", "-Wl,--strip-all")
SECONDS = 600


@dataclass(frozen=True, repr=False)
class WasmModule:
    """What was made. source: the C that it is of; module: the bytes of the WebAssembly module,
    which imports nothing; script: the text of the ES module, which has those bytes within."""

    source: CSource
    module: bytes
    script: str

    def __repr__(self) -> str:
        return f"WasmModule({self.source.name!r}: {self.source.model.title}, {len(self.module):,} bytes)"

    def files(self, selftest: bool = False) -> dict[str, bytes]:
        """The files that belong together: NAME.mjs, NAME.wasm for hosts that have no JavaScript,
        NAME.weights if the weights are apart, and with `selftest` NAME_selftest.mjs. Raises what
        `selftest` raises."""
        name = self.source.name
        files = {f"{name}.mjs": self.script.encode(), f"{name}.wasm": self.module}
        files |= {f"{name}_selftest.mjs": check_script(self.source.program).encode()} if selftest else {}
        return files | ({f"{name}.weights": self.source.weights()} if self.source.apart else {})

    def write(self, folder: str | Path = ".", selftest: bool = False) -> tuple[Path, ...]:
        """Writes all `files` into a folder, or none, and returns their paths. Raises OSError, and
        what `selftest` raises."""
        return atomic.write_all({Path(folder) / file: data for file, data in self.files(selftest).items()})


def wasm(source: CSource) -> WasmModule:
    """A program of `rnnspec.export.c` as WebAssembly with SIMD, and a class `Cell` for JavaScript.

    Raises UnsupportedError where no compiler for WebAssembly is found, or it fails.
    """
    module = _compiled(source, _compiler())
    return WasmModule(source, module, cell_script(source.program, module))


def _compiler() -> list[str]:
    """The command of a compiler that has a C library for WebAssembly."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi"]
    if found := shutil.which("zig"):
        return [found, "cc", "-target", "wasm32-wasi"]
    if found := shutil.which("clang"):
        return [found, "--target=wasm32-wasi"]
    raise UnsupportedError("there is no compiler for WebAssembly here: pip install ziglang (or install zig, or clang).")


def _compiled(source: CSource, compiler: Iterable[str]) -> bytes:
    name = source.name
    exports = [f"{name}_init", f"{name}_reset", f"{name}_block", f"{name}_bytes"]
    # its size, which JavaScript can't know
    more = f'#include "{name}.h"\nsize_t {name}_bytes(void);\nsize_t {name}_bytes(void) {{ return sizeof({name}); }}\n'
    with tempfile.TemporaryDirectory(prefix="rnnspec-wasm-") as folder:
        source.write(folder)
        (Path(folder) / f"{name}_size.c").write_text(more)
        flags = [*FLAGS, *(f"-Wl,--export={e}" for e in (*exports, "__heap_base"))]
        command = [*compiler, *flags, f"{name}.c", f"{name}_size.c", "-o", "module.wasm", "-lm"]
        try:
            made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnsupportedError(f"the compiler for WebAssembly did not run: {error}") from error
        if made.returncode:
            raise UnsupportedError(
                f"the compiler for WebAssembly failed ({' '.join(command[:4])}); what it says:\n{made.stderr[:2000]}\n"
                "A clang needs lld and a C library for WebAssembly (wasi-libc) beside it; pip install ziglang has both."
            )
        return (Path(folder) / "module.wasm").read_bytes()
