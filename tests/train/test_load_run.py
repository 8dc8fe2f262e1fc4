"""load_run: the model of a run folder in Python, for every task, from the folder alone; what it
predicts is what the run was scored by."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile_files import changed, spoil
from own_data import write_sequences
from tiny import cell

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.errors import RnnspecError
from rnnspec.train import TrainError, Vocabulary, generate, load_run, load_task, task_names
from rnnspec.train.tasks.reber import SYMBOLS

TINY = {
    "adding": ("--length", "6", "--hidden", "8"),
    "classify": ("--hidden", "8", "--embed", "8", "--bidirectional"),
    "copy": ("--length", "2", "--hidden", "8", "--set", "items=2"),
    "context": ("--length", "4", "--hidden", "8"),
    "flipflop": ("--length", "8", "--hidden", "8"),
    "forecast": ("--length", "16", "--hidden", "8"),
    "generate": ("--hidden", "8", "--embed", "6", "--length", "8", "--data", "text.txt"),
    "match": ("--length", "2", "--hidden", "8"),
    "perceptual": ("--length", "4", "--hidden", "8"),
    "reber": ("--hidden", "8", "--set", "strings=100"),
    "supervised": ("--hidden", "8", "--data", "sequences.npz"),
    "text": ("--hidden", "8", "--embed", "6", "--length", "8", "--data", "text.txt"),
    "translate": ("--hidden", "8", "--embed", "6", "--set", "largest=99", "--set", "pairs=60"),
}
COMMON = ("--steps", "20", "--threads", "1", "--sample", "0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of every task, of a cell of the user's; then what they were trained on is gone."""
    here, before = tmp_path_factory.mktemp("runs"), Path.cwd()
    os.chdir(here)
    try:
        Path("text.txt").write_text("to be or not to be, that is the question. " * 60)
        write_sequences("sequences.npz")
        Path("tested.yaml").write_text(
            cell(
                "h[t] = tanh(W @ x[t] + U @ h[t-1] + b)",
                states="{h: H}",
                inputs="{x: D}",
                parameters="{W: [H, D], U: [H, H], b: H}",
            )
        )
        for task, more in TINY.items():
            common = COMMON if task in ("text", "generate") else COMMON[:-2]
            assert main(["train", "tested.yaml", "--task", task, *more, *common, "--out", task]) == 0
        for name in ("text.txt", "sequences.npz"):
            Path(name).rename(f"moved-{name}")
        Path("tested.yaml").write_text("rnnspec: 1\nname: changed\n")
    finally:
        os.chdir(before)
    return here


def test_every_task_is_tried_here():
    assert set(TINY) == set(task_names())


@pytest.mark.parametrize("task", TINY)
def test_the_model_of_every_task_comes_from_its_folder_alone(task, runs):
    run = load_run(runs / task)
    assert run.task.name == task == run.config.task and run.spec.equations[0].text.startswith("h[t] = tanh(W")
    saved = np.load(runs / task / "weights.npz")
    name = "encoder" if task == "translate" else "layer"
    np.testing.assert_array_equal(run.layer.params["U_l0"], saved[f"model/{name}.U_l0"])
    np.testing.assert_array_equal(run.head["bias"], saved["model/head.bias"])
    assert not run.layer.training and run.layer.batch_first and task in repr(run)
    metric, final = run.metrics["metric"], run.metrics["final"]
    assert final["score"] == final["scores"][metric["name"]] and metric["better"] in ("lower", "higher")
    assert run.metrics["history"]["snapshots"][-1][metric["name"]] is not None


