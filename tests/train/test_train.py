"""The loop, its checkpoints and plots. Fault numbers are those of the list of known faults."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from train_parts import TEXT, mini_config, mini_run

from rnnspec.storage import atomic
from rnnspec.train import TrainError, checkpoint, cross_entropy, generate, make_streams, train
from rnnspec.train.loop import next_batch
from rnnspec.train.plots import confusion_matrix, loss_curve, running_mean
from rnnspec.train.tasks.text import EVALUATION_ROWS, bits


def test_bits_of_a_uniform_model():
    run = mini_run()
    run.model.head["weight"][:] = 0
    run.model.head["bias"][:] = 0
    assert bits(run.model, run.problem.corpus.held_out) == pytest.approx(
        math.log2(len(run.problem.corpus.vocabulary)), rel=1e-5
    )


def test_held_out_bits_carry_the_state_across_chunks():
    run = mini_run()
    ids = np.tile(run.problem.corpus.train, 1 + EVALUATION_ROWS * 600 // len(run.problem.corpus.train))[
        : EVALUATION_ROWS * 600 + 1
    ]
    streams = make_streams(ids, EVALUATION_ROWS)
    logits, _ = run.model.outputs(streams.inputs)
    expected = cross_entropy(logits, streams.labels)[0] / math.log(2)
    assert bits(run.model, ids) == pytest.approx(expected, rel=1e-5)


def test_training_learns_and_snapshots_come_early():
    run = mini_run(mini_config(hidden=24, embed=8, steps=260, batch=4, length=16))
    reports = list(train(run))
    snapshots = [r.step for r in reports if r.scores is not None]
    assert snapshots == [0, 25, 50, 100, 200, 250, 260] and reports[-1].step == 260 and reports[-1].fraction == 1
    first, *_, last = (s["held_out_bits"] for s in run.history.snapshots)
    assert last < 0.5 * first and last < run.problem.corpus.unigram_bits
    assert len(run.history.snapshots[-1]["sample"]) == 60


def test_h74_every_chunk_starts_from_the_state_that_the_one_before_left():
    run = mini_run()
    given, left = [], []
    gradients = run.model.gradients

    def watched(batch, state=None):
        loss, grads, after = gradients(batch, state)
        given.append(state)
        left.append(after)
        return loss, grads, after

    run.model.gradients = watched
    list(train(run, lambda: run.step == 5))
    assert given[0] is None and all(a is b for a, b in zip(given[1:], left[:-1], strict=True)) and len(given) == 5


def test_state_is_carried_and_dropped_at_the_end_of_the_text():
    run = mini_run(mini_config(hidden=4, embed=4, steps=1, batch=8, length=8), TEXT[:600])  # 67 steps: 8 chunks of 8
    seen = []
    for _ in range(20):
        run.state = "carried"
        batch = next_batch(run)
        seen.append((run.cursor["start"], run.state, batch.x[0, 0]))
    assert [s[:2] for s in seen[:8]] == [(8, None)] + [(8 * i, "carried") for i in range(2, 9)]
    start, state, _ = seen[8]
    assert state is None and 8 <= start < 16
    again, cursor = [], {}
    for _ in range(20):  # the order of the data follows from the cursor and the seed
        batch, cursor = run.problem.next(cursor)
        again.append(batch.x[0, 0])
    assert again == [s[2] for s in seen]


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(
        TrainError, match="too short: it has 90 characters to train on, and a batch of 4 times a length of 64 needs 257"
    ):
        mini_run(mini_config(hidden=4, embed=4, batch=4, length=64), TEXT[:100])


def test_a_time_budget_ends_the_run():
    run = mini_run(mini_config(hidden=4, embed=4, steps=None, seconds=0.2, batch=2, length=4))
    *_, last = train(run)
    assert last.fraction >= 1 and run.step > 0
    with pytest.raises(TrainError, match="steps or of seconds"):
        mini_run(mini_config(steps=None, batch=2, length=4))


def test_sampling():
    run = mini_run()
    texts = [
        generate(run.model, run.problem.corpus.vocabulary, 50, temperature=t, seed=s)
        for t, s in ((1, 0), (1, 0), (1, 1), (0, 0), (0, 1))
    ]
    assert texts[0] == texts[1] != texts[2] and texts[3] == texts[4]
    assert all(len(t) == 50 and "\N{REPLACEMENT CHARACTER}" not in t for t in texts)
    run.model.head["bias"][0] = 1e4
    assert "\N{REPLACEMENT CHARACTER}" not in generate(run.model, run.problem.corpus.vocabulary, 20, temperature=1)
    with pytest.raises(TrainError, match="temperature"):
        generate(run.model, run.problem.corpus.vocabulary, 1, temperature=-1)


# --- checkpoints ---


def all_of(run):
    return {**run.model.params, **run.optimiser, "state": run.state, "bits": np.array(run.history.loss)}


@pytest.mark.parametrize("stop_at", [6, 25, 44])
def test_resume_is_bit_for_bit(tmp_path, stop_at):
    config = mini_config(
        hidden=12, embed=6, steps=50, batch=16, length=16
    )  # several rounds of the text: the generator is used
    whole, half, resumed = mini_run(config), mini_run(config), mini_run(config)
    list(train(whole))
    list(train(half, lambda: half.step == stop_at))
    checkpoint.save(tmp_path / "weights.npz", half)
    for array in resumed.model.params.values():
        array += 1
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "weights.npz"))
    list(train(resumed))
    assert (resumed.step, resumed.cursor) == (whole.step, whole.cursor)
    expected = all_of(whole)
    for name, array in all_of(resumed).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert [s["sample"] for s in resumed.history.snapshots] == [s["sample"] for s in whole.history.snapshots]


def test_patience_ends_the_run_with_the_best_weights(tmp_path, monkeypatch):
    scores = iter([5.0, 4.0, 3.0, 3.5, 3.2, 9.0])
    config = mini_config(steps=100, every=5, patience=2)
    run, kept = mini_run(config), {}
    monkeypatch.setattr(type(run.problem), "score", lambda *_, **__: {"held_out_bits": next(scores)})
    for report in train(run):
        if report.scores and report.scores["held_out_bits"] == 3.0:
            kept = {name: p.copy() for name, p in run.model.params.items()}
            checkpoint.save(tmp_path / "w.npz", run)
    assert run.step == 20 and run.best.step == 10
    assert all(np.array_equal(p, kept[name]) for name, p in run.model.params.items())
    scores, again = iter([3.5, 3.2]), mini_run(config)  # resumed from the best snapshot it ends at the same place
    checkpoint.restore(again, checkpoint.load(tmp_path / "w.npz"))
    list(train(again))
    assert again.step == 20 and all(np.array_equal(p, kept[name]) for name, p in again.model.params.items())


def test_weights_of_another_run_are_a_start(tmp_path):
    run, other = mini_run(), mini_run(mini_config(seed=1, steps=0))
    list(train(run))
    checkpoint.save(tmp_path / "w.npz", run)
    checkpoint.take(other.model, checkpoint.load(tmp_path / "w.npz"))
    assert all(np.array_equal(run.model.params[name], p) for name, p in other.model.params.items()) and other.step == 0
    with pytest.raises(TrainError, match=r"head.weight is float32 \[29, 12\]; this model has float32 \[29, 8\]"):
        checkpoint.take(mini_run(mini_config(hidden=8)).model, checkpoint.load(tmp_path / "w.npz"))


@pytest.mark.parametrize("state", [None, np.ones((1, 2, 3)), (np.ones((1, 2, 3)), np.zeros((1, 2, 3)))])
def test_state_keeps_its_form(tmp_path, state):
    run, again = mini_run(), mini_run()
    run.state = state
    checkpoint.save(tmp_path / "w.npz", run)
    checkpoint.restore(again, checkpoint.load(tmp_path / "w.npz"))
    assert type(again.state) is type(state)
    np.testing.assert_array_equal(np.array(again.state, float), np.array(state, float))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden": 8}, "hidden is 8; the run was trained with 12"),
        ({"seed": 1}, "seed is 1; the run was trained with 0"),
        ({"choices": {"phi": "relu"}}, "choices is phi=relu; the run was trained with none"),
        (
            {"cell": "gru", "digest": "x", "equations": ("h[t] = x[t]",)},
            r"gru is not the mini it was trained with: 'h\[t\] = x\[t\]'",
        ),
    ],
)
def test_a_run_that_does_not_fit_is_refused(tmp_path, change, message):
    run = mini_run()
    checkpoint.save(tmp_path / "w.npz", run)
    other = mini_run(replace(run.config, **change))
    before = all_of(other)
    with pytest.raises(TrainError, match=message):
        checkpoint.restore(other, checkpoint.load(tmp_path / "w.npz"))
    assert all(before[name] is array or np.array_equal(before[name], array) for name, array in all_of(other).items())


def test_another_text_is_refused(tmp_path):
    checkpoint.save(tmp_path / "w.npz", mini_run())
    with pytest.raises(TrainError, match="the text is not the one"):
        checkpoint.restore(mini_run(text=TEXT + "!"), checkpoint.load(tmp_path / "w.npz"))


@pytest.mark.parametrize("damage", ["text", "cut", "pickle", "foreign", "format", "version", "name", "lost", "meta"])
def test_damaged_and_foreign_files_are_refused(tmp_path, damage):
    path = tmp_path / "w.npz"
    checkpoint.save(path, mini_run())
    match damage:
        case "text":
            path.write_text("hello")
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case "pickle":
            np.savez(path, meta=np.array([{"a": 1}], dtype=object))
        case "foreign":
            np.savez(path, weights=np.ones(3))
        case "version":  # zipfile raises NotImplementedError
            content = bytearray(path.read_bytes())
            content[content.index(b"PK\x01\x02") + 6] = 255
            path.write_bytes(content)
        case "name" | "lost" | "meta":
            with np.load(path) as file:
                arrays = dict(file)
            if damage == "meta":
                meta = json.loads(arrays["meta"].tobytes())
                arrays["meta"] = np.frombuffer(json.dumps(meta | {"cursor": None}).encode(), np.uint8)
            else:
                arrays["state/9"] = arrays.pop("optimiser/step")
                if damage == "lost":
                    del arrays["state/9"]
            np.savez(path, **arrays)
        case "format":
            np.savez(path, meta=np.frombuffer(json.dumps({"format": 99}).encode(), np.uint8))
    with pytest.raises(TrainError, match="format 99" if damage == "format" else "not a checkpoint"):
        checkpoint.load(path)


def test_writing_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "w.npz"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            atomic.write(path, b"new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

    def fails(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomic.write(path, fails)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# --- plots and imports ---


def test_losses_that_are_not_finite_are_drawn_around(tmp_path):
    run = mini_run()
    run.problem.baseline = ("always the mean", math.inf)
    for losses in ([], [math.nan], [math.inf, 1.0, 2.0]):
        run.history.loss = losses
        loss_curve(tmp_path / "loss.png", run.history, run.problem, "mini")
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_loss_curve(tmp_path):
    pytest.importorskip("matplotlib")
    run = mini_run()
    list(train(run))
    run.history.loss[3] = math.nan
    loss_curve(tmp_path / "loss.png", run.history, run.problem, "mini")
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_confusion_matrix(tmp_path):
    confusion_matrix(tmp_path / "c.png", ["a", "b"], np.array([[3, 1], [0, 0]]), "mini")
    assert (tmp_path / "c.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_running_mean_leaves_gaps_out():
    values = np.array([1.0, 3.0, np.nan, 5.0])
    assert running_mean(values, 2).tolist() == [2, 3, 5, 5]
    assert running_mean(values, 3).tolist() == [2, 2, 4, 5]


def test_import_is_light():
    code = (
        "import sys, rnnspec.train; print(sorted({'matplotlib', 'rich', 'numba', 'sympy', 'torch'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


# --- with the real layer ---

LINEAR = """\
rnnspec: 1
name: linear
inputs: {x: H}
states: {h: H}
parameters: {w: H}
equations: |
  h[t] = w * h[t-1] + x[t]
