"""An aarch64 machine in a folder: Debian's Python for it under QEMU's user-mode emulation, with the
wheels that rnnspec needs, and `rnnspec check` of ten cells of different kinds on it.

In: a folder, which is filled once (1 GB; Debian's packages and PyPI's wheels, by apt-get and pip;
nothing outside it changes, and root is not needed). Out: a line for each cell, and exit code 1 if
one fails. Kernels have NEON's vectors there: 4 numbers of float32, 2 of float64.

Not a machine to measure on: everything takes 10 to 20 times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CELLS = {
    "lstm": "the usual one",
    "gru": "a gate inside a product",
    "leaky_rnn": "choices",
    "ln_gru": "layer norm",
    "linear_attention": "a matrix as state",
    "sgu": "clip",
    "rhn": "a loop within the step",
    "zoneout_gru": "noise",
    "phased_lstm": "counts its steps",
    "autonomous": "no inputs",
}
TEXTS = {
    "autonomous": """rnnspec: 1
name: autonomous
title: Two coupled groups of units that nothing drives
states: {h: H, v: H}
parameters: {W: [H, H], b: [H]}
equations: |
  v[t] = 0.9 * v[t-1] + 0.1 * tanh(W @ h[t-1] + b)
  h[t] = h[t-1] + 0.1 * v[t]
outputs: [h]
"""
}
PACKAGES = ("python3", "libgomp1", "libatomic1", "libstdc++6")  # the wheels bring all else
TEST_TOOLS = ("pytest", "hypothesis")  # of the extra "test", what runs tests; its linters run anywhere
ASK = """
import json, platform, sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
print(json.dumps([sys.version_info[:2], platform.libc_ver()[1], project["dependencies"],
                  project["optional-dependencies"]["test"]]))
"""
WRAPPER = """#!/bin/sh
# Python for aarch64; so called, it finds itself again for processes that it starts
export PYTHONHOME={root}/usr
exec {emulator} -cpu "${{RNNSPEC_EMULATED_CPU:-neoverse-n1}}" -L {root} -0 "$0" {root}/usr/bin/python3 "$@"
"""


class Failed(Exception):
    """What could not be set up, for people."""


@dataclass(frozen=True)
class Row:
    """What `rnnspec check` said of a cell."""

    cell: str
    code: int
    passed: int
    failures: tuple[str, ...]
    skipped: int
    seconds: float
    errors: str

    def __str__(self) -> str:
        said = f"{self.passed:4} passed, {len(self.failures)} failed, {self.skipped:2} skipped"
        lines = [f"{self.cell:17} {CELLS.get(self.cell, ''):24} exit {self.code} {said} {self.seconds:6.0f} s"]
        return "\n    ".join([*lines, *self.failures, *(self.errors.splitlines() if self.code else ())])


def missing(folder: str | None) -> str:
    """Why nothing can be run in a folder; empty if it can."""
    how = "python tests/helpers/aarch64.py FOLDER sets one up; then RNNSPEC_AARCH64=FOLDER"
    if not folder:
        return f"no emulated aarch64 machine: {how}"
    return "" if (Path(folder) / "ready").exists() else f"{folder} is no emulated aarch64 machine: {how}"


def set_up(folder: Path) -> None:
    """Fills a folder, unless it is filled. Raises Failed."""
    if not missing(str(folder)):
        return
    for program in ("apt-get", "dpkg", "dpkg-deb"):
        if not shutil.which(program):
            raise Failed(f"{program} is missing: packages are Debian's, and fetched as on Debian")
    root = folder / "root"
    unpack(folder, "arm64", PACKAGES, root, alone=False)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "python").write_text(WRAPPER.format(root=shlex.quote(str(root)), emulator=emulator(folder)))
    (folder / "bin" / "python").chmod(0o755)
    for name, text in TEXTS.items():
        (folder / f"{name}.yaml").write_text(text)
    asked = run(folder, ["-c", ASK, str(TOP / "pyproject.toml")])
    if asked.returncode:
        raise Failed(f"the emulated Python does not start:\n{asked.stderr}")
    version, libc, needed, tools = json.loads(asked.stdout)
    wheels(folder / "site", version, libc, [*needed, *(t for t in tools if t.startswith(TEST_TOOLS))])
    shutil.rmtree(folder / "apt")
    (folder / "ready").touch()


def emulator(folder: Path) -> str:
    """QEMU: what the machine has, else Debian's."""
    if found := shutil.which("qemu-aarch64-static"):
        return shlex.quote(found)
    here = output(["dpkg", "--print-architecture"]).strip()
    for package in ("qemu-user-static", "qemu-user"):  # Debian 13: the first one is links to the second one's
        unpack(folder, here, [package], folder / "qemu", alone=True)
        for name in ("qemu-aarch64-static", "qemu-aarch64"):
            if (found := folder / "qemu" / "usr" / "bin" / name).exists():
                return shlex.quote(str(found))
    raise Failed("Debian's qemu-user-static has no qemu-aarch64-static")