@pytest.mark.parametrize("task", [name for name in TINY if name not in ("text", "generate", "supervised")])
def test_what_is_predicted_is_what_was_scored(task, runs):
    """The held-out data of a made task again, rows first, through `predict`; the score follows."""
    run = load_run(runs / task)
    problem = load_task(task).make(run.config, run.memory)
    score = run.metrics["final"]["score"]
    if task == "adding":
        found = run.predict(problem.test.x.swapaxes(0, 1))
        assert np.mean((found - problem.test.target) ** 2) == pytest.approx(score, rel=1e-5)
    elif task == "copy":
        found = run.predict(problem.test.x.T)
        asked = problem.test.target.T > 1
        assert np.mean((found == problem.test.target.T)[asked]) == pytest.approx(score)
        assert run.vocabulary.decode(problem.test.x[:2, 0])[0].isdigit() and run.vocabulary.names[1] == "<go>"
    elif task == "classify":
        batches = problem.batches()
        right = [(run.predict(b.x.T, b.lengths) == np.array(problem.names)[b.target]).sum() for b in batches]
        assert sum(right) / len(problem.test) == pytest.approx(score) and run.classes == tuple(problem.names)
        assert len(run.vocabulary) == run.metrics["data"]["words"]
    elif task in ("context", "match", "perceptual"):
        found = run.predict(problem.test.x.swapaxes(0, 1))[:, -1]
        right = found == np.array(run.classes)[problem.test.target[-1]]
        assert right[problem.trials.decided].mean() == pytest.approx(score) and run.classes[0] == "fixate"
    elif task == "flipflop":
        found = run.predict(problem.test.x.swapaxes(0, 1)).swapaxes(0, 1)
        assert np.mean((found - problem.test.target) ** 2) == pytest.approx(score, rel=1e-5)
    elif task == "forecast":
        batch = problem.batch(problem.test)
        found = run.predict(batch.x.swapaxes(0, 1)).swapaxes(0, 1)
        assert np.mean((found - batch.target) ** 2) ** 0.5 == pytest.approx(score, rel=1e-5)
    elif task == "reber":
        batch = problem.batch(problem.test)
        found = run.predict(batch.x.swapaxes(0, 1), batch.lengths)
        ends = found[np.arange(len(found)), batch.lengths - 2]
        outer = np.mean([SYMBOLS[i] == problem.strings[n][-2] for i, n in zip(ends, problem.test)])
        assert outer == pytest.approx(run.metrics["final"]["scores"]["outer"])
        assert run.vocabulary.encode("BTX").tolist() == [0, 1, 4]
    else:
        batch, (source, target) = problem.batch(problem.test), run.vocabulary
        ids = run.predict(batch.x.T, batch.lengths)
        end = target.encode(["<end>"])[0]
        wanted = [[*problem.pairs[i][1], end] for i in problem.test]
        right = [row[: len(w)].tolist() == w for row, w in zip(ids, wanted)]
        assert np.mean(right) == pytest.approx(score) and source.names[:3] == target.names[:3]


def test_states_and_predictions_of_a_run_on_own_sequences(runs):
    run, data = load_run(runs / "supervised"), np.load(runs / "moved-sequences.npz")
    x = data["x"]
    found = run.predict(x)
    assert found.shape == data["y"].shape and set(found) <= set(run.classes) == {3, 7}
    assert found[:2].tolist() == [run.predict(row) for row in x[:2]]  # one row, no batch axis
    y, state = run.layer.infer(x.astype(np.float32))
    assert y.shape == (*x.shape[:2], 8) and np.array_equal(y[:, -1], state[0])
    logits = state[0] @ run.head["weight"].T + run.head["bias"]
    np.testing.assert_allclose(run.outputs(x), logits, atol=1e-5)
    assert (np.array(run.classes)[logits.argmax(axis=1)] == found).all()
    for change in ("in place", "all at once"):  # the layer is the model's own: what is done to it is predicted with
        if change == "in place":
            run.layer.params["U_l0"][...] = 0
        else:
            run.layer.load_state_dict({name: 0 * w for name, w in run.layer.state_dict().items()})
        assert not np.allclose(run.outputs(x), logits)
    np.testing.assert_allclose(run.outputs(x), np.tile(run.head["bias"], (len(x), 1)))
    before = run.predict(x[:3])
    run.layer.batch_first = False
    assert run.layer.infer(x.astype(np.float32).swapaxes(0, 1))[0].shape == (x.shape[1], len(x), 8)
    assert (run.predict(x[:3]) == before).all()


