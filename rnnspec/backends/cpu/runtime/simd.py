"""Explicit SIMD for Numba: the operations that generated kernels and the runtime are made of.

In: typed pointers, and vectors (vectors.py) of float32 or float64. Out: intrinsics, which cost a
kernel's compilation next to nothing. No matrix products (products.py) and no function bodies
(vector_math.py).

Why not plain loops: LLVM's vectoriser gives up on the gate arithmetic (possible aliasing,
math.exp), which made an LSTM 1.3 to 2.5 times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rnnspec.backends.cpu.meeting import meet
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.backends.cpu.runtime.vectors import (
    I32,
    I64,
    element,
    element_bytes,
    from_int_of,
    larger_of,
    load_vector,
    mask,
    number_of,
    scan_of,
    spread,
    store_vector,
    vec,
    vector_of,
)

# --- pointers and memory


def _pointer_to(dtype: types.Type) -> Callable:
    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return lambda address: (types.CPointer(dtype)(types.int64), codegen)


@intrinsic
def pointer32(tc, address):
    """Address as a pointer to float32."""
    return _pointer_to(types.float32)(address)


@intrinsic
def pointer64(tc, address):
    """Address as a pointer to float64."""
    return _pointer_to(types.float64)(address)


@intrinsic
def pointer_int(tc, address):
    """Address as a pointer to int64, for `get` and `put`."""
    return _pointer_to(types.int64)(address)


@intrinsic
def at(tc, pointer, offset):
    """The pointer moved by `offset` elements."""
    return pointer(pointer, types.int64), lambda context, builder, sig, args: builder.gep(args[0], [args[1]])


@intrinsic
def load(tc, pointer, offset):
    """The vector of elements `offset`, `offset` + 1, ..."""

    def codegen(context, builder, sig, args):
        return load_vector(builder, builder.gep(args[0], [args[1]]), vector_of(sig.args[0].dtype))

    return vec(pointer.dtype)(pointer, types.int64), codegen


@intrinsic
def store(tc, pointer, offset, value):
    """Write a vector to elements `offset`, `offset` + 1, ..."""

    def codegen(context, builder, sig, args):
        store_vector(builder, args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vec(pointer.dtype)), codegen


@intrinsic
def load_splat(tc, pointer, offset):
    """A vector with one element of memory in every lane."""

    def codegen(context, builder, sig, args):
        return spread(builder, element(builder, *args), sig.return_type.lanes)

    return vec(pointer.dtype)(pointer, types.int64), codegen


@intrinsic
def load_one(tc, pointer, offset):
    """One element, as a scalar."""
    return pointer.dtype(pointer, types.int64), lambda context, builder, sig, args: element(builder, *args)


get = load_one  # of a table of int64


@intrinsic
def store_one(tc, pointer, offset, value):
    """Write one scalar of the pointer's dtype."""

    def codegen(context, builder, sig, args):
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pointer.dtype), codegen


put = store_one  # into a table of int64


