"""Processes of this machine that run trials, one after the other each.

In: jobs. Out: looks and ends, as they come. A worker that dies is replaced, and its job is run
again; workers end with the process that started them, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from rnnspec.study.trial import FAILED, Ended, Job, carry_out

DEATHS = 3  # of workers over one job, after which it has failed
PATIENCE = 20.0  # seconds that workers have to stop in
Decide = Callable[[str, int, int, dict[str, float]], bool]
"""(group, number, step, scores) -> whether the trial is given up."""


class Workers(Protocol):
    """What runs jobs: processes here, or a cluster."""

    size: int  # jobs at once

    def submit(self, job: Job) -> None: ...
    def ended(self, seconds: float) -> list[Ended]:
        """Waits at most so long for jobs to end."""

    def close(self) -> list[Ended]:
        """Asks all jobs to stop, and ends the workers; what ended on the way."""


def work(connection: Connection, looks: bool) -> None:
    """The main function of a worker: jobs come in, ends go out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; who started this process asks it to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def look(step: int, scores: dict[str, float] | None) -> str:
        if scores is None or not looks:
            return str(connection.recv()) if connection.poll() else "go"
        connection.send((step, scores))
        return str(connection.recv())

    try:
        while True:
            job = connection.recv()
            if isinstance(job, Job):  # else a stop that came too late
                connection.send(carry_out(job, look))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass
class _Worker:
    process: Any
    connection: Connection
    job: Job | None = None
    deaths: int = 0  # of workers over this job


class Processes:
    """Workers as processes. decide: what is asked at each look at held-out data, None for no
    looks."""

    def __init__(self, size: int, decide: Decide | None):
        self.size, self.decide = size, decide
        self.context = multiprocessing.get_context("spawn")
        self.workers = [self.started() for _ in range(size)]

    def started(self) -> _Worker:
        here, there = self.context.Pipe()
        process = self.context.Process(target=work, args=(there, self.decide is not None), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here)

    def submit(self, job: Job) -> None:
        worker = next(w for w in self.workers if w.job is None)
        worker.job, worker.deaths = job, 0
        self.hand(worker)

    def hand(self, worker: _Worker) -> None:
        """Sends a worker its job; one that is dead by now is found out by `ended`."""
        with suppress(OSError):
            worker.connection.send(worker.job)

    def ended(self, seconds: float) -> list[Ended]:
        ready = wait([w.connection for w in self.workers if w.job is not None], seconds)
        return [e for w in self.workers if w.connection in ready and (e := self.received(w)) is not None]

    def received(self, worker: _Worker) -> Ended | None:
        """What a worker has to say: an end, or a look, which is answered."""
        job = worker.job
        assert job is not None
        try:
            told = worker.connection.recv()
            if isinstance(told, Ended):
                worker.job = None
                return told
            step, scores = told
            pruned = self.decide is not None and self.decide(job.group, job.number, step, scores)
            worker.connection.send("prune" if pruned else "go")
            return None
        except (EOFError, OSError):
            return self.died(worker, job)

    def died(self, worker: _Worker, job: Job) -> Ended | None:
        """A new process in the place of a dead one, with the same job."""
        worker.process.join()
        code = worker.process.exitcode
        new = self.started()
        worker.connection.close()
        worker.process, worker.connection = new.process, new.connection
        worker.deaths += 1
        if worker.deaths < DEATHS:
            self.hand(worker)
            return None
        worker.job = None
        why = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        return Ended(job.group, job.number, FAILED, f"the process that ran it died {DEATHS} times ({why})")

    def close(self) -> list[Ended]:
        found: list[Ended] = []
        busy = [worker for worker in self.workers if worker.job is not None]
        for worker in busy:
            self.asked_to_stop(worker)
        for worker in busy:
            found += self.last_word(worker)
        for worker in self.workers:
            worker.connection.close()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
        return found

    def asked_to_stop(self, worker: _Worker) -> None:
        with suppress(OSError):
            worker.connection.send("stop")

    def last_word(self, worker: _Worker) -> list[Ended]:
        """The end of a job that was asked to stop. A look that crosses the question has its answer
        in it."""
        try:
            while worker.connection.poll(PATIENCE):
                if isinstance(told := worker.connection.recv(), Ended):
                    return [told]
        except (EOFError, OSError):
            pass
        return []
