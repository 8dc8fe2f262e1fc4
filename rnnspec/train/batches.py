"""Sequences to batches: padding, bucketing by length, and an order that follows from the seed and
the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.train.errors import TrainError

Cursor = dict[str, int]
"""Where a run stands in its data: with the seed it tells every batch to come, so that it is all a
checkpoint must keep of them."""

WINDOW = 50  # batches: rows are sorted by length within so many, and those batches are shuffled again


@dataclass(frozen=True)
class Batch:
    """What one step reads. `lengths` [B] is None where every row takes all steps."""

    x: np.ndarray  # ids [T, B], or features [T, B, D]
    target: np.ndarray  # labels [T, B] or [B], or values [T, B, C] or [B, C]
    lengths: np.ndarray | None = None
    given: np.ndarray | None = None  # ids [M, B] that a decoder reads, for tasks with one; `target` is then [M, B]
    carried: bool = False  # the rows go on where those of the batch before ended: the state is carried over
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # the cell's other ones, [T, B, ...] by name

    __repr__ = brief_repr

    @property
    def tokens(self) -> int:
        """Valid steps."""
        rows = self.x.shape[1]
        return self.x.shape[0] * rows if self.lengths is None else int(np.sum(self.lengths))


@dataclass(frozen=True)
class Shuffled:
    """Row numbers 0 .. len(lengths) - 1 in batches of `size`, in another order every epoch; the
    last batch may be smaller.

    Rows of similar length come together: each window of 50 batches of a random order is sorted by
    length, and its batches are shuffled. The order of epoch e is a function of (seed, e).
    """

    lengths: np.ndarray
    size: int
    seed: int
    _kept: dict[int, list[np.ndarray]] = field(default_factory=dict, repr=False)

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TrainError(f"a batch has at least one row; got a size of {self.size}")
        if np.ndim(self.lengths) != 1 or not np.size(self.lengths):
            raise TrainError(f"lengths are those of one row or more, [N]; got shape {list(np.shape(self.lengths))}")
        object.__setattr__(self, "lengths", np.asarray(self.lengths))

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.lengths) // self.size)

    def epoch(self, number: int) -> list[np.ndarray]:
        """The row numbers of every batch of an epoch."""
        if number not in self._kept:
            self._kept.clear()
            rng = np.random.default_rng([self.seed, 3, number])
            order = rng.permutation(len(self.lengths))
            batches: list[np.ndarray] = []
            for start in range(0, len(order), WINDOW * self.size):
                window = order[start : start + WINDOW * self.size]
                window = window[np.argsort(self.lengths[window], kind="stable")]
                batches += [window[i : i + self.size] for i in range(0, len(window), self.size)]
            self._kept[number] = [batches[i] for i in rng.permutation(len(batches))]
        return self._kept[number]

    def next(self, cursor: Cursor) -> tuple[np.ndarray, Cursor]:
        """The rows of the next batch, and where to go on; {} is the start."""
        epoch, index = cursor.get("epoch", 0), cursor.get("index", 0)
        after = {"epoch": epoch, "index": index + 1} if index + 1 < len(self) else {"epoch": epoch + 1, "index": 0}
        return self.epoch(epoch)[index], after


def made(cursor: Cursor, seed: int) -> tuple[np.random.Generator, Cursor]:
    """For data that is drawn, not stored: the generator of the next batch, and where to go on."""
    number = cursor.get("batch", 0)
    return np.random.default_rng([seed, 4, number]), {"batch": number + 1}


def padded(rows: Sequence[np.ndarray], value: float = 0) -> tuple[np.ndarray, np.ndarray | None]:
    """Arrays [T_b, ...] side by side: [T, B, ...] with T the longest (at least 1), and lengths [B],
    None if all are T.

    TrainError if there are none, or if they are not of one dtype and of the same shape but for T_b.
    """
    kinds = list(dict.fromkeys((row.dtype, row.shape[1:]) for row in map(np.asarray, rows)))
    if len(kinds) != 1:
        found = " and ".join(
            f"{dtype} [T, {', '.join(map(str, shape))}]" if shape else f"{dtype} [T]" for dtype, shape in kinds[:2]
        )
        raise TrainError(f"rows of one kind can be put side by side; got {found or 'none'}")
    ((dtype, shape),) = kinds
    lengths = np.array([len(row) for row in rows])
    steps = max(1, int(lengths.max(initial=0)))
    whole = np.full((steps, len(rows), *shape), value, dtype)
    for b, row in enumerate(rows):
        whole[: len(row), b] = row
    return whole, None if (lengths == steps).all() else lengths


def in_order(count: int, size: int, lengths: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Row numbers in batches for an evaluation: by length where `lengths` is given, which wastes no
    padding."""
    order = np.arange(count) if lengths is None else np.argsort(lengths, kind="stable")
    for start in range(0, count, size):
        yield order[start : start + size]


def split(count: int, held_out: float, seed: int, name: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and held out, at random by the seed: TrainError if one of them would
    be empty, or `held_out` isn't between 0 and 1.

    name: of the file."""
    if not 0 < held_out < 1:
        raise TrainError(f"the part that is held out must be between 0 and 1; got {held_out:g}")
    order = np.random.default_rng([seed, 5]).permutation(count)
    cut = count - round(count * held_out)
    if not 0 < cut < count:
        parts = f"{held_out:g} of them held out leaves {cut} to train on and {count - cut} to test on"
        raise TrainError(f"{name or 'the data'}: {count} rows can't be split: {parts}")
    return np.sort(order[:cut]), np.sort(order[cut:])