outputs: [h]
"""


@pytest.fixture(scope="module")
def linear():
    import rnnspec

    layer = rnnspec.Recurrent(rnnspec.loads(LINEAR), input_size=1, hidden_size=1, threads=1)
    layer.params["w_l0"][...] = 0.5
    return layer


def test_h74_truncated_backpropagation(linear):
    x = np.ones((4, 1, 1), np.float32)
    only_last = np.zeros_like(x)
    only_last[-1] = 1

    y, _ = linear(x)
    linear.backward(only_last)
    assert y.ravel().tolist() == [1, 1.5, 1.75, 1.875] and linear.grads["w_l0"] == pytest.approx(2.75)

    first, state = linear(x[:2])
    second, _ = linear(x[2:], state)
    linear.backward(only_last[2:], of=second)
    assert np.concatenate([first, second]).ravel().tolist() == [1, 1.5, 1.75, 1.875]
    assert linear.grads["w_l0"] == pytest.approx(2.5)  # 1.0 if the state were reset, 2.75 if the gradient crossed


def test_h75_carried_state_of_another_batch_size(linear):
    _, state = linear.infer(np.ones((2, 4, 1), np.float32))
    with pytest.raises(ValueError, match=r"\(1, 3, 1\).*\(1, 4, 1\)"):
        linear(np.ones((2, 3, 1), np.float32), state)


def test_resume_is_bit_for_bit_with_the_real_layer(tmp_path, linear):
    config = mini_config(cell="linear", hidden=8, embed=8, steps=12, batch=4, length=8)

    def make():
        import rnnspec

        return mini_run(
            config, layer=lambda cell, d, h, seed: rnnspec.Recurrent(rnnspec.loads(LINEAR), d, h, seed=seed, threads=1)
        )

    whole, half, resumed = make(), make(), make()
    list(train(whole))
    list(train(half, lambda: half.step == 5))
    checkpoint.save(tmp_path / "w.npz", half)
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "w.npz"))
    list(train(resumed))
    expected = all_of(whole)
    for name, array in all_of(resumed).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
