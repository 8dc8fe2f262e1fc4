"""The error of studies."""

from __future__ import annotations

from rnnspec.errors import RnnspecError


class StudyError(RnnspecError, ValueError):
    """A study can't be run, or not go on; the message says what to change."""


class StorageLost(StudyError):
    """What keeps the trials can't be read or written; the study goes on from where it was once it
    can."""
