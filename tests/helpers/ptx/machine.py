"""Runs a kernel's PTX, all threads of the grid at once: NumPy over lanes, those at one place in the
program together, in random order.

Blocks run ahead of one another at random, and within a block threads between two barriers. What
would not be the same on every run of a GPU is found and reported: races in shared and in global
memory, reads of what nobody wrote, accesses outside arrays, barriers that not all threads reach.
Blocks of a cooperative launch may wait for each other (grid.py). Not modelled: the GPU's memory
model, its approximate functions bit for bit, and its speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ptx.grid import GridTracker, Order
from ptx.module import Module, PtxError
from ptx.operations import compile_instruction
from ptx.space import Global, Tracker

MOST_REPORTS = 20
AHEAD = 60  # basic blocks that some blocks of threads run ahead, at most
IN_VAIN = 100_000  # rounds in which all that runs looks whether others have come


@dataclass
class Report:
    """What was found in one launch; `races` tell the space, the instruction and the word."""

    kernel: str
    races: list[str] = field(default_factory=list)
    uninitialised: list[str] = field(default_factory=list)
    instructions: int = 0

    @property
    def clean(self) -> bool:
        return not self.races and not self.uninitialised


class Machine:
    """One launch. arguments: one number of eight bytes for each parameter; together: it is a
    cooperative one."""

    def __init__(
        self,
        module: Module,
        memory: Global,
        blocks: int,
        threads: int,
        shared: int,
        arguments: list[int],
        seed: int,
        constants: dict[str, int],
        together: bool = False,
    ):
        if threads > module.threads:
            raise PtxError("a block larger than the launch bounds")
        if len(arguments) != len(module.parameters):
            raise PtxError(f"{len(arguments)} arguments for {len(module.parameters)} parameters")
        self.module, self.memory, self.blocks, self.threads = module, memory, blocks, threads
        self.n = blocks * threads
        self.thread = np.tile(np.arange(threads), blocks)
        self.block = np.repeat(np.arange(blocks), threads)
        self.epoch = np.zeros(blocks, np.int64)
        self.parameters = {name: np.uint64(value) for (_, name), value in zip(module.parameters, arguments)}
        self.constants = constants
        self.shared_bytes = shared
        self.shared = np.zeros((blocks, -(-shared // 4) + 4), np.uint32)
        self.shared_written = np.zeros(self.shared.shape, bool)
        self.shared_tracker = Tracker(self.shared.size)
        self.order = Order(self.block, blocks, memory.top // 4) if together else None
        self.tracker = Tracker(memory.top // 4) if self.order is None else GridTracker(memory.top // 4, self.order)
        self.local = np.zeros((self.n, max(1, module.local_bytes)), np.uint8)
        self.registers: dict[str, np.ndarray] = {}
        self.special = self._special(threads, blocks, shared)
        self.report = Report(module.entry)
        self.in_vain = 0
        self.random = np.random.default_rng(seed)
        self.current = ""

    def _special(self, threads: int, blocks: int, shared: int) -> dict[str, np.ndarray]:
        found = {
            "%tid.x": self.thread,
            "%ctaid.x": self.block,
            "%ntid.x": np.full(self.n, threads),
            "%nctaid.x": np.full(self.n, blocks),
            "%dynamic_smem_size": np.full(self.n, shared),
        }
        return {name: values.astype(np.uint32) for name, values in found.items()}

    def run(self, most: int = 10**8) -> Report:
        """To the end of all threads."""
        steps = [compile_instruction(self, instruction) for instruction in self.module.instructions]
        count, starts = len(steps), sorted({0, *self.module.labels.values()})
        stop = np.full(count + 1, count)
        for i in range(count - 1, -1, -1):
            stop[i] = i + 1 if i + 1 in starts else stop[i + 1]
        self.pc, (self.done, self.waiting, self.polling) = np.zeros(self.n, np.int64), np.zeros((3, self.n), bool)
        chosen, left = np.ones(self.blocks, bool), 0
        with np.errstate(all="ignore"):
            while not self.done.all():
                ready = ~self.done & ~self.waiting & ~self.polling
                left -= 1
                if left <= 0:
                    chosen, left = self.random.random(self.blocks) < 0.5, int(self.random.integers(1, AHEAD))
                some = ready & chosen[self.block]
                if (
                    not some.any()
                    and (self.order is not None or not ready.any())
                    and (self._release() or not ready.any())
                ):
                    continue
                self._advance(steps, stop, some if some.any() else ready)
                if self.report.instructions > most:
                    raise PtxError("no end")
        return self.report

    def _advance(self, steps: list[Callable], stop: np.ndarray, ready: np.ndarray) -> None:
        """One basic block for the threads at one place of those that are ready, or some of them."""
        places = np.unique(self.pc[ready])
        at = int(places[0] if self.random.random() > 0.25 else self.random.choice(places))
        lanes = np.nonzero(ready & (self.pc == at))[0]
        if self.random.random() < 0.05 and len(lanes) > 1:
            lanes = (
                lanes[self.random.random(len(lanes)) < 0.5] if self.random.random() < 0.5 else lanes[: len(lanes) // 2]
            )
            if not len(lanes):
                return
        where = slice(None) if len(lanes) == self.n else lanes
        end = int(stop[at])
        while at < end:
            self.report.instructions += 1
            at += 1
            self.pc[where] = at
            if steps[at - 1](where):  # it branched, waits, or is done
                return
        if at >= len(steps):
            self.done[where] = True

    def _release(self) -> bool:
        """Lets the blocks go on all of whose threads wait; where nothing else can, those that look
        whether others have come."""
        released = False
        stopped = (self.waiting | self.done).reshape(self.blocks, self.threads).all(1)
        for b in np.nonzero(stopped)[0].tolist():
            own = slice(b * self.threads, (b + 1) * self.threads)
            if not self.waiting[own].any():
                continue
            if self.done[own].any():
                raise PtxError("a barrier after some threads of the block have ended")
            if len(np.unique(self.pc[own])) > 1:
                raise PtxError("threads of one block wait at different barriers")
            self.waiting[own] = False
            self.epoch[b] += 1
            if self.order is not None:
                self.order.barrier(b, range(own.start, own.stop))
            released = True
        if not released and not (~self.done & ~self.waiting & ~self.polling).any():
            self.in_vain += 1
            if not self.polling.any() or self.in_vain > IN_VAIN:
                raise PtxError("a deadlock")
            self.polling[:] = False
        return released

    # --- memory ---

    def load(
        self,
        space: str,
        address: np.ndarray,
        dtype: type,
        where: slice | np.ndarray,
        used: bool = True,
        strong: bool = False,
    ) -> np.ndarray:
        """strong: not from the cache of a processor."""
        width = np.dtype(dtype).itemsize
        if space == "local":
            return self._local(address, width, where).view(dtype).reshape(-1)
        words, table, written, tracker = self._space(space, address, width, where)
        if isinstance(tracker, GridTracker) and self._polled(tracker, words, where, strong):
            return self.memory.bytes.view(np.uint64)[words // 2].view(dtype)
        for extra in range(width // 4):
            self._note(space, tracker, words + extra, where, False)
            if used and not written[words + extra].all():
                _report(self.report.uninitialised, f"{space}: {self.current}")
        if width == 4:
            return table[words].view(dtype)
        return (table[words].astype(np.uint64) | (table[words + 1].astype(np.uint64) << np.uint64(32))).view(dtype)

    def _polled(self, tracker: GridTracker, words: np.ndarray, where: slice | np.ndarray, strong: bool) -> bool:
        """Whether this reads counters; such a read orders, and does not race."""
        counter = tracker.order.counters[words]
        if strong and counter.all():
            lanes = np.arange(self.n)[where]
            for word, lane in zip(words.tolist(), lanes.tolist()):
                tracker.order.read(word, lane)
            self.polling[lanes] = True
            return True
        if not strong and (counter | tracker.elsewhere(words, self.block[where])).any():
            _report(self.report.races, f"another block's, through the cache: {self.current}")
        return False

    def add(self, address: np.ndarray, value: np.ndarray, where: slice | np.ndarray) -> None:
        """Adds to words of eight bytes, each in one piece."""
        if self.order is None:
            raise PtxError("blocks of an ordinary launch may not wait for each other")
        words = self.memory.place(address, 8)
        if not self.memory.written[words].all():
            _report(self.report.uninitialised, f"global: {self.current}")
        if (self.tracker.writer_block[words] >= 0).any():
            _report(self.report.races, f"global: {self.current}")
        np.add.at(self.memory.bytes.view(np.uint64), words // 2, value)
        for word, lane in zip(words.tolist(), np.arange(self.n)[where].tolist()):
            self.order.add(word, lane, self.epoch)
        self.polling[:] = False

    def fence(self, where: slice | np.ndarray) -> None:
        if self.order is not None:
            self.order.fence(np.arange(self.n)[where], self.epoch)

    def store(self, space: str, address: np.ndarray, value: np.ndarray, where: slice | np.ndarray) -> None:
        width = value.dtype.itemsize
        if space == "local":
            rows = np.arange(self.n)[where]
            self.local[rows[:, None], address.astype(np.int64)[:, None] + np.arange(width)] = (
                np.ascontiguousarray(value).view(np.uint8).reshape(-1, width)
            )
            return
        words, table, written, tracker = self._space(space, address, width, where)
        parts = np.ascontiguousarray(value).view(np.uint32).reshape(-1, width // 4)
        for extra in range(width // 4):
            self._note(space, tracker, words + extra, where, True)
            if isinstance(tracker, GridTracker) and tracker.order.counters[words + extra].any():
                _report(self.report.races, f"{space}: {self.current}")
            table[words + extra] = parts[:, extra]
            written[words + extra] = True

    def _local(self, address: np.ndarray, width: int, where: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(self.n)[where]
        return np.ascontiguousarray(self.local[rows[:, None], address.astype(np.int64)[:, None] + np.arange(width)])

    def _space(
        self, space: str, address: np.ndarray, width: int, where: slice | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, Tracker]:
        if space != "shared":
            return self.memory.place(address, width), self.memory.words, self.memory.written, self.tracker
        if (address % np.uint64(width)).any() or (address + np.uint64(width) > np.uint64(self.shared_bytes)).any():
            raise PtxError(f"shared access outside its {self.shared_bytes} bytes, or not aligned: {self.current}")
        words = (address >> np.uint64(2)).astype(np.int64) + self.block[where] * self.shared.shape[1]
        return words, self.shared.reshape(-1), self.shared_written.reshape(-1), self.shared_tracker

    def _note(self, space: str, tracker: Tracker, words: np.ndarray, where: slice | np.ndarray, write: bool) -> None:
        block = self.block[where]
        if tracker.access(words, block, self.thread[where], self.epoch[block], write).any():
            _report(self.report.races, f"{space}: {self.current}")


def _report(found: list[str], text: str) -> None:
    if len(found) < MOST_REPORTS and text not in found:
        found.append(text)
