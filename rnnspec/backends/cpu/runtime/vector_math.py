"""The ten primitive functions of the language (backends/primitives.py) as LLVM IR on vectors of
float or double, any number of lanes.

In: a builder and a vector value. Out: a vector value of the same type. Nothing here knows Numba;
`PRIMITIVES` is all that others use. The lane count is the caller's choice, the target (AVX-512,
AVX2, NEON, plain SSE2) is LLVM's. Every multiply-add is `llvm.fmuladd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from llvmlite import ir

from rnnspec.backends.polynomials import FORMATS, Format
from rnnspec.backends.primitives import FUNCTIONS

Operand: TypeAlias = "Vector | float"
FLOATS = {32: ir.FloatType(), 64: ir.DoubleType()}


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector value of LLVM with the operators of mathematics; a number beside it stands for a
    vector of that number.

    Comparisons give a vector of bits for `select`; `bits()` gives whole numbers, with << >> & | ^
    and `plus`.
    """

    builder: ir.IRBuilder
    value: ir.Value

    @property
    def format(self) -> Format:
        return FORMATS[self.value.type.element.intrinsic_name]

    def like(self, number: float) -> Vector:
        kind = self.value.type
        return self._new(ir.Constant(kind, [number] * kind.count))

    def _new(self, value: ir.Value) -> Vector:
        return Vector(self.builder, value)

    def _lift(self, other: Operand) -> ir.Value:
        return other.value if isinstance(other, Vector) else self.like(other).value

    def _call(self, name: str, *args: Operand) -> Vector:
        kind = self.value.type
        return self._new(
            call_intrinsic(self.builder, f"{name}.v{kind.count}", kind, [self.value, *map(self._lift, args)])
        )

    def __add__(self, other: Operand) -> Vector:
        return self._new(self.builder.fadd(self.value, self._lift(other)))

    def __sub__(self, other: Operand) -> Vector:
        return self._new(self.builder.fsub(self.value, self._lift(other)))

    def __mul__(self, other: Operand) -> Vector:
        return self._new(self.builder.fmul(self.value, self._lift(other)))

    def __truediv__(self, other: Operand) -> Vector:
        return self._new(self.builder.fdiv(self.value, self._lift(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Vector:
        return self.like(other) - self

    def __neg__(self) -> Vector:
        return self._new(self.builder.fneg(self.value))

    def __abs__(self) -> Vector:
        return self._call("fabs")

    def fma(self, factor: Operand, term: Operand) -> Vector:
        """self * factor + term"""
        return self._call("fmuladd", factor, term)

    def sqrt(self) -> Vector:
        return self._call("sqrt")

    def copysign(self, sign: Vector) -> Vector:
        return self._call("copysign", sign)

    def __lt__(self, other: Operand) -> Vector:
        return self._new(self.builder.fcmp_ordered("<", self.value, self._lift(other)))

    def __gt__(self, other: Operand) -> Vector:
        return self._new(self.builder.fcmp_ordered(">", self.value, self._lift(other)))

    def equals(self, other: Operand) -> Vector:
        integer = isinstance(self.value.type.element, ir.IntType)
        compare = self.builder.icmp_unsigned if integer else self.builder.fcmp_ordered
        return self._new(compare("==", self.value, self._lift(other)))

    def select(self, yes: Operand, no: Vector) -> Vector:
        """`yes` where this comparison holds, `no` elsewhere"""
        return self._new(self.builder.select(self.value, no._lift(yes), no.value))

    def at_least(self, low: float) -> Vector:
        return (self.like(low) > self).select(low, self)  # this way round NaN stays, and it is one maxps on x86

    def at_most(self, high: float) -> Vector:
        return (self.like(high) < self).select(high, self)

    def bits(self) -> Vector:
        return self._new(self.builder.bitcast(self.value, ir.VectorType(self.format.bits, self.value.type.count)))

    def as_float(self) -> Vector:
        return self._new(
            self.builder.bitcast(
                self.value, ir.VectorType(FLOATS[self.value.type.element.width], self.value.type.count)
            )
        )

    def plus(self, other: Operand) -> Vector:
        return self._new(self.builder.add(self.value, self._lift(other)))

    def __lshift__(self, count: int) -> Vector:
        return self._new(self.builder.shl(self.value, self._lift(count)))

    def __rshift__(self, count: int) -> Vector:
        return self._new(self.builder.lshr(self.value, self._lift(count)))

    def __and__(self, other: Operand) -> Vector:
        return self._new(self.builder.and_(self.value, self._lift(other)))

    def __or__(self, other: Operand) -> Vector:
        return self._new(self.builder.or_(self.value, self._lift(other)))

    def __xor__(self, other: Operand) -> Vector:
        return self._new(self.builder.xor(self.value, self._lift(other)))

    def polynomial(self, coefficients: Sequence[float]) -> Vector:
        """Horner's scheme, lowest power first"""
        result = self.like(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = result.fma(self, c)
        return result

    def beyond(self, name: str, limit: float, near: Vector) -> Vector:
        """`near`, but the C library's function, lane by lane, where |x| is finite and above the
        limit."""
        builder, kind, size = self.builder, self.value.type, abs(self)
        far = builder.and_((size > limit).value, (size < math.inf).value)
        lanes = ir.IntType(kind.count)
        any_far = builder.icmp_unsigned("!=", builder.bitcast(far, lanes), lanes(0))
        start = builder.block
        with builder.if_then(any_far, likely=False):
            result = near.value
            for lane in range(kind.count):
                index = ir.IntType(32)(lane)
                alone = [builder.extract_element(self.value, index)]
                exact = call_intrinsic(builder, f"{name}.", self.format.float, alone)
                exact = builder.select(
                    builder.extract_element(far, index), exact, builder.extract_element(near.value, index)
                )
                result = builder.insert_element(result, exact, index)
            end = builder.block
        merged = builder.phi(kind)
        merged.add_incoming(near.value, start)
        merged.add_incoming(result, end)
        return self._new(merged)


def call_intrinsic(builder: ir.IRBuilder, name: str, kind: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    """llvm.<name><element>, all of whose arguments and result are of one kind"""
    name = f"llvm.{name}{getattr(kind, 'element', kind).intrinsic_name}"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), name
    )
    return builder.call(function, args)


def _emitter(function: Callable[[Vector], Vector]) -> Callable[[ir.IRBuilder, ir.Value], ir.Value]:
    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return function(Vector(builder, value)).value

    return emit


PRIMITIVES: Mapping[str, Callable[[ir.IRBuilder, ir.Value], ir.Value]] = MappingProxyType(
    {name: _emitter(function) for name, function in FUNCTIONS.items()}
)
