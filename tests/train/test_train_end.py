"""The end of a run: killed anywhere in it, a resumed run finishes what is missing; and an end with
scores that are no numbers is no success."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from train_parts import MiniLayer

from rnnspec.commands.cli import main
from rnnspec.storage import atomic
from rnnspec.train.errors import TrainError
from rnnspec.train.problem import Metric
from rnnspec.train.tasks.forecast import standardised

RUN = ["--length", "4", "--every", "2", "--batch", "2", "--threads", "1"]
ENDS = {
    "steps": ["--steps", "5"],  # the last snapshot is that of the last step
    "patience": ["--patience", "1", "--lr", "9", "--steps", "50"],  # the best weights come back at the end
}


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    for drawn in ("loss_curve", "prediction"):
        monkeypatch.setattr(f"rnnspec.train.plots.{drawn}", lambda path, *_: atomic.write(path, b"drawn"))
    monkeypatch.chdir(tmp_path)


def moments(monkeypatch, at: int | None = None, after: bool = False) -> list[str]:
    """Counts the renames that put files in their place; at the one of number `at` the process dies
    before it, or after it."""
    names: list[str] = []
    replace = os.replace

    def counted(old, new, **more):
        names.append(Path(new).name)
        if at == len(names) and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(old, new, **more)
        if at == len(names):
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(os, "replace", counted)
    return names


def told(folder: Path) -> tuple[dict, dict, list]:
    """What a run leaves, without the times that things took."""
    metrics = json.loads((folder / "metrics.json").read_text())
    final = {k: v for k, v in metrics["final"].items() if "second" not in k}
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    with np.load(folder / "weights.npz") as file:
        weights = {n: file[n] for n in file.files if n != "meta"}
    return final | metrics["history"], weights, [{k: v for k, v in r.items() if k != "seconds"} for r in log]


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="no fork")
@pytest.mark.parametrize("end", ENDS)
def test_a_run_killed_anywhere_at_its_end_is_finished_by_resume(end, small, capsys):
    start = ["train", "gru", "--task", "adding", *RUN, *ENDS[end]]
    with pytest.MonkeyPatch.context() as patch:
        names = moments(patch)
        assert main([*start, "--out", "whole"]) == 0
    summary, weights, log = told(Path("whole"))
    first = max(i for i, name in enumerate(names, 1) if name == "weights.npz") - 1  # the save before the last, and on
    assert names[-1] == "metrics.json" and "loss.png" in names[first:]
    points = [(at, after) for at in range(first, len(names) + 1) for after in (False, True)]
    for at, after in points:
        folder = Path(f"run{at}{after}")
        child = os.fork()
        if not child:
            with pytest.MonkeyPatch.context() as patch:
                moments(patch, at, after)
                main([*start, "--out", str(folder)])
            os._exit(0)  # not reached
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        code = main(["train", "--resume", str(folder), "--threads", "1"])
        assert code == (2 if (at, after) == points[-1] else 0), (at, after, capsys.readouterr().err)
        again, found, lines = told(folder)
        assert again == summary and lines == log, (at, after)
        assert found.keys() == weights.keys() and all((found[n] == a).all() for n, a in weights.items())
        assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in Path("whole").iterdir())
        assert main(["train", "--resume", str(folder), "--threads", "1"]) == 2  # now it is finished


def test_a_file_that_went_missing_is_written_again(small, capsys):
    assert main(["train", "gru", "--task", "adding", *RUN, *ENDS["steps"], "--out", "run"]) == 0
    before = told(Path("run"))
    for name in ("loss.png", "metrics.json"):
        Path("run", name).unlink()
        assert main(["train", "--resume", "run", "--threads", "1"]) == 0
        assert Path("run", name).is_file() and told(Path("run"))[0] == before[0]
    Path("run/metrics.json").write_text('{"final": {"files": ["../x"], "finished": true, "step": 5}}')
    assert main(["train", "--resume", "run", "--threads", "1"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", "run", "--threads", "1"]) == 2
    assert "run is finished at step 5" in capsys.readouterr().err


def test_an_end_at_another_step_than_the_summary_is_not_finished(small):
    assert main(["train", "gru", "--task", "adding", *RUN, *ENDS["steps"], "--out", "run"]) == 0
    earlier = Path("run/metrics.json").read_text()
    assert main(["train", "--resume", "run", "--steps", "8", "--threads", "1"]) == 0
    Path("run/metrics.json").write_text(earlier)  # as a kill before the new one leaves it
    assert main(["train", "--resume", "run", "--threads", "1"]) == 0
    assert json.loads(Path("run/metrics.json").read_text())["final"]["step"] == 8


# --- scores that are no numbers


class Wild(MiniLayer):
    """A layer whose outputs are no numbers once it is evaluated."""

    value = np.nan

    def infer(self, x, state=None, lengths=None):
        y, state = super().infer(x, state, lengths)
        return y * self.value, state


@pytest.mark.filterwarnings("ignore:invalid value")  # of the layer, before the run
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("task", ["adding", "forecast"])
def test_scores_that_are_no_numbers_are_no_success(value, task, small, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", Wild)
    monkeypatch.setattr(Wild, "value", value)
    assert main(["train", "gru", "--task", task, *RUN, "--steps", "0", "--out", "run"]) == 1
    said = capsys.readouterr().err
    assert "the scores on held-out data are not finite after 0 steps: error (nan)" in said and "--lr" in said
    final = json.loads((tmp_path / "run" / "metrics.json").read_text())["final"]
    assert final["not_finite"] == ["error"] and final["score"] is None


def test_a_number_is_better_than_none():
    for less in (True, False):
        better = Metric("m", "u", less).better
        assert better(1.0, np.nan) and not better(np.nan, 1.0) and not better(np.nan, np.nan)
        assert better(1.0, 2.0) == less and better(2.0, 1.0) != less


# --- columns


T = np.arange(400)
NOISE = np.random.default_rng(0).standard_normal(400)


@pytest.mark.parametrize(
    "column, message",
    [
        (np.full(400, 0.1), "the column c doesn't change in its first 320 rows"),
        (np.zeros(400), "doesn't change"),
        (np.full(400, -1e300), "doesn't change"),
        (np.where(T == 380, 1e5, 0.1), "doesn't change in its first 320 rows"),  # a spike where nothing is learnt
        (np.where(T >= 320, NOISE, 0.1), "doesn't change in its first 320 rows"),
        (np.where(T % 2, 0.3, 0.1 + 0.2), "it changes by rounding alone"),
        (1e9 + 1e-7 * NOISE, "it changes by rounding alone"),
        (np.where(T == 380, 1e39, NOISE), "1e+39 in the column c is too large for float32"),
    ],
)
def test_a_column_that_tells_nothing_is_refused(column, message):
    with pytest.raises(TrainError) as caught:
        standardised(column[:, None], 320, ["c"], "data")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        1e9 + NOISE,
        -1e9 + 1e-3 * NOISE,
        1e300 * NOISE,
        1e308 * np.sin(T),
        1e-310 * NOISE,
        np.where(T >= 320, 0.1, NOISE),
        np.where(T == 100, 1e30, 0.1),
        np.where(T == 380, 1e30, NOISE),
        5e-324 * (T % 2),
    ],
)
def test_offsets_sizes_and_spikes_leave_a_mean_of_0_and_a_deviation_of_1(column):
    with np.errstate(all="raise", under="ignore"):
        values = standardised(np.stack([column, NOISE], axis=1), 320, ["c", "d"], "data")
    assert values.dtype == np.float32 and np.isfinite(values).all()
    np.testing.assert_allclose(values[:320].mean(axis=0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(values[:320].std(axis=0, dtype=np.float64), 1, atol=1e-6)
    near = np.abs(column) < 100
    if near.all() and np.ptp(column[:320]) > 1e-3:
        direct = (column - column[:320].mean()) / column[:320].std()
        np.testing.assert_allclose(values[:, 0], direct, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "NaN"])
def test_a_column_with_what_is_no_number_is_refused_with_its_place(bad, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("".join(f"{i},{bad if i == 7 else i * i}\n" for i in range(100)))
    assert main(["train", "gru", "--task", "forecast", "--data", str(tmp_path / "t.csv")]) == 2
    assert f"row 8, column 2: '{bad}' is not a finite number" in capsys.readouterr().err


def test_a_spike_where_nothing_is_learnt_gives_a_large_score_and_no_infinity(small, tmp_path):
    np.savetxt(tmp_path / "spike.csv", np.where(T == 380, 1e30, NOISE))
    out = tmp_path / "run"
    arguments = ["--task", "forecast", "--data", str(tmp_path / "spike.csv"), *RUN, "--steps", "2", "--out", str(out)]
    assert main(["train", "gru", *arguments]) == 0
    final = json.loads((out / "metrics.json").read_text())["final"]
    assert final["not_finite"] == [] and 1e27 < final["score"] < 1e31
