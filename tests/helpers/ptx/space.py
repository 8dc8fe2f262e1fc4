"""The memory of the interpreted machine: bounds, uninitialised reads, and races.

Two accesses race if they touch the same word, one at least writes, and nothing orders them: within
a block a barrier does, between blocks of one launch nothing does. Words are four bytes.
"""

from __future__ import annotations

import numpy as np

from ptx.module import PtxError

BASE = 1 << 40  # of global addresses
RED_ZONE = 256  # bytes between allocations
NOBODY, MANY = -1, -2


class Tracker:
    """Who touched which word last, in one launch. Blocks and threads are numbers; epoch counts a
    block's barriers."""

    def __init__(self, words: int):
        self.writer_block, self.writer, self.write_epoch = (np.full(words, NOBODY) for _ in range(3))
        self.reader_block, self.reader, self.read_epoch = (np.full(words, NOBODY) for _ in range(3))

    def access(
        self, words: np.ndarray, block: np.ndarray, thread: np.ndarray, epoch: np.ndarray, write: bool
    ) -> np.ndarray:
        """Notes accesses, one for each lane; returns which of them race."""

        def apart(other_block: np.ndarray, other: np.ndarray, other_epoch: np.ndarray) -> np.ndarray:
            return (other_block != NOBODY) & ((other_block != block) | ((other_epoch == epoch) & (other != thread)))

        bad = apart(self.writer_block[words], self.writer[words], self.write_epoch[words])
        again = None  # which of the words in order are there twice
        if (words[1:] <= words[:-1]).any():
            order = np.argsort(words, kind="stable")
            again = words[order][1:] == words[order][:-1]
        if write:
            bad |= apart(self.reader_block[words], self.reader[words], self.read_epoch[words])
            if again is not None:
                bad[order[1:]] |= again
            self.writer_block[words], self.writer[words], self.write_epoch[words] = block, thread, epoch
            return bad
        known = self.reader_block[words] != NOBODY
        same_block, same_epoch = self.reader_block[words] == block, self.read_epoch[words] == epoch
        one = np.where(known & same_block & same_epoch & (self.reader[words] != thread), MANY, thread)
        home = np.where(known & ~same_block, MANY, block)
        self.reader[words], self.reader_block[words], self.read_epoch[words] = one, home, epoch
        if again is not None and again.any():
            several, homes = words[order][1:], block[order]
            self.reader[several[again]] = MANY
            self.reader_block[several[again & (homes[1:] != homes[:-1])]] = MANY
        return bad


class Global:
    """The device's memory."""

    def __init__(self, size: int = 1 << 26):
        self.bytes = np.zeros(size, np.uint8)
        self.words = self.bytes.view(np.uint32)
        self.valid, self.written = np.zeros(size // 4, bool), np.zeros(size // 4, bool)
        self.top = RED_ZONE
        self.sizes: dict[int, int] = {}
        self.idle: dict[int, list[int]] = {}

    def allocate(self, count: int) -> int:
        room = -(-count // 256) * 256 + RED_ZONE
        if self.idle.get(room):
            start = self.idle[room].pop()
        else:
            start, self.top = self.top, self.top + room
            if self.top > len(self.bytes):
                raise MemoryError
        self.sizes[start] = count
        self.valid[start // 4 : -(-(start + count) // 4)] = True
        self.written[start // 4 : (start + room) // 4] = False
        return BASE + start

    def free(self, address: int) -> None:
        start = address - BASE
        count = self.sizes.pop(start)
        self.valid[start // 4 : -(-(start + count) // 4)] = False
        self.idle.setdefault(-(-count // 256) * 256 + RED_ZONE, []).append(start)

    def span(self, address: int, count: int) -> np.ndarray:
        """The bytes of a copy."""
        start = address - BASE
        if start < 0 or not self.valid[start // 4 : -(-(start + count) // 4)].all():
            raise PtxError(f"a copy of {count} bytes at {address:#x} leaves its array")
        return self.bytes[start : start + count]

    def write(self, address: int, content: np.ndarray) -> None:
        self.span(address, content.size)[:] = content
        self.written[(address - BASE) // 4 : -(-(address - BASE + content.size) // 4)] = True

    def place(self, addresses: np.ndarray, width: int) -> np.ndarray:
        """The words at some addresses, checked."""
        offset = addresses - np.uint64(BASE)
        words = (offset >> np.uint64(2)).astype(np.int64)
        if (offset % np.uint64(width)).any() or (offset >= np.uint64(self.top)).any():
            raise PtxError("global access outside any array, or not aligned")
        if not self.valid[words].all() or not self.valid[words + (width // 4 - 1)].all():
            raise PtxError("global access outside any array")
        return words
