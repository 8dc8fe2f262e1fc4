"""What a measurement was made on and with. No path of the machine and no name of its user is in
it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numba", "llvmlite", "numpy", "torch", "jax", "onnxruntime")


def describe() -> dict[str, Any]:
    """The command, the machine and how busy it is, versions (None: not installed) and the date,
    UTC."""
    versions = {"python": platform.python_version(), "rnnspec": _commit()} | {name: _version(name) for name in PACKAGES}
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "machine": {
            "cpu": _cpu(),
            "processors": os.cpu_count(),
            "usable": usable,
            "instructions": _instructions(),
            "load": _load(),
        },
        "command": command(sys.argv[1:]),
        "versions": versions,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
    }


def line(about: dict[str, Any]) -> str:
    """The same in one line."""
    machine, versions = about["machine"], about["versions"]
    with_what = ", ".join(f"{name} {v}" for name, v in versions.items() if v)
    return (
        f"{about['date']} UTC, {machine['cpu']} ({machine['instructions']}), {machine['usable']} of"
        f" {machine['processors']} processors, load average {machine['load']} before; {with_what}"
    )


def command(words: Sequence[str]) -> str:
    """What was typed, files without their folders."""
    return shlex.join(["python", "-m", "bench", *(re.sub(r"[^=]*/", "", word) for word in words)])


def _load() -> float | None:
    """Processes that run or wait to, over the last minute: other people's work slows ours."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((text.split(":", 1)[1].strip() for text in lines if text.split(":")[0].strip() == field), "")


def _cpu() -> str:
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"{name}, family {family} model {model}" if family and model else name


def _instructions() -> str:
    flags = set(_cpuinfo("flags").split())
    return next(
        (name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX")) if flag in flags),
        platform.machine(),
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working tree, with a + where it has changes."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