def test_rows_of_several_lengths_and_many_of_them(runs):
    run = load_run(runs / "supervised")
    rng = np.random.default_rng(0)
    x, lengths = rng.standard_normal((600, 9, 2)), rng.integers(1, 10, 600)
    whole = run.outputs(x, lengths)
    for row in (0, 255, 256, 599):
        np.testing.assert_allclose(whole[row], run.outputs(x[row, : lengths[row]]), rtol=1e-5, atol=1e-6)
    lengths[300] = min(lengths[300], 8)
    x[300, lengths[300] :] = np.nan  # behind its end
    assert run.predict(x, lengths).shape == (600,)
    for given in (x, x[300]):  # the largest of NaN is no class
        with pytest.raises(TrainError, match=r"NaN is no class.* predict\(x, lengths\)"):
            run.predict(given)


def test_a_text_model_writes_and_knows_its_characters(runs):
    run = load_run(runs / "text")
    assert isinstance(run.vocabulary, Vocabulary)
    ids = run.vocabulary.encode("to be")
    assert run.predict(ids).shape == (5,) and run.predict(ids[None]).shape == (1, 5)
    assert len(generate(run.model, run.vocabulary, 12)) == 12


@pytest.mark.parametrize(
    "x, lengths, message",
    [
        (np.ones((2, 3)), None, r"x has 3 features; the model was trained on 2"),
        (np.ones((2, 3, 4, 2)), None, r"float64 \[2, 3, 4, 2\]; features \[B, T, D\] are wanted"),
        (np.ones((2, 3, 2), complex), None, "complex128"),
        (np.array([["a"]]), None, "<U1"),
        (np.ones((2, 0, 2)), None, "has no step"),
        (np.ones((2, 3, 2)), [1, 4], r"lengths\[1\] is 4"),
        (np.ones((2, 3, 2)), [1], "must be 2 integers"),
        (np.ones((2, 3, 2)), [1.0, 2.0], "must be 2 integers"),
    ],
)
def test_what_does_not_fit_is_told(x, lengths, message, runs):
    with pytest.raises(TrainError, match=message):
        load_run(runs / "supervised").predict(x, lengths)


def test_an_input_that_was_trained_with_is_asked_for(command):
    """dt of the file is no 1 that nobody gave; a run without it needs none."""
    x = np.random.default_rng(1).standard_normal((60, 12, 2))
    dt = np.random.default_rng(0).uniform(0.5, 2, (60, 12))
    write_sequences("with.npz", x=x, dt=dt)
    few = ("--task", "supervised", "--hidden", "4", "--steps", "3", "--threads", "1")
    code, _, err = command("cfc", *few, "--data", "with.npz", "--out", "with")
    assert code == 0 and " parameters with head\n" in err  # there is no embedding
    assert command("cfc", *few, "--data", "with.npz", "--set", "without=dt", "--out", "without")[0] == 0
    run = load_run("with")
    for ask in (run.predict, run.outputs):
        with pytest.raises(TrainError, match=r'trained with dt beside x, and dt is not given.*inputs=\{"dt": dt\}'):
            ask(x)
    assert run.predict(x, inputs={"dt": dt}).shape == (60,)
    assert load_run("without").predict(x).shape == (60,)
    assert command("--resume", "with", "--steps", "5", "--threads", "1")[0] == 0


def test_all_states_of_a_run_come_from_a_layer_with_its_weights(command):
    """As docs/tasks.md says, for a cell whose outputs are not all of its states."""
    path = write_sequences("d.npz")
    few = ("--task", "supervised", "--hidden", "4", "--steps", "3", "--threads", "1")
    assert command("lstm", *few, "--data", path, "--out", "run")[0] == 0
    run, x = load_run("run"), np.load(path)["x"].astype(np.float32)
    layer = rnnspec.Recurrent(
        run.spec, run.layer.input_size, run.config.hidden, batch_first=True, return_all_states=True
    )
    layer.load_state_dict(run.layer.state_dict())
    y, state, states = layer.infer(x)
    np.testing.assert_array_equal(y, run.layer.infer(x)[0])
    np.testing.assert_array_equal(states["c_l0"][:, -1], state[1][0])


def test_an_input_that_the_cell_has_not_is_told(runs):
    with pytest.raises(TrainError, match="has no further input 'dt'; it has none"):
        load_run(runs / "supervised").predict(np.ones((1, 2, 2)), inputs={"dt": np.ones((1, 2))})
    with pytest.raises(TrainError, match="ids \\[B, T\\] are wanted"):
        load_run(runs / "text").predict(np.ones((1, 2)))
    with pytest.raises(TrainError, match="it writes: predict"):
        load_run(runs / "translate").outputs(np.ones((1, 2), int))


