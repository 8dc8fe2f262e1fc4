"""A study that is run, stopped, killed and started again: no trial is lost, none is counted twice,
and every score is that of a run alone."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from studies import COMMAND, ENVIRONMENT, TRIVIAL, check_complete, trials, written

from rnnspec.study.document import read_study
from rnnspec.study.drive import run_study
from rnnspec.study.errors import StorageLost, StudyError
from rnnspec.study.trial import carry_out
from rnnspec.study.workers import Processes
from rnnspec.train import run

pytest.importorskip("optuna", reason="a study needs optuna")


class Here:
    """Workers that run a trial at once, in this process."""

    def __init__(self, decide=None, size=1, outcome=carry_out):
        self.decide, self.size, self.outcome, self.jobs, self.order = decide, size, outcome, [], []

    def submit(self, job):
        self.jobs.append(job)
        self.order.append((job.group, job.number))

    def ended(self, seconds):
        job = self.jobs.pop()
        return [self.outcome(job, self.look(job))]

    def look(self, job):
        def look(step, scores):
            if scores is None or self.decide is None:
                return "go"
            return "prune" if self.decide(job.group, job.number, step, scores) else "go"

        return look

    def close(self):
        return []


def test_a_study_ends_with_the_scores_of_its_runs_alone(tmp_path):
    path = written(tmp_path, "settings: {lr: [0.1, 0.01]}\nseeds: 2\n")
    told = []
    assert run_study(read_study(path), tmp_path / "out", Here, show=told.append)
    scores = check_complete(path, tmp_path / "out")
    config = {"cell": "rnn", "task": "adding", "length": 4, "batch": 2, "hidden": 2, "steps": 2, "every": 1}
    alone = run({**config, "lr": 0.01, "seed": 1, "threads": 1})["final"]["score"]
    assert scores[("rnn on adding", '{"lr": 0.01}', 1)] == alone and len(scores) == 4
    assert [p.done for p in told] == [0, 1, 2, 3, 4] and told[-1].best == {"rnn on adding": min(scores.values())}
    again = Here()
    assert run_study(read_study(path), tmp_path / "out", lambda decide: again) and again.order == []


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_search_tries_each_point_with_each_seed_and_goes_on(sampler, tmp_path):
    more = f"settings: {{lr: {{low: 0.001, high: 1, log: true}}}}\nsampler: {sampler}\npoints: 3\nseeds: 2\n"
    path = written(tmp_path, more)
    for count in (1, 2, 3):
        stopping = iter([False] * count + [True])
        run_study(read_study(path), tmp_path / "out", Here, stop=lambda: next(stopping))  # noqa: B023
    assert run_study(read_study(path), tmp_path / "out", Here)
    scores = check_complete(path, tmp_path / "out")
    points = {point for _, point, _ in scores}
    assert len(scores) == 6 and len(points) == 3 and {seed for _, _, seed in scores} == {0, 1}


def test_a_failed_trial_is_told_and_ends_nothing(tmp_path):
    path = written(tmp_path, "settings: {lr: [1.0e+30, 0.01], optimiser: sgd, clip: .inf, steps: 40}\n")
    told = []
    text = path.read_text().replace("steps: 2, ", "")
    path.write_text(text)
    assert run_study(read_study(path), tmp_path / "out", Here, show=told.append)
    assert (told[-1].done, told[-1].failed) == (1, 1)
    errors = [p.ended.error for p in told if p.ended is not None]
    assert any("diverged: the gradients were not finite" in error or "not finite" in error for error in errors)
    (found,) = trials(tmp_path / "out").values()
    assert sorted(t.state.name for t in found) == ["COMPLETE", "FAIL"]


def test_halving_gives_up_the_worse_and_goes_on_after_a_kill(tmp_path):
    text = TRIVIAL.replace("steps: 2, every: 1", "steps: 40, every: 5")
    path = written(
        tmp_path, "settings: {lr: [0.01, 1.0e-9, 1.0e-8]}\npruner: {halving: {least: 10, factor: 2}}\n", text
    )
    told = []
    assert run_study(read_study(path), tmp_path / "out", Here, show=told.append)
    assert told[-1].pruned >= 1 and told[-1].done + told[-1].pruned == 3
    (found,) = trials(tmp_path / "out").values()
    pruned = next(t for t in found if t.state.name == "PRUNED")
    assert pruned.last_step < 40 and pruned.user_attrs["prune"] == pruned.last_step


def test_a_folder_is_of_one_study_and_one_process(tmp_path):
    path = written(tmp_path)
    study = read_study(path)
    run_study(study, tmp_path / "out", Here)
    path.write_text(path.read_text() + "# changed\n")
    with pytest.raises(StudyError, match="holds the study of another text"):
        run_study(read_study(path), tmp_path / "out", Here)
    with pytest.raises(StudyError, match="holds something else"):
        run_study(study, tmp_path, Here)

    def inside(decide):
        with pytest.raises(StudyError, match="another process runs the study"):
            run_study(study, tmp_path / "out", Here)
        return Here()

    run_study(study, tmp_path / "out", inside)


def test_a_database_has_one_study_of_a_name(tmp_path):
    study, url = read_study(written(tmp_path)), f"sqlite:///{tmp_path}/trials.db"
    assert run_study(study, tmp_path / "out", Here, storage=url) and run_study(study, tmp_path / "out", Here)
    check_complete(tmp_path / "s.yaml", tmp_path / "out")
    with pytest.raises(StudyError, match="of another folder"):
        run_study(study, tmp_path / "other", Here, storage=url)


def test_a_full_disk_ends_the_study_with_what_to_do_and_it_goes_on(tmp_path, monkeypatch):
    path = written(tmp_path)
    for room in (2, 9, 15):  # calls of fsync: in the journal, in a run, in the journal
        left, real = [room], os.fsync

        def fsync(number, left=left, real=real):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(number)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            with pytest.raises(StorageLost, match=r"No space left on device.*Make room and start again"):
                run_study(read_study(path), tmp_path / "out", Here)
    assert run_study(read_study(path), tmp_path / "out", Here)
    check_complete(path, tmp_path / "out")


def test_a_half_line_of_the_journal_and_its_lock_do_no_harm(tmp_path):
    path, journal = written(tmp_path), tmp_path / "out" / "journal.log"
    stopping = iter([False, False, True])
    run_study(read_study(path), tmp_path / "out", Here, stop=lambda: next(stopping))
    with open(journal, "ab") as file:
        file.write(b'{"op_code": 4, "worker_id"')
    os.symlink(journal, f"{journal}.lock")
    began = time.monotonic()
    assert run_study(read_study(path), tmp_path / "out", Here) and time.monotonic() - began < 20
    check_complete(path, tmp_path / "out")


def test_a_lost_database_is_told_and_the_study_goes_on(tmp_path):
    path, place = written(tmp_path), tmp_path / "db"
    place.mkdir()
    url = f"sqlite:///{place}/trials.db"

    def losing(job, look):
        place.rename(tmp_path / "gone")
        return carry_out(job, look)

    with pytest.raises(StorageLost, match=r"the database sqlite:.* can't be used: .*start again: the study goes on"):
        run_study(read_study(path), tmp_path / "out", lambda decide: Here(outcome=losing), storage=url)
    with pytest.raises(StorageLost, match="can't be used"):
        run_study(read_study(path), tmp_path / "out", Here)
    (tmp_path / "gone").rename(place)
    assert run_study(read_study(path), tmp_path / "out", Here)
    check_complete(path, tmp_path / "out")


def test_a_worker_that_dies_is_replaced_and_its_trial_run_again(tmp_path):
    path = written(tmp_path, "seeds: 6\n")
    killed = []

    class Dying(Processes):
        def submit(self, job):
            super().submit(job)
            if job.number == 2 and not killed:
                killed.append(next(w for w in self.workers if w.job is job).process)
                killed[0].kill()

    assert run_study(read_study(path), tmp_path / "out", lambda decide: Dying(1, decide))
    assert killed and not killed[0].is_alive()
    check_complete(path, tmp_path / "out")


def drive(path: Path, out: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, str(path), "--out", str(out), *more],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_at_random(path: Path, out: Path, times: int, seed: int) -> None:
    """Kills the driver, or one of its workers, so many times, each at a random moment after the
    journal has begun to grow; then lets the study end."""
    draw, journal = random.Random(seed), out / "journal.log"
    for _ in range(times):
        process, before = drive(path, out, "--processes", "2"), size(journal)
        deadline = time.monotonic() + 120
        while size(journal) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(draw.random() ** 2 * 2)
        workers = children(process.pid)
        if workers and draw.random() < 0.4:
            with_pid = draw.choice(workers)
            signal_to(with_pid)
            time.sleep(draw.random() * 0.5)
        process.kill()
        process.communicate()
    process = drive(path, out, "--processes", "2")
    told = process.communicate(timeout=500)[0]
    assert process.returncode == 0, told


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def children(pid: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def signal_to(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("times, seeds", [(2, 12), pytest.param(30, 150, marks=pytest.mark.slow)])
def test_a_study_that_is_killed_at_random_has_each_trial_once(times, seeds, tmp_path):
    path = written(tmp_path, f"seeds: {seeds}\n")
    kill_at_random(path, tmp_path / "out", times, seed=times)
    assert len(check_complete(path, tmp_path / "out")) == seeds


def test_the_command_stops_when_asked_and_says_how_to_go_on(tmp_path):
    path = written(tmp_path, "seeds: 3\n", TRIVIAL.replace("steps: 2, every: 1", "steps: 100000, every: 50"))
    process = drive(path, tmp_path / "out", "--processes", "1")
    log = tmp_path / "out" / "runs" / "rnn" / "adding" / "0" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while size(log) == 0 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "stopped. Go on with: rnnspec study" in told, told
    (found,) = trials(tmp_path / "out").values()
    assert {t.state.name for t in found} == {"RUNNING"}
