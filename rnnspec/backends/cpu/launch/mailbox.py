"""Handing work to a thread that is still awake, without the GIL and in less than a microsecond.

After a job a worker lingers: it watches its mailbox for a millisecond before it goes back to sleep,
from which the system takes some 50 microseconds to wake it. A mailbox is three int64: a state, the
address of a kernel and of its table.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

CLOSED, OPEN, POSTED, DONE, TAKEN = range(5)  # TAKEN: somebody is writing the address and the table
WORDS = 8  # a cache line
SPINS = 20_000  # some 50 nanoseconds each
WAITING, ACCEPTED, FINISHED = range(3)  # of the word that `post` and `finish` write to
FUNCTIONS = ("linger", "post", "finish")


@cache
def functions() -> tuple[Callable[..., Any], ...]:
    """linger(box, spins, yielding), for the worker, until nothing came for so long; post(box,
    kernel, table, word): the int64 at `word` becomes ACCEPTED if the worker will call
    kernel(table); finish(box, yielding, word): waits until it has, and makes it FINISHED.
    """
    from rnnspec.backends.cpu.native import addresses

    counts = (3, 4, 3)
    return tuple(
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * n)(at)
        for n, at in zip(counts, addresses("mailbox", "mailbox 2", FUNCTIONS, _make))
    )


def _make() -> bytes:
    from llvmlite import ir

    from rnnspec.backends.cpu.machine import object_file

    module = ir.Module("mailbox")
    for write, count in ((_linger, 3), (_post, 4), (_finish, 3)):
        i64 = ir.IntType(64)
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64] * count), write.__name__[1:])
        write(_Writer(ir.IRBuilder(function.append_basic_block("entry"))), *function.args)
    return object_file([str(module)], FUNCTIONS)


class _Writer:
    """What the three functions are made of."""

    def __init__(self, builder: Any):
        from llvmlite import ir

        self.builder, self.ir, self.i64 = builder, ir, ir.IntType(64)

    def word(self, box: Any, index: int) -> Any:
        return self.builder.inttoptr(self.builder.add(box, self.i64(8 * index)), self.i64.as_pointer())

    def state(self, box: Any) -> Any:
        return self.builder.load_atomic(self.word(box, 0), "seq_cst", 8)

    def set_state(self, box: Any, state: int) -> None:
        self.builder.store_atomic(self.i64(state), self.word(box, 0), "seq_cst", 8)

    def exchange(self, box: Any, old: int, new: int) -> Any:
        """Whether the state was `old` and is `new` now."""
        pair = self.builder.cmpxchg(self.word(box, 0), self.i64(old), self.i64(new), "seq_cst", "seq_cst")
        return self.builder.extract_value(pair, 1)

    def call(self, address: Any, *arguments: Any) -> None:
        kind = self.ir.FunctionType(self.ir.VoidType(), [self.i64] * len(arguments))
        self.builder.call(self.builder.inttoptr(address, kind.as_pointer()), list(arguments))

    def rest(self, spins: Any, yielding: Any) -> None:
        """A moment for the processor, and now and then for other threads."""
        from llvmlite.binding import get_process_triple

        if get_process_triple().startswith(("x86", "i386", "i686")):
            name = "llvm.x86.sse2.pause"
            pause = self.builder.module.globals.get(name) or self.ir.Function(
                self.builder.module, self.ir.FunctionType(self.ir.VoidType(), []), name
            )
            self.builder.call(pause, [])
        with self.builder.if_then(
            self.builder.icmp_signed("==", self.builder.and_(spins, self.i64(127)), self.i64(127))
        ):
            self.call(yielding)

    def blocks(self, *names: str) -> list[Any]:
        return [self.builder.append_basic_block(name) for name in names]


def _linger(w: _Writer, box: Any, spins: Any, yielding: Any) -> None:
    builder, entry = w.builder, w.builder.block
    look, work, idle, leave, end = w.blocks("look", "work", "idle", "leave", "end")
    w.set_state(box, OPEN)
    builder.branch(look)
    builder.position_at_end(look)
    count = builder.phi(w.i64)
    builder.cbranch(builder.icmp_signed("==", w.state(box), w.i64(POSTED)), work, idle)
    builder.position_at_end(work)
    w.call(builder.load(w.word(box, 1)), builder.load(w.word(box, 2)))
    w.set_state(box, DONE)
    builder.branch(look)
    builder.position_at_end(idle)
    w.rest(count, yielding)
    following, waited = builder.add(count, w.i64(1)), builder.block
    builder.cbranch(builder.icmp_signed("<", following, spins), look, leave)
    builder.position_at_end(leave)
    builder.cbranch(w.exchange(box, OPEN, CLOSED), end, look)
    for value, block in ((w.i64(0), entry), (w.i64(0), work), (following, waited), (w.i64(0), leave)):
        count.add_incoming(value, block)
    builder.position_at_end(end)
    builder.ret_void()


def _post(w: _Writer, box: Any, kernel: Any, table: Any, accepted: Any) -> None:
    builder = w.builder
    with builder.if_then(w.exchange(box, OPEN, TAKEN)):
        builder.store(kernel, w.word(box, 1))
        builder.store(table, w.word(box, 2))
        w.set_state(box, POSTED)
        builder.store(w.i64(ACCEPTED), w.word(accepted, 0))
    builder.ret_void()


def _finish(w: _Writer, box: Any, yielding: Any, accepted: Any) -> None:
    builder, entry = w.builder, w.builder.block
    look, idle, end = w.blocks("look", "idle", "end")
    builder.branch(look)
    builder.position_at_end(look)
    count = builder.phi(w.i64)
    builder.cbranch(builder.icmp_signed("==", w.state(box), w.i64(DONE)), end, idle)
    builder.position_at_end(idle)
    w.rest(count, yielding)
    following = builder.add(count, w.i64(1))
    count.add_incoming(w.i64(0), entry)
    count.add_incoming(following, builder.block)
    builder.branch(look)
    builder.position_at_end(end)
    builder.store(w.i64(FINISHED), w.word(accepted, 0))
    w.set_state(box, OPEN)
    builder.ret_void()
