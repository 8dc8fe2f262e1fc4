"""The ten primitive functions of the language as LLVM IR on vectors of float or double, any number
of lanes.

In: a builder and a vector value. Out: a vector value of the same type. Nothing here knows Numba;
`PRIMITIVES` is all that others use. The lane count is the caller's choice, the target (AVX-512,
AVX2, NEON, plain SSE2) is LLVM's.

- Every multiply-add is `llvm.fmuladd`: one instruction where the target has one, a product and a
  sum where it has not. So no constant may rely on an unrounded product: those multiplied by a whole
  number have enough zero bits at the end.
- No fast-math flags: `reassoc` would merge the constants that are split in two, `nnan` and `ninf`
  would lose NaN and inf.
- Clamps are selects that keep NaN (`llvm.minnum` and `maxnum` swallow it), and x86 has one
  instruction for them.
- Whole numbers are found by adding 1.5 * 2**(mantissa bits), not by fptosi, which is undefined for
  NaN.
- Coefficients: least squares on 150 Chebyshev nodes, reweighted towards the largest error (Lawson),
  in mpmath with 50 digits, error relative to the function; each is rounded to the dtype in turn,
  lowest power first, and the rest fitted again. A comment gives the largest error of the fit
  itself.

Largest errors seen, in units in the last place, with fma: float exp, expm1, log, log1p, tanh and
sigmoid over half of all floats of 2**-10..100 (both signs where both matter), double exp, tanh and
sigmoid over 5 * 10**6 arguments, the others over 25,000 to 250,000:
          exp   expm1  log   log1p  sqrt  sin   cos   erf   tanh  sigmoid
  float   1.04  1.67   0.81  1.39   0.5   0.97  0.95  0.79  1.98  2.00
  double  0.98  1.50   0.77  0.77   0.5   1.06  1.00  1.00  1.96  1.96
Without fma they grow by 0.4 at most and stay below 2 (tests/cpu/test_vector_math.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from llvmlite import ir

from rnnspec.backends.polynomials import FORMATS, Format

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


def call_intrinsic(builder: ir.IRBuilder, name: str, kind: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    """llvm.<name><element>, all of whose arguments and result are of one kind"""
    name = f"llvm.{name}{getattr(kind, 'element', kind).intrinsic_name}"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), name
    )
    return builder.call(function, args)


def _split_exponent(x: Vector, scale: float, offset: Vector | float) -> tuple[Vector, Vector, Vector]:
    """n, high, 2**(n + offset): n is scale * x / ln(2) to the nearest whole number, high is x - n *
    ln2[0] / scale, exactly.

    Adding `magic` rounds to a whole number and leaves n + offset in the low bits, ready to be
    shifted into the exponent.
    """
    f = x.format
    magic = offset + (1.5 * 2.0**f.mantissa + f.bias)
    shifted = x.fma(scale / math.log(2), magic)
    n = shifted - magic
    return n, n.fma(-f.ln2[0] / scale, x), (shifted.bits() << f.mantissa).as_float()


def _expm1_tail(r: Vector, scale: float) -> Vector:
    """expm1(scale * r) / abs(scale) = r * sign(scale) + r**2 * this, on |scale * r| <= ln(2)/2;
    scale is -1, 1 or 2"""
    return r.polynomial([c * abs(scale) * scale**i for i, c in enumerate(r.format.exp)])


def exp(x: Vector) -> Vector:
    """2**n * (1 + p), with the exponent moved away from its ends first and back by the last
    product."""
    f = x.format
    x = x.at_least(-(f.bias + f.mantissa + 0.4) * math.log(2)).at_most((f.bias + 1.4) * math.log(2))
    up, down = 1.0, f.mantissa + 3.0
    negative = x < 0.0
    n, high, power = _split_exponent(x, 1.0, negative.select(down, x.like(-up)))
    r = n.fma(-f.ln2[1], high)
    p = (r * r).fma(_expm1_tail(r, 1.0), r)
    return power.fma(p, power) * negative.select(2.0**-down, x.like(2.0**up))


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + 2**n * (1 + p)) with 2**-shift above and below, so that nothing overflows before the
    result is 0.

    Of 1 and 2**n the smaller is added first: each rounding is then a quarter of a unit, also for
    negative arguments.
    """
    f = x.format
    shift = f.mantissa + 3
    one = x.like(2.0**-shift)
    x = x.at_least(-(f.bias + f.mantissa + 1) * math.log(2)).at_most(shift * math.log(2))
    n, high, power = _split_exponent(x, -1.0, -shift)
    r = n.fma(f.ln2[1], high)
    p = (r * r).fma(_expm1_tail(r, -1.0), -r)
    return one / (power.fma(p, power.at_most(2.0**-shift)) + power.at_least(2.0**-shift))


