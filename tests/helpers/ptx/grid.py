"""Blocks that wait for each other: what orders their accesses to global memory, in a cooperative
launch.

A thread releases what its block did before the block's last barrier by a fence and then an atomic
addition; another acquires it by reading that word and then a fence, and has it for its whole block
at the block's next barrier. That is how the kernels do it, and less than the GPU's memory model
allows: what is not found ordered here may still be. Epochs count a block's barriers.
"""

from __future__ import annotations

import numpy as np

from ptx.space import MANY, NOBODY, Tracker


class Order:
    """known[a, b]: the last epoch of block b that lies before what block a does now."""

    def __init__(self, block: np.ndarray, blocks: int, words: int):
        self.block = block  # of each lane
        self.known = np.full((blocks, blocks), NOBODY)
        self.fenced = np.full(len(block), NOBODY)  # the epoch of each lane's last fence
        self.seen: dict[int, np.ndarray] = {}  # by lane: what it has read, but no fence has followed
        self.acquired: dict[int, np.ndarray] = {}  # by lane: what its block knows from its next barrier on
        self.released: dict[int, np.ndarray] = {}  # by word
        self.counters = np.zeros(words, bool)  # the words that are added to

    def fence(self, lanes: np.ndarray, epoch: np.ndarray) -> None:
        self.fenced[lanes] = epoch[self.block[lanes]]
        for lane in self.seen.keys() & set(lanes.tolist()):
            found = self.seen.pop(lane)
            self.acquired[lane] = np.maximum(self.acquired.get(lane, found), found)

    def add(self, word: int, lane: int, epoch: np.ndarray) -> None:
        """Lane adds to a word. Without a fence before, it orders nothing."""
        block = self.block[lane]
        self.counters[word] = True
        before = self.released.setdefault(word, np.full(len(self.known), NOBODY))
        if self.fenced[lane] == epoch[block]:
            known = np.maximum(self.known[block], self.acquired.get(lane, self.known[block]))
            known[block] = epoch[block] - 1
            self.released[word] = np.maximum(before, known)

    def read(self, word: int, lane: int) -> None:
        found = self.released[word]
        self.seen[lane] = np.maximum(self.seen.get(lane, found), found)

    def barrier(self, block: int, lanes: range) -> None:
        """All lanes of a block have come to a barrier."""
        for lane in [lane for lane in self.acquired if lane in lanes]:
            self.known[block] = np.maximum(self.known[block], self.acquired.pop(lane))


class GridTracker(Tracker):
    """As Tracker, with what an Order says lies before. Every block's last read of a word is kept,
    as epoch + 1."""

    def __init__(self, words: int, order: Order):
        super().__init__(words)
        self.order = order
        self.reads, self.threads = (np.zeros((len(order.known), words), np.int32) for _ in range(2))

    def access(
        self, words: np.ndarray, block: np.ndarray, thread: np.ndarray, epoch: np.ndarray, write: bool
    ) -> np.ndarray:
        known, other = self.order.known, self.writer_block[words]
        here = (self.write_epoch[words] == epoch) & (self.writer[words] != thread)
        bad = (other != NOBODY) & np.where(other == block, here, known[block, other] < self.write_epoch[words])
        order = np.argsort(words, kind="stable")
        again = words[order][1:] == words[order][:-1]
        mine = self.reads[block, words] == epoch + 1
        if write:
            bad |= mine & (self.threads[block, words] != thread)
            last = self.reads[:, words] - 1
            elsewhere = np.arange(len(known))[:, None] != block
            bad |= (elsewhere & (last > known[block].T)).any(0)
            bad[order[1:]] |= again
            self.writer_block[words], self.writer[words], self.write_epoch[words] = block, thread, epoch
            return bad
        self.threads[block, words] = np.where(mine & (self.threads[block, words] != thread), MANY, thread)
        self.reads[block, words] = epoch + 1
        if again.any():
            several = np.isin(words, words[order][1:][again])
            self.threads[block[several], words[several]] = MANY
        return bad

    def elsewhere(self, words: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Whether another block wrote a word last."""
        return (self.writer_block[words] != NOBODY) & (self.writer_block[words] != block)
