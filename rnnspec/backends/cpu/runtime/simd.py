"""Explicit SIMD: the operations that generated kernels and the runtime are made of.

In: typed pointers, and vectors (vectors.py) of float32 or float64. Out: operations of the front
end (frontend.py). No matrix products (products.py) and no function bodies (vector_math.py).

Why not plain loops: LLVM's vectoriser gives up on the gate arithmetic (possible aliasing,
math.exp), which made an LSTM 1.3 to 2.5 times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from rnnspec.backends.cpu.frontend import operation
from rnnspec.backends.cpu.meeting import meet
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.backends.cpu.runtime.vectors import (
    I1,
    I32,
    I64,
    SCALARS,
    declared_once,
    element,
    element_bytes,
    lanes_below,
    lanes_moved,
    larger_of,
    load_vector,
    spread,
    store_vector,
    vector_at,
    vector_of,
)

# --- pointers and memory


def _pointer_to(kind: ir.Type) -> Any:
    return operation(lambda builder, address: builder.inttoptr(address, kind.as_pointer()))


# an address as a pointer to numbers of a kernel, and to int64, for `get` and `put`
pointer32, pointer64 = _pointer_to(SCALARS["float32"]), _pointer_to(SCALARS["float64"])
pointer_int = _pointer_to(I64)


@operation
def at(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    """The pointer moved by `offset` elements."""
    return builder.gep(pointer, [offset])


@operation
def load(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    """The vector of elements `offset`, `offset` + 1, ..."""
    return load_vector(builder, builder.gep(pointer, [offset]), vector_at(pointer))


@operation
def store(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value, value: ir.Value) -> None:
    """Write a vector to elements `offset`, `offset` + 1, ..."""
    store_vector(builder, value, builder.gep(pointer, [offset]))


@operation
def load_splat(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    """A vector with one element of memory in every lane."""
    return spread(builder, element(builder, pointer, offset), vector_at(pointer).count)


# one element, as a scalar; and of a table of int64
load_one = get = operation(element)


@operation
def store_one(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value, value: ir.Value) -> None:
    """Write one scalar of what the pointer points to."""
    builder.store(value, builder.gep(pointer, [offset]))


put = store_one  # into a table of int64


@operation
def put_all(builder: ir.IRBuilder, pointer: ir.Value, first: ir.Value, *values: ir.Value) -> None:
    """Write int64 values to elements `first`, `first` + 1, ..."""
    for i, value in enumerate(values):
        builder.store(value, builder.gep(pointer, [builder.add(first, I64(i))]))


def _bytes_of(builder: ir.IRBuilder, pointer: ir.Value, count: ir.Value) -> ir.Value:
    kind = pointer.type.pointee
    return builder.mul(count, I64(4 if kind == SCALARS["float32"] else 8))


def _as_bytes(builder: ir.IRBuilder, *pointers: ir.Value) -> list[ir.Value]:
    return [builder.bitcast(pointer, ir.IntType(8).as_pointer()) for pointer in pointers]


@operation
def copy(builder: ir.IRBuilder, dest: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """memcpy of `count` elements."""
    to, origin = _as_bytes(builder, dest, source)
    function = builder.module.declare_intrinsic("llvm.memcpy", [to.type, origin.type, I64])
    builder.call(function, [to, origin, _bytes_of(builder, dest, count), I1(0)])


@operation
def erase(builder: ir.IRBuilder, dest: ir.Value, count: ir.Value) -> None:
    """Set `count` elements to zero."""
    (to,) = _as_bytes(builder, dest)
    function = builder.module.declare_intrinsic("llvm.memset", [to.type, I64])
    builder.call(function, [to, ir.IntType(8)(0), _bytes_of(builder, dest, count), I1(0)])


# --- constants and conversions


def _number(dtype: str) -> Any:
    """A literal in every lane of a vector, rounded once from the float64 that Python read."""

    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        if not isinstance(value, ir.Constant):
            raise NotImplementedError("a number of a vector is a literal")
        return spread(builder, SCALARS[dtype](float(value.constant)), vector_of(dtype).count)

    return operation(emit)


def _from_int(dtype: str) -> Any:
    """An integer (a step number) in every lane of a vector."""
    return operation(
        lambda builder, value: spread(builder, builder.sitofp(value, SCALARS[dtype]), vector_of(dtype).count)
    )


number32, number64 = _number("float32"), _number("float64")
from_int32, from_int64 = _from_int("float32"), _from_int("float64")


# --- lanes


@operation
def select(builder: ir.IRBuilder, where: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """a where the mask is true, b elsewhere. The branch not taken does not matter, NaN included."""
    return builder.select(where, a, b)


@operation
def first_lanes(builder: ir.IRBuilder, n: ir.Value, like: ir.Value) -> ir.Value:
    """The mask of lanes below n, for vectors of the type of `like`."""
    return lanes_below(builder, n, like.type.count)


@operation
def horizontal_sum(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The sum of all lanes, as a scalar; pairwise, so always in the same order."""
    return _folded(builder, value, lambda a, b: builder.fadd(a, b))


