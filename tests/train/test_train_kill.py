"""Runs and writers that are killed, and disks that are full: what is newest on disk is always
whole, and a resumed run ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from train_parts import TEXT, mini_config, mini_run

from rnnspec.storage import atomic
from rnnspec.storage.atomic import sweep
from rnnspec.train import checkpoint, train
from rnnspec.train.results import MetricsLog

HERE = Path(__file__).resolve().parents[1] / "helpers"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
    "OPENBLAS_NUM_THREADS": "1",
}
SMALL = (
    "--hidden",
    "8",
    "--embed",
    "4",
    "--batch",
    "4",
    "--length",
    "8",
    "--steps",
    "240",
    "--every",
    "20",
    "--sample",
    "0",
    "--threads",
    "1",
)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "rnnspec", "train", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 0, error


def lines(log):
    return log.read_bytes().count(b"\n") if log.exists() else 0


def killed(process, log, at):
    """Kills the process when its log has so many lines."""
    deadline = time.monotonic() + 120
    while lines(log) < at and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_run_that_is_killed_twice_ends_with_the_same_weights(tmp_path):
    """The text's end, where a round begins anew, lies between the two kills, and both are between
    two checkpoints."""
    (tmp_path / "text.txt").write_text(TEXT)
    text = ("--text", str(tmp_path / "text.txt"))
    finish(start("rnn", *text, *SMALL, "--out", str(tmp_path / "whole")))
    part = tmp_path / "part"
    log = part / "metrics.jsonl"
    killed(start("rnn", *text, *SMALL, "--out", str(part)), log, at=52)
    killed(start("--resume", str(part), "--threads", "1"), log, at=171)
    assert json.loads(log.read_bytes().splitlines()[-1].decode())["step"] < 240
    finish(start("--resume", str(part), "--threads", "1", "--sample", "0"))
    whole, resumed = (np.load(folder / "weights.npz") for folder in (tmp_path / "whole", part))
    assert set(whole.files) == set(resumed.files) and all(
        np.array_equal(whole[name], resumed[name]) for name in whole.files if name != "meta"
    )
    logs = [
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "whole", part)
    ]
    assert [(r["step"], r["loss"], r["norm"]) for r in logs[0]] == [
        (r["step"], r["loss"], r["norm"]) for r in logs[1]
    ]  # no line twice, none lost


WRITER = """
import sys
from train_parts import mini_run
from rnnspec.train import checkpoint
run = mini_run()
while True:
    run.step += 1
    checkpoint.save(sys.argv[1], run)
    print(run.step, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_writer_that_is_killed_leaves_a_whole_checkpoint(tmp_path):
    path = tmp_path / "weights.npz"
    for delay in (0.0, 0.0013, 0.0071):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3):
            written = int(process.stdout.readline())
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert checkpoint.load(path).meta["step"] >= written
    (tmp_path / ".weights.npz.999999999.tmp").write_bytes(b"half")  # of a process that is no more
    own = tmp_path / f".weights.npz.{os.getpid()}.tmp"
    own.write_bytes(b"being written")
    sweep(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [own.name, "weights.npz"]


def test_no_process_is_sent_a_signal_where_that_is_more_than_a_probe(monkeypatch):
    assert atomic.alive(str(os.getpid()))
    assert not atomic.alive("weights") and not atomic.alive("9" * 30)
    monkeypatch.setattr(atomic, "os", SimpleNamespace(name="nt", kill=lambda *_: pytest.fail("Ctrl+C was sent")))
    assert atomic.alive("1")


FULL = """
import resource, sys
from train_parts import mini_run
from rnnspec.train.runs import save
from rnnspec.train import checkpoint
run = mini_run()
run.step = 7
save(__import__("pathlib").Path(sys.argv[1]), run)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
run.step = 8
save(__import__("pathlib").Path(sys.argv[1]), run)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files")
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    """A limit on the size of files stands for the disk: both make write() fail in the middle."""
    path = tmp_path / "weights.npz"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert "at step 8" in done.stderr and "the run as it was saved before is whole" in done.stderr
    assert checkpoint.load(path).meta["step"] == 7 and list(tmp_path.iterdir()) == [path]


def test_the_log_of_a_resumed_run_has_every_step_once(tmp_path):
    run = mini_run(mini_config(steps=12))
    reports = list(train(run))
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, 0) as log:
        for report in reports:
            log.write(report)
    before = path.read_bytes()
    path.write_bytes(before + b'{"step": 13, "lo')  # a killed writer
    with MetricsLog(path, 8) as log:
        for report in reports[9:]:
            log.write(report)
    assert path.read_bytes() == before
