"""Measures rows of `compare`, in the process it is called in: one case, rnnspec against peers,
values first."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench import peers
from bench.case import IN_TORCH, Case, Data
from bench.peak import peak
from bench.peers import Prepared, ours
from bench.timing import LEAST, Call, pairs, repeats, seconds
from bench.timing import measure as measured
from rnnspec.backends.cpu.machine import host

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}  # of the largest value: sums of up to 10,000 steps, in another order
TOO_SLOW = 20.0  # seconds of one call of a peer, from which on it is not measured
SLOW, FEWEST = 0.1, 3  # seconds of a call of a loop in PyTorch, from which on so many pairs are enough


class Mismatch(Exception):
    """A peer's values differ from ours."""


@dataclass(frozen=True)
class Own:
    """Our side of a row: repeat, the calls in one measurement."""

    call: Call
    repeat: int
    values: Mapping[str, np.ndarray]


def measure(
    cases: list[dict[str, Any]], names: list[str], threads: int, count: int, least: float = LEAST, sparing: bool = False
) -> Iterator[dict[str, Any]]:
    """A record per case, each against those of the named peers that have the cell. count: pairs;
    least: seconds of a measurement.

    sparing: jax is left out for the cells of torch.nn, which no goal compares with it; compiling it
    is what takes longest.
    """
    for fields in cases:
        case = Case(**fields)
        found = {n: peers.module(n) for n in names}
        start = time.monotonic()
        yield row(
            case,
            {
                n: m.prepare
                for n, m in found.items()
                if m.supports(case) and not (sparing and n == "jax" and case.cell in IN_TORCH)
            },
            threads,
            count,
            least,
        ) | {"spent": time.monotonic() - start}


def row(
    case: Case,
    makers: Mapping[str, Callable[[Case, Data, int], Prepared]],
    threads: int,
    count: int,
    least: float = LEAST,
) -> dict[str, Any]:
    """One case. Times in seconds a call; peers: name -> {"pairs": [[theirs, ours], ...], "ratio":
    median theirs / ours} or {"error" or "skipped": why}."""
    record: dict[str, Any] = asdict(case) | {"threads": threads, "flops": case.flops, "peers": {}}
    data, top = Data(case), peak(case.dtype)
    tops = [top()]
    try:
        mine = ours.prepare(case, data, threads)
        wanted = mine.values()
        many = repeats(mine.call, least)
    except Exception as error:  # one cell that fails is one row that fails
        return record | {"error": f"rnnspec: {_first_line(error)}"}
    own: list[float] = []
    for name, make in makers.items():
        record["peers"][name] = _against(name, make, Own(mine.call, many, wanted), data, threads, count, least)
        own += [t for _, t in record["peers"][name].get("pairs", [])]
    if not own:
        own = [measured(mine.call, many) for _ in range(count)]
    lanes = host().lanes[case.dtype]
    if case.mode != "step" and (case.H % lanes or case.D % lanes):
        record["padded"] = _padded(case, case.padded(lanes), Own(mine.call, many, wanted), threads, count, least)
    tops.append(top())
    each = statistics.median(own)
    rate = case.flops / each / 1e9
    return record | {
        "seconds": each,
        "all_seconds": own,
        "gflops": rate,
        "peak_gflops": max(tops),
        "share": rate / max(tops) / threads,
    }


def _against(
    name: str,
    make: Callable[[Case, Data, int], Prepared],
    mine: Own,
    data: Data,
    threads: int,
    count: int,
    least: float,
) -> dict[str, Any]:
    case = data.case
    try:
        peer = make(case, data, threads)
        error = difference(mine.values, peer.values(), TOLERANCES[case.dtype])
    except Mismatch as mismatch:
        return {"error": f"values differ: {mismatch}"}
    except Exception as error:  # a peer that fails is one that isn't measured, and said so
        return {"error": _first_line(error)}
    once = seconds(peer.call)
    if once > TOO_SLOW:
        return {"skipped": f"one call takes {once:.0f} s", "difference": error}
    if name == "torch-loop" and once > SLOW:
        count = min(count, FEWEST)
    found = pairs(peer.call, mine.call, (repeats(peer.call, least, once), mine.repeat), count)
    return {"pairs": found, "ratio": statistics.median(theirs / own for theirs, own in found), "difference": error}


def difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tolerance: float) -> float:
    """The largest difference of any array, relative to its largest value. Raises Mismatch above the
    tolerance, and for missing arrays and NaN."""
    if set(ours) != set(theirs):
        raise Mismatch(f"only one side has {', '.join(sorted(set(ours) ^ set(theirs)))}")
    worst = 0.0
    for name, value in ours.items():
        if value.shape != theirs[name].shape:
            raise Mismatch(f"{name} has shape {value.shape} and {theirs[name].shape}")
        error = float(np.abs(value - theirs[name]).max() / max(float(np.abs(value).max()), 1e-30))
        if not error <= tolerance:
            raise Mismatch(f"{name} by {error:.1e} of its largest value")
        worst = max(worst, error)
    return worst


def _padded(case: Case, whole: Case, mine: Own, threads: int, count: int, least: float) -> dict[str, Any]:
    """The same at whole vectors. ratio: our time per useful FLOP at the odd size over that at the
    whole one."""
    other = ours.prepare(whole, Data(whole), threads)
    other.call()
    found = pairs(other.call, mine.call, (repeats(other.call, least), mine.repeat), count)
    per_flop = whole.flops / case.flops
    return {
        "D": whole.D,
        "H": whole.H,
        "flops": whole.flops,
        "pairs": found,
        "ratio": statistics.median(own / theirs for theirs, own in found) * per_flop,
    }


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
