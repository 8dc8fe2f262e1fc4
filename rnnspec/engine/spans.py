"""Parts of the rows of a batch that run alone: rows that are read backwards from their last step,
and rows that restart on the way.

A piece is some steps of one row, from `start` on, or back where the direction is reverse. To a
kernel each piece is a row of its own, with a length and with states; only what it reads and writes
lies within the arrays [T, B, ...] of the whole batch, which are read in place: nothing is turned
round, cut or padded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr


@dataclass(frozen=True)
class Pieces:
    """Arrays are [R], one entry for each piece, row by row and in the order in which they run.

    row, start, length: int64, which steps they are: start, start + 1, ... or start, start - 1, ...
    (reverse). fresh: whether a reset comes before it, and not the row's own state. first, last:
    [B], the pieces that a row begins and ends with.
    """

    reverse: bool
    row: Array
    start: Array
    length: Array
    fresh: Array
    first: Array
    last: Array

    __repr__ = brief_repr

    def __len__(self) -> int:
        return len(self.row)

    def check(self, steps: int, rows: int) -> None:
        """Raises ValueError unless every piece lies within [T, B], and no two have a step in
        common: kernels trust what they are told, and would write elsewhere."""
        end = self.start + (self.length - 1) * (-1 if self.reverse else 1)
        taken = self.length > 0
        wrong = (
            (self.length < 0)
            | (self.length > steps)
            | (self.row < 0)
            | (self.row >= rows)
            | (taken & ((np.minimum(self.start, end) < 0) | (np.maximum(self.start, end) >= steps)))
        )
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"piece {i}, {self.length[i]} steps {'back' if self.reverse else 'on'} from step {self.start[i]} of row"
                f" {self.row[i]}, does not lie within {steps} steps and {rows} rows."
            )
        low, high = np.minimum(self.start, end)[taken], np.maximum(self.start, end)[taken]
        order = np.lexsort((low, self.row[taken]))
        row, low, high = self.row[taken][order], low[order], high[order]
        twice = np.flatnonzero((row[1:] == row[:-1]) & (low[1:] <= high[:-1]))
        if twice.size:
            i = int(twice[0]) + 1
            raise ValueError(f"two pieces have step {low[i]} of row {row[i]} in common.")

    def places(self, rows: int) -> Array:
        """The number of each first step in an array [T, B, ...], counted through."""
        return self.start * rows + self.row


def own_pieces(pieces: Pieces) -> Pieces:
    """The pieces in arrays of their own, int64, which nobody else can change. TypeError for what is
    none, ValueError for arrays of another kind or length."""
    if not isinstance(pieces, Pieces):
        raise TypeError(f"pieces are what rnnspec.engine.spans.cut makes; got {type(pieces).__name__}.")
    copies: dict[str, Array] = {}
    for name in ("row", "start", "length", "fresh", "first", "last"):
        array = np.array(getattr(pieces, name))
        kinds, dtype = ("b", np.bool_) if name == "fresh" else ("iu", np.int64)
        if array.ndim != 1 or (array.dtype.kind not in kinds and array.size):
            raise ValueError(
                f"the array '{name}' of pieces holds {'booleans' if name == 'fresh' else 'integers'}, one axis; got"
                f" {array.dtype} of shape {array.shape}."
            )
        copies[name] = array.astype(dtype, copy=False)
    if len({len(copies[name]) for name in ("row", "start", "length", "fresh")}) > 1:
        raise ValueError("the arrays row, start, length and fresh of pieces have an entry for each piece, and differ.")
    return Pieces(bool(pieces.reverse), **copies)


def cut(steps: int, rows: int, lengths: Array | None, resets: Array | None, reverse: bool) -> Pieces:
    """The pieces of a batch: every row up to its length (None: all steps), cut before each step for
    which resets [T, B] is true.

    A row of length 0 is one piece without a step. Resets past a row's end count for nothing. Of a
    reset before the first step nothing is cut; it says that the row does not begin with its own
    state (and, run backwards, nothing).

    steps, rows: T and B. lengths: int64 [B]. resets: booleans [T, B], None where there are none.
    reverse: whether every piece runs from its last step to its first.
    """
    ends = np.full(rows, steps, np.int64) if lengths is None else lengths
    begins = np.zeros((rows, steps + 1), bool)  # one step more, so that a row of no length has a place too
    if resets is not None:
        begins[:, :steps] = resets.T
        begins &= np.arange(steps + 1) < ends[:, None]
    at_start = begins[:, 0].copy()
    begins[:, 0] = True
    row, start = (index.astype(np.int64) for index in np.nonzero(begins))
    first = np.searchsorted(row, np.arange(rows)).astype(np.int64)
    last = np.append(first[1:], len(row)).astype(np.int64)[:rows] - 1
    stop = np.append(start[1:], 0)[: len(start)]
    stop[last] = ends
    fresh = start > 0
    fresh[first] = at_start
    if not reverse:
        return Pieces(False, row, start, stop - start, fresh, first, last)
    fresh[:] = True
    fresh[last] = False
    order = np.lexsort((-start, row))
    return Pieces(True, row[order], np.maximum(stop - 1, 0)[order], (stop - start)[order], fresh[order], first, last)


def gathered(array: Array, pieces: Pieces) -> Array:
    """[T, B, ...] as [L, R, ...], a row for each piece."""
    t, _ = _steps(pieces)
    return array[t, np.broadcast_to(pieces.row, t.shape)]


def scattered(array: Array, pieces: Pieces, shape: tuple[int, ...]) -> Array:
    """[L, R, ...] back to [T, B, ...]; zero where no piece is."""
    t, has = _steps(pieces)
    whole = np.zeros(shape, array.dtype)
    whole[t[has], np.broadcast_to(pieces.row, t.shape)[has]] = array[has]
    return whole


def _steps(pieces: Pieces) -> tuple[Array, Array]:
    """For each step [L, R] of each piece, which step of the batch it is, and whether the piece has
    it."""
    s = np.arange(int(pieces.length.max(initial=0)))[:, None]
    has = s < pieces.length
    return np.where(has, pieces.start - s if pieces.reverse else pieces.start + s, 0), has
