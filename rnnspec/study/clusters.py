"""Trials on a cluster: Ray's tasks, or Dask's.

In: jobs. Out: ends, with their run folders here. A worker that dies has its trial run again by the
cluster; the same trials give the same numbers as on this machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from rnnspec.errors import RnnspecError
from rnnspec.storage import guarded
from rnnspec.study.errors import StudyError
from rnnspec.study.needed import needed
from rnnspec.study.sent import received, sent
from rnnspec.study.store import told
from rnnspec.study.trial import FAILED, Ended, Job, carry_out
from rnnspec.study.workers import Decide
from rnnspec.train.results import METRICS

CLUSTERS = ("ray", "dask")
RETRIES = 3  # of a trial whose worker died


class Cluster(ABC):
    """Workers on other machines. size: trials at once."""

    def __init__(self, size: int):
        self.size = size
        self.running: dict[Any, Job] = {}
        self.ready: list[Ended] = []  # of trials whose results were here already
        self.of_trial: tuple[type[Exception], ...] = ()  # raised where workers died over one trial

    @abstractmethod
    def start(self, job: Job) -> Any:
        """Sends a job; what stands for its end."""

    @abstractmethod
    def finished(self, seconds: float) -> list[Any]:
        """What has ended, after at most so long."""

    @abstractmethod
    def result(self, future: Any) -> Any:
        """How it ended. Raises what the cluster says of a worker that died."""

    @abstractmethod
    def disconnect(self) -> None:
        """Gives up what still runs, and leaves the cluster."""

    def submit(self, job: Job) -> None:
        if job.folder is not None and (Path(job.folder) / METRICS).exists():  # before the storage was told of it
            self.ready.append(carry_out(job))
            return
        try:
            packed = sent(job)
        except (RnnspecError, guarded.Refused, OSError) as error:
            self.ready.append(Ended(job.group, job.number, FAILED, str(error)))
            return
        self.running[self.start(packed)] = job

    def ended(self, seconds: float) -> list[Ended]:
        found, self.ready = self.ready, []
        for future in self.finished(0.0 if found else seconds) if self.running else []:
            found.append(self.fetched(future, self.running.pop(future)))
        return found

    def fetched(self, future: Any, job: Job) -> Ended:
        try:
            told_there = self.result(future)
        except self.of_trial as error:
            return Ended(job.group, job.number, FAILED, f"its worker died {RETRIES} times ({type(error).__name__})")
        except Exception as error:  # each cluster has its own
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            raise StudyError(
                f"the cluster is lost ({reason}). Once it is there, start again: the study goes on from there"
            ) from error
        assert isinstance(told_there, Ended) and job.folder is not None
        with told(job.folder):
            return received(told_there, Path(job.folder))

    def close(self) -> list[Ended]:
        self.disconnect()
        return []


class OnRay(Cluster):
    """Ray's tasks, one CPU each. address: as `ray.init` has it: auto, local, ray://host:10001."""

    def __init__(self, address: str | None, size: int | None):
        self.ray = needed("ray", "--on ray")
        self.own = not self.ray.is_initialized()
        if self.own:
            try:
                self.ray.init(
                    address=address or "auto", log_to_driver=False, include_dashboard=False, logging_level="ERROR"
                )
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise StudyError(
                    f"no Ray cluster at {address or 'auto'}: {error}. Start one, or --address local"
                ) from None
        super().__init__(size or max(1, int(self.ray.cluster_resources().get("CPU", 1))))
        errors = self.ray.exceptions
        self.of_trial = (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.RayTaskError)
        self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(carry_out)

    def start(self, job: Job) -> Any:
        return self.task.remote(job)

    def finished(self, seconds: float) -> list[Any]:
        done, _ = self.ray.wait([*self.running], num_returns=1, timeout=seconds)
        return list(done)

    def result(self, future: Any) -> Any:
        return self.ray.get(future)

    def disconnect(self) -> None:
        for future in self.running:
            with suppress(Exception):  # it may be gone with its worker
                self.ray.cancel(future, force=True)
        if self.own:
            self.ray.shutdown()


class OnDask(Cluster):
    """Dask's tasks. address: of a scheduler, tcp://host:8786; dask-jobqueue starts one on Slurm and
    others."""

    def __init__(self, address: str | None, size: int | None):
        if address is None:
            raise StudyError("--on dask needs --address, of a scheduler: tcp://host:8786 (`dask scheduler` starts one)")
        self.dask = needed("distributed", "--on dask")
        try:
            self.client = self.dask.Client(address, timeout=20, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise StudyError(f"no Dask scheduler at {address}: {error}") from None
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        super().__init__(size or max(1, sum(int(worker["nthreads"]) for worker in workers)))
        self.of_trial = (self.dask.scheduler.KilledWorker,)

    def start(self, job: Job) -> Any:
        return self.client.submit(carry_out, job, pure=False, retries=RETRIES)

    def finished(self, seconds: float) -> list[Any]:
        with suppress(self.dask.TimeoutError, TimeoutError), self.client.as_current():
            return list(self.dask.wait([*self.running], timeout=seconds or 0.01, return_when="FIRST_COMPLETED").done)
        return []

    def result(self, future: Any) -> Any:
        return future.result(timeout=60)

    def disconnect(self) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self.client.cancel([*self.running], force=True)
        self.client.close()


def cluster(name: str, address: str | None, size: int | None, decide: Decide | None) -> Cluster:
    """The cluster of a name of CLUSTERS. StudyError where it can't be reached, and for a study with
    a pruner, which looks at trials while they run."""
    if decide is not None:
        raise StudyError(
            f"a pruner looks at trials while they run, and --on {name} hears of them when they have ended: leave out"
            " pruner, or --on"
        )
    return OnRay(address, size) if name == "ray" else OnDask(address, size)
