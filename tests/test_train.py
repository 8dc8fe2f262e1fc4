"""The training part: losses, clipping, optimisers, heads, text, the loop and its checkpoints. Fault numbers are those of faults.md."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from rnnspec.train import (
    SGD,
    Adam,
    CharacterModel,
    Config,
    Diverged,
    TrainError,
    Vocabulary,
    checkpoint,
    clip_global_norm,
    cross_entropy,
    generate,
    global_norm,
    heads,
    length_mask,
    make_corpus,
    make_streams,
    masked_mean,
    read_text,
    start_run,
    train,
    unigram_entropy,
)
from rnnspec.train.loop import learning_rate, next_chunk
from rnnspec.train.model import EVALUATION_ROWS
from rnnspec.train.plots import loss_curve, running_mean

TEXT = "the quick brown fox jumps over the lazy dog; " * 120
GRADIENT_TOLERANCE = 1e-7  # central differences in float64 with a step of 1e-6


class MiniLayer:
    """h[t] = tanh(x[t] @ W.T + h[t-1] @ U.T), in a dozen lines: the loop is what is tested."""

    def __init__(self, cell, input_size, hidden_size, dtype="float32", threads=None, seed=0, sizes=None, **choices):
        rng = np.random.default_rng(seed)
        self.output_size = hidden_size
        shapes = {"W": (hidden_size, input_size), "U": (hidden_size, hidden_size)}
        self.params = {name: (0.3 * rng.standard_normal(shape)).astype(dtype) for name, shape in shapes.items()}
        self.grads = {}

    def __call__(self, x, state=None):
        y, state = self.infer(x, state)
        return y, state

    def infer(self, x, state=None):
        h = self.h0 = np.zeros((x.shape[1], self.output_size), x.dtype) if state is None else state[0]
        self.x, self.y = x, np.empty((*x.shape[:2], self.output_size), x.dtype)
        for t in range(len(x)):
            h = self.y[t] = np.tanh(x[t] @ self.params["W"].T + h @ self.params["U"].T)
        return self.y, h[None].copy()

    def backward(self, dy, dstate=None):
        d_h, d_x = np.zeros_like(self.h0), np.empty_like(self.x)
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}
        for t in reversed(range(len(dy))):
            d_a = (dy[t] + d_h) * (1 - self.y[t] ** 2)
            self.grads["W"] += d_a.T @ self.x[t]
            self.grads["U"] += d_a.T @ (self.y[t - 1] if t else self.h0)
            d_x[t], d_h = d_a @ self.params["W"], d_a @ self.params["U"]
        return d_x, d_h[None]


def mini_run(config=None, text=TEXT, layer=MiniLayer):
    config = config or Config("mini", hidden=12, embed=6, steps=30, batch=4, length=8)
    corpus = make_corpus(text, "test")
    model = CharacterModel(layer("mini", config.embed, config.hidden, seed=config.seed), len(corpus.vocabulary), config.embed, config.seed)
    return start_run(config, model, corpus)


def numeric(f, array):
    """Central differences of f() with respect to every element of the array."""
    gradient = np.empty_like(array)
    for i in np.ndindex(array.shape):
        kept = array[i]
        array[i] = kept + 1e-6
        above = f()
        array[i] = kept - 1e-6
        gradient[i] = (above - f()) / 2e-6
        array[i] = kept
    return gradient


# losses


def test_h78_softmax_cross_entropy_does_not_overflow():
    loss, gradient = cross_entropy(np.array([[1000, 0, -1000]], np.float32), np.array([2]))
    assert loss == 2000
    assert gradient.dtype == np.float32 and gradient.tolist() == [[1, 0, -1]]


@pytest.mark.parametrize("labels, named", [([0, 1, -4], "-4"), ([0, 1, 5], "5")])
def test_h77_label_out_of_range_is_named(labels, named):
    with pytest.raises(TrainError, match=rf"label {named} at \[2\] is out of range: there are 5 classes"):
        cross_entropy(np.zeros((3, 5), np.float32), np.array(labels))


def test_h77_ignored_labels_and_padding_are_not_checked():
    logits = np.zeros((2, 2, 5), np.float32)
    loss, gradient = cross_entropy(logits, np.array([[1, -100], [99, 3]]), lengths=[1, 2])
    assert loss == pytest.approx(math.log(5))
    assert not gradient[1, 0].any() and not gradient[0, 1].any()


def test_labels_must_be_integers():
    with pytest.raises(TrainError, match="integers; got dtype float64"):
        cross_entropy(np.zeros((1, 5), np.float32), np.array([1.0]))


def test_h76_mean_counts_valid_tokens_only():
    losses = np.array([[1.0, 2.0], [3.0, 100.0]])  # rows of the batch: A has 1, 3; B has 2 and padding
    mean, weights = masked_mean(losses, length_mask([2, 1], 2, 2))
    assert mean == 2.0
    assert weights.tolist() == [[1 / 3, 1 / 3], [1 / 3, 0]]


def test_h76_padding_never_counts_even_if_it_is_nan():
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((4, 3, 5)), rng.integers(0, 5, (4, 3))
    clean = cross_entropy(logits, labels, lengths=[4, 2, 0])
    logits[2:, 1], logits[:, 2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        loss, gradient = cross_entropy(logits, labels, lengths=[4, 2, 0])
    assert loss == clean[0] and np.array_equal(gradient, clean[1])
    assert not gradient[2:, 1].any() and not gradient[:, 2].any()


def test_sum_is_over_steps_and_rows():
    logits, labels = np.random.default_rng(1).standard_normal((4, 3, 5)), np.ones((4, 3), int)
    mean, d_mean = cross_entropy(logits, labels)
    total, d_total = cross_entropy(logits, labels, reduction="sum")
    assert total == pytest.approx(12 * mean)
    np.testing.assert_allclose(d_total, 12 * d_mean)
    with pytest.raises(TrainError, match="unknown reduction 'avg'"):
        cross_entropy(logits, labels, reduction="avg")


def test_no_valid_token_is_a_loss_of_zero():
    loss, gradient = cross_entropy(np.ones((2, 1, 3), np.float32), np.full((2, 1), -100))
    assert loss == 0 and not gradient.any()


@pytest.mark.parametrize("lengths", [[2], [2, 3], [2, -1], [1.0, 2.0], [[1, 2]]])
def test_lengths_out_of_range_or_of_the_wrong_kind(lengths):
    with pytest.raises(TrainError, match="lengths"):
        length_mask(lengths, 2, 2)


def test_loss_gradient():
    rng = np.random.default_rng(2)
    logits, labels = rng.standard_normal((3, 2, 4)), np.array([[0, 3], [1, -100], [2, 2]])
    _, gradient = cross_entropy(logits, labels, lengths=[3, 2])
    expected = numeric(lambda: cross_entropy(logits, labels, lengths=[3, 2])[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=GRADIENT_TOLERANCE)


# clipping


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_h72_a_norm_that_is_not_finite_is_reported_and_nothing_is_scaled(bad):
    grads = {"a": np.array([bad, 1], np.float32)}
    before = grads["a"].copy()
    norm = clip_global_norm(grads, 1.0)
    assert norm == abs(bad) or (math.isnan(norm) and math.isnan(bad))
    with pytest.raises(TrainError, match="not finite in a"):
        clip_global_norm(grads, 1.0, error_if_nonfinite=True)
    assert np.array_equal(grads["a"], before, equal_nan=True)


def test_h72_the_loop_skips_the_step():
    run = mini_run()
    weights = {name: p.copy() for name, p in run.model.params.items()}
    backward = run.model.layer.backward
    run.model.layer.backward = lambda dy: (np.full_like(backward(dy)[0], np.nan), None)
    run.state = np.ones((1, 4, 12), np.float32)
    reports = train(run)
    next(reports)  # the snapshot before the first step
    report = next(reports)
    assert math.isnan(report.bits) and run.skipped == 1 and run.state is None and run.optimiser["step"] == 0
    assert all(np.array_equal(weights[name], p) for name, p in run.model.params.items())
    run.model.layer.backward = backward
    assert math.isfinite(next(reports).bits) and run.optimiser["step"] == 1


def test_h72_training_that_only_skips_stops():
    run = mini_run()
    run.model.head["bias"][0] = np.nan
    with np.errstate(invalid="ignore"), pytest.raises(Diverged, match=r"20 steps in a row.*smaller --lr"):
        list(train(run))


@pytest.mark.parametrize("theta", [1.0, 0.0])
def test_h73_zero_gradients_stay_zero(theta):
    grads = {"a": np.zeros(2, np.float32)}
    assert clip_global_norm(grads, theta) == 0
    assert grads["a"].tolist() == [0, 0]


def test_clip_is_exact_and_global():
    grads = {"a": np.array([[3.0]]), "b": np.array([4.0])}
    assert clip_global_norm(grads, 5.0) == 5 and grads["a"] == 3  # at the bound: untouched, no epsilon
    assert clip_global_norm(grads, 1.0) == 5
    assert grads["a"][0, 0] == 3.0 * (1 / 5) and grads["b"][0] == 4.0 * (1 / 5)
    for theta in (-1.0, math.nan):
        with pytest.raises(TrainError, match="0 or more"):
            clip_global_norm(grads, theta)


def test_norm_does_not_overflow():
    assert global_norm({"a": np.array([3e38, 3e38], np.float32)}) == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)
    assert global_norm({"a": np.array([3e300]), "b": np.array([4e300])}) == pytest.approx(5e300)


# optimisers


@pytest.mark.parametrize(
    "ours, theirs, settings",
    [
        (SGD(0.1), "SGD", {"lr": 0.1}),
        (SGD(0.1, momentum=0.9), "SGD", {"lr": 0.1, "momentum": 0.9}),
        (SGD(0.05, momentum=0.8, nesterov=True), "SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
        (Adam(4e-3), "Adam", {"lr": 4e-3}),
        (Adam(1e-2, betas=(0.8, 0.95), eps=1e-4), "Adam", {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-4}),
    ],
)
def test_optimisers_equal_torch_over_100_steps(ours, theirs, settings):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    params = {"a": rng.standard_normal((5, 3)), "b": rng.standard_normal(4)}
    copies = [torch.nn.Parameter(torch.tensor(p)) for p in params.values()]
    state, optimiser = ours.init(params), getattr(torch.optim, theirs)(copies, **settings)
    for _ in range(100):
        grads = {name: rng.standard_normal(p.shape) for name, p in params.items()}
        for copy, g in zip(copies, grads.values(), strict=True):
            copy.grad = torch.tensor(g)
        ours.step(params, grads, state)
        optimiser.step()
    for p, copy in zip(params.values(), copies, strict=True):
        np.testing.assert_allclose(p, copy.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("optimiser", [SGD(0.1, momentum=0.9), SGD(0.1), Adam(0.1)])
def test_optimisers_work_in_place_and_keep_float32(optimiser):
    p = np.ones(3, np.float32)
    g = np.full(3, 0.5, np.float32)
    state = optimiser.init({"p": p})
    optimiser.step({"p": p}, {"p": g}, state)
    optimiser.step({"p": p}, {"p": g}, state, lr=0.0)
    assert p.dtype == np.float32 and (p < 1).all() and (g == 0.5).all() and state["step"] == 2
    assert all(a.dtype == np.float32 for name, a in state.items() if name != "step")


# heads


def test_embedding_and_head_gradients():
    rng = np.random.default_rng(4)
    ids = np.array([[0, 2, 2], [1, 2, 0]])
    embedding, head = heads.init_embedding(rng, 4, 3, "float64"), heads.init_linear(rng, 3, 5, "float64")
    weights = rng.standard_normal((2, 3, 5))

    def loss():
        return float((weights * np.tanh(heads.linear(head, heads.embed(embedding, ids)))).sum())

    y = heads.embed(embedding, ids)
    d_logits = weights * (1 - np.tanh(heads.linear(head, y)) ** 2)
    d_y, d_head = heads.linear_backward(head, y, d_logits)
    d_embedding = heads.embed_backward(embedding, ids, d_y)
    for array, gradient in (
        (embedding["weight"], d_embedding["weight"]),
        (head["weight"], d_head["weight"]),
        (head["bias"], d_head["bias"]),
    ):
        np.testing.assert_allclose(gradient, numeric(loss, array), atol=GRADIENT_TOLERANCE)
    assert not d_embedding["weight"][3].any()


def test_heads_keep_float32_and_take_empty_batches():
    rng = np.random.default_rng(5)
    embedding, head = heads.init_embedding(rng, 4, 3), heads.init_linear(rng, 3, 5)
    for shape in ((2, 3), (0, 3), (2, 0)):
        ids = np.ones(shape, int)
        y = heads.embed(embedding, ids)
        logits = heads.linear(head, y)
        d_y, d_head = heads.linear_backward(head, y, np.ones_like(logits))
        arrays = (y, logits, d_y, *d_head.values(), *heads.embed_backward(embedding, ids, d_y).values())
        assert {a.dtype for a in arrays} == {np.dtype("float32")} and logits.shape == (*shape, 5)


def test_model_gradients_are_those_of_the_loss():
    layer = MiniLayer("mini", 3, 4, dtype="float64", seed=1)
    model = CharacterModel(layer, 5, 3)
    model.embed, model.head = ({k: v.astype(np.float64) for k, v in part.items()} for part in (model.embed, model.head))
    rng = np.random.default_rng(6)
    ids, labels, state = rng.integers(0, 5, (6, 2)), rng.integers(0, 5, (6, 2)), rng.standard_normal((1, 2, 4))
    _, grads, _ = model.gradients(ids, labels, state)
    for name, array in model.params.items():
        expected = numeric(lambda: model.gradients(ids, labels, state)[0], array)
        np.testing.assert_allclose(grads[name], expected, atol=GRADIENT_TOLERANCE, err_msg=name)


# text


def test_vocabulary_is_made_from_the_training_part_and_has_an_unknown_symbol():
    corpus = make_corpus("abc" * 30 + "abz~abz~ab", "test")
    assert corpus.vocabulary.characters == "\N{REPLACEMENT CHARACTER}abc"
    assert corpus.vocabulary.decode(corpus.held_out) == "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}" * 2 + "ab"
    assert corpus.unknown == 4 and len(corpus.held_out) == 10


def test_encoding_there_and_back():
    text = "Ünïcode \U0001f600 \N{REPLACEMENT CHARACTER} and\ttabs\n"
    vocabulary = Vocabulary.of(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.encode("").shape == (0,)
    assert Vocabulary.of("").encode("ab").tolist() == [0, 0]


def test_streams_go_on_where_the_chunk_before_ended():
    streams = make_streams(np.arange(27), 4)
    assert streams.inputs.shape == (6, 4)
    assert streams.inputs[:, 1].tolist() == [6, 7, 8, 9, 10, 11] and streams.labels[:, 1].tolist() == [7, 8, 9, 10, 11, 12]
    (a, _), (b, _) = streams.chunk(0, 3), streams.chunk(3, 3)
    assert (b[0] == a[-1] + 1).all()
    with pytest.raises(TrainError, match="too few"):
        make_streams(np.arange(4), 4)


def test_unigram_entropy():
    assert unigram_entropy(np.array([0, 1, 2, 3] * 5)) == 2.0
    assert unigram_entropy(np.array([7, 7])) == 0.0 == unigram_entropy(np.array([], int))


def test_read_text_says_what_is_wrong(tmp_path):
    for name, content, message in (
        ("empty", b"", "is empty"),
        ("latin", b"caf\xe9", "not UTF-8: byte 0xe9 at position 3"),
        (".", None, "is a folder"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(TrainError, match=message):
            read_text(tmp_path / name)
    with pytest.raises(TrainError, match="no text file"):
        read_text(tmp_path / "absent")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_text(tmp_path / "bom") == "a\nb"


def test_default_corpus():
    pytest.importorskip("pydoc_data.topics")
    from rnnspec.train import default_text

    corpus = make_corpus(default_text(), "default")
    assert len(corpus.train) > 300_000 and 4 < corpus.unigram_bits < 5


# the loop


def test_bits_of_a_uniform_model():
    run = mini_run()
    run.model.head["weight"][:] = 0
    run.model.head["bias"][:] = 0
    assert run.model.bits(run.corpus.held_out) == pytest.approx(math.log2(len(run.corpus.vocabulary)), rel=1e-5)


def test_held_out_bits_carry_the_state_across_chunks():
    run = mini_run()
    ids = np.tile(run.corpus.train, 1 + EVALUATION_ROWS * 600 // len(run.corpus.train))[: EVALUATION_ROWS * 600 + 1]
    streams = make_streams(ids, EVALUATION_ROWS)
    logits, _ = run.model.logits(streams.inputs)
    expected = cross_entropy(logits, streams.labels)[0] / math.log(2)
    assert run.model.bits(ids) == pytest.approx(expected, rel=1e-5)


def test_training_learns_and_snapshots_come_early():
    run = mini_run(Config("mini", hidden=24, embed=8, steps=260, batch=4, length=16))
    reports = list(train(run))
    snapshots = [r.step for r in reports if r.held_out is not None]
    assert snapshots == [0, 25, 50, 100, 200, 250] and reports[-1].step == 260 and reports[-1].fraction == 1
    first, *_, last = (s["bits"] for s in run.history.snapshots)
    assert last < 0.5 * first and last < run.corpus.unigram_bits
    assert len(run.history.snapshots[-1]["sample"]) == 60


def test_h74_every_chunk_starts_from_the_state_that_the_one_before_left():
    run = mini_run()
    given, left = [], []
    gradients = run.model.gradients

    def watched(ids, labels, state=None):
        loss, grads, after = gradients(ids, labels, state)
        given.append(state)
        left.append(after)
        return loss, grads, after

    run.model.gradients = watched
    list(train(run, lambda: run.step == 5))
    assert given[0] is None and all(a is b for a, b in zip(given[1:], left[:-1], strict=True)) and len(given) == 5


def test_state_is_carried_and_dropped_at_the_end_of_the_text():
    run = mini_run(Config("mini", hidden=4, embed=4, steps=1, batch=8, length=8), TEXT[:600])
    streams = make_streams(run.corpus.train, 8)  # 67 steps: 8 chunks of 8
    seen = []
    for _ in range(20):
        run.state = "carried"
        next_chunk(run, streams)
        seen.append((run.start, run.state))
    assert seen[:8] == [(8 * i, "carried") for i in range(1, 9)]
    start, state = seen[8]
    assert state is None and 8 <= start < 16


def test_learning_rate_is_flat_then_falls():
    assert learning_rate(1.0, 0.0) == learning_rate(1.0, 0.5) == 1.0
    rates = [learning_rate(1.0, 0.5 + i / 20) for i in range(11)]
    assert rates == sorted(rates, reverse=True) and rates[-1] == pytest.approx(0.05)


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(TrainError, match="too short: it has 90 characters to train on, and a batch of 4 times a length of 64 needs 257"):
        mini_run(Config("mini", hidden=4, embed=4, batch=4), TEXT[:100])


def test_a_time_budget_ends_the_run():
    run = mini_run(Config("mini", hidden=4, embed=4, steps=None, seconds=0.2, batch=2, length=4))
    *_, last = train(run)
    assert last.fraction >= 1 and run.step > 0
    with pytest.raises(TrainError, match="steps or of seconds"):
        mini_run(Config("mini", steps=None, batch=2, length=4))


def test_sampling():
    run = mini_run()
    texts = [generate(run.model, run.corpus.vocabulary, 50, temperature=t, seed=s) for t, s in ((1, 0), (1, 0), (1, 1), (0, 0), (0, 1))]
    assert texts[0] == texts[1] != texts[2] and texts[3] == texts[4]
    assert all(len(t) == 50 and "\N{REPLACEMENT CHARACTER}" not in t for t in texts)
    run.model.head["bias"][0] = 1e4
    assert "\N{REPLACEMENT CHARACTER}" not in generate(run.model, run.corpus.vocabulary, 20, temperature=1)
    with pytest.raises(TrainError, match="temperature"):
        generate(run.model, run.corpus.vocabulary, 1, temperature=-1)


# checkpoints


def all_of(run):
    return {**run.model.params, **run.optimiser, "state": run.state, "bits": np.array(run.history.bits)}


@pytest.mark.parametrize("stop_at", [6, 25, 44])
def test_resume_is_bit_for_bit(tmp_path, stop_at):
    config = Config("mini", hidden=12, embed=6, steps=50, batch=16, length=16)  # several rounds of the text: the generator is used
    whole, half, resumed = mini_run(config), mini_run(config), mini_run(config)
    list(train(whole))
    list(train(half, lambda: half.step == stop_at))
    checkpoint.save(tmp_path / "weights.npz", half)
    for array in resumed.model.params.values():
        array += 1
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "weights.npz"))
    list(train(resumed))
    assert (resumed.step, resumed.start) == (whole.step, whole.start)
    expected = all_of(whole)
    for name, array in all_of(resumed).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert [s["sample"] for s in resumed.history.snapshots] == [s["sample"] for s in whole.history.snapshots]


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
        ({"cell": "gru", "digest": "x", "equations": ("h[t] = x[t]",)}, r"gru is not the mini it was trained with: 'h\[t\] = x\[t\]'"),
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


@pytest.mark.parametrize("damage", ["text", "cut", "pickle", "foreign", "format"])
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
            checkpoint.write_atomic(path, lambda file: file.write(b"new"))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

    def fails(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_atomic(path, fails)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# plots and imports


def test_loss_curve(tmp_path):
    pytest.importorskip("matplotlib")
    run = mini_run()
    list(train(run))
    run.history.bits[3] = math.nan
    loss_curve(tmp_path / "loss.png", run.history, run.corpus.unigram_bits, "mini")
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_running_mean_leaves_gaps_out():
    values = np.array([1.0, 3.0, np.nan, 5.0])
    assert running_mean(values, 2).tolist() == [2, 3, 5, 5]
    assert running_mean(values, 3).tolist() == [2, 2, 4, 5]


def test_import_is_light():
    code = "import sys, rnnspec.train; print(sorted({'matplotlib', 'rich', 'numba', 'sympy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# with the real layer

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
    linear.backward(only_last[2:])
    assert np.concatenate([first, second]).ravel().tolist() == [1, 1.5, 1.75, 1.875]
    assert linear.grads["w_l0"] == pytest.approx(2.5)  # 1.0 if the state were reset, 2.75 if the gradient crossed


def test_h75_carried_state_of_another_batch_size(linear):
    _, state = linear.infer(np.ones((2, 4, 1), np.float32))
    with pytest.raises(ValueError, match=r"\(1, 3, 1\).*\(1, 4, 1\)"):
        linear(np.ones((2, 3, 1), np.float32), state)


def test_resume_is_bit_for_bit_with_the_real_layer(tmp_path, linear):
    config = Config("linear", hidden=8, embed=8, steps=12, batch=4, length=8)

    def make():
        import rnnspec

        return mini_run(config, layer=lambda cell, d, h, seed: rnnspec.Recurrent(rnnspec.loads(LINEAR), d, h, seed=seed, threads=1))

    whole, half, resumed = make(), make(), make()
    list(train(whole))
    list(train(half, lambda: half.step == 5))
    checkpoint.save(tmp_path / "w.npz", half)
    checkpoint.restore(resumed, checkpoint.load(tmp_path / "w.npz"))
    list(train(resumed))
    expected = all_of(whole)
    for name, array in all_of(resumed).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
