"""Losses and heads. Fault numbers are those of the list of known faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from train_parts import GRADIENT_TOLERANCE, MiniLayer, numeric

from rnnspec.train import (
    Batch,
    Loss,
    SequenceModel,
    TrainError,
    cross_entropy,
    heads,
    length_mask,
    softmax,
    squared_error,
)
from rnnspec.train.losses import REDUCTIONS, weighted


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
    mean, weights = weighted(losses, length_mask([2, 1], 2, 2), "mean")
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


@pytest.mark.parametrize(
    "over, expected",
    [("mean", 14 / 6), ("sum", 14), ("steps", 7), ("average", (10 / 4 + 4 / 2) / 2), ("last", (4 + 3) / 2)],
)
def test_cost_rules(over, expected):
    """Row A costs 1, 2, 3, 4, row B 1, 3 and then padding: sources/000 has the last step and the
    sum over steps, sources/001 1/T of it."""
    losses = np.array([[1.0, 1], [2, 3], [3, 99], [4, 99]])
    loss, weights = weighted(losses, length_mask([4, 2], 4, 2), over)
    assert loss == pytest.approx(expected) and (weights[2:, 1] == 0).all()


@pytest.mark.parametrize("over", REDUCTIONS)
def test_gradients_of_every_cost_rule(over):
    rng = np.random.default_rng(3)
    logits, labels, lengths = rng.standard_normal((4, 3, 5)), rng.integers(0, 5, (4, 3)), [4, 2, 0]
    values = rng.standard_normal((4, 3, 5))
    values[1, 0] = np.nan  # a place without a target
    for loss in (
        lambda: cross_entropy(logits, labels, lengths=lengths, reduction=over, label_smoothing=0.2),
        lambda: squared_error(logits, values, lengths=lengths, reduction=over),
    ):
        np.testing.assert_allclose(loss()[1], numeric(lambda loss=loss: loss()[0], logits), atol=GRADIENT_TOLERANCE)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_label_smoothing_is_torchs(smoothing):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    logits, labels = rng.standard_normal((7, 5)), np.array([0, 4, -100, 2, 2, 1, 3])
    z = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(z, torch.tensor(labels), label_smoothing=smoothing)
    expected.backward()
    loss, gradient = cross_entropy(logits, labels, label_smoothing=smoothing)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, z.grad.numpy(), atol=1e-12)
    for wrong in (-0.1, 1.5):
        with pytest.raises(TrainError, match="label_smoothing"):
            cross_entropy(logits, labels, label_smoothing=wrong)


def test_squared_errors_of_other_shapes_are_refused():
    with pytest.raises(TrainError, match=r"outputs have shape \[2, 3, 1\] and targets \[2, 3\]"):
        squared_error(np.zeros((2, 3, 1)), np.zeros((2, 3)))
    with pytest.raises(TrainError, match="unknown loss 'hinge'"):
        Loss("hinge")(np.zeros((1, 2)), np.zeros(1, int))


def test_arrays_that_do_not_belong_together_are_refused():
    logits, labels = np.zeros((4, 3, 5), np.float32), np.zeros((4, 3), int)
    for wrong in (labels.T, labels.reshape(-1), labels[:1], labels[0]):
        with pytest.raises(TrainError, match=r"one label for each place is wanted: \[4, 3\]"):
            cross_entropy(logits, wrong)
    with pytest.raises(TrainError, match="lengths are of rows of steps"):
        cross_entropy(logits[0], labels[0], lengths=[1, 1, 1])
    with pytest.raises(TrainError, match="outputs are float32 and targets float64"):
        squared_error(logits, logits.astype(float))
    with pytest.raises(TrainError, match="floating-point dtype"):
        squared_error(labels, labels)


def test_softmax_does_not_overflow():
    np.testing.assert_allclose(softmax(np.array([[1000.0, 1000.0], [-1000.0, 0.0]])), [[0.5, 0.5], [0, 1]])


# --- heads ---


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
    model = SequenceModel(layer, 5, symbols=5)
    model.embed, model.head = ({k: v.astype(np.float64) for k, v in part.items()} for part in (model.embed, model.head))
    rng = np.random.default_rng(6)
    ids, labels, state = rng.integers(0, 5, (6, 2)), rng.integers(0, 5, (6, 2)), rng.standard_normal((1, 2, 4))
    batch = Batch(ids, labels)
    _, grads, _ = model.gradients(batch, state)
    for name, array in model.params.items():
        expected = numeric(lambda: model.gradients(batch, state)[0], array)
        np.testing.assert_allclose(grads[name], expected, atol=GRADIENT_TOLERANCE, err_msg=name)


def test_model_of_features_maps_them_where_the_layer_wants_another_width():
    layer = MiniLayer("mini", 4, 4, dtype="float64", seed=1)
    model = SequenceModel(layer, 1, features=2, loss=Loss("squared_error", "last"))
    model.map, model.head = ({k: v.astype(np.float64) for k, v in part.items()} for part in (model.map, model.head))
    rng = np.random.default_rng(7)
    batch = Batch(rng.standard_normal((5, 3, 2)), rng.standard_normal((3, 1)))
    _, grads, _ = model.gradients(batch)
    assert {"map.weight", "map.bias"} <= set(grads) == set(model.params)
    for name, array in model.params.items():
        expected = numeric(lambda: model.gradients(batch)[0], array)
        np.testing.assert_allclose(grads[name], expected, atol=GRADIENT_TOLERANCE, err_msg=name)


def test_last_valid_step():
    y = np.arange(24.0).reshape(4, 3, 2)
    assert heads.at_last(y, None).tolist() == y[3].tolist()
    assert heads.at_last(y, np.array([1, 4, 0])).tolist() == [[0, 1], [20, 21], [4, 5]]
    back = heads.at_last_backward(y, np.array([1, 4, 2]), np.ones((3, 2)))
    assert back.sum() == 6 and back[0, 0].all() and back[3, 1].all() and back[1, 2].all()
