"""A barrier, in LLVM's terms: threads that share the units of a row meet at it after each stage."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rnnspec.backends.cpu.machine import target

LINES = 3  # of 64 bytes that a barrier has
I64 = ir.IntType(64)


def meet(builder: Any, start: Any, parts: Any, yielding: Any) -> None:
    """Waits until `parts` threads are here.

    start: address of zeros: how many have come, and one and two cache lines on the number of the
    round and whether somebody never will; yielding: address of `void f(void)` that gives the
    processor away.

    It spins, for the others come within a microsecond, but gives way early: they may be waiting for
    this very processor.
    """
    arrived, rounds, off = [builder.inttoptr(builder.add(start, I64(64 * i)), I64.as_pointer()) for i in range(LINES)]
    this_round = builder.load_atomic(rounds, "seq_cst", 8)
    before = builder.atomic_rmw("add", arrived, I64(1), "seq_cst")
    spin, give_way, last, done = [builder.append_basic_block(name) for name in ("spin", "give_way", "last", "done")]
    entry = builder.block
    builder.cbranch(builder.icmp_signed("==", before, builder.sub(parts, I64(1))), last, spin)
    builder.position_at_end(last)
    builder.store_atomic(I64(0), arrived, "seq_cst", 8)
    builder.atomic_rmw("add", rounds, I64(1), "seq_cst")
    builder.branch(done)
    builder.position_at_end(spin)
    spins = builder.phi(I64)
    if target().triple.startswith(("x86", "i386", "i686")):
        name = "llvm.x86.sse2.pause"
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [])
    over = builder.or_(
        builder.icmp_signed("!=", builder.load_atomic(rounds, "seq_cst", 8), this_round),
        builder.icmp_signed("!=", builder.load_atomic(off, "seq_cst", 8), I64(0)),
    )
    following = builder.add(spins, I64(1))
    builder.cbranch(over, done, give_way)
    builder.position_at_end(give_way)
    with builder.if_then(builder.icmp_signed("==", builder.and_(following, I64(127)), I64(0))):
        builder.call(builder.inttoptr(yielding, ir.FunctionType(ir.VoidType(), []).as_pointer()), [])
    spins.add_incoming(I64(0), entry)
    spins.add_incoming(following, builder.block)
    builder.branch(spin)
    builder.position_at_end(done)
