"""`rnnspec doctor`: what this machine is, what is installed, and what is missing for what."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from rnnspec.commands.cache import as_dict, size_text
from rnnspec.commands.output import say
from rnnspec.errors import BackendUnavailable, RnnspecError
from rnnspec.storage import cache
from rnnspec.storage.jsontext import json_text
from rnnspec.storage.version import version_of

FOR_DEVELOPERS = ("test", "bench", "cuda-test")
WIDTH, LEFT, NAMES = 80, 14, 22


def run(args: argparse.Namespace) -> int:
    """Always 0: what is missing is told, and may not be wanted."""
    found = examined()
    say(json_text(found) if args.json else text(found))
    return 0


def examined() -> dict[str, Any]:
    """All that is told, for JSON."""
    return {
        "rnnspec": {"version": version_of("rnnspec"), "folder": str(Path(__file__).resolve().parents[1])},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "system": platform.platform(),
        "processor": processor(),
        "cache": as_dict(cache.contents()),
        "packages": packages(),
        "gpu": gpu(),
    }


def processor() -> dict[str, Any]:
    """What kernels are made for. compiler_name: as LLVM calls it; lanes: numbers in a vector
    register, by dtype; costs: what threads bring and cost, see launch/costs.py."""
    from rnnspec.backends.cpu.launch.costs import costs
    from rnnspec.backends.cpu.launch.pool import default_threads
    from rnnspec.backends.cpu.machine import brand, host

    machine = host()
    return {
        "name": brand(),
        "architecture": platform.machine(),
        "compiler_name": cache.cpu()[0],
        "cores": os.cpu_count(),
        "threads": default_threads(),
        "lanes": dict(machine.lanes),
        "vector_registers": machine.registers,
        "multiply_add": machine.fma,
        "costs": asdict(costs()),
    }


def packages() -> list[dict[str, Any]]:
    """What rnnspec asks for, with the version that is there, None where there is none. extra: what
    it is installed with; "" for what rnnspec can't do without."""
    try:
        wanted = requires("rnnspec") or []
    except PackageNotFoundError:  # run from its source
        return []
    rows = []
    for requirement in wanted:
        asked, _, marker = requirement.partition(";")
        name, bounds = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(.*)$", asked.strip())[0]
        extra = re.search(r"extra == ['\"]([^'\"]+)", marker)
        if extra is None or extra[1] not in FOR_DEVELOPERS:
            rows.append(
                {"name": name, "asked": bounds, "extra": extra[1] if extra else "", "version": version_of(name)}
            )
    return sorted(rows, key=lambda row: (row["extra"], row["name"]))


def gpu() -> dict[str, Any]:
    """Whether kernels can run on a GPU here, and be compiled for it. trouble: why not, "" where
    they can."""
    from rnnspec.backends.cuda.launch.driver import LEAST, LEAST_DRIVER, first_device

    needed = (
        f"an NVIDIA GPU of compute capability {LEAST[0]}.{LEAST[1]} or more and its driver, for CUDA"
        f" {LEAST_DRIVER // 1000} or later; to compile kernels, numba-cuda: pip install 'rnnspec[cuda]'"
    )
    capability, trouble = None, ""
    try:
        capability = "{}.{}".format(*first_device().capability)
    except (BackendUnavailable, RnnspecError) as error:
        trouble = str(error)
    return {"capability": capability, "compiler": version_of("numba-cuda"), "trouble": trouble, "needed": needed}


# text


def _threads(cpu: Mapping[str, Any]) -> str:
    """What threads bring and cost."""
    costs, many = cpu["costs"], cpu["threads"]
    if many == 1 or not costs["measured"]:
        return "one thread" if many == 1 else "what more threads bring is not measured while others use the cores"
    waking = f"waking them takes {1e6 * costs['waking']:.0f} us"
    return f"{many} threads do {costs['gain'][-1]:.1f} times the work of one; {waking}"


def text(found: Mapping[str, Any]) -> str:
    """For people, in 80 columns."""
    cpu, kept, gpu_found = found["processor"], found["cache"], found["gpu"]
    lanes = ", ".join(f"{n} {dtype}" for dtype, n in cpu["lanes"].items())
    fused = "with" if cpu["multiply_add"] else "without"
    lines = [
        ("rnnspec", f"{found['rnnspec']['version'] or 'not installed'}, {found['rnnspec']['folder']}"),
        ("Python", "{version} ({implementation}), {executable}".format(**found["python"])),
        ("system", found["system"]),
        ("processor", f"{cpu['name']} ({cpu['architecture']}; to the compiler {cpu['compiler_name']})"),
        ("", f"{cpu['cores']} cores, {cpu['threads']} threads used unless told otherwise"),
        ("", _threads(cpu)),
        ("", f"vectors of {lanes}, {cpu['vector_registers']} of them, {fused} multiply-add"),
        ("cache", f"{kept['folder'] or 'none'}: {kept['files']:,} files, {size_text(kept['bytes'])}"),
    ]
    if kept["trouble"]:
        lines.append(("", f"NOT USED, so every process compiles anew: {kept['trouble']}"))
    lines += [("packages" * (not n), _package(row)) for n, row in enumerate(found["packages"])]
    if not found["packages"]:
        lines.append(("packages", "unknown: rnnspec runs from its source and is not installed"))
    lines += [("GPU", _gpu(gpu_found)), ("", f"what it takes: {gpu_found['needed']}")]
    return "\n".join(
        textwrap.fill(
            said,
            WIDTH,
            initial_indent=head.ljust(LEFT),
            subsequent_indent=" " * (LEFT + 2),
            break_on_hyphens=False,
            break_long_words=False,
        )
        for head, said in lines
    )


def _package(row: Mapping[str, Any]) -> str:
    name = f"{row['name']} {row['version'] or '-'}"
    if row["version"]:
        return f"{name}{' ' * max(1, NAMES - len(name))}({row['asked'] or 'any'})"
    how = f"pip install 'rnnspec[{row['extra']}]'" if row["extra"] else f"pip install '{row['name']}{row['asked']}'"
    return f"{name}{' ' * max(1, NAMES - len(name))}not installed: {how}"


def _gpu(found: Mapping[str, Any]) -> str:
    if found["trouble"]:
        return f"none that can be used: {found['trouble']}"
    compiler = (
        f"numba-cuda {found['compiler']}" if found["compiler"] else "no numba-cuda, so kernels from the cache only"
    )
    return f"compute capability {found['capability']}; {compiler}"
