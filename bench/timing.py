"""Wall-clock times of calls, measured in alternating pairs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Call = Callable[[], object]
LEAST = 0.05  # seconds of one measurement: short work is repeated until then
# seconds: the threads of the library measured before go on waiting for work for so long (ONNX
# Runtime 40 ms, torch 6)
SETTLE = 0.06


def seconds(call: Call, repeat: int = 1) -> float:
    """The mean wall-clock time of a call, over `repeat` calls."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def repeats(call: Call, least: float = LEAST, once: float | None = None) -> int:
    """How many calls take about `least` seconds. The call has run before; once: its seconds where
    they are known already."""
    once = seconds(call) if once is None else once
    if once >= least:
        return 1
    count = min(10_000, math.ceil(least / max(once, 1e-9)))
    once = seconds(call, max(1, count // 4))  # the first calls may be slower
    return max(1, math.ceil(least / max(once, 1e-9)))


def measure(call: Call, repeat: int) -> float:
    """Seconds of a call that another library's may have preceded."""
    time.sleep(SETTLE)
    if repeat > 4:
        call()
    return seconds(call, repeat)


def pairs(theirs: Call, ours: Call, many: tuple[int, int], count: int) -> list[tuple[float, float]]:
    """`count` times (theirs, ours), in seconds a call, one right after the other; many: the calls
    in a measurement of each. Both have run before."""
    return [(measure(theirs, many[0]), measure(ours, many[1])) for _ in range(count)]