def test_the_message_of_a_layer_needs_no_further_import(runs):
    code = f"import rnnspec; print(rnnspec.train.load_run({str(runs / 'adding')!r}).spec.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tested\n"


def test_a_folder_that_is_no_run_and_a_layer_that_is_given_a_run(runs, tmp_path):
    with pytest.raises(TrainError, match=r"holds no run: there is no .*weights\.npz"):
        load_run(tmp_path)
    with pytest.raises(TrainError, match="was not trained on adding, but on supervised"):
        load_run(runs / "supervised", task=load_task("adding"))
    layer = rnnspec.Recurrent("rnn", 2, 8)
    with pytest.raises(ValueError, match=r"rnnspec\.train\.load_run\('.*supervised'\)\.layer"):
        layer.load(runs / "supervised" / "weights.npz")
    run = load_run(runs / "supervised" / "weights.npz")
    other = rnnspec.Recurrent(run.spec, 2, 8)
    other.load_state_dict(run.layer.state_dict())  # as the message says
    run.layer.save(tmp_path / "layer.npz")
    other.load(tmp_path / "layer.npz")


def test_a_run_that_was_stopped_has_no_summary(runs, tmp_path):
    shutil.copytree(runs / "adding", tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink()
    run = load_run(tmp_path / "run")
    assert run.metrics == {} and run.predict(np.ones((3, 6, 2))).shape == (3, 1)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda meta: meta["model"].update(classes=10**9), "model classes is 1000000000"),
        (lambda meta: meta["model"].update(width=50, symbols=90), "more weights than"),
        (lambda meta: meta["model"].update(kind="other"), "model kind can't be 'other'"),
        (lambda meta: meta["model"]["loss"].update(over="x"), "model loss can't be"),
        (lambda meta: meta["model"].pop("main"), "its model is described by"),
        (lambda meta: meta.update(model=[]), r"model can't be '\[\]'"),
        (lambda meta: meta["memory"].update(classes=[3]), "2 classes and 1 names of them"),
        (lambda meta: meta["memory"].update(shape="[Q]"), "memory shape can't be"),
        (lambda meta: meta["config"].update(cell_text="rnnspec: 1\nname: [x"), "its cell can't be read"),
        (lambda meta: meta["config"].update(digest="0" * 64), "not the one that was trained"),
        (lambda meta: meta["config"].update(task="/tmp/evil.py"), "unknown task '/tmp/evil.py'"),
    ],
)
def test_a_run_whose_description_was_changed_is_refused(change, message, runs, tmp_path):
    shutil.copytree(runs / "supervised", tmp_path / "run")
    path = tmp_path / "run" / "weights.npz"
    arrays = dict(np.load(path))
    meta = json.loads(arrays["meta"].tobytes())
    change(meta)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(RnnspecError, match=message):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("content, message", [("[1]", "no summary of a run"), ("{", "no JSON"), ("[" * 9999, "nested")])
def test_a_damaged_summary_is_told(content, message, runs, tmp_path):
    shutil.copytree(runs / "adding", tmp_path / "run")
    (tmp_path / "run" / "metrics.json").write_text(content)
    with pytest.raises(TrainError, match=message):
        load_run(tmp_path / "run")


@pytest.mark.filterwarnings("ignore")
def test_sixty_hostile_run_folders(runs, tmp_path):
    """Each is loaded and predicts, or is refused by one clear error."""
    refused = 0
    for number in range(60):
        draw, folder = random.Random(number), tmp_path / f"run{number}"
        shutil.copytree(runs / draw.choice(("supervised", "adding", "text")), folder)
        spoil(draw, folder / "weights.npz", lambda meta, draw=draw: changed(draw, meta), into="meta")
        try:
            run = load_run(folder)
            shape = (2, 3) if run.model.plan.symbols else (2, 3, run.model.plan.features)
            run.predict(np.zeros(shape, int))
        except (RnnspecError, MemoryError) as error:
            assert str(error).isprintable() or "\n" in str(error)
            refused += 1
        shutil.rmtree(folder)
    assert refused > 20