@intrinsic
def put_all(tc, pointer, first, *values):
    """Write int64 values to elements `first`, `first` + 1, ..."""

    def codegen(context, builder, sig, args):
        for i, value in enumerate(cgutils.unpack_tuple(builder, args[2])):
            builder.store(value, builder.gep(args[0], [builder.add(args[1], I64(i))]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, types.StarArgTuple([types.int64] * len(values))), codegen


@intrinsic
def copy(tc, dest, source, count):
    """memcpy of `count` elements."""

    def codegen(context, builder, sig, args):
        cgutils.raw_memcpy(builder, args[0], args[1], args[2], context.get_abi_sizeof(args[0].type.pointee))
        return context.get_dummy_value()

    return types.void(dest, source, types.int64), codegen


@intrinsic
def erase(tc, dest, count):
    """Set `count` elements to zero."""

    def codegen(context, builder, sig, args):
        cgutils.memset(builder, args[0], builder.mul(args[1], I64(context.get_abi_sizeof(args[0].type.pointee))), 0)
        return context.get_dummy_value()

    return types.void(dest, types.int64), codegen


# --- constants and conversions


@intrinsic
def number32(tc, value):
    """A literal in every lane of a float32 vector."""
    return number_of(types.float32, value)


@intrinsic
def number64(tc, value):
    """A literal in every lane of a float64 vector."""
    return number_of(types.float64, value)


@intrinsic
def from_int32(tc, value):
    """An integer (a step number) in every lane of a float32 vector."""
    return from_int_of(types.float32)


@intrinsic
def from_int64(tc, value):
    """An integer (a step number) in every lane of a float64 vector."""
    return from_int_of(types.float64)


# --- lanes


@intrinsic
def select(tc, where, a, b):
    """a where the mask is true, b elsewhere. The branch not taken does not matter, NaN included."""
    return a(mask(a.dtype), a, a), lambda context, builder, sig, args: builder.select(*args)


@intrinsic
def first_lanes(tc, n, like):
    """The mask of lanes below n, for vectors of the type of `like`."""

    def codegen(context, builder, sig, args):
        lanes = sig.return_type.lanes
        return builder.icmp_signed(
            "<", ir.Constant(ir.VectorType(I64, lanes), list(range(lanes))), spread(builder, args[0], lanes)
        )

    return mask(like.dtype)(types.int64, like), codegen


@intrinsic
def horizontal_sum(tc, value):
    """The sum of all lanes, as a scalar; pairwise, so always in the same order."""

    def codegen(context, builder, sig, args):
        total, lanes = args[0], value.lanes
        while lanes > 1:
            lanes //= 2
            halves = [ir.Constant(ir.VectorType(I32, lanes), list(range(s, s + lanes))) for s in (0, lanes)]
            total = builder.fadd(*[builder.shuffle_vector(total, total, half) for half in halves])
        return builder.extract_element(total, I32(0))

    return value.dtype(value), codegen


@intrinsic
def prefix_sum(tc, value):
    """Lane i is the sum of lanes 0 to i."""
    return scan_of(value, 1)


@intrinsic
def suffix_sum(tc, value):
    """Lane i is the sum of lanes i to the last."""
    return scan_of(value, -1)


@intrinsic
def spread_lane(tc, value, lane):
    """A vector with one lane of another in every lane."""

    def codegen(context, builder, sig, args):
        return spread(builder, builder.extract_element(args[0], builder.trunc(args[1], I32)), value.lanes)

    return value(value, types.int64), codegen


@intrinsic
def larger(tc, a, b):
    """The larger of two, lane by lane; NaN if either is."""
    return a(a, a), lambda context, builder, sig, args: larger_of(builder, *args)


@intrinsic
def horizontal_max(tc, value):
    """The largest of all lanes, as a scalar; NaN if any is."""

    def codegen(context, builder, sig, args):
        top, lanes = args[0], value.lanes
        while lanes > 1:
            lanes //= 2
            halves = [ir.Constant(ir.VectorType(I32, lanes), list(range(s, s + lanes))) for s in (0, lanes)]
            top = larger_of(builder, *[builder.shuffle_vector(top, top, half) for half in halves])
        return builder.extract_element(top, I32(0))

    return value.dtype(value), codegen


@intrinsic
def store_first(tc, pointer, offset, value, count):
    """Write the first `count` lanes of a vector, `value` (or all), to elements `offset`, `offset` +
    1, ... of `pointer`."""

    def codegen(context, builder, sig, args):
        pointer, offset, vector, count = args
        kind = vector.type
        lanes = builder.icmp_signed(
            "<",
            ir.Constant(ir.VectorType(I64, kind.count), list(range(kind.count))),
            spread(builder, count, kind.count),
        )
        place = builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())
        name = f"llvm.masked.store.v{kind.count}f{8 * element_bytes(kind)}.p0"
        arguments = [kind, kind.as_pointer(), I32, lanes.type]
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), arguments), name)
        builder.call(function, [vector, place, I32(element_bytes(kind)), lanes])
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vec(pointer.dtype), types.int64), codegen


# --- integers


@intrinsic
def min(tc, a, b):
    """The smaller of two integers: Python's own would make Numba compile a function for it."""
    return types.int64(types.int64, types.int64), lambda context, builder, sig, args: builder.select(
        builder.icmp_signed("<", *args), *args
    )


@intrinsic
def max(tc, a, b):
    """The larger of two integers."""
    return types.int64(types.int64, types.int64), lambda context, builder, sig, args: builder.select(
        builder.icmp_signed(">", *args), *args
    )


# --- calls


@intrinsic
def invoke(tc, address, *arguments):
    """Call the C function `void f(int64, ...)` at an address."""

    def codegen(context, builder, sig, args):
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(ir.VoidType(), [I64] * len(values))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.int64, types.StarArgTuple([types.int64] * len(arguments))), codegen


@intrinsic
def wait(tc, barrier, parts, yielding):
    """Wait until `parts` threads are here.

    barrier: address of zeros (BARRIER_BYTES in launch/plan.py): how
    many have come, and one and two cache lines on the number of the round and whether somebody
    never will; yielding: address of `void f(void)` that gives the processor away.

    See meeting.py.
    """

    def codegen(context, builder, sig, args):
        meet(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


# --- the functions of the language


def _primitive(name: str, emit: Callable) -> Callable:
    def function(tc, value):
        return value(value), lambda context, builder, sig, args: emit(builder, args[0])

    function.__name__, function.__doc__ = name, f"{name} of every lane."
    return intrinsic(function)


globals().update({_name: _primitive(_name, _emit) for _name, _emit in PRIMITIVES.items()})
