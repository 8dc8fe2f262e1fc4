"""Sequences with targets, as a user of `--task supervised` has them in an `.npz` file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np


def sequences(rows: int = 60, steps: int = 12, features: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """x [N, T, D] and the classes 3 and 7, y [N]: which way the first feature drifts."""
    rng = np.random.default_rng(seed)
    y = rng.choice([3, 7], rows)
    x = 0.3 * rng.standard_normal((rows, steps, features))
    x[..., 0] += np.where(y == 3, -1, 1)[:, None] * np.linspace(0, 1, steps)
    return {"x": x, "y": y}


def write_sequences(path: str | Path, **changed: np.ndarray | None) -> str:
    """Writes `sequences()` with changed or further arrays (None: without one); returns the path."""
    arrays = {name: a for name, a in (sequences() | changed).items() if a is not None}
    np.savez(path, **arrays)
    return str(path)


@cache
def own_sequences() -> str:
    """The path of a file of `sequences()`, one for the whole process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_sequences(Path(folder) / "sequences.npz")