def tanh(x: Vector) -> Vector:
    """(e - 1) / (e + 1) at e = exp(-2 |x|) = 2**n * (1 + 2p): near 0 n is 0, e - 1 is 2p and keeps
    its relative accuracy."""
    f = x.format
    y = (-abs(x)).at_least(-0.5 * (f.mantissa + 3) * math.log(2))
    n, high, power = _split_exponent(y, 2.0, 1.0)  # power is 2 * 2**n
    low = n * (-0.5 * f.ln2[1])  # r = high + low is rounded only where p is small beside it
    r = high + low
    p = high + (r * r).fma(_expm1_tail(r, 2.0), low)
    return (power.fma(p, power.fma(0.5, -1.0)) / power.fma(p, power.fma(0.5, 1.0))).copysign(x)


def expm1(x: Vector) -> Vector:
    """2 * (2**(n-1) * p + (2**(n-1) - 1/2)): half of it, so that 2**n does not overflow before the
    result does."""
    f = x.format
    y = x.at_least(-(f.mantissa + 3) * math.log(2)).at_most((f.bias + 1.4) * math.log(2))
    n, high, power = _split_exponent(y, 1.0, -1.0)
    low = n * -f.ln2[1]
    r = high + low
    p = high + (r * r).fma(_expm1_tail(r, 1.0), low)
    return _tiny(x).select(x, 2.0 * power.fma(p, power - 0.5))


def log(x: Vector) -> Vector:
    f = x.format
    subnormal = x < 2.0 ** (1 - f.bias)
    k, m, _ = _split_mantissa(subnormal.select(x * 2.0 ** (f.mantissa + 1), x))
    k = k - subnormal.select(f.mantissa + 1.0, x.like(0.0))
    return _log_at_ends(x, _log_sum(k, m - 1.0))


def log1p(x: Vector) -> Vector:
    """log of u = 1 + x, where the rounding of that sum, divided by 2**k as u is, goes back into the
    small argument."""
    u = 1.0 + x
    of_x = u - 1.0
    lost = (1.0 - (u - of_x)) + (x - of_x)
    k, m, scale = _split_mantissa(u)
    lost = (u < 2.0 ** (x.format.mantissa + 2)).select(lost * scale, x.like(0.0))
    return _tiny(x).select(x, _log_at_ends(u, _log_sum(k, (m - 1.0) + lost)))


def _tiny(x: Vector) -> Vector:
    """Where expm1, log1p and sin are x to the last place; taken apart, so that -0 stays -0"""
    return abs(x) < 2.0 ** -(x.format.mantissa + 2)


def _split_mantissa(x: Vector) -> tuple[Vector, Vector, Vector]:
    """k, m, 2**-k with x = 2**k * m, k whole, sqrt(1/2) <= m < sqrt(2), for positive normal x"""
    f = x.format
    one, root = f.bias << f.mantissa, f.root_half_bits
    shifted = x.bits().plus(one - root)  # the exponent goes up at sqrt(2) instead of 2
    k = ((shifted >> f.mantissa) | (f.bias + f.mantissa << f.mantissa)).as_float() - (2.0**f.mantissa + f.bias)
    m = (shifted & ((1 << f.mantissa) - 1)).plus(root).as_float()
    exponent = shifted & (((1 << f.bits.width - 1) - 1) ^ ((1 << f.mantissa) - 1))
    return k, m, (exponent ^ -1).plus((2 * f.bias << f.mantissa) + 1).as_float()


