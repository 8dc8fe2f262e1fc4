"""The library's own threads. Kernels release the GIL; a call costs some 30 microseconds more than running here.

Not `prange`: its OpenMP layer costs milliseconds a call and kills the child of a fork, its workqueue aborts the process
when two Python threads call at once.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not survive a fork


def default_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool() -> ThreadPoolExecutor:
    pid = os.getpid()
    with _lock:
        if pid not in _pools:
            _pools.clear()
            _pools[pid] = ThreadPoolExecutor(max(64, default_threads()), thread_name_prefix="rnnspec")
        return _pools[pid]


def run_blocks(kernel: Callable[[int], None], tables: Sequence[int]) -> None:
    """kernel(table) for every table, the first on the calling thread; returns when all are done."""
    if len(tables) == 1:
        kernel(tables[0])
        return
    pool = _pool()
    jobs = [pool.submit(kernel, table) for table in tables[1:]]
    try:
        if tables:
            kernel(tables[0])
    finally:
        for job in jobs:
            job.result()


def _forget_lock() -> None:
    """In the child of a fork: whoever held the lock is not here to release it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
