"""The library's own threads. Kernels release the GIL; a call costs some 5 microseconds more than
running here, or 50 if all threads sleep.

Not `prange`: its OpenMP layer costs milliseconds a call and kills the child of a fork, its
workqueue aborts the process when two Python threads call at once. Not concurrent.futures: its pool
refuses work as soon as the main thread ends, while others may still be training.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch import mailbox
from rnnspec.backends.cpu.launch.memory import address
from rnnspec.errors import SettingError
from rnnspec.storage.locks import Lock

VARIABLE = "RNNSPEC_THREADS"


def default_threads() -> int:
    """RNNSPEC_THREADS, or the processors this process may use. Raises SettingError for a text there
    that is no number of threads."""
    if chosen := os.environ.get(VARIABLE):
        if not chosen.isdecimal() or int(chosen) < 1:
            raise SettingError(f"{VARIABLE} must be a whole number of at least 1; got {chosen!r}.")
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def yield_address() -> int:
    """The address of the system's function that gives the processor to another thread."""
    if sys.platform == "win32":
        return ctypes.cast(ctypes.WinDLL("kernel32").SwitchToThread, ctypes.c_void_p).value or 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


class _Job:
    """kernel(table), to be run by a worker; `keep` is what it reads and writes, so that none of it
    is used again before it is done.

    What is about to happen to a job is written down before it happens, so that whoever is
    interrupted in between can go on.
    """

    def __init__(self, kernel: Callable[[int], None], table: int, keep: object):
        self.kernel, self.table, self.keep = kernel, table, keep
        self.error: BaseException | None = None
        self.counted = False
        # the mailbox it was offered to, and what became of that
        self.box, self.word = 0, ctypes.c_int64(mailbox.WAITING)
        # of the thread that runs it, or calls it off; never given back. No job outlives a fork: the
        # child has other Workers
        self.claim = threading.RLock()
        self.done = threading.Event()

    def run(self) -> None:
        if self.claim.acquire(blocking=False):
            try:
                self.kernel(self.table)
            except BaseException as error:  # handed to the caller
                self.error = error
            self.keep = None
            self.done.set()


class Workers:
    """Threads that live as long as the process, never fewer than there are jobs: those of one call
    may wait for each other.

    A job goes into the mailbox of a thread that still lingers after its last one, or else into the
    queue that wakes one up.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[_Job] = SimpleQueue()
        self.boxes: list[tuple[Array, int]] = []  # of each thread, and its address
        self.open = 0  # jobs that are not done
        self.lock = Lock()

    def hand(self, job: _Job) -> None:
        with self.lock:
            self.open, job.counted = self.open + 1, True
            while len(self.boxes) < self.open:
                box = np.zeros(2 * mailbox.WORDS, np.int64)
                box = box[-(address(box) // 8) % mailbox.WORDS :]
                threading.Thread(target=self.work, args=(box,), name=f"rnnspec-{len(self.boxes)}", daemon=True).start()
                # after the start, which may fail: a mailbox without a thread would keep its job
                self.boxes.append((box, address(box)))
        if not self.post(job):
            self.queue.put(job)

    def post(self, job: _Job) -> bool:
        """Offers a job to the threads that are awake."""
        if not hasattr(job.kernel, "argtypes"):  # one of Python's, not a C function
            return False
        kernel = ctypes.cast(job.kernel, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
        _, send, _ = mailbox.functions()
        for box, at in self.boxes:
            if box[0] == mailbox.OPEN:
                job.box = at
                send(at, kernel, job.table, ctypes.addressof(job.word))
                if job.word.value == mailbox.ACCEPTED:
                    return True
        return False

    def settle(self, job: _Job, stopping: bool) -> None:
        """Waits until a job is done; stopping: calls it off if nobody has begun it."""
        if job.word.value == mailbox.ACCEPTED:
            mailbox.functions()[2](job.box, yield_address(), ctypes.addressof(job.word))
        if job.word.value != mailbox.FINISHED and not (stopping and job.claim.acquire(blocking=False)):
            job.done.wait()
        with self.lock:
            if job.counted:
                self.open, job.counted = self.open - 1, False

    def work(self, box: Array) -> None:
        linger, _, _ = mailbox.functions()
        while True:
            job = self.queue.get()
            job.run()
            del job  # or its arrays would live until the next one
            linger(address(box), mailbox.SPINS, yield_address())


workers = Workers()  # the process's


def run_blocks(
    kernel: Callable[[int], None],
    tables: Sequence[int],
    keep: object = None,
    release: Callable[[], None] = lambda: None,
) -> None:
    """kernel(table) for every table, the first on the calling thread; returns when all are done,
    even if interrupted.

    keep: what the kernel reads and writes; it is held until the last worker is done with it.
    release: makes kernels that wait for each other go on without; called if one of them may never
    have started.
    """
    if len(tables) == 1:
        kernel(tables[0])
        return
    jobs = [_Job(kernel, table, keep) for table in tables[1:]]
    interrupted: BaseException | None = None
    try:
        for job in jobs:
            workers.hand(job)
        if tables:
            kernel(tables[0])
    except BaseException as error:
        interrupted = error
    left = list(jobs)
    while left:
        try:  # the workers can't be stopped, and they write to the caller's arrays: Ctrl-C waits
            if interrupted is not None:
                release()
            workers.settle(left[-1], stopping=interrupted is not None)
            left.pop()
        except BaseException as error:
            interrupted = error
    for raised in (interrupted, *(job.error for job in jobs)):
        if raised is not None:
            raise raised


def _start_again() -> None:
    """In the child of a fork: threads do not survive it."""
    global workers
    workers = Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
