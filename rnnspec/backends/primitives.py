"""The ten primitive functions of the language, written once for numbers of any kind that have the
operators of `Term`: vectors of LLVM (cpu/runtime/vector_math.py), numbers in C (c/primitives.py).

- Every multiply-add is one instruction where the target has one, a product and a sum where it has
  not. So no constant may rely on an unrounded product: those multiplied by a whole
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
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from rnnspec.backends.polynomials import Format


class Term(Protocol):
    """A number, or a vector of them, while an expression over it is written. A number of Python
    beside it stands for that number; comparisons give what `select` chooses by; `bits()` gives
    whole numbers, with << >> & | ^ and `plus`."""

    @property
    def format(self) -> Format: ...

    def like(self, number: float) -> Any:
        """The number, as a term of the same kind."""

    def __add__(self, other: Any) -> Any: ...
    def __sub__(self, other: Any) -> Any: ...
    def __mul__(self, other: Any) -> Any: ...
    def __truediv__(self, other: Any) -> Any: ...
    def __radd__(self, other: Any) -> Any: ...
    def __rmul__(self, other: Any) -> Any: ...
    def __rsub__(self, other: float) -> Any: ...
    def __neg__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __lt__(self, other: Any) -> Any: ...
    def __gt__(self, other: Any) -> Any: ...
    def __lshift__(self, count: int) -> Any: ...
    def __rshift__(self, count: int) -> Any: ...
    def __and__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any: ...
    def __xor__(self, other: Any) -> Any: ...

    def fma(self, factor: Any, term: Any) -> Any:
        """self * factor + term"""

    def sqrt(self) -> Any: ...
    def copysign(self, sign: Any) -> Any: ...
    def equals(self, other: Any) -> Any: ...

    def select(self, yes: Any, no: Any) -> Any:
        """`yes` where this comparison holds, `no` elsewhere"""

    def at_least(self, low: float) -> Any:
        """The larger of both; NaN stays"""

    def at_most(self, high: float) -> Any:
        """The smaller of both; NaN stays"""

    def bits(self) -> Any: ...
    def as_float(self) -> Any: ...
    def plus(self, other: Any) -> Any: ...

    def polynomial(self, coefficients: Sequence[float]) -> Any:
        """Horner's scheme, lowest power first"""

    def beyond(self, name: str, limit: float, near: Any) -> Any:
        """`near`, but the C library's function of that name where |self| is finite and above the
        limit"""


V = TypeVar("V", bound=Any)


def _split_exponent(x: V, scale: float, offset: V | float) -> tuple[V, V, V]:
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


def _expm1_tail(r: V, scale: float) -> V:
    """expm1(scale * r) / abs(scale) = r * sign(scale) + r**2 * this, on |scale * r| <= ln(2)/2;
    scale is -1, 1 or 2"""
    return r.polynomial([c * abs(scale) * scale**i for i, c in enumerate(r.format.exp)])


def exp(x: V) -> V:
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


def sigmoid(x: V) -> V:
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


def tanh(x: V) -> V:
    """(e - 1) / (e + 1) at e = exp(-2 |x|) = 2**n * (1 + 2p): near 0 n is 0, e - 1 is 2p and keeps
    its relative accuracy."""
    f = x.format
    y = (-abs(x)).at_least(-0.5 * (f.mantissa + 3) * math.log(2))
    n, high, power = _split_exponent(y, 2.0, 1.0)  # power is 2 * 2**n
    low = n * (-0.5 * f.ln2[1])  # r = high + low is rounded only where p is small beside it
    r = high + low
    p = high + (r * r).fma(_expm1_tail(r, 2.0), low)
    return (power.fma(p, power.fma(0.5, -1.0)) / power.fma(p, power.fma(0.5, 1.0))).copysign(x)


def expm1(x: V) -> V:
    """2 * (2**(n-1) * p + (2**(n-1) - 1/2)): half of it, so that 2**n does not overflow before the
    result does."""
    f = x.format
    y = x.at_least(-(f.mantissa + 3) * math.log(2)).at_most((f.bias + 1.4) * math.log(2))
    n, high, power = _split_exponent(y, 1.0, -1.0)
    low = n * -f.ln2[1]
    r = high + low
    p = high + (r * r).fma(_expm1_tail(r, 1.0), low)
    return _tiny(x).select(x, 2.0 * power.fma(p, power - 0.5))


