"""Which line of whose file makes a problem's batches, for what is wrong with one of them.

In: a problem. Out: errors that name the file of a task of one's own; those of rnnspec's tasks are
raised as they are.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rnnspec.errors import RnnspecError
from rnnspec.train.errors import TrainError
from rnnspec.train.problem import TrainingProblem

MAKERS = ("draw", "batch", "next")  # of `Drawn`, of `Stored`, of any problem
OURS = str(Path(__file__).resolve().parents[1])


@contextmanager
def told_of_batch(problem: TrainingProblem) -> Iterator[None]:
    """What a model says of a batch is a TrainError with the line of the function that made it,
    where that stands in a file of the user's. What is raised in that file itself has its line."""
    try:
        yield
    except (RnnspecError, ValueError, TypeError, LookupError) as error:
        made = _maker(problem)
        if made is None:
            raise
        path, line, name = made
        if any(frame.filename == path for frame in traceback.extract_tb(error.__traceback__)):
            raise
        what = str(error) or type(error).__name__
        raise TrainError(f"{path}, line {line}: a batch that `{name}` gives can't be trained on: {what}") from error


def _maker(problem: TrainingProblem) -> tuple[str, int, str] | None:
    """File, line and name of the first function that makes batches and is not ours."""
    for name in MAKERS:
        code = getattr(getattr(type(problem), name, None), "__code__", None)
        if code is not None and not code.co_filename.startswith(OURS):
            return code.co_filename, code.co_firstlineno, name
    return None
