"""Memory that calls use again: scratch, packed weights, tapes.

Fresh memory costs a page fault every 4 KB, which is a third of the time of a training step of a
small LSTM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy import ndarray as Array

LINE = 64
STAGGER = 3 * LINE  # between neighbouring buffers, so that equal offsets in them do not meet in one cache set


def padded(width: int, lanes: int) -> int:
    """Width in whole vectors, one at least."""
    return max(1, -(-width // lanes)) * lanes


SMALL = 1 << 16  # bytes of a piece, of which so many as may lie idle are not worth counting
MOST_SIZES = 256  # of pieces that are known


class Arena:
    """One allocation that holds many buffers: `add` gives each its offset in bytes."""

    def __init__(self) -> None:
        self.size = LINE

    def add(self, count: int, item: int) -> int:
        offset = self.size
        self.size += -(-count * item // LINE) * LINE + STAGGER
        return offset


_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address(array: Array) -> int:
    """Where the first element lies. The buffer protocol tells it in a fifth of the time, for what
    is writable and contiguous."""
    try:
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return int(array.__array_interface__["data"][0])


class Pool:
    """Pieces of memory that nobody uses, by identity. Without a lock, for `give` is run by the
    garbage collector, at any point and in any thread, and an interrupt there must not leave one
    taken: single operations on a dict are atomic.

    most_bytes, most_pieces: what may lie idle; beyond that the oldest go back to the system. last:
    by size, which piece was given last: most calls ask for what the one before gave.
    """

    def __init__(self, most_bytes: int = 1 << 30, most_pieces: int = 64) -> None:
        self.most_bytes, self.most_pieces = most_bytes, most_pieces
        self.idle: dict[int, Array] = {}
        self.last: dict[int, int] = {}

    def take(self, size: int) -> Array:
        """The smallest idle piece that is large enough and not much too large, or a new one."""
        piece = self.idle.pop(self.last.get(size, 0), None)
        if piece is not None:
            if piece.size == size:
                return piece
            self.give(piece)  # another one's, at the place of one that is gone
        while True:
            fitting = [
                (piece.size, key)
                for key, piece in list(self.idle.items())
                if size <= piece.size <= 2 * size + (1 << 16)
            ]
            if not fitting:
                return np.empty(size, dtype=np.uint8)
            piece = self.idle.pop(min(fitting)[1], None)
            if piece is not None:  # None: another thread was faster
                return piece

    def give(self, piece: Array) -> None:
        """Takes a piece back."""
        key = id(piece)
        self.idle[key] = piece
        if len(self.last) > MOST_SIZES:
            self.last.clear()
        self.last[piece.size] = key
        if piece.size <= SMALL and len(self.idle) <= self.most_pieces:
            return
        waiting = list(self.idle.items())
        idle = sum(p.size for _, p in waiting)
        for key, oldest in waiting:
            if idle <= self.most_bytes and len(waiting) <= self.most_pieces:
                break
            if self.idle.pop(key, None) is not None:
                idle -= oldest.size
            waiting = waiting[1:]


POOL = Pool()  # the process's


class Memory:
    """Bytes from the pool; `start` is the first address, at a cache line. They go back when this
    object dies."""

    __slots__ = ("__weakref__", "bytes", "lent", "offset", "size", "start")

    def __init__(self, size: int, given: Array | None = None):
        """given: somebody else's contiguous bytes, [size] uint8, that are read in place, or copied
        where they don't start at a cache line."""
        self.size, self.lent = size, False
        if given is None or address(given) % LINE:
            self.bytes, self.lent = POOL.take(size + LINE), True
        else:
            self.bytes = given
        self.offset = -address(self.bytes) % LINE
        self.start = address(self.bytes) + self.offset
        if given is not None and self.bytes is not given:
            self.view(0, (size,), given.dtype)[:] = given

    def __del__(self, give: Callable[[Array], None] = POOL.give) -> None:  # held here: globals may go before this does
        if self.lent:
            give(self.bytes)

    def view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """An array over part of the memory, valid as long as this object lives."""
        return np.ndarray(shape, dtype, self.bytes, self.offset + offset)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """np.asarray(memory) has all of it as uint8, and holds this object as long as itself
        lives."""
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.start, False)}
