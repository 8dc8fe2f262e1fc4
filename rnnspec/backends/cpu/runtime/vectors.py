"""Vectors for Numba: types of vector and mask values, how LLVM holds them, what operators do to
them, and the pieces of LLVM's code that the operations of simd.py and the tiles are put together
from.

A vector fills one register of the machine as Numba sees it (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
included). Loads and stores assume no more alignment than one element's.

Arithmetic carries no fast-math flag: what is written is what is computed. With `nsz` x + 0 would
be x, with `contract` x * y - x * y the rounding error of one product, with `reassoc` a row's bits
could depend on its place in a loop that LLVM unrolls. `multiply_add` is there for sums of products.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, register_model

from rnnspec.backends.cpu.machine import target

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
SCALARS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}


class VecType(types.Type):
    """A vector of numbers that fills one register."""

    def __init__(self, dtype: types.Float):
        self.dtype, self.lanes = dtype, target().lanes[dtype.name]
        super().__init__(name=f"Vec({dtype.name} x {self.lanes})")


class MaskType(types.Type):
    """One truth value for each lane of Vec(dtype)."""

    def __init__(self, dtype: types.Float):
        self.dtype, self.lanes = dtype, target().lanes[dtype.name]
        super().__init__(name=f"Mask({dtype.name} x {self.lanes})")


def vec(dtype: types.Float) -> VecType:
    return VecType(dtype)


def mask(dtype: types.Float) -> MaskType:
    return MaskType(dtype)


def vector_of(dtype: types.Float) -> ir.VectorType:
    return ir.VectorType(SCALARS[dtype.name], target().lanes[dtype.name])


@register_model(VecType)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: VecType):
        super().__init__(dmm, fe_type, vector_of(fe_type.dtype))


@register_model(MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: MaskType):
        super().__init__(dmm, fe_type, ir.VectorType(I1, fe_type.lanes))


# --- operators


def _operator(op: Callable, cls: Any, arity: int, result: Callable, emit: Callable) -> None:
    """Give `op` the meaning `emit(builder, *values)` on `arity` operands of one type of class
    `cls`."""

    @infer_global(op)
    class _Typing(AbstractTemplate):
        def generic(self, args: tuple[Any, ...], kws: dict) -> Any:
            if len(args) == arity and isinstance(args[0], cls) and all(a == args[0] for a in args):
                return signature(result(args[0].dtype), *args)

    @lower_builtin(op, *[cls] * arity)
    def _lower(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        return emit(builder, *args)


for _op, _name in [(operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")]:
    _operator(_op, VecType, 2, vec, lambda builder, a, b, name=_name: getattr(builder, name)(a, b))
_operator(operator.neg, VecType, 1, vec, lambda builder, a: builder.fneg(a))
for _op, _sign in [
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
]:
    _operator(_op, VecType, 2, mask, lambda builder, a, b, sign=_sign: builder.fcmp_ordered(sign, a, b))
_operator(operator.ne, VecType, 2, mask, lambda builder, a, b: builder.fcmp_unordered("!=", a, b))
_operator(operator.and_, MaskType, 2, mask, lambda builder, a, b: builder.and_(a, b))
_operator(operator.or_, MaskType, 2, mask, lambda builder, a, b: builder.or_(a, b))
_operator(operator.invert, MaskType, 1, mask, lambda builder, a: builder.not_(a))


# --- code of LLVM's


def multiply_add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once where the machine can."""
    vector = a.type
    name = f"llvm.fmuladd.v{vector.count}f{8 * element_bytes(vector)}"
    return builder.call(
        cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name), [a, b, c]
    )


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


# --- intrinsics of both dtypes


def number_of(dtype: types.Float, value: types.Type) -> tuple:
    """A literal arrives as an LLVM constant and leaves as one, rounded once from the float64 that
    Python read."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        scalar = SCALARS[dtype.name]
        if isinstance(args[0], ir.Constant):
            return spread(builder, scalar(args[0].constant), sig.return_type.lanes)
        return spread(
            builder, builder.fptrunc(args[0], scalar) if dtype == types.float32 else args[0], sig.return_type.lanes
        )

    return vec(dtype)(types.float64), codegen


def from_int_of(dtype: types.Float) -> tuple:
    """The signature and code of an integer in every lane of a vector."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        return spread(builder, builder.sitofp(args[0], SCALARS[dtype.name]), sig.return_type.lanes)

    return vec(dtype)(types.int64), codegen


def scan_of(value: VecType, direction: int) -> tuple:
    """The signature and code of sums along the lanes: from the first (1) or the last (-1)."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> ir.Value:
        total, by = args[0], 1
        while by < value.lanes:
            total = builder.fadd(total, lanes_moved(builder, total, direction * by))
            by *= 2
        return total

    return value(value), codegen
