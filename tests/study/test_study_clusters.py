"""Trials on local clusters of Ray and Dask, with a cell and a task that no worker has installed,
and a worker that is killed: the numbers are those of this machine, bit for bit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from studies import check_complete

from rnnspec.language.load import load
from rnnspec.language.rewrite import to_yaml
from rnnspec.study.clusters import cluster
from rnnspec.study.document import read_study
from rnnspec.study.drive import run_study
from rnnspec.study.errors import StudyError
from rnnspec.study.sent import received, sent
from rnnspec.study.trial import Job, carry_out
from rnnspec.study.workers import Processes

TASK = """
import os, time
from rnnspec.train import Task, load_task
from dataclasses import replace

ADDING = load_task("adding")


def make(config, memory):
    with open(config.options["note"], "a") as file:
        print(os.getpid(), flush=True, file=file)
    time.sleep(float(config.options["wait"]))
    return ADDING.make(replace(config, options={}), memory)


TASK = replace(ADDING, make=make, options={"note": "", "wait": 0.0}, about_options={"note": "pids", "wait": "s"})
"""


def study_in(folder: Path, wait: float = 0.0, seeds: int = 6, more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "parent.yaml").write_text(to_yaml(load("rnn")).replace("name: rnn", "name: parent"))
    (folder / "own.yaml").write_text("rnnspec: 1\nname: own\nextends: parent.yaml\n")
    (folder / "own_task.py").write_text(TASK)
    path = folder / "s.yaml"
    path.write_text(
        f"study: 1\nname: own\ncells: own.yaml\ntasks: {{task: own_task.py, length: 4, batch: 2, hidden: 3, steps: 6,"
        f" every: 3, options: {{note: '{folder}/pids', wait: {wait}}}}}\nseeds: {seeds}\n{more}"
    )
    return path


def same_weights(one: Path, other: Path) -> None:
    found = sorted(p.relative_to(one) for p in one.rglob("weights.npz"))
    assert found and found == sorted(p.relative_to(other) for p in other.rglob("weights.npz"))
    for name in found:
        a, b = np.load(one / name), np.load(other / name)
        assert set(a.files) == set(b.files) and all(np.array_equal(a[n], b[n]) for n in a.files if n != "meta")


def test_a_trial_takes_its_files_along_and_brings_its_run_back(tmp_path, monkeypatch):
    """As a worker does that has none of the study's files."""
    path = study_in(tmp_path / "here")
    group = read_study(path).groups[0]
    job = Job(group.name, 0, group.config({}, 1), str(tmp_path / "run"))
    packed = sent(job)
    assert packed.folder is None and set(packed.files) == {"cell", "task"}
    alone = carry_out(job)
    for name in ("parent.yaml", "own.yaml", "own_task.py"):
        (tmp_path / "here" / name).unlink()
    there = carry_out(packed)
    assert there.state == alone.state == "done" and there.summary["score"] == alone.summary["score"]
    received(there, tmp_path / "back" / "run")
    same_weights(tmp_path / "run", tmp_path / "back" / "run")


def test_what_a_cluster_does_not_offer_is_said(tmp_path):
    with pytest.raises(StudyError, match=r"leave out pruner, or --on"):
        cluster("dask", None, None, lambda *_: True)
    with pytest.raises(StudyError, match="--on dask needs --address"):
        cluster("dask", None, None, None)


@contextmanager
def a_worker_killed(notes: Path):
    """Kills the process that began the first trial, while it waits in its task; this one looked at
    the metric twice before."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            pids = notes.read_text().split() if notes.exists() else []
            if len(pids) >= 3:
                assert int(pids[2]) != os.getpid()
                os.kill(int(pids[2]), signal.SIGKILL)
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def compared(tmp_path, make):
    """The same study here and there, a worker killed on the way."""
    pytest.importorskip("optuna", reason="a study needs optuna")
    here, there = study_in(tmp_path / "here"), study_in(tmp_path / "there", wait=1.0)
    assert run_study(read_study(here), tmp_path / "here" / "out", lambda decide: Processes(1, decide))
    began = time.monotonic()
    with a_worker_killed(tmp_path / "there" / "pids"):
        assert run_study(read_study(there), tmp_path / "there" / "out", make)
    assert time.monotonic() - began < 240
    assert len((tmp_path / "there" / "pids").read_text().split()) >= 8  # the metric, 6 trials, one of them again
    scores = [list(check_complete(path, path.parent / "out").values()) for path in (here, there)]
    assert scores[0] == scores[1]
    same_weights(tmp_path / "here" / "out", tmp_path / "there" / "out")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_ray_gives_the_same_numbers(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        compared(tmp_path, lambda decide: cluster("ray", None, None, decide))
    finally:
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_dask_gives_the_same_numbers(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local:
        compared(tmp_path, lambda decide: cluster("dask", local.scheduler_address, None, decide))
