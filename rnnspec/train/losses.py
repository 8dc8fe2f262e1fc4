"""Softmax cross-entropy of many tokens at once, with padding that never counts.

In: logits and integer labels. Out: the loss in nats and its gradient with respect to the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnspec.train.errors import TrainError

IGNORE = -100  # torch's value


def cross_entropy(
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    lengths: Sequence[int] | np.ndarray | None = None,
    ignore_index: int = IGNORE,
    reduction: str = "mean",
) -> tuple[float, np.ndarray]:
    """The loss of all tokens and its gradient: (loss, dlogits).

    A token costs  log sum_j exp(z_j) - z_label  nats; its gradient is  softmax(z) - onehot(label).
    `reduction` is "mean" over the valid tokens or "sum" over steps and rows. A token is valid if its label isn't
    `ignore_index` and, with `lengths` [B], its step is below its row's length. Other tokens have a gradient of exactly 0,
    whatever their logits hold (NaN too). With no valid token the loss is 0, not 0/0.

    logits [T, B, C] (without `lengths`: [..., C]), labels [T, B] integers; dlogits has the shape and dtype of logits.
    Raises TrainError naming the first valid label outside [0, C).
    """
    valid = labels != ignore_index
    if lengths is not None:
        valid &= length_mask(lengths, labels.shape[0], labels.shape[1])
    check_labels(labels, valid, logits.shape[-1])
    losses, d_logits = token_cross_entropy(logits, np.where(valid, labels, 0))
    match reduction:
        case "mean":
            loss, weights = masked_mean(losses, valid)
        case "sum":
            loss, weights = masked_sum(losses, valid)
        case _:
            raise TrainError(f"unknown reduction {reduction!r}: 'mean' or 'sum'")
    d_logits *= weights[..., None]
    if not valid.all():
        d_logits[~valid] = 0  # set, not multiplied: 0 * NaN is NaN
    return loss, d_logits


def token_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each token's loss and gradient: log sum_j exp(z_j) - z_label, and softmax(z) - onehot(label).

    The largest logit is taken off first, so nothing overflows. logits [..., C], labels [...] in [0, C);
    returns losses [...] and gradients [..., C] in the dtype of the logits.
    """
    classes = logits.shape[-1]
    z = logits.reshape(-1, classes)
    token, label = np.arange(z.shape[0]), labels.reshape(-1)
    z = z - z.max(axis=1, keepdims=True)
    at_label = z[token, label]
    p = np.exp(z, out=z)
    total = p.sum(axis=1)
    p /= total[:, None]
    p[token, label] -= 1
    return (np.log(total) - at_label).reshape(labels.shape), p.reshape(logits.shape)


def token_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """As `token_cross_entropy`, without the gradient: logits [..., C], labels [...]; returns [...]."""
    z = logits - logits.max(axis=-1, keepdims=True)
    at_label = np.take_along_axis(z, labels[..., None], axis=-1)[..., 0]
    return np.log(np.exp(z, out=z).sum(axis=-1)) - at_label


def masked_sum(losses: np.ndarray, valid: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum of the valid losses, and its gradient (1 or exactly 0): losses [T, B], valid [T, B] bool."""
    return float(losses.sum(where=valid, dtype=np.float64)), valid.astype(losses.dtype)


def masked_mean(losses: np.ndarray, valid: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean over the valid tokens only, and its gradient (1/count or exactly 0): losses [T, B], valid [T, B] bool."""
    total, weights = masked_sum(losses, valid)
    count = max(1, int(valid.sum()))
    return total / count, weights / losses.dtype.type(count)


def length_mask(lengths: Sequence[int] | np.ndarray, steps: int, rows: int) -> np.ndarray:
    """valid[t, b] = t < lengths[b]: bool [T, B]."""
    given = np.asarray(lengths)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise TrainError(f"lengths must be {rows} integers, one a row; got shape {given.shape}, dtype {given.dtype}")
    for row in np.flatnonzero((given < 0) | (given > steps))[:1]:
        raise TrainError(f"lengths[{row}] is {given[row]}; it must be between 0 and {steps}, the number of steps")
    return np.arange(steps)[:, None] < given


def check_labels(labels: np.ndarray, valid: np.ndarray, classes: int) -> None:
    """Raises TrainError unless every valid label is an integer in [0, C)."""
    if labels.dtype.kind not in "iu":
        raise TrainError(f"labels must be integers; got dtype {labels.dtype}")
    wrong = np.argwhere(valid & ((labels < 0) | (labels >= classes)))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise TrainError(f"label {labels[place]} at {list(place)} is out of range: there are {classes} classes, 0 to {classes - 1}")
