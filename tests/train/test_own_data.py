"""The task of one's own sequences: what a file may hold, what is made of it, and what is said of a
file that is wrong."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hostile_files import archive, bombs, header
from own_data import sequences, write_sequences
from train_parts import GRADIENT_TOLERANCE, numeric, task_config

import rnnspec
from rnnspec.train import SequenceModel, TrainError, layer_maker, load_run, load_task, losses, start_run, train

N, T, D = 60, 12, 2
RNG = np.random.default_rng(5)


def problem_of(path, cell="gru", memory=None, **options):
    config = task_config("supervised", cell=cell, data=str(path), options=options, batch=8, hidden=6)
    return load_task("supervised").make(config, memory or {})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.npz"


def test_classes_of_sequences(path):
    """Whole numbers are classes, whatever they are; a random fifth is held out."""
    given = sequences()
    problem = problem_of(write_sequences(path))
    assert problem.data.classes == (3, 7) and problem.memory == {"shape": "[N]", "classes": [3, 7]}
    assert len(problem.test) == 12 and sorted([*problem.train, *problem.test]) == list(range(N))
    batch = problem.batch(np.array([4, 0]))
    assert batch.x.shape == (T, 2, D) and batch.x.dtype == np.float32 and batch.lengths is None
    np.testing.assert_array_equal(batch.x[:, 1], given["x"][0].astype(np.float32))
    assert [problem.data.classes[i] for i in batch.target] == given["y"][[4, 0]].tolist()
    assert "y is int64 [N]: 2 classes, one a sequence" in problem.summary() and problem.metric.direction == "higher"


@pytest.mark.parametrize(
    "y, options, shape, kind",
    [
        (RNG.integers(0, 3, N), {}, "[N]", (0, 1, 2)),
        (RNG.random(N) < 0.5, {}, "[N]", (0, 1)),
        (RNG.integers(-2, 1, (N, T)).astype(np.int8), {}, "[N, T]", (-2, -1, 0)),
        (RNG.random(N), {}, "[N]", None),
        (RNG.random((N, T)), {}, "[N, T]", None),
        (RNG.random((N, T)), {"at": "end"}, "[N, K]", None),
        (RNG.random((N, 3)), {}, "[N, K]", None),
        (RNG.random((N, T, 3)).astype(np.float32), {}, "[N, T, K]", None),
        (RNG.integers(0, 9, N), {"target": "numbers"}, "[N]", None),
        (RNG.integers(0, 2, N).astype(float), {"target": "classes"}, "[N]", (0, 1)),
    ],
)
def test_what_y_may_be(y, options, shape, kind, path):
    problem = problem_of(write_sequences(path, y=y), **options)
    data = problem.data
    assert data.shape == shape and data.classes == kind and problem.about()["y"] == f"{y.dtype} {shape}"
    values = y if kind is None else np.searchsorted(kind, y)
    wanted = values if kind is not None or "K" in shape else values[..., None]
    np.testing.assert_array_equal(data.y, wanted.astype(data.y.dtype))
    batch, _ = problem.next({})
    model = problem.model(lambda width, seed=0: rnnspec.Recurrent("rnn", width, 4, threads=1))
    loss, _, _ = model.gradients(batch)
    assert np.isfinite(loss) and ("r2" in problem.score(model, quick=True)) == (kind is None)


def test_lengths_and_mask_say_which_targets_count(path):
    lengths, mask = RNG.integers(1, T + 1, N), RNG.random((N, T)) < 0.7
    x = sequences()["x"]
    x[np.arange(T) >= lengths[:, None]] = np.nan  # behind a row's end anything may stand
    y = RNG.random((N, T))
    counts = mask & (np.arange(T) < lengths[:, None])
    y[~counts] = np.inf
    problem = problem_of(write_sequences(path, x=x, y=y, lengths=lengths, mask=mask))
    assert np.isfinite(problem.data.x).all() and (np.isfinite(problem.data.y[..., 0]) == counts).all()
    model = problem.model(lambda width, seed=0: rnnspec.Recurrent("rnn", width, 4, threads=1))
    found = [problem.numbers(model, batch) for batch in problem.batches()]
    assert sum(len(true) for _, true in found) == counts[problem.test].sum()
    error = np.concatenate([p - t for p, t in found])
    assert problem.score(model, quick=False)["error"] == pytest.approx(np.mean(error**2) ** 0.5)
    row = problem.test[lengths[problem.test].argmax()]
    drawn = problem.predictions(model)  # the true steps, those between them too
    assert (np.isfinite(drawn.true) == counts[row, : lengths[row]]).all() and np.isfinite(drawn.predicted).all()
    assert f"sequence {row}" in drawn.axis
    classes = problem_of(write_sequences(path, y=RNG.integers(0, 2, (N, T)), mask=mask))
    assert ((classes.data.y == losses.IGNORE) == ~mask).all()


def test_a_mask_ends_the_rows_of_targets_at_the_end(path):
    ends = RNG.integers(1, T + 1, N)
    problem = problem_of(write_sequences(path, mask=np.arange(T) < ends[:, None]))
    np.testing.assert_array_equal(problem.data.lengths, ends)
    both = problem_of(write_sequences(path, mask=(np.arange(T) < ends[:, None]).astype(int), lengths=ends))
    np.testing.assert_array_equal(both.data.lengths, ends)


def test_the_file_may_say_what_is_held_out(path):
    held_out = np.arange(N) % 6 == 0
    problem = problem_of(write_sequences(path, held_out=held_out))
    assert problem.test.tolist() == np.flatnonzero(held_out).tolist() and len(problem.train) == 50
    with pytest.raises(TrainError, match="says which rows are held out, and so does --set held_out"):
        problem_of(path, held_out=0.5)


def test_the_cells_other_inputs_are_read_and_trained_with(path):
    """The gradients are those of the loss with dt as it is in the file."""
    dt = RNG.uniform(0.5, 2, (N, T))
    lengths = RNG.integers(1, T + 1, N)
    problem = problem_of(write_sequences(path, dt=dt, lengths=lengths), "cfc")
    layer = rnnspec.Recurrent("cfc", D, 6, dtype="float64", threads=1, sizes={"K": 6})
    model = problem.model(lambda width, seed=0: layer)
    model.head = {name: w.astype(np.float64) for name, w in model.head.items()}
    batch = problem.batch(np.arange(3))
    read = batch.inputs["dt"]
    np.testing.assert_array_equal(read[: lengths[1], 1], dt[1, : lengths[1]].astype(np.float32))
    assert (read[lengths[1] :, 1] == 0).all()  # and never read
    wide = type(batch)(batch.x.astype(float), batch.target, batch.lengths, inputs={"dt": read.astype(float)})
    _, grads, _ = model.gradients(wide)
    for name in ("head.bias", *[n for n in grads if n.startswith("layer.")][:3]):
        found = numeric(lambda: model.gradients(wide)[0], model.params[name])
        np.testing.assert_allclose(grads[name], found, atol=GRADIENT_TOLERANCE, err_msg=name)
    other = type(batch)(wide.x, wide.target, wide.lengths, inputs={"dt": 3 * wide.inputs["dt"]})
    assert model.gradients(other)[0] != model.gradients(wide)[0]


@pytest.mark.parametrize(
    "changed, options, message",
    [
        ({"y": None}, {}, r"has no array 'y' \(it has x\); np.savez"),
        ({"x": None}, {}, "has no array 'x'"),
        ({"x": np.ones((N, T))}, {}, r"x has shape \[60, 12\]; \[N, T, D\] .* x\[..., None\]"),
        ({"x": np.ones((0, T, D))}, {}, r"x has shape \[0, 12, 2\]"),
        ({"x": np.ones((N, T, D), complex)}, {}, "x is complex128; real numbers"),
        ({"x": np.where(np.arange(N * T * D).reshape(N, T, D) == 27, np.nan, 1.0)}, {}, r"x\[1, 1, 1\] is nan"),
        ({"x": np.full((N, T, D), 1e39)}, {}, r"x\[0, 0, 0\] is 1e\+39; finite numbers of float32"),
        ({"y": np.ones(7)}, {}, r"y has shape \[7\], beside x \[60, 12, 2\]\. Wanted"),
        ({"y": np.ones((N, 5, 2))}, {}, r"y has shape \[60, 5, 2\]"),
        ({"y": np.ones((N, T, 1, 1))}, {}, r"y has shape \[60, 12, 1, 1\]"),
        ({"y": np.ones((N, T, 0))}, {}, r"y has shape \[60, 12, 0\]"),
        ({"y": np.ones(N)}, {"at": "steps"}, "--set at=steps asks for targets at steps"),
        ({"y": np.ones((N, T, 2))}, {"at": "end"}, "--set at=end asks for targets at the end"),
        ({"y": np.ones((N, 3), int)}, {}, r"y is int64 \[60, 3\]; classes are .*y.argmax.*--set target=numbers"),
        ({"y": np.ones(N, int)}, {}, "y is int64 with 1 different value; 2 to 1000 classes"),
        ({"y": np.arange(N) + 0.5}, {"target": "classes"}, "y has 0.5, which is no class"),
        ({"y": np.full(N, np.nan)}, {"target": "classes"}, "y has nan, which is no class"),
        ({"y": np.where(np.arange(N) == 9, np.nan, 1.0)}, {}, r"y\[9\] is nan; finite numbers up to 1e\+18"),
        ({"y": np.full((N, T, 2), 1e19)}, {}, r"y\[0, 0, 0\] is 1e\+19"),
        ({"y": np.array(["a", "b"] * 30)}, {}, r"values of <U1, and numbers are wanted \(its array 'y'\).*np.unique"),
        ({"y": np.array([{}] * N, object)}, {}, r"values of object.*its array 'y'"),
        ({"lengths": np.full(N, T + 1)}, {}, r"lengths\[0\] is 13; it must be between 1 and 12"),
        ({"lengths": np.where(np.arange(N) == 3, 0, 5)}, {}, r"lengths\[3\] is 0"),
        ({"lengths": np.full(N, 2.0)}, {}, r"lengths are float64 \[60\]; integers \[60\]"),
        ({"lengths": np.full(3, 2)}, {}, r"lengths are int64 \[3\]"),
        ({"mask": np.ones((N, 3))}, {}, r"mask has shape \[60, 3\]; \[N, T\] is wanted, \[60, 12\]"),
        ({"mask": np.full((N, T), 2)}, {}, r"mask\[0, 0\] is 2; true and false"),
        ({"mask": np.full((N, T), np.nan)}, {}, r"mask\[0, 0\] is nan"),
        ({"mask": np.zeros((N, T), bool)}, {}, "mask is false at every step of row 0"),
        ({"mask": np.arange(N * T).reshape(N, T) % 5 != 3}, {}, r"true again behind mask\[0, 3\]"),
        ({"mask": np.ones((N, T)), "lengths": np.full(N, 4)}, {}, "mask ends row 0 after 12 steps, lengths after 4"),
        ({"mask": np.zeros((N, T)), "y": np.ones((N, T))}, {}, "no target counts in the rows to train on"),
        ({"held_out": np.ones(N, bool)}, {}, "held_out is true for every row"),
        ({"held_out": np.ones((N, 2), bool)}, {}, r"held_out has shape \[60, 2\]; \[N\] is wanted"),
        ({"dt": np.ones((N, T))}, {}, "gru has no input for the array 'dt' .it reads x alone.*--set without=dt"),
        ({"z": np.ones(3)}, {}, "no input for the array 'z'"),
        ({}, {"without": "dt"}, "has no array 'dt' to leave out; it has x, y"),
        ({}, {"target": "both"}, "target must be auto, classes or numbers; got 'both'"),
        ({}, {"at": "start"}, "at must be auto, end or steps"),
        ({}, {"held_out": 0.0}, "must be between 0 and 1"),
        ({"x": np.ones((1, T, D)), "y": np.ones(1)}, {}, "1 rows can't be split"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_told(changed, options, message, path):
    with pytest.raises(TrainError, match=message) as found:
        problem_of(write_sequences(path, **changed), **options)
    assert str(path) in str(found.value) or not changed
    assert len(str(found.value)) < 420


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"dt": np.ones(N)}, r"dt has shape \[60\], beside x \[60, 12, 2\]; \[N, T\] is wanted"),
        ({"dt": np.zeros((N, T))}, r"dt\[0, 0\] is 0; the time of a step must be above 0"),
        ({"dt": np.full((N, T), np.nan)}, r"dt\[0, 0\] is nan"),
        ({"dt": np.ones((N, T), complex)}, "dt is complex128"),
        ({"delta": np.ones((N, T))}, r"cfc has no input for the array 'delta' \(beside x it reads dt\)"),
    ],
)
def test_another_input_that_is_wrong_is_told(changed, message, path):
    with pytest.raises(TrainError, match=message):
        problem_of(write_sequences(path, **changed), "cfc")


def test_what_a_cell_does_not_read_can_be_left_out(path):
    write_sequences(path, dt=np.ones((N, T)), note=np.ones(3))
    assert problem_of(path, without="dt,note").data.inputs == {}
    assert list(problem_of(path, "cfc", without="note").data.inputs) == ["dt"]


def test_classes_that_the_run_does_not_know_are_told(path):
    write_sequences(path)
    with pytest.raises(TrainError, match="y has the class 7, which the run that is gone on with does not know"):
        problem_of(path, memory={"classes": [3, 4]})
    assert problem_of(path, memory={"classes": [1, 3, 7]}).data.classes == (1, 3, 7)


def test_the_digest_is_of_the_arrays_and_not_of_their_packing(path, tmp_path):
    first = problem_of(write_sequences(path)).digest
    np.savez_compressed(tmp_path / "packed.npz", **dict(reversed(sequences().items())))
    assert problem_of(tmp_path / "packed.npz").digest == first
    assert problem_of(write_sequences(path, y=1 - sequences()["y"])).digest != first


def test_a_scale_that_is_far_from_1_is_told(path):
    assert "(x - x.mean()) / x.std()" not in problem_of(write_sequences(path)).summary()
    far = problem_of(write_sequences(path, x=1e4 * sequences()["x"])).summary()
    assert "x has a mean of" in far and "cells learn best from numbers around 1: (x - x.mean()) / x.std()" in far


@pytest.mark.parametrize("bidirectional", [False, True])
def test_it_learns(path, bidirectional):
    write_sequences(path, lengths=RNG.integers(6, T + 1, N))
    config = task_config(
        "supervised", cell="gru", data=str(path), hidden=12, steps=60, batch=16, lr=1e-2, bidirectional=bidirectional
    )
    problem = load_task("supervised").make(config, {})
    run = start_run(config, problem, problem.model(layer_maker(rnnspec.load("gru"), config, 1)))
    assert isinstance(run.model, SequenceModel) and run.model.two_ways == bidirectional
    list(train(run))
    scores = run.problem.score(run.model, quick=False)
    assert scores["accuracy"] > 0.9 and scores["held_out_loss"] < run.problem.baseline[1]


# --- from the command line ---


SMALL = ("--hidden", "6", "--steps", "12", "--every", "6", "--threads", "1")


def test_a_file_to_a_model_and_back_again(command):
    """Resumed in two parts it ends with the same bits, also where its file has moved."""
    write_sequences("d.npz", lengths=np.full(N, 9))
    argv = ("leaky_rnn", "--task", "supervised", "--data", "d.npz", *SMALL)
    assert command(*argv, "--out", "whole")[0] == 0
    code, out, err = command(*argv, "--steps", "7", "--schedule", "constant", "--out", "part")
    assert (
        code == 0
        and "d.npz: 48 sequences to train on, 12 held out, up to 9 steps of 2; y is int64 [N]: 2 classes"
        in " ".join(err.split())
    )
    assert "true \\ predicted" in out and Path("part/confusion.png").exists() and "also        held_out_loss" in out
    Path("d.npz").rename("moved.npz")
    code, _, err = command("--resume", "part", "--steps", "12")
    assert code == 2 and "d.npz, which part was trained on, is not there any more: --data FILE says where" in err
    write_sequences("other.npz", y=1 - sequences()["y"])
    code, _, err = command("--resume", "part", "--steps", "12", "--data", "other.npz")
    assert code == 2 and ("the data is not the one it was trained on" in err or "does not know" in err)
    assert command("--resume", "part", "--steps", "12", "--data", "moved.npz", "--threads", "1")[0] == 0
    metrics = json.loads(Path("part/metrics.json").read_text())
    assert metrics["final"]["step"] == 12 and metrics["metric"] == {
        "name": "accuracy",
        "unit": "of the sequences right",
        "better": "higher",
    }
    assert load_run("part").predict(sequences()["x"]).shape == (N,)


def test_numbers_leave_a_picture_of_predictions(command):
    write_sequences("d.npz", y=RNG.random((N, T)))
    code, out, err = command("gru", "--task", "supervised", "--data", "d.npz", *SMALL)
    assert code == 0 and "numbers, 1 a step" in err and "also        r2" in out
    assert Path("runs/gru-supervised/prediction.png").read_bytes()[:4] == b"\x89PNG"
    assert not Path("runs/gru-supervised/confusion.png").exists()


def test_weights_alone_are_a_start_and_no_run_to_go_on_with(command):
    write_sequences("d.npz")
    argv = ("rnn", "--task", "supervised", "--data", "d.npz", *SMALL, "--optimiser", "adam", "--patience", "5")
    assert command(*argv, "--out", "full")[0] == 0
    code, out, _ = command(*argv, "--weights-only", "--out", "small")
    assert code == 0 and "weights.npz (weights alone)" in out
    full, small = (np.load(f"{name}/weights.npz") for name in ("full", "small"))
    assert {n for n in small.files if n != "meta"} == {n for n in full.files if n.startswith("model/")}
    assert all(np.array_equal(small[n], full[n]) for n in small.files if n != "meta")
    code, _, err = command("--resume", "small", "--steps", "20")
    assert code == 2 and "weights alone (--weights-only)" in err and "--from small" in err
    assert command("--from", "small", "--steps", "2", "--out", "next")[0] == 0
    assert load_run("small").predict(sequences()["x"]).tolist() == load_run("full").predict(sequences()["x"]).tolist()


def test_weights_alone_are_kept_only_when_a_run_has_ended(command, monkeypatch):
    """One that was stopped can go on."""
    write_sequences("d.npz")
    argv = ("rnn", "--task", "supervised", "--data", "d.npz", *SMALL, "--weights-only", "--out", "run")
    with monkeypatch.context() as patch:
        patch.setattr("rnnspec.train.runs.train", lambda run, stop: train(run, lambda: run.step == 5))
        assert command(*argv)[0] == 0
    assert any(n.startswith("optimiser/") for n in np.load("run/weights.npz").files)
    assert command("--resume", "run", "--weights-only", "--threads", "1")[0] == 0
    assert not any(n.startswith("optimiser/") for n in np.load("run/weights.npz").files)


@cache
def hostile() -> tuple[bytes, ...]:
    return (*bombs("x"), b"text", archive([("x.npy", header("(2, 2, 1)") + bytes(16)), ("y.npy", b"")]))


@pytest.mark.parametrize("number", range(15))
def test_no_hostile_file_is_unpacked_or_leaves_anything(number, command):
    Path("d.npz").write_bytes(hostile()[number])
    code, _, err = command("gru", "--task", "supervised", "--data", "d.npz")
    assert code == 2 and "d.npz" in err and "Traceback" not in err and [p.name for p in Path().iterdir()] == ["d.npz"]


@pytest.mark.parametrize(
    "argv, message",
    [
        (("gru", "--task", "supervised"), "has no data of its own: give --data FILE.npz"),
        (("gru", "--task", "supervised", "--data", "absent.npz"), "no file"),
        (("gru", "--task", "supervised", "--data", "."), "is a directory"),
        (("gru", "--task", "supervised", "--data", "a.npy"), "one array, without a name. np.savez"),
        (("gru", "--task", "supervised", "--data", "a.txt"), "no .npz file"),
        (("gru", "--data", "a.npy"), "is a NumPy array (.npy), and a text is wanted here. Arrays are data of"),
        (("gru", "--data", "d.npz"), "is a zip archive, as .npz is, and a text is wanted here"),
        (("gru", "--task", "classify", "--data", "d.npz"), "a text is wanted here"),
        (("gru", "--task", "reber", "--data", "a.npy"), "a text is wanted here"),
        (("gru", "--task", "translate", "--data", "a.npy"), "a text is wanted here"),
        (("gru", "--task", "forecast", "--data", "d.npz"), "--task supervised takes sequences x with targets y"),
        (("gru", "--task", "adding", "--data", "d.npz"), "one array is wanted here (.npy): np.save"),
        (("gru", "--task", "supervised", "--data", "d.npz", "--length", "4"), "--length has no meaning"),
        (("gru", "--task", "supervised", "--data", "d.npz", "--from", "x", "--retain", "9"), "holds no run"),
        (("rnn", "--task", "supervised", "--data", "d.npz", "--retain", "9"), "no gate that keeps a state"),
        (("mingru", "--task", "supervised", "--data", "d.npz", "--retain", "9"), "no bias in its gates that keep"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_leaves_nothing_behind(argv, message, command):
    write_sequences("d.npz")
    np.save("a.npy", np.ones((4, 5)))
    Path("a.txt").write_text("1,2\n")
    code, _, err = command(*argv)
    assert code == 2 and message in err and "Traceback" not in err
    assert sorted(p.name for p in Path().iterdir()) == ["a.npy", "a.txt", "d.npz"]


def test_what_retain_sets_is_told_and_written_down(command):
    few = ("--task", "copy", "--length", "2", "--hidden", "4", "--steps", "1", "--threads", "1")
    for cell, words, names in (  # 12 steps: no longer than a sequence
        ("gru", "b_z begins so that gates keep a state for up to 12 steps", ["b_z"]),
        ("rnn", "nothing is set for 12 steps: rnn has no gate that keeps a state", []),
    ):
        code, _, err = command(cell, *few, "--out", cell)
        metrics = json.loads(Path(cell, "metrics.json").read_text())
        assert code == 0 and words in err and metrics["retain"] == {"steps": 12, "set": names}
    code, _, err = command("--from", "gru", "--steps", "1", "--out", "on", "--threads", "1")
    assert code == 0 and "retain  " not in err
    assert json.loads(Path("on/metrics.json").read_text())["retain"]["set"] == []
    code, _, err = command("--from", "gru", "--retain", "9")
    assert code == 2 and "--retain is about initial weights" in err
    code, _, err = command("lstm", *few, "--retain", "50", "--out", "asked")
    assert code == 0 and "b_f, b_i begin so that gates keep a state for up to 50 steps" in err
    assert " parameters with embedding and head\n" in err


def test_what_metrics_say_of_a_run(command):
    few = ("--task", "copy", "--length", "2", "--hidden", "4", "--embed", "3", "--steps", "1", "--threads", "1")
    assert command("leaky_esn", *few, "--out", "run")[0] == 0
    metrics, weights = json.loads(Path("run/metrics.json").read_text()), np.load("run/weights.npz")
    counted = {n: weights[n].size for n in weights.files if n.startswith("model/")}
    assert metrics["parameters"]["trained"] + metrics["parameters"]["fixed"] == sum(counted.values())
    assert metrics["parameters"]["fixed"] > 0 and metrics["environment"]["processor"]
    assert "rnnspec" in metrics and "cell_text" not in metrics["config"]


def test_a_picture_has_its_whole_title(tmp_path):
    """Of two classes the matrix is narrower than its title."""
    from rnnspec.train import plots

    title = "a_cell_with_a_name, 64 units: 100 % of the sequences right (held out)"
    kept = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", lambda figure, path: kept.update(figure=figure))
        plots.confusion_matrix(tmp_path / "c.png", ["a", "b"], np.eye(2, dtype=int), title)
    figure = kept["figure"]
    figure.canvas.draw()
    box, whole = figure._suptitle.get_window_extent(), figure.bbox
    assert box.x0 >= whole.x0 and box.x1 <= whole.x1


def test_all_hostile_files_are_tried():
    assert len(hostile()) == 15


def test_an_archive_of_no_arrays(command):
    with zipfile.ZipFile("d.npz", "w"):
        pass
    code, _, err = command("gru", "--task", "supervised", "--data", "d.npz")
    assert code == 2 and "has no array 'x' (it has none)" in err
