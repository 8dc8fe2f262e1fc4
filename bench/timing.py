"""Wall-clock times of calls, measured in alternating pairs."""
from __future__ import annotations

import math
import time
from collections.abc import Callable

Call = Callable[[], object]
LEAST = 0.05    # seconds of one measurement: short work is repeated until then
SETTLE = 0.003  # seconds in which the waiting threads of the library measured before go to sleep


def seconds(call: Call, repeat: int = 1) -> float:
    """The mean wall-clock time of a call, over `repeat` calls."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def repeats(call: Call, least: float = LEAST) -> int:
    """How many calls take about `least` seconds. The call has run before."""
    once, count = seconds(call), 1
    while once * count < least and count < 1_000_000:
        count = min(10 * count, max(count + 1, math.ceil(least / max(once, 1e-9))))
        if once * count >= least:
            once = seconds(call, max(1, count // 4))  # the first calls may be slower
            return max(1, math.ceil(least / once))
    return count


def measure(call: Call, repeat: int) -> float:
    """Seconds of a call that another library's may have preceded."""
    time.sleep(SETTLE)
    if repeat > 4:
        call()
    return seconds(call, repeat)


def pairs(theirs: Call, ours: Call, count: int, least: float = LEAST) -> list[tuple[float, float]]:
    """`count` times (theirs, ours), in seconds a call, measured one right after the other. Both have run before."""
    many = repeats(theirs, least), repeats(ours, least)
    return [(measure(theirs, many[0]), measure(ours, many[1])) for _ in range(count)]
