"""Memory that calls use again: scratch, packed weights, tapes.

Fresh memory costs a page fault every 4 KB, which is a third of the time of a training step of a small LSTM.
"""
from __future__ import annotations

import os
import threading
import weakref

import numpy as np

Array = np.ndarray
KEPT_BYTES = 1 << 30  # what may lie idle; beyond that memory goes back to the system
LINE = 64
STAGGER = 3 * LINE  # between neighbouring buffers, so that equal offsets in them do not meet in one cache set


class Arena:
    """One allocation that holds many buffers: `add` gives each its offset in bytes."""

    def __init__(self) -> None:
        self.size = LINE

    def add(self, count: int, item: int) -> int:
        offset = self.size
        self.size += -(-count * item // LINE) * LINE + STAGGER
        return offset


class Memory:
    """Bytes from the pool; `start` is the first address, at a cache line. They go back when this object dies."""

    __slots__ = ("__weakref__", "bytes", "start")

    def __init__(self, size: int):
        self.bytes = _POOL.take(size + LINE)
        self.start = -(-address(self.bytes) // LINE) * LINE
        weakref.finalize(self, _POOL.give, self.bytes).atexit = False

    def view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """An array over part of the memory, valid as long as this object lives."""
        begin = self.start + offset - address(self.bytes)
        return np.ndarray(shape, dtype, self.bytes, begin)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


class _Pool:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: list[Array] = []
        self.kept = 0

    def take(self, size: int) -> Array:
        """The smallest idle piece that is large enough, or a new one."""
        with self.lock:
            fitting = [i for i, piece in enumerate(self.idle) if size <= piece.size <= 2 * size + (1 << 16)]
            if fitting:
                piece = self.idle.pop(min(fitting, key=lambda i: self.idle[i].size))
                self.kept -= piece.size
                return piece
        return np.empty(size, dtype=np.uint8)

    def give(self, piece: Array) -> None:
        if not self.lock.acquire(blocking=False):  # run by the garbage collector, maybe inside `take` itself
            return
        try:
            if piece.size <= KEPT_BYTES:
                self.idle.append(piece)
                self.kept += piece.size
            while self.kept > KEPT_BYTES or len(self.idle) > 64:
                self.kept -= self.idle.pop(0).size
        finally:
            self.lock.release()


_POOL = _Pool()


def _start_again() -> None:
    """In the child of a fork: whoever held the lock is not here to release it."""
    global _POOL
    _POOL = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
