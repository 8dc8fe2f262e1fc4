"""Every task, with its made data: it learns, its batches are what it says, and the levels of its
papers (slow)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from own_data import own_sequences
from tiny import cell
from train_parts import GRADIENT_TOLERANCE, MiniLayer, numeric, task_config

import rnnspec
from rnnspec.language.transforms.retain import keepers
from rnnspec.storage.atomic import held
from rnnspec.train import (
    Batch,
    EncoderDecoder,
    Loss,
    SequenceModel,
    TrainError,
    checkpoint,
    keeping,
    layer_maker,
    load_task,
    losses,
    start_run,
    task_names,
    train,
)
from rnnspec.train.tasks import reber, translate

TINY = {
    "adding": {"length": 6, "hidden": 8, "steps": 60},
    "classify": {"steps": 60, "hidden": 16, "embed": 16, "lr": 1e-2},
    "copy": {"length": 2, "hidden": 16, "steps": 60, "options": {"items": 2, "symbols": 4}},
    "context": {"length": 6, "hidden": 16, "steps": 150},
    "flipflop": {"length": 12, "hidden": 12, "steps": 60},
    "forecast": {"length": 16, "hidden": 12, "steps": 60},
    "generate": {"hidden": 24, "embed": 12, "length": 16, "steps": 60},
    "match": {"length": 2, "hidden": 16, "steps": 120, "lr": 2e-2},
    "perceptual": {"length": 6, "hidden": 16, "steps": 60},
    "reber": {"steps": 60, "options": {"strings": 200}},
    "supervised": {"hidden": 16, "steps": 60, "lr": 1e-2},
    "text": {"hidden": 24, "embed": 12, "length": 16, "steps": 60},
    "translate": {"hidden": 24, "embed": 12, "steps": 60, "options": {"largest": 99, "pairs": 100}},
}


def run_of(name, cell="gru", threads=1, **changed):
    changed |= {"data": own_sequences()} if name == "supervised" else {}
    config = task_config(name, cell=cell, **changed)
    problem = load_task(name).make(config, {})
    return start_run(config, problem, problem.model(layer_maker(rnnspec.load(cell), config, threads)))


def test_every_task_is_tried_here():
    assert set(TINY) == set(task_names())
    with pytest.raises(TrainError, match="Did you mean 'adding'"):
        load_task("ading")


@pytest.mark.parametrize("name", TINY)
def test_a_task_learns(name):
    run = run_of(name, **TINY[name])
    reports = list(train(run))
    losses = [r.loss for r in reports[1:]]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:5]) and run.skipped == 0
    metric, (first, *_, last) = run.problem.metric, run.history.snapshots
    assert metric.better(last[metric.name], first[metric.name]) or last[metric.name] == first[metric.name]
    assert run.problem.summary() and isinstance(run.problem.about(), dict)


@pytest.mark.parametrize("name", [name for name in TINY if name not in ("text", "generate")])
def test_a_task_goes_on_where_it_stood(name, tmp_path):
    changed = TINY[name] | {"steps": 12, "every": 5, "batch": 16}
    whole, half, resumed = (run_of(name, **changed) for _ in range(3))
    list(train(whole))
    list(train(half, lambda: half.step == 7))
    checkpoint.save(tmp_path / "w.npz", half)
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "w.npz"))
    list(train(resumed))
    assert resumed.history.loss == whole.history.loss and resumed.cursor == whole.cursor
    assert all(np.array_equal(p, whole.model.params[n]) for n, p in resumed.model.params.items())


def test_dropout_draws_the_same_after_a_resume(tmp_path):
    changed = TINY["copy"] | {"steps": 9, "every": 4, "layers": 2, "dropout": 0.5}
    whole, half, resumed = (run_of("copy", "rnn", **changed) for _ in range(3))
    list(train(whole))
    list(train(half, lambda: half.step == 5))
    checkpoint.save(tmp_path / "w.npz", half)
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "w.npz"))
    resumed.model.warm_up(resumed.problem.next({})[0])  # another number of calls before
    list(train(resumed))
    assert resumed.history.loss == whole.history.loss
    plain = run_of("copy", "rnn", **changed | {"dropout": 0.0})
    list(train(plain))
    assert plain.history.loss != whole.history.loss


def test_gradients_of_two_directions_and_the_last_step():
    """The reverse direction has read everything at the first step, the other at the last valid
    one."""
    layer = rnnspec.Recurrent("gru", 2, 3, bidirectional=True, dtype="float64", threads=1)
    model = SequenceModel(layer, 2, symbols=4, loss=Loss(over="last"), two_ways=True)
    model.embed, model.head = ({k: v.astype(np.float64) for k, v in part.items()} for part in (model.embed, model.head))
    rng = np.random.default_rng(2)
    for lengths in (None, np.array([4, 2, 1])):
        batch = Batch(rng.integers(0, 4, (4, 3)), rng.integers(0, 2, 3), lengths)
        _, grads, _ = model.gradients(batch)
        for name, array in model.params.items():
            np.testing.assert_allclose(
                grads[name],
                numeric(lambda batch=batch: model.gradients(batch)[0], array),
                atol=GRADIENT_TOLERANCE,
                err_msg=name,
            )
        before = model.outputs(batch.x, None, lengths)[0]
        changed = batch.x.copy()
        changed[0, 0] = (changed[0, 0] + 1) % 4
        assert not np.allclose(model.outputs(changed, None, lengths)[0][0], before[0])


def test_two_directions_of_a_cell_with_two_outputs():
    """Their halves lie side by side in each output: h forward, h reverse, c forward, c reverse.
    Each is that of a layer in one direction."""
    both = rnnspec.Recurrent("highway_lstm", 2, 3, bidirectional=True, dtype="float64", threads=1)
    forward, reverse = (
        rnnspec.Recurrent("highway_lstm", 2, 3, dtype="float64", threads=1, go_backwards=backwards)
        for backwards in (False, True)
    )
    for name in forward.params:
        forward.params[name][...], reverse.params[name][...] = both.params[name], both.params[f"{name}_reverse"]
    model = SequenceModel(both, 4, features=2, loss=Loss(over="last"), two_ways=True)
    model.head = {"weight": np.random.default_rng(3).standard_normal((4, 12)), "bias": np.zeros(4)}
    x, lengths = np.random.default_rng(2).standard_normal((5, 3, 2)), np.array([5, 2, 1])
    (h, c), (h_reverse, c_reverse) = forward.infer(x, None, lengths)[0], reverse.infer(x, None, lengths)[0]
    ends = np.concatenate(
        [
            a[lengths - 1, range(3)] if last else a[0]
            for a, last in ((h, True), (h_reverse, False), (c, True), (c_reverse, False))
        ],
        axis=1,
    )
    np.testing.assert_allclose(model.outputs(x, None, lengths)[0], ends @ model.head["weight"].T, rtol=1e-12)
    batch = Batch(x, np.array([0, 3, 1]), lengths)
    _, grads, _ = model.gradients(batch)
    for name in ("layer.W_d_l0", "layer.q_d_l0_reverse", "layer.p_d_l0", "layer.b_d_l0_reverse"):
        np.testing.assert_allclose(
            grads[name],
            numeric(lambda: model.gradients(batch)[0], model.params[name]),
            atol=GRADIENT_TOLERANCE,
            err_msg=name,
        )


# --- what the batches are ---


def test_adding_asks_for_the_sum_of_one_number_of_each_half():
    problem = load_task("adding").make(task_config("adding", length=10), {})
    batch, _ = problem.next({})
    values, marks = batch.x[..., 0], batch.x[..., 1]
    assert (marks[:5].sum(axis=0) == 1).all() and (marks[5:].sum(axis=0) == 1).all()
    np.testing.assert_allclose((values * marks).sum(axis=0), batch.target[:, 0])
    assert 0.14 < problem.test.target.var() < 0.19  # the error of always saying 1 is 1/6


def test_copy_asks_for_what_it_showed():
    problem = load_task("copy").make(task_config("copy", length=4, options={"items": 3}), {})
    batch, _ = problem.next({})
    assert (
        batch.x.shape == (10, 64) and (batch.x[3:6] == 0).all() and (batch.x[6] == 1).all() and (batch.x[7:] == 0).all()
    )
    assert (batch.target[-3:] == batch.x[:3]).all() and (batch.target[:-3] == 0).all() and batch.x[:3].min() == 2
    assert problem.baseline[1] == pytest.approx(3 * np.log(8) / 10)  # Arjovsky et al. 2016, section 4.1


def test_what_a_copy_recalls_is_scored_where_symbols_are_asked():
    """Says blank everywhere but at the last step of the three, and there the right symbol: a third
    is recalled, although most steps are right."""
    problem = load_task("copy").make(task_config("copy", length=4, options={"items": 3}), {})
    said = np.where(np.arange(10)[:, None] == 9, problem.test.target, 0)
    model = SequenceModel(MiniLayer("mini", 16, 4), 10, symbols=10)
    model.outputs = lambda x, state, lengths, inputs: (np.eye(10, dtype=np.float32)[said], None)
    scores = problem.score(model, quick=False)
    assert scores["recalled"] == pytest.approx(1 / 3)
    assert scores["held_out_loss"] == pytest.approx(
        np.log(np.e + 9) - 0.8
    )  # logits 1 and 0; eight of ten steps are right


def test_reber_strings_are_legal_and_changed_ones_are_not():
    rng = np.random.default_rng(0)
    strings = [reber.draw(rng) for _ in range(200)]
    for string in strings:
        allowed = reber.legal(string)
        assert len(allowed) == len(string) - 1 and all(symbol in now for symbol, now in zip(string[1:], allowed))
        assert allowed[-2] == string[1]
        with pytest.raises(ValueError, match="should stand"):
            reber.legal(string[:-2] + ("P" if string[1] == "T" else "T") + "E")
    assert {s[1] for s in strings} == {"T", "P"} and max(map(len, strings)) > 15
    assert np.mean([len(s) for s in strings]) == pytest.approx(12, abs=1)


def test_numbers_in_words():
    for number, words in (
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety nine"),
        (312, "three hundred and twelve"),
        (1000, "one thousand"),
        (1042, "one thousand and forty two"),
        (99_900, "ninety nine thousand nine hundred"),
    ):
        assert translate.in_words(number) == words
    assert len({translate.in_words(n) for n in range(3000)}) == 3000


def test_the_decoder_reads_the_target_one_step_late():
    problem = load_task("translate").make(task_config("translate", **TINY["translate"]), {})
    batch = problem.batch(problem.train[:9])
    for b, i in enumerate(problem.train[:9]):
        target = list(problem.pairs[i][1])
        assert batch.given[: len(target) + 1, b].tolist() == [1, *target] and batch.target[
            : len(target) + 1, b
        ].tolist() == [*target, 2]
        assert (batch.target[len(target) + 1 :, b] == losses.IGNORE).all()


def test_gradients_of_encoder_and_decoder():
    """All of them, those that go from the decoder's first state into the encoder too, in
    float64."""
    layers = [rnnspec.Recurrent("gru", 2, 3, dtype="float64", threads=1, seed=seed) for seed in (0, 1)]
    model = EncoderDecoder(*layers, (4, 5))
    model.source, model.target, model.head = (
        {k: v.astype(np.float64) for k, v in part.items()} for part in (model.source, model.target, model.head)
    )
    rng = np.random.default_rng(2)
    target = rng.integers(0, 5, (3, 2))
    target[2, 1] = losses.IGNORE
    batch = Batch(rng.integers(0, 4, (4, 2)), target, np.array([4, 2]), rng.integers(0, 5, (3, 2)))
    _, grads, _ = model.gradients(batch)
    assert set(grads) == set(model.params)
    for name, array in model.params.items():
        np.testing.assert_allclose(
            grads[name], numeric(lambda: model.gradients(batch)[0], array), atol=GRADIENT_TOLERANCE, err_msg=name
        )


# --- gates that keep ---


@pytest.mark.parametrize(
    "cell, gate, sign, writers",
    [("lstm", "f", 1, ("i",)), ("gru", "z", 1, ()), ("gru_other_polarity", "z", -1, ()), ("lstm_cifg", "i", -1, ())],
)
def test_which_gates_keep_a_state_follows_from_the_equations(cell, gate, sign, writers):
    assert [(k.gate, k.sign, k.writers) for k in keepers(rnnspec.load(cell))] == [(gate, sign, writers)]
    assert keepers(rnnspec.load("rnn")) == []


@pytest.mark.parametrize(
    "update, sign",
    [
        ("h[t-1] - z[t] * h[t-1] + z[t] * n[t]", -1),
        ("z[t] * n[t] + (-z[t] * h[t-1] + h[t-1])", -1),
        ("n[t] - (z[t] * h[t-1] - h[t-1])", -1),
        ("h[t-1] - (1 - z[t]) * h[t-1] + n[t]", 1),
        ("n[t] - z[t] * h[t-1]", 1),
        ("z[t] * h[t-1] + n[t]", 1),
        ("-u * z[t] * h[t-1] + h[t-1] + n[t]", -1),
        ("h[t-1] + z[t] * -h[t-1] + n[t]", -1),
    ],
)
def test_a_gate_that_takes_a_part_of_the_state_away_keeps_it_at_zero(update, sign):
    """Its bias begins on the side where the state stays. A bias that is subtracted would end up on
    the other one, and is left alone."""

    def spec(bias):
        equations = f"z[t] = sigmoid(w * x[t] {bias} b)\nn[t] = tanh(u * x[t])\nh[t] = {update}"
        return rnnspec.loads(cell(equations, inputs="{x: H}", states="{h: H}", parameters="{w: H, u: H, b: H}"))

    assert [(k.gate, k.sign) for k in keepers(spec("+"))] == [("z", sign)]
    assert keeping(spec("+"), 100).init["b"].args == (sign * 100.0,)
    assert keeping(spec("-"), 100) == spec("-")


def test_keeping_gates_begin_open_and_writing_ones_closed():
    from rnnspec.engine.initialise import initialise

    sizes = {"D": 2, "H": 500}
    plain = initialise(rnnspec.load("lstm"), sizes, 0, np.dtype("float64"))
    kept = initialise(keeping(rnnspec.load("lstm"), 100), sizes, 0, np.dtype("float64"))
    assert (kept["b_f"] >= 0).all() and kept["b_f"].max() <= np.log(99) and np.array_equal(kept["b_i"], -kept["b_f"])
    steps = 1 / (
        1 - 1 / (1 + np.exp(-kept["b_f"]))
    )  # 1 / (1 - f): the mean time that f keeps a value for, uniform to Tmax
    assert 40 < steps.mean() < 60
    assert all(np.array_equal(kept[n], plain[n]) for n in plain if n not in ("b_f", "b_i"))
    other = initialise(keeping(rnnspec.load("gru_other_polarity"), 100), sizes, 0, np.dtype("float64"))
    assert (other["b_z"] <= 0).all() and other["b_z"].min() < -2  # h = (1 - z) * h' + z * n: z is near 0 where h' stays
    assert keeping(rnnspec.load("rnn"), 100) == rnnspec.load("rnn")


# --- from the command line ---


SMALL = ("--hidden", "8", "--steps", "12", "--threads", "1")


def test_a_classifier_leaves_a_confusion_matrix(command):
    code, out, _ = command("gru", "--task", "classify", "--embed", "4", *SMALL)
    assert code == 0 and "true \\ predicted" in out and "of the texts" in out
    assert Path("runs/gru-classify/confusion.png").read_bytes()[:4] == b"\x89PNG"


def test_generate_only_writes_from_a_trained_text_model(command, monkeypatch):
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    Path("text.txt").write_text("to be or not to be " * 300)
    assert command("rnn", "--text", "text.txt", *SMALL, "--embed", "4", "--length", "8")[0] == 0
    code, out, _ = command(
        "--task", "generate", "--from", "runs/rnn", "--temperature", "0.7", "--sample", "120", "--set", "prompt=to "
    )
    assert code == 0 and [line for line in out.splitlines() if line.startswith("---") and "temperature" in line] == [
        f"--- temperature {t}" for t in (0.5, 0.7, 1.2)
    ]
    before, after = (np.load(f"runs/{name}/weights.npz") for name in ("rnn", "rnn-generate"))
    assert all(np.array_equal(before[n], after[n]) for n in before.files if n.startswith("model/"))


def test_a_run_is_resumed_on_its_own_task(command, monkeypatch):
    """Another task starts from the weights, with what it remembers of its own data."""
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    Path("text.txt").write_text("to be or not to be " * 300)
    assert command("rnn", "--text", "text.txt", *SMALL, "--embed", "4", "--length", "8")[0] == 0
    code, _, err = command("--resume", "runs/rnn", "--task", "copy", "--steps", "20")
    assert (
        code == 2 and "runs/rnn was trained on the task text; another task starts from its weights with --from" in err
    )
    code, _, err = command("--from", "runs/rnn", "--task", "forecast", "--length", "4")
    assert (
        code == 2 and "the weights of runs/rnn/weights.npz don't fit" in err and "text.txt" not in err
    )  # on its own data
    Path("pairs.tsv").write_text("".join(f"{w}\t{w.upper()}\n" for w in "abcdefghijklmnopqrst"))
    code, _, err = command("--from", "runs/rnn", "--task", "translate", "--data", "pairs.tsv")
    assert code == 2 and "Traceback" not in err and "has no" in err and "encoder" in err


def test_a_run_that_stopped_early_is_finished_until_more_patience_is_given(command):
    few = (
        "--length",
        "4",
        "--every",
        "2",
        "--batch",
        "2",
        "--threads",
        "1",
        "--lr",
        "9",
        "--out",
        "run",
    )  # far too large: the first look is the best
    code, out, _ = command("gru", "--task", "adding", "--patience", "1", *few)
    assert code == 0 and "stopped early: the weights are those of step 0" in out
    final = json.loads(Path("run/metrics.json").read_text())["final"]
    assert final["finished"] and final["step"] < 2500
    code, _, err = command("--resume", "run")
    assert code == 2 and "has stopped early at step" in err and "--patience (more than 1)" in err
    code, out, _ = command("--resume", "run", "--patience", "3", "--threads", "1")
    assert code == 0 and json.loads(Path("run/metrics.json").read_text())["final"]["step"] > final["step"]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of folders")
def test_a_folder_that_another_run_writes_into_is_left_alone(command, monkeypatch):
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    Path("text.txt").write_text("to be or not to be " * 300)
    argv = ("rnn", "--text", "text.txt", *SMALL, "--embed", "4", "--length", "8", "--out", "run")
    Path("run").mkdir()
    with held(Path("run")) as alone:
        code, _, err = command(*argv)
        assert (
            alone
            and code == 2
            and "another process is writing a run into run" in err
            and not list(Path("run").iterdir())
        )
    assert command(*argv)[0] == 0


def test_a_run_that_was_written_meanwhile_is_not_written_over(command, monkeypatch):
    """Two commands with one --out, begun together: both found the folder empty."""
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    Path("text.txt").write_text("to be or not to be " * 300)
    argv = ("rnn", "--text", "text.txt", *SMALL, "--embed", "4", "--length", "8", "--out", "run")

    def other_run(*_):
        Path("run").mkdir()
        Path("run/weights.npz").write_text("other")

    monkeypatch.setattr(SequenceModel, "warm_up", other_run)
    code, _, err = command(*argv)
    assert code == 2 and "run holds another run already" in err and Path("run/weights.npz").read_text() == "other"


@pytest.mark.parametrize(
    "argv, message",
    [
        (("rnn", "--task", "addin"), "unknown task 'addin'"),
        (("rnn", "--task", "adding", "--embed", "3"), "--embed has no meaning for the task adding"),
        (("rnn", "--task", "reber", "--length", "3"), "--length has no meaning for the task reber"),
        (("rnn", "--task", "copy", "--set", "item=3"), "no setting 'item'; it has symbols, items"),
        (("rnn", "--task", "copy", "--set", "items=x"), "--set items must be a whole number, not 'x'"),
        (("rnn", "--task", "copy", "--set", "items=0"), "items must be at least 1"),
        (("rnn", "--task", "forecast", "--set", "to=all"), "to must be every or last"),
        (("rnn", "--task", "adding", "--epochs", "2"), "makes its data step by step and has no epochs"),
        (
            ("rnn", "--task", "reber", "--steps", "5", "--epochs", "2"),
            "--steps and --epochs both say how long to train",
        ),
        (("rnn", "--task", "adding", "--schedule", "steep"), "unknown schedule 'steep'"),
        (("rnn", "--task", "adding", "--momentum", "0.9"), "momentum has no effect on adam"),
        (("rnn", "--task", "classify", "--data", "absent.csv"), "no file"),
        (("rnn", "--resume", "a", "--from", "b"), "give one of them"),
        (("rnn", "--task", "adding", "--bidirectional"), "--bidirectional has no meaning for the task adding"),
        (("rnn", "--task", "adding", "--dropout", "0.5"), "--dropout acts between layers"),
        (("rnn", "--task", "adding", "--temperature", "0.5"), "--temperature has no meaning for the task adding"),
        (("rnn", "--task", "translate", "--sample", "5"), "--sample has no meaning for the task translate"),
        (("rnn", "--task", "classify", "--set", "classes=4"), "--set classes has no meaning for made data"),
        (
            ("rnn", "--task", "copy", "--data", "x.txt", "--set", "symbols=4"),
            "--set symbols has no meaning for data of a file",
        ),
        (("rnn", "--task", "adding", "--data", "x.npy", "--length", "4"), "--length has no meaning for data of a file"),
        (
            ("rnn", "--task", "reber", "--data", "x.txt", "--set", "strings=4"),
            "--set strings has no meaning for data of a file",
        ),
        (
            ("rnn", "--task", "translate", "--data", "x.tsv", "--set", "pairs=40"),
            "--set pairs has no meaning for data of a file",
        ),
        (("rnn", "--task", "adding", "--retain", "50"), "rnn has no gate that keeps a state"),
        (("rnn", "--task", "classify", "--set", "held_out=nan"), "must be between 0 and 1; got nan"),
        (("rnn", "--task", "classify", "--set", "words=1"), "words must be at least 2"),
        (("rnn", "--task", "copy", "--set", "symbols=100000000000000"), "symbols 2 to 10000"),
        (("rnn", "--task", "reber", "--set", "strings=100000000000"), "strings must be 1 to 1,000,000"),
        (("rnn", "--task", "reber", "--set", "strings=0"), "strings must be 1 to 1,000,000"),
        (("rnn", "--task", "adding", "--length", "2147483647"), "not enough memory"),
        (("rnn", "--task", "copy", "--set", "items=2000000000"), "not enough memory"),
    ],
)
def test_what_would_be_ignored_or_can_not_be_done_is_told(command, argv, message):
    code, _, err = command(*argv)
    assert code == 2 and message in err and "Traceback" not in err and not Path("runs").exists()


def test_the_list_of_tasks(command):
    code, out, _ = command("--tasks")
    assert code == 0 and all(f"{name} (" in out for name in task_names())


# --- levels ---


def level(name, cell, **changed):
    run = run_of(name, cell, threads=None, **changed)
    list(train(run))
    return run.problem.score(run.model, quick=False)[run.problem.metric.name]


@pytest.mark.slow
@pytest.mark.parametrize("cell", rnnspec.spec_names())
def test_every_cell_takes_every_task(cell):
    """One batch of each: the loss is finite, and every parameter has its gradient."""
    for name in task_names():
        run = run_of(name, cell, **TINY[name] | {"hidden": 8, "batch": 4})
        loss, grads, _ = run.model.gradients(run.problem.next({})[0])
        assert np.isfinite(loss) and {n: g.shape for n, g in grads.items()} == {
            n: p.shape for n, p in run.model.params.items()
        }, name


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_adding_over_200_steps_needs_gates():
    """The task's defaults: LSTM and GRU below 0.01, the tanh RNN no better than saying the mean
    (1/6)."""
    assert level("adding", "lstm") < 0.01
    assert level("adding", "gru") < 0.01
    assert level("adding", "rnn") > 0.1


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name, least", [("copy", 0.95), ("reber", 0.99), ("translate", 0.98)])
def test_levels_of_the_other_tasks(name, least):
    """reber: all strings, as in Hochreiter & Schmidhuber 1997, table 2. copy: Arjovsky et al. 2016
    show that an RNN stays at no memory."""
    assert level(name, "lstm") >= least
    if name == "copy":
        assert level(name, "rnn") < 0.3