def unpack(folder: Path, architecture: str, packages: Sequence[str], into: Path, *, alone: bool) -> None:
    """Debian's packages of an architecture, as files in a folder. alone: without what they need."""
    state = folder / "apt" / architecture
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()  # nothing is installed
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",  # apt's own user can't write here
        "pkgCacheGen::Essential": "none",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", *(f"-o{key}={value}" for key, value in settings.items())]
    archives = state / "cache" / "archives"
    output([*apt, "update"])
    if alone:
        output([*apt, "download", *packages], cwd=archives)
    else:
        output([*apt, "-y", "--download-only", "install", *packages])
    for package in sorted(archives.glob("*.deb")):
        output(["dpkg-deb", "-x", str(package), str(into)])


def wheels(site: Path, version: Sequence[int], libc: str, needed: Sequence[str]) -> None:
    """PyPI's wheels for aarch64, unpacked."""
    newest = int(libc.split(".")[1])
    platforms = ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in range(17, newest + 1))]
    python = [f"--python-version={version[0]}.{version[1]}", "--implementation=cp", f"--abi=cp{version[0]}{version[1]}"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--upgrade"]
    output([*pip, "--only-binary=:all:", *python, *(f"--platform={p}" for p in platforms), *needed])


def output(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise Failed(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """Of an emulated process. The emulator takes / for the folder root/ where that has what is
    looked for, so that /cache lies there."""
    paths = os.pathsep.join([str(TOP), str(folder / "site")])
    return os.environ | {"PYTHONPATH": paths, "RNNSPEC_CACHE_DIR": "/cache"}


def run(folder: Path, arguments: Sequence[str], *, capture: bool = True) -> subprocess.CompletedProcess[str]:
    """The emulated Python with these arguments, in the repository's folder."""
    command = [str(folder / "bin" / "python"), *arguments]
    return subprocess.run(command, capture_output=capture, text=True, cwd=TOP, env=environment(folder))


def check(folder: Path, cell: str) -> Row:
    """`rnnspec check CELL`, emulated: every property that needs no other library, both dtypes."""
    start = time.monotonic()
    done = run(folder, ["-m", "rnnspec", "check", str(folder / f"{cell}.yaml") if cell in TEXTS else cell, "--json"])
    seconds = time.monotonic() - start
    try:
        found = [row for one in json.loads(done.stdout)["cells"] for row in one["results"]]
    except ValueError:  # it ended before it could say anything
        return Row(cell, done.returncode or 1, 0, (), 0, seconds, done.stderr + done.stdout)
    failures = tuple(f"{r['property']}, {r['dtype']}: {r['detail']}" for r in found if not r["passed"])
    skipped = sum(r["skipped"] for r in found)
    return Row(cell, done.returncode, len(found) - skipped - len(failures), failures, skipped, seconds, done.stderr)


def check_all(folder: Path, cells: Sequence[str], jobs: int) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda cell: check(folder, cell), cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Sets up an emulated aarch64 machine in FOLDER, once, and runs `rnnspec check` of ten cells on it.",
        epilog="A cell takes about two minutes of processor time; the first one four, to compile what all share. "
        "Another processor of the emulator's: RNNSPEC_EMULATED_CPU=cortex-a72. "
        "The same as tests: RNNSPEC_AARCH64=FOLDER pytest -m slow -n 0 tests/cpu/test_aarch64.py",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="needs 1 GB; made if it is not there")
    parser.add_argument(
        "cells", nargs="*", metavar="CELL", help=f"of rnnspec's, or autonomous (default: {', '.join(CELLS)})"
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="cells at a time (all processors)")
    parser.add_argument(
        "--python",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENT",
        help="no cells: the emulated Python with these arguments, such as -m pytest -n 0 tests/cpu/test_vector_math.py",
    )
    given = parser.parse_args()
    folder = given.folder.resolve()
    try:
        set_up(folder)
    except Failed as error:
        print(error, file=sys.stderr)
        return 2
    if given.python is not None:
        return run(folder, given.python, capture=False).returncode
    failed = False
    for row in check_all(folder, given.cells or list(CELLS), given.jobs):
        print(row, flush=True)
        failed |= row.code != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
