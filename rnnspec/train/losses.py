"""Softmax cross-entropy and squared errors of many tokens at once, with padding that never counts.

In: logits and integer labels, or values and values. Out: the loss (in nats, or squared units) and
its gradient with respect to the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rnnspec.train.errors import TrainError

IGNORE = -100  # torch's value
Lengths = Sequence[int] | np.ndarray | None


@dataclass(frozen=True)
class Loss:
    """What a task minimises: `kind` "cross_entropy" (targets are labels) or "squared_error"
    (targets are values), reduced as `over` says.

    over: see `REDUCTIONS`. smoothing: of labels, for the cross-entropy only.
    """

    kind: str = "cross_entropy"
    over: str = "mean"
    smoothing: float = 0.0

    def __call__(self, outputs: np.ndarray, targets: np.ndarray, lengths: Lengths = None) -> tuple[float, np.ndarray]:
        """(loss, doutputs): outputs [T, B, C] or [B, C], targets [T, B] or [B], for squared errors
        [..., C]."""
        match self.kind:
            case "cross_entropy":
                return cross_entropy(
                    outputs, targets, lengths=lengths, reduction=self.over, label_smoothing=self.smoothing
                )
            case "squared_error":
                return squared_error(outputs, targets, lengths=lengths, reduction=self.over)
        raise TrainError(f"unknown loss {self.kind!r}: 'cross_entropy' or 'squared_error'")


def cross_entropy(
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    lengths: Lengths = None,
    ignore_index: int = IGNORE,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[float, np.ndarray]:
    """The loss of all tokens and its gradient: (loss, dlogits).

    A token costs  log sum_j exp(z_j) - z_label  nats; its gradient is  softmax(z) - onehot(label).
    With `label_smoothing` e the target is (1 - e) onehot(label) + e / C (Szegedy et al. 2016,
    section 7). A token is valid if its label isn't `ignore_index` and its step is below its row's
    length. Other tokens have a gradient of exactly 0, whatever their logits hold (NaN too). With no
    valid token the loss is 0, not 0/0.

    logits: [T, B, C] (without `lengths`: [..., C]); dlogits has their shape and dtype.
    labels: [T, B] integers.
    lengths: [B] integers, the steps of each row; None: all T.
    reduction: one of `REDUCTIONS`.

    Raises TrainError for other shapes, for a smoothing outside [0, 1], and naming the first valid
    label outside [0, C).
    """
    if not 0 <= label_smoothing <= 1:
        raise TrainError(f"label_smoothing must be between 0 and 1; got {label_smoothing}")
    if labels.shape != logits.shape[:-1]:
        places = list(logits.shape[:-1])
        raise TrainError(
            f"logits have shape {list(logits.shape)} and labels {list(labels.shape)}; one label for each place is"
            f" wanted: {places}"
        )
    valid = within(lengths, labels != ignore_index)
    check_labels(labels, valid, logits.shape[-1])
    losses, d_logits = token_cross_entropy(logits, np.where(valid, labels, 0), label_smoothing)
    return reduced(losses, d_logits, valid, reduction)


def squared_error(
    outputs: np.ndarray, targets: np.ndarray, *, lengths: Lengths = None, reduction: str = "mean"
) -> tuple[float, np.ndarray]:
    """The mean over the last axis of (y - target)**2, reduced over steps and rows, and its
    gradient: (loss, doutputs).

    outputs, targets [T, B, C] (without `lengths`: [..., C]) of one shape and dtype. A place whose
    target is NaN doesn't count, nor does what lies behind a row's length: their gradient is exactly
    0. `reduction` is one of `REDUCTIONS`.
    """
    if outputs.shape != targets.shape:
        raise TrainError(
            f"outputs have shape {list(outputs.shape)} and targets {list(targets.shape)}; they must be equal"
        )
    if outputs.dtype != targets.dtype or outputs.dtype.kind != "f" or not outputs.ndim:
        raise TrainError(
            f"outputs are {outputs.dtype} and targets {targets.dtype}; arrays of one floating-point dtype are wanted"
            " (astype converts)"
        )
    valid = within(lengths, ~np.isnan(targets).any(axis=-1))
    error = outputs - targets
    losses = np.mean(error * error, axis=-1)
    error *= error.dtype.type(2 / max(1, error.shape[-1]))
    return reduced(losses, error, valid, reduction)


def reduced(losses: np.ndarray, gradients: np.ndarray, valid: np.ndarray, reduction: str) -> tuple[float, np.ndarray]:
    """One number from the loss of every token, and its gradient from theirs, in place: losses,
    valid [T, B], gradients [T, B, C]."""
    loss, weights = weighted(losses, valid, reduction)
    gradients *= weights[..., None]
    if not valid.all():
        gradients[~valid] = 0  # set, not multiplied: 0 * NaN is NaN
    return loss, gradients


def weighted(losses: np.ndarray, valid: np.ndarray, reduction: str) -> tuple[float, np.ndarray]:
    """The reduced loss and the weight of each token in it: losses, valid [T, B] (or [B]); weights
    are 0 where not valid."""
    if reduction not in REDUCTIONS:
        raise TrainError(f"unknown reduction {reduction!r}: {', '.join(map(repr, REDUCTIONS))}")
    weights = REDUCTIONS[reduction](valid).astype(losses.dtype)
    return float(np.multiply(losses, weights, dtype=np.float64).sum(where=valid)), weights


def _rows(valid: np.ndarray) -> int:
    """How many rows have a valid token: at least 1."""
    return max(1, int(valid.any(axis=0).sum()) if valid.ndim > 1 else int(valid.sum()))


def _last(valid: np.ndarray) -> np.ndarray:
    """True at the last valid step of each row."""
    if valid.ndim < 2:
        return valid
    later = np.cumsum(valid[::-1], axis=0)[::-1] - valid
    return valid & (later == 0)


REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda valid: valid / max(1, int(valid.sum())),
    "sum": lambda valid: valid.astype(float),
    "steps": lambda valid: valid / _rows(valid),
    "average": lambda valid: valid / np.maximum(1, valid.sum(axis=0)) / _rows(valid),
    "last": lambda valid: _last(valid) / _rows(valid),
}
"""How the losses of valid tokens [T, B] become one number, as the weight of each:

