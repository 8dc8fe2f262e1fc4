"""Vectors: how LLVM holds them, and the pieces of its code that the operations of simd.py and the
tiles are put together from.

A vector fills one register of the machine that code is made for (machine.py). Loads and stores
assume no more alignment than one element's.

Arithmetic carries no fast-math flag: what is written is what is computed. With `nsz` x + 0 would
be x, with `contract` x * y - x * y the rounding error of one product, with `reassoc` a row's bits
could depend on its place in a loop that LLVM unrolls. `multiply_add` is there for sums of products.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from rnnspec.backends.cpu.machine import target

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
SCALARS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}


def vector_of(dtype: str) -> ir.VectorType:
    """The vector of "float32" or "float64"."""
    return ir.VectorType(SCALARS[dtype], target().lanes[dtype])


def vector_at(pointer: ir.Value) -> ir.VectorType:
    """The vector of what a pointer points to."""
    return vector_of("float32" if pointer.type.pointee == SCALARS["float32"] else "float64")


# --- code of LLVM's


def multiply_add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once where the machine can."""
    vector = a.type
    name = f"llvm.fmuladd.v{vector.count}f{8 * element_bytes(vector)}"
    return builder.call(declared_once(builder.module, name, vector, [vector] * 3), [a, b, c])


def element_bytes(vector: ir.VectorType) -> int:
    return 4 if vector.element == SCALARS["float32"] else 8


def element(builder: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    return builder.load(builder.gep(pointer, [offset]))


def load_vector(builder: ir.IRBuilder, pointer: ir.Value, vector: ir.VectorType) -> ir.Value:
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=element_bytes(vector))


def store_vector(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value) -> None:
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=element_bytes(value.type))


def spread(builder: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector with `scalar` in every lane."""
    vector = ir.VectorType(scalar.type, lanes)
    if isinstance(scalar, ir.Constant):
        return ir.Constant(vector, [scalar.constant] * lanes)
    undefined, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(builder.insert_element(undefined, scalar, I32(0)), undefined, zeros)


def lanes_below(builder: ir.IRBuilder, n: ir.Value, lanes: int) -> ir.Value:
    """True in the first n of so many lanes."""
    return builder.icmp_signed(
        "<", ir.Constant(ir.VectorType(I64, lanes), list(range(lanes))), spread(builder, n, lanes)
    )


def lanes_moved(builder: ir.IRBuilder, value: ir.Value, by: int) -> ir.Value:
    """Lane i is lane i - by of the value, or 0 where there is none."""
    lanes = value.type.count
    sources = [i - by if 0 <= i - by < lanes else lanes for i in range(lanes)]
    return builder.shuffle_vector(
        value, ir.Constant(value.type, [0.0] * lanes), ir.Constant(ir.VectorType(I32, lanes), sources)
    )


def larger_of(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    keep = builder.or_(builder.fcmp_ordered(">=", a, b), builder.fcmp_unordered("!=", a, a))
    return builder.select(keep, a, b)


# --- what other functions of a module, and data of it, are


def declared_once(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """A function of a module, declared when first asked for."""
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def table_of_bytes(module: ir.Module, name: str, numbers: Sequence[int]) -> ir.GlobalVariable:
    """Numbers below 256 as data of a module, there once."""
    kind = ir.ArrayType(ir.IntType(8), len(numbers))
    found = module.globals.get(name)
    if found is None:
        found = ir.GlobalVariable(module, kind, name)
        found.global_constant, found.linkage = True, "internal"
        found.initializer = ir.Constant(kind, list(numbers))
    return found