def log(x: V) -> V:
    f = x.format
    subnormal = x < 2.0 ** (1 - f.bias)
    k, m, _ = _split_mantissa(subnormal.select(x * 2.0 ** (f.mantissa + 1), x))
    k = k - subnormal.select(f.mantissa + 1.0, x.like(0.0))
    return _log_at_ends(x, _log_sum(k, m - 1.0))


def log1p(x: V) -> V:
    """log of u = 1 + x, where the rounding of that sum, divided by 2**k as u is, goes back into the
    small argument."""
    u = 1.0 + x
    of_x = u - 1.0
    lost = (1.0 - (u - of_x)) + (x - of_x)
    k, m, scale = _split_mantissa(u)
    lost = (u < 2.0 ** (x.format.mantissa + 2)).select(lost * scale, x.like(0.0))
    return _tiny(x).select(x, _log_at_ends(u, _log_sum(k, (m - 1.0) + lost)))


def _tiny(x: V) -> V:
    """Where expm1, log1p and sin are x to the last place; taken apart, so that -0 stays -0"""
    return abs(x) < 2.0 ** -(x.format.mantissa + 2)


def _split_mantissa(x: V) -> tuple[V, V, V]:
    """k, m, 2**-k with x = 2**k * m, k whole, sqrt(1/2) <= m < sqrt(2), for positive normal x"""
    f = x.format
    one, root = f.bias << f.mantissa, f.root_half_bits
    shifted = x.bits().plus(one - root)  # the exponent goes up at sqrt(2) instead of 2
    k = ((shifted >> f.mantissa) | (f.bias + f.mantissa << f.mantissa)).as_float() - (2.0**f.mantissa + f.bias)
    m = (shifted & ((1 << f.mantissa) - 1)).plus(root).as_float()
    exponent = shifted & (((1 << f.bits.width - 1) - 1) ^ ((1 << f.mantissa) - 1))
    return k, m, (exponent ^ -1).plus((2 * f.bias << f.mantissa) + 1).as_float()


def _log_sum(k: V, v: V) -> V:
    """k * ln(2) + log(1 + v) with log(1 + v) = v - (v**2/2 - s * (v**2/2 + R(s**2))) at s = v / (2
    + v), small terms first"""
    f = v.format
    s = v / (2.0 + v)
    z = s * s
    half_square = 0.5 * v * v
    inner = s.fma(z.fma(z.polynomial(f.log), half_square), k * f.ln2[1])
    return k.fma(f.ln2[0], v - (half_square - inner))


def _log_at_ends(x: V, inside: V) -> V:
    result = (x < math.inf).select(inside, x)  # inf and NaN are their own logarithms
    result = (x < 0.0).select(math.nan, result)
    return x.equals(0.0).select(-math.inf, result)


def sin(x: V) -> V:
    return (abs(x) < 2.0 ** -(x.format.mantissa // 2 + 2)).select(x, _circular("sin", x, 0))


def cos(x: V) -> V:
    return _circular("cos", x, 1)


def _circular(name: str, x: V, quadrant: int) -> V:
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
    return x.beyond(name, f.circular_limit, (chosen.bits() ^ sign).as_float())


def erf(x: V) -> V:
    """x + x * E(x**2) up to 1, then 1 - exp(-P(|x| - 1)), where what is subtracted is below 0.16
    and need not be exact."""
    f = x.format
    size = abs(x)
    near = x.fma((x * x).polynomial(f.erf), x)
    far = 1.0 - exp(-(size.at_most(f.erf_limit) - 1.0).polynomial(f.erfc))
    return (size < 1.0).select(near, far.copysign(x))


def sqrt(x: V) -> V:
    return x.sqrt()


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {function.__name__: function for function in (exp, expm1, log, log1p, sqrt, sin, cos, erf, tanh, sigmoid)}
)