def _log_sum(k: Vector, v: Vector) -> Vector:
    """k * ln(2) + log(1 + v) with log(1 + v) = v - (v**2/2 - s * (v**2/2 + R(s**2))) at s = v / (2
    + v), small terms first"""
    f = v.format
    s = v / (2.0 + v)
    z = s * s
    half_square = 0.5 * v * v
    inner = s.fma(z.fma(z.polynomial(f.log), half_square), k * f.ln2[1])
    return k.fma(f.ln2[0], v - (half_square - inner))


def _log_at_ends(x: Vector, inside: Vector) -> Vector:
    result = (x < math.inf).select(inside, x)  # inf and NaN are their own logarithms
    result = (x < 0.0).select(math.nan, result)
    return x.equals(0.0).select(-math.inf, result)


def sin(x: Vector) -> Vector:
    return (abs(x) < 2.0 ** -(x.format.mantissa // 2 + 2)).select(x, _circular("sin", x, 0))


def cos(x: Vector) -> Vector:
    return _circular("cos", x, 1)


def _circular(name: str, x: Vector, quadrant: int) -> Vector:
    """sin(x + quadrant * pi/2): r = x - n * pi/2 to twice the precision by subtracting pi/2 in four
    parts, then sin or cos of r."""
    f = x.format
    magic = 1.5 * 2.0**f.mantissa
    shifted = x.fma(2 / math.pi, magic)
    n = shifted - magic
    high = n.fma(-f.half_pi[0], x)  # exact, as is the product in each line below
    middle = n.fma(-f.half_pi[1], high)
    rest = n.fma(-f.half_pi[2], n.fma(-f.half_pi[1], high - middle))
    r = middle + rest
    low = n.fma(-f.half_pi[3], (middle - r) + rest)
    z = r * r
    sine = r + (z * r).fma(z.polynomial(f.sin), low)
    cosine = 1.0 - (0.5 * z - (z * z).fma(z.polynomial(f.cos), -(r * low)))
    quarter = shifted.bits().plus(quadrant)
    chosen = (quarter & 1).equals(0).select(sine, cosine)
    sign = (quarter & 2) << f.bits.width - 2
    return _libm_beyond(name, x, (chosen.bits() ^ sign).as_float())


def _libm_beyond(name: str, x: Vector, near: Vector) -> Vector:
    """`near`, but the C library's function, lane by lane, where |x| is finite and too large for the
    reduction above."""
    builder, f, size = x.builder, x.format, abs(x)
    far = builder.and_((size > f.circular_limit).value, (size < math.inf).value)
    any_far = builder.icmp_unsigned(
        "!=", builder.bitcast(far, ir.IntType(x.value.type.count)), ir.IntType(x.value.type.count)(0)
    )
    start = builder.block
    with builder.if_then(any_far, likely=False):
        result = near.value
        for lane in range(x.value.type.count):
            index = ir.IntType(32)(lane)
            exact = call_intrinsic(builder, f"{name}.", f.float, [builder.extract_element(x.value, index)])
            exact = builder.select(
                builder.extract_element(far, index), exact, builder.extract_element(near.value, index)
            )
            result = builder.insert_element(result, exact, index)
        end = builder.block
    merged = builder.phi(x.value.type)
    merged.add_incoming(near.value, start)
    merged.add_incoming(result, end)
    return Vector(builder, merged)


def erf(x: Vector) -> Vector:
    """x + x * E(x**2) up to 1, then 1 - exp(-P(|x| - 1)), where what is subtracted is below 0.16
    and need not be exact."""
    f = x.format
    size = abs(x)
    near = x.fma((x * x).polynomial(f.erf), x)
    far = 1.0 - exp(-(size.at_most(f.erf_limit) - 1.0).polynomial(f.erfc))
    return (size < 1.0).select(near, far.copysign(x))


def sqrt(x: Vector) -> Vector:
    return x.sqrt()


def _emitter(function: Callable[[Vector], Vector]) -> Callable[[ir.IRBuilder, ir.Value], ir.Value]:
    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return function(Vector(builder, value)).value

    return emit


PRIMITIVES: Mapping[str, Callable[[ir.IRBuilder, ir.Value], ir.Value]] = MappingProxyType(
    {function.__name__: _emitter(function) for function in (exp, expm1, log, log1p, sqrt, sin, cos, erf, tanh, sigmoid)}
)
