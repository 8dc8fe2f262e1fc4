"""The two kernels that `costs` times: work on registers alone, and meetings at a barrier."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

FIELDS = ("rounds", "barrier", "parts", "yielding")  # of a table, int64
CHAINS = 12  # multiply-adds that wait for nothing but their own last one
NAMES = ("work", "meetings")


class Trials(NamedTuple):
    """work(table): rounds of `flops` operations; meetings(table): rounds of a barrier."""

    work: Callable[[int], None]
    meetings: Callable[[int], None]
    flops: int


@cache
def trials() -> Trials:
    from rnnspec.backends.cpu.machine import host
    from rnnspec.backends.cpu.native import addresses

    found = [ctypes.CFUNCTYPE(None, ctypes.c_int64)(at) for at in addresses("trials", "trials 1", NAMES, _make)]
    return Trials(found[0], found[1], 2 * CHAINS * host().register_bytes // 4)


def _make() -> bytes:
    from llvmlite import ir

    from rnnspec.backends.cpu.machine import object_file

    module = ir.Module("trials")
    for name, write in zip(NAMES, (_work, _meetings)):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        write(ir.Function(module, kind, name))
    return object_file([str(module)], NAMES)


def _fields(builder: Any, table: Any) -> list[Any]:
    from llvmlite import ir

    i64 = ir.IntType(64)
    places = [builder.add(table, i64(8 * i)) for i in range(len(FIELDS))]
    return [builder.load(builder.inttoptr(place, i64.as_pointer())) for place in places]


def _rounds(function: Any, values: Sequence[Any], step: Callable[..., Sequence[Any]]) -> tuple[Any, Sequence[Any]]:
    """A loop of as many rounds as the table says, its values handed on by step(builder, fields,
    values); the builder behind it, and what they are then."""
    from llvmlite import ir

    i64 = ir.IntType(64)
    entry, look, loop, end = (function.append_basic_block(n) for n in ("entry", "look", "loop", "end"))
    builder = ir.IRBuilder(entry)
    fields = _fields(builder, function.args[0])
    builder.branch(look)
    builder.position_at_end(look)
    handed = [builder.phi(value.type) for value in (i64(0), *values)]
    builder.cbranch(builder.icmp_signed("<", handed[0], fields[0]), loop, end)
    builder.position_at_end(loop)
    following = [builder.add(handed[0], i64(1)), *step(builder, fields, handed[1:])]
    for phi, before, after in zip(handed, (i64(0), *values), following):
        phi.add_incoming(before, entry)
        phi.add_incoming(after, builder.block)
    builder.branch(look)
    builder.position_at_end(end)
    return builder, handed[1:]


def _work(function: Any) -> None:
    from llvmlite import ir

    from rnnspec.backends.cpu.machine import target

    count = target().register_bytes // 4
    vector = ir.VectorType(ir.FloatType(), count)
    kind = ir.FunctionType(vector, [vector] * 3)
    multiply_add = ir.Function(function.module, kind, f"llvm.fmuladd.v{count}f32")
    half = ir.Constant(vector, [0.5] * count)
    starts = [ir.Constant(vector, [float(i)] * count) for i in range(CHAINS)]
    builder, sums = _rounds(
        function, starts, lambda b, fields, values: [b.call(multiply_add, [v, half, half]) for v in values]
    )
    total = sums[0]
    for value in sums[1:]:
        total = builder.fadd(total, value)
    first = builder.extract_element(total, ir.IntType(32)(0))
    # never so, which the compiler does not know: it would leave out sums that nothing reads
    with builder.if_then(builder.fcmp_ordered("<", first, ir.Constant(ir.FloatType(), -1.0))):
        builder.store(ir.IntType(64)(0), builder.inttoptr(function.args[0], ir.IntType(64).as_pointer()))
    builder.ret_void()


def _meetings(function: Any) -> None:
    from rnnspec.backends.cpu.meeting import meet

    def step(builder: Any, fields: Sequence[Any], _: Sequence[Any]) -> Sequence[Any]:
        meet(builder, *fields[1:])
        return []

    builder, _ = _rounds(function, [], step)
    builder.ret_void()
