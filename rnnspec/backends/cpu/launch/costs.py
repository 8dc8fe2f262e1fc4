"""What threads bring and cost on this machine, measured once and kept beside the kernels.

Two processors may be one core with two names, or be shared with other machines: their number does
not tell what they bring.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from dataclasses import asdict, dataclass

import numpy as np

from rnnspec.backends.cpu.launch.memory import LINE, address
from rnnspec.backends.cpu.launch.plan import BARRIER_BYTES
from rnnspec.backends.cpu.launch.pool import VARIABLE, default_threads, run_blocks, yield_address
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.backends.cpu.launch.trials import FIELDS, trials
from rnnspec.backends.cpu.machine import brand
from rnnspec.storage import texts
from rnnspec.storage.locks import Lock

TRIALS = 9  # of each measurement; the fastest counts, for others on the machine only ever take time
WORK, MEETINGS = 1e-3, 300  # seconds of work of one thread in a trial, and meetings
ASLEEP = 2e-3  # seconds after which a worker has gone to sleep
BUSY = 0.9  # a trial counts if its threads had so much of the processors
LEAST_GAIN = 0.25  # what another thread must bring, of what the first does
# how the products of a kernel do beside multiply-adds on registers, how often a hand-over finds
# the threads asleep, and what a saving must be beside its cost (python -m bench threads)
SHARE, SLEEPING, MARGIN, MEETING_MARGIN = 0.4, 0.5, 1.5, 4.0


@dataclass(frozen=True)
class Costs:
    """gain: the work that 1, 2, ... threads do at once over that of one. flops: of one thread in a
    second, multiply-adds in vectors counted twice. handover, waking: seconds to hand work to the
    others while they linger, and when they sleep. meeting: seconds in which all meet. measured:
    False of `usual`."""

    gain: tuple[float, ...]
    flops: float
    handover: float
    waking: float
    meeting: float
    measured: bool = True

    def useful(self) -> int:
        """How many threads pay at all: each brings LEAST_GAIN of one at least."""
        count = 1
        while count < len(self.gain) and self.gain[count] - self.gain[count - 1] >= LEAST_GAIN:
            count += 1
        return count

    def limits(self, threads: int) -> Limits:
        """From where on so many threads pay, or as many as are useful."""
        count = min(threads, self.useful())
        if count == 1:
            return Limits(most_threads=1)
        saved = 1 - 1 / self.gain[count - 1]  # of the time of one
        seconds = MARGIN * (self.handover + SLEEPING * self.waking) / saved
        meeting = MEETING_MARGIN * self.meeting / saved
        each = SHARE * self.flops / count
        return Limits(round(seconds * each), round(meeting * each), most_threads=count)


def usual(threads: int) -> Costs:
    """What is taken where nothing can be measured: whole cores, which most machines have."""
    return Costs(tuple(1 + 0.9 * n for n in range(threads)), 6e10, 5e-6, 5e-5, 3e-7, False)


def costs() -> Costs:
    """Those of this machine and of the processors that this process may use, from the cache, or
    measured now, some 50 ms. Where others keep the processors busy nothing can be measured: `usual`
    is taken, and the next process tries again. With RNNSPEC_THREADS somebody has decided: `usual`.
    """
    threads = default_threads()
    return usual(threads) if os.environ.get(VARIABLE) else _costs(threads)


_LOCK = Lock()
KNOWN: dict[int, Costs] = {}


def _costs(threads: int) -> Costs:
    with _LOCK:
        if threads not in KNOWN:
            KNOWN[threads] = _recalled(threads)
        return KNOWN[threads]


def _recalled(threads: int) -> Costs:
    key = hashlib.sha256(f"costs 2, {threads} threads, {brand()}".encode()).hexdigest()
    text = texts.recall("threads", key)
    if text is not None:
        read = json.loads(text)
        return Costs(**{**read, "gain": tuple(read["gain"])})
    found = measure(threads)
    if found is None:
        return usual(threads)
    texts.remember("threads", key, json.dumps(asdict(found)))
    return found


def measure(threads: int) -> Costs | None:
    """The costs of 1 to `threads` threads, measured; None where others had the processors. All is
    tried in turns, so that what comes between does not meet one of them alone."""
    bench, rounds = Bench(threads), 1024
    bench.seconds("work", threads, rounds)  # the first call loads what the others run
    while min(bench.seconds("work", 1, rounds) for _ in range(3)) < WORK:
        rounds *= 2
    counts = sorted({*(2**i for i in range(threads.bit_length())), threads})
    kinds = [*(("work", n, rounds) for n in counts), ("meetings", threads, MEETINGS)]
    least, waking, handover = [math.inf] * len(kinds), math.inf, math.inf
    for _ in range(TRIALS):
        time.sleep(ASLEEP)
        waking = min(waking, bench.seconds("work", threads, 0))
        handover = min(handover, bench.seconds("work", threads, 0))
        least = [min(a, bench.undisturbed(*kind)) for a, kind in zip(least, kinds)]
    *works, meetings = least
    if not math.isfinite(sum(least)):
        return None
    gains = [n * works[0] / seconds for n, seconds in zip(counts, works)]
    return Costs(
        gain=tuple(np.interp(range(1, threads + 1), counts, gains).tolist()),
        flops=rounds * trials().flops / works[0],
        handover=handover,
        waking=waking,
        meeting=meetings / MEETINGS,
    )


class Bench:
    """Times what `trials` has, on up to so many threads."""

    def __init__(self, threads: int):
        self.tables = np.zeros((threads, len(FIELDS)), np.int64)
        self.barrier = np.zeros(BARRIER_BYTES + LINE, np.uint8)
        first = -(-address(self.barrier) // LINE) * LINE
        self.tables[:, 1:] = first, threads, yield_address()
        self.places = [address(table) for table in self.tables]

    def seconds(self, kernel: str, count: int, rounds: int) -> float:
        self.tables[:, 0] = rounds
        start = time.perf_counter()
        run_blocks(getattr(trials(), kernel), self.places[:count], (self.tables, self.barrier))
        return time.perf_counter() - start

    def undisturbed(self, kernel: str, count: int, rounds: int) -> float:
        """Seconds; infinity where others had the processors meanwhile."""
        before = time.process_time()
        seconds = self.seconds(kernel, count, rounds)
        return seconds if time.process_time() - before >= BUSY * count * seconds else math.inf
