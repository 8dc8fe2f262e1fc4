"""sin and cos in float32, without the float64 and the local memory that NVIDIA's library takes for
large arguments.

As on the CPU (backends/cpu/runtime/vector_math.py, with the same numbers): x = q * pi/2 + r, and
the sine or cosine of r by a polynomial. Up to its limit r comes of subtracting pi/2 in four parts.
Beyond, x
* 2/pi is a product of whole numbers (Payne and Hanek 1983): what the integer bits of x leave of
2/pi is 96 bits of it, of which the product's 32 last ones are not exact; no float32 is nearer to a
multiple of pi/2 than 2**-30.
"""

from __future__ import annotations

import math

import numpy as np

from rnnspec.backends.cuda.compile.shim import cuda, float32, int64, libdevice, uint64
from rnnspec.backends.polynomials import FORMATS

__all__ = ["cos", "sin"]

FORMAT = FORMATS["f32"]
LIMIT, MAGIC, TWO_OVER_PI = np.float32(FORMAT.circular_limit), np.float32(1.5 * 2.0**23), np.float32(2 / math.pi)
PART0, PART1, PART2, PART3 = (np.float32(-part) for part in FORMAT.half_pi)
SIN0, SIN1, SIN2 = (np.float32(c) for c in FORMAT.sin)
COS0, COS1, COS2 = (np.float32(c) for c in FORMAT.cos)
HALF, ONE, TINY, INFINITE = np.float32(0.5), np.float32(1.0), np.float32(2.0**-13), np.float32(math.inf)
# 32 zeros and 224 bits of 2/pi
WORDS = np.array([0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB], np.uint64)
HALF_PI = np.uint64(0xC90FDAA22168C234)  # pi/2 * 2**63
LAST = np.float32(2.0**-61)
U0, U1, U2, U3, U5, U23, U31, U32, U61, U62, U120, U255 = (
    np.uint64(n) for n in (0, 1, 2, 3, 5, 23, 31, 32, 61, 62, 120, 255)
)
MANTISSA, LEADING, LOW = np.uint64(2**23 - 1), np.uint64(2**23), np.uint64(2**32 - 1)


@cuda.jit(device=True, forceinline=True)
def sin(x):
    return x if abs(x) < TINY else _circular(x, U0)  # -0 stays -0


@cuda.jit(device=True, forceinline=True)
def cos(x):
    return _circular(x, U1)


@cuda.jit(device=True, forceinline=True)
def _circular(x, quadrant):
    """sin(x + quadrant * pi/2)"""
    size = abs(x)
    if size > LIMIT and size < INFINITE:
        quarter, r, low = _far(x)
    else:
        quarter, r, low = _near(x)
    z = r * r
    sine = r + cuda.fma(z * r, cuda.fma(cuda.fma(SIN2, z, SIN1), z, SIN0), low)
    cosine = ONE - (HALF * z - cuda.fma(z * z, cuda.fma(cuda.fma(COS2, z, COS1), z, COS0), -(r * low)))
    quarter = quarter + quadrant
    chosen = sine if quarter & U1 == U0 else cosine
    return chosen if quarter & U2 == U0 else -chosen


@cuda.jit(device=True, forceinline=True)
def _near(x):
    """q, and r as a sum of two numbers; NaN of an infinity."""
    shifted = cuda.fma(x, TWO_OVER_PI, MAGIC)
    n = shifted - MAGIC
    high = cuda.fma(n, PART0, x)  # exact, as is the product in each line below
    middle = cuda.fma(n, PART1, high)
    rest = cuda.fma(n, PART2, cuda.fma(n, PART1, high - middle))
    r = middle + rest
    return _bits(shifted) & U3, r, cuda.fma(n, PART3, (middle - r) + rest)


@cuda.jit(device=True, forceinline=True)
def _far(x):
    """q and r, as _near gives them, for large x = m * 2**(e - 150)."""
    bits = _bits(x)
    at = ((bits >> U23) & U255) - U120  # from here on the bits of 2/pi count: those before make multiples of 4
    m = (bits & MANTISSA) | LEADING
    low = m * _word(at + U32 + U32)
    middle = m * _word(at + U32) + (low >> U32)
    top = m * _word(at) + (middle >> U32)
    product = (top << U32) | (middle & LOW)  # x * 2/pi modulo 4, times 2**62
    quarter = (product + (U1 << U61)) >> U62
    over = int64(product - (quarter << U62))
    fixed = int64(libdevice.umul64hi(over if over > 0 else -over, HALF_PI))
    r = float32(fixed)
    rest = float32(fixed - int64(r)) * LAST
    r = r * LAST
    if (over < 0) != (x < float32(0.0)):
        r, rest = -r, -rest
    return (quarter if x > float32(0.0) else U0 - quarter) & U3, r, rest


@cuda.jit(device=True, forceinline=True)
def _bits(x):
    return uint64(libdevice.float_as_int(x)) & LOW


@cuda.jit(device=True, forceinline=True)
def _word(at):
    """32 bits of WORDS."""
    words = cuda.const.array_like(WORDS)
    first = at >> U5
    return (((words[first] << U32) | words[first + U1]) >> (U32 - (at & U31))) & LOW
