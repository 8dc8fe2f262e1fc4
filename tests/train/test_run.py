"""`rnnspec.train.run`: plain data in, plain data out; in a folder it goes on, and nothing is done
twice."""

from __future__ import annotations

import errno
import json
import pickle

import numpy as np
import pytest

from rnnspec.train import Diverged, Full, TrainError, run

SMALL = {
    "cell": "rnn",
    "task": "adding",
    "hidden": 8,
    "length": 10,
    "batch": 8,
    "steps": 30,
    "every": 10,
    "threads": 1,
    "seed": 3,
}
TIMES = ("seconds", "compile_seconds", "tokens_per_second", "files")


def but_times(metrics):
    return metrics | {"final": {k: v for k, v in metrics["final"].items() if k not in TIMES}}


def test_a_run_is_plain_data_the_same_each_time(tmp_path):
    first = run(SMALL)
    assert json.loads(json.dumps(first)) == first and pickle.loads(pickle.dumps(run)) is run
    assert first["final"]["finished"] and first["final"]["step"] == 30 and first["config"]["hidden"] == 8
    assert but_times(run({**SMALL, "hidden": np.int64(8), "lr": None})) == but_times(first)
    there = run(SMALL, folder=tmp_path / "a")
    assert but_times(there) == but_times(first)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["metrics.json", "metrics.jsonl", "weights.npz"]
    assert there == json.loads((tmp_path / "a" / "metrics.json").read_text())


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    whole = run(SMALL, folder=tmp_path / "whole")
    part = run(SMALL, lambda report: report.step == 13, tmp_path / "part")
    assert not part["final"]["finished"] and part["final"]["step"] == 13
    with pytest.raises(RuntimeError, match="killed"):
        run(SMALL, killed_at(26), tmp_path / "part")
    steps = []
    ended = run(SMALL, lambda report: steps.append(report.step), tmp_path / "part")
    assert steps == list(range(21, 31))  # from the last look at held-out data on
    weights = [np.load(tmp_path / name / "weights.npz") for name in ("whole", "part")]
    assert all(np.array_equal(weights[0][n], weights[1][n]) for n in weights[0].files if n != "meta")
    assert ended["final"]["scores"] == whole["final"]["scores"]
    assert run(SMALL, lambda report: pytest.fail("it is finished"), tmp_path / "part") == ended


def killed_at(step):
    def report(told):
        if told.step == step:
            raise RuntimeError("killed")

    return report


def test_a_folder_with_another_run_is_refused(tmp_path):
    run(SMALL, folder=tmp_path)
    before = (tmp_path / "metrics.json").read_bytes()
    with pytest.raises(TrainError, match=r"has another run: hidden is 9 now, and was 8; lr is .*; steps is 40 now"):
        run({**SMALL, "hidden": 9, "lr": 0.5, "steps": 40}, folder=tmp_path)
    with pytest.raises(TrainError, match="digest is"):
        run({**SMALL, "cell": "gru"}, folder=tmp_path)
    assert (tmp_path / "metrics.json").read_bytes() == before


def test_all_that_is_wrong_with_a_configuration_is_told_at_once():
    with pytest.raises(TrainError) as raised:
        run({"cell": "rnn", "hiden": 8, "lr": -1.0, "batch": 2.5, "bidirectional": 1, "resume": "x", "sizes": {"P": 0}})
    lines = str(raised.value).split("\n")
    assert len(lines) == 6 and "Did you mean 'hidden'?" in lines[0] and "lr must be a number above 0" in lines[1]
    assert "whole number from 1, not 2.5" in lines[2] and "true or false" in lines[3] and "sizes must" in lines[5]
    with pytest.raises(TrainError, match="a run needs a cell"):
        run({"task": "adding"})
    with pytest.raises(TrainError, match=r"--set items must be a whole number, not 2\.5"):
        run({"cell": "rnn", "task": "copy", "options": {"items": 2.5}})


def test_a_full_disk_is_an_error_of_its_own_and_the_run_goes_on(tmp_path, monkeypatch):
    from rnnspec.storage import atomic

    real, room = atomic.write, [4]

    def write(*arguments, **more):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write", write)
        with pytest.raises(Full, match=r"No space left on device; the run as it was saved before is whole"):
            run(SMALL, folder=tmp_path / "run")
    assert run(SMALL, folder=tmp_path / "run")["final"]["scores"] == run(SMALL)["final"]["scores"]


def test_a_run_that_diverges_says_so_and_leaves_its_results(tmp_path):
    with pytest.raises(Diverged, match="Try a smaller --lr"), np.errstate(all="ignore"):
        run({**SMALL, "lr": 1e30, "optimiser": "sgd", "clip": float("inf"), "steps": 100}, folder=tmp_path / "run")
    assert not json.loads((tmp_path / "run" / "metrics.json").read_text())["final"]["finished"]