mean: over all valid tokens of the batch. sum: over all of them. steps: summed over the steps of a
row, mean over rows. average: averaged over the steps of each row (1/T of it), mean over rows. last:
at each row's last valid step, mean over rows.
"""


def token_cross_entropy(
    logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Each token's loss and gradient: log sum_j exp(z_j) - z_label, and softmax(z) - onehot(label);
    with smoothing, of the mixed target.

    The largest logit is taken off first, so nothing overflows. logits [..., C], labels [...] in [0,
    C); returns losses [...] and gradients [..., C] in the dtype of the logits.
    """
    classes = logits.shape[-1]
    z = logits.reshape(-1, classes)
    token, label = np.arange(z.shape[0]), labels.reshape(-1)
    z = z - z.max(axis=1, keepdims=True)
    at_label = z[token, label]
    if smoothing:
        at_label = (1 - smoothing) * at_label + smoothing * z.mean(axis=1)
    p = np.exp(z, out=z)
    total = p.sum(axis=1)
    p /= total[:, None]
    p[token, label] -= 1 - smoothing
    if smoothing:
        p -= smoothing / classes
    return (np.log(total) - at_label).reshape(labels.shape), p.reshape(logits.shape)


def token_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The loss of each token as `token_cross_entropy` has it, without the gradient: logits
    [..., C], labels [...]; returns [...]."""
    z = logits - logits.max(axis=-1, keepdims=True)
    at_label = np.take_along_axis(z, labels[..., None], axis=-1)[..., 0]
    return np.log(np.exp(z, out=z).sum(axis=-1)) - at_label


def within(lengths: Lengths, valid: np.ndarray) -> np.ndarray:
    """The places of valid [T, B] that lie in their rows; without lengths all of them, of any
    shape."""
    if lengths is None:
        return valid
    if valid.ndim != 2:
        raise TrainError(f"lengths are of rows of steps, [T, B]; the targets have shape {list(valid.shape)}")
    return valid & length_mask(lengths, *valid.shape)


def length_mask(lengths: Lengths, steps: int, rows: int) -> np.ndarray:
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
        raise TrainError(
            f"label {labels[place]} at {list(place)} is out of range: there are {classes} classes, 0 to {classes - 1}"
        )