@operation
def prefix_sum(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Lane i is the sum of lanes 0 to i."""
    return _scan(builder, value, 1)


@operation
def suffix_sum(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Lane i is the sum of lanes i to the last."""
    return _scan(builder, value, -1)


def _scan(builder: ir.IRBuilder, value: ir.Value, direction: int) -> ir.Value:
    total, by = value, 1
    while by < value.type.count:
        total = builder.fadd(total, lanes_moved(builder, total, direction * by))
        by *= 2
    return total


def _folded(builder: ir.IRBuilder, value: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """All lanes joined, the second half with the first, again and again."""
    total, lanes = value, value.type.count
    while lanes > 1:
        lanes //= 2
        halves = [ir.Constant(ir.VectorType(I32, lanes), list(range(s, s + lanes))) for s in (0, lanes)]
        total = join(*[builder.shuffle_vector(total, total, half) for half in halves])
    return builder.extract_element(total, I32(0))


@operation
def spread_lane(builder: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
    """A vector with one lane of another in every lane."""
    return spread(builder, builder.extract_element(value, builder.trunc(lane, I32)), value.type.count)


@operation
def larger(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger of two, lane by lane; NaN if either is."""
    return larger_of(builder, a, b)


@operation
def horizontal_max(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The largest of all lanes, as a scalar; NaN if any is."""
    return _folded(builder, value, lambda a, b: larger_of(builder, a, b))


@operation
def store_first(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Write the first `count` lanes of a vector, `value` (or all), to elements `offset`, `offset` +
    1, ... of `pointer`."""
    kind = value.type
    lanes = lanes_below(builder, count, kind.count)
    place = builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())
    name = f"llvm.masked.store.v{kind.count}f{8 * element_bytes(kind)}.p0"
    function = declared_once(builder.module, name, ir.VoidType(), [kind, kind.as_pointer(), I32, lanes.type])
    builder.call(function, [value, place, I32(element_bytes(kind)), lanes])


# --- integers


@operation
def min(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller of two integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@operation
def max(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger of two integers."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)


# --- calls


@operation
def invoke(builder: ir.IRBuilder, address: ir.Value, *arguments: ir.Value) -> None:
    """Call the C function `void f(int64, ...)` at an address."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * len(arguments))
    builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


@operation
def wait(builder: ir.IRBuilder, barrier: ir.Value, parts: ir.Value, yielding: ir.Value) -> None:
    """Wait until `parts` threads are here.

    barrier: address of zeros (BARRIER_BYTES in launch/plan.py): how
    many have come, and one and two cache lines on the number of the round and whether somebody
    never will; yielding: address of `void f(void)` that gives the processor away.

    See meeting.py.
    """
    meet(builder, barrier, parts, yielding)


# --- the functions of the language

globals().update({_name: operation(_emit) for _name, _emit in PRIMITIVES.items()})
