"""The library's own threads. Kernels release the GIL; a call costs some 30 microseconds more than running here.

Not `prange`: its OpenMP layer costs milliseconds a call and kills the child of a fork, its workqueue aborts the process
when two Python threads call at once. Not concurrent.futures: its pool refuses work as soon as the main thread ends,
while others may still be training.
"""
from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue


def default_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def yield_address() -> int:
    """The address of the system's function that gives the processor to another thread."""
    if sys.platform == "win32":
        return ctypes.cast(ctypes.WinDLL("kernel32").SwitchToThread, ctypes.c_void_p).value or 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


class _Job:
    """kernel(table), to be run by a worker; `keep` is what it reads and writes, so that none of it is used again before it is done."""

    def __init__(self, kernel: Callable[[int], None], table: int, keep: object):
        self.kernel, self.table, self.keep = kernel, table, keep
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.queued = False  # an interrupt may come before

    def run(self) -> None:
        try:
            self.kernel(self.table)
        except BaseException as error:  # handed to the caller
            self.error = error
        self.keep = None


class _Workers:
    """Threads that live as long as the process, never fewer than there are jobs: those of one call may wait for each other."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[_Job] = SimpleQueue()
        self.count = 0
        self.open = 0  # jobs that are not done
        self.lock = threading.Lock()

    def submit(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            with self.lock:
                self.open += 1
                while self.count < self.open:
                    threading.Thread(target=self.work, name=f"rnnspec-{self.count}", daemon=True).start()
                    self.count += 1
            self.queue.put(job)
            job.queued = True

    def work(self) -> None:
        while True:
            job = self.queue.get()
            job.run()
            with self.lock:
                self.open -= 1
            job.done.set()
            del job  # or its arrays would live until the next one


_workers = _Workers()


def run_blocks(kernel: Callable[[int], None], tables: Sequence[int], keep: object = None, release: Callable[[], None] = lambda: None) -> None:
    """kernel(table) for every table, the first on the calling thread; returns when all are done, even if interrupted.

    keep: what the kernel reads and writes; it is held until the last worker is done with it. release: makes kernels that wait for
    each other go on without; called if one of them may never have started.
    """
    if len(tables) == 1:
        kernel(tables[0])
        return
    jobs = [_Job(kernel, table, keep) for table in tables[1:]]
    interrupted: BaseException | None = None
    try:
        _workers.submit(jobs)
        if tables:
            kernel(tables[0])
    except BaseException as error:
        interrupted = error
        release()
    for job in jobs:
        while job.queued and not job.done.is_set():
            try:
                job.done.wait()
            except BaseException as error:  # Ctrl-C: the workers can't be stopped, and they write to the caller's arrays
                interrupted = error
    for raised in (interrupted, *(job.error for job in jobs)):
        if raised is not None:
            raise raised


def _start_again() -> None:
    """In the child of a fork: threads do not survive it, and whoever held the lock is not here to release it."""
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
