"""The error of the training part: bad text, bad labels, a run folder that doesn't fit."""

from __future__ import annotations

from rnnspec.errors import RnnspecError


class TrainError(RnnspecError, ValueError):
    """What was asked of the training part can't be done; the message says what to change."""


class Diverged(RnnspecError, ArithmeticError):
    """Many steps in a row had gradients that aren't finite; the weights are those of the last good
    step."""
