"""The settings of `compile` and `Kernel.like`, checked."""

from __future__ import annotations

import numpy as np


def whole_threads(threads: int | None) -> int | None:
    """A number of threads as `compile` takes it; None for all processors of this process. Raises
    ValueError for what is no such number."""
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or None for all processors; got {threads!r}.")
    return int(threads)


def known_memory(memory: str) -> str:
    """What `forward` keeps, as `compile` takes it. Raises ValueError for another word."""
    if memory not in ("full", "low"):
        raise ValueError(f"memory must be 'full' or 'low'; got {memory!r}.")
    return memory
