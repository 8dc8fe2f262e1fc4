"""The error of the training part: bad text, bad labels, a run folder that doesn't fit."""

from __future__ import annotations

from rnnspec.errors import RnnspecError


class TrainError(RnnspecError, ValueError):
    """What was asked of the training part can't be done; the message says what to change."""


class Full(TrainError):
    """Results can't be written: the disk is full, or the folder refuses. What was written before is
    whole, and the run goes on from there once there is room."""


class Busy(TrainError):
    """Another process is writing a run into the folder."""


class Diverged(RnnspecError, ArithmeticError):
    """Many steps in a row had gradients that aren't finite; the weights are those of the last good
    step."""
