"""What every file of C begins with: the type of its numbers, vectors of them where the compiler has
them, and the primitive functions and reductions that it calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rnnspec.backends.c.numbers import Real
from rnnspec.backends.c.primitives import functions
from rnnspec.backends.c.reductions import REDUCTIONS, reductions

PREAMBLE = """\
#if defined(__FAST_MATH__) || (defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD > 0)
#error "numbers must be rounded as they are written: compile without -ffast-math, on x86 with -msse2 -mfpmath=sse"
#endif

typedef {word} real;
#define LANES {lanes}

/* No call in a loop, where compilers are not told to be brief. */
#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* A product and a sum: one instruction where the machine has it. */
#ifdef FP_FAST_FMA{upper}
#define FMA(a, b, c) fma{suffix}(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* LANES numbers at once; wide: twice as many, one register of AVX-512. */
#if defined(__GNUC__) && !defined(WITHOUT_VECTORS)
#define VECTOR(bytes) vector_size(bytes), aligned(sizeof(real)), may_alias
#if defined(__SSE2__) && !defined(__AVX__) && !defined(__clang__) /* GCC keeps longer ones in memory */
typedef real part __attribute__((VECTOR(LANES / 2 * sizeof(real))));
typedef struct {{ part low, high; }} __attribute__((may_alias)) vec;
#define ADD_PRODUCT(sum, factors, factor) \\
    ((sum).low += (factors).low * (factor), (sum).high += (factors).high * (factor))
#define ZERO {{{{0}}, {{0}}}}
#else
typedef real vec __attribute__((VECTOR(LANES * sizeof(real))));
#define ADD_PRODUCT(sum, factors, factor) ((sum) += (factors) * (factor))
#define ZERO {{0}}
#endif
#if defined(__FMA__) && !defined(__clang__) /* -std=c99 keeps GCC from making one of two itself */
typedef real lanes __attribute__((vector_size(LANES * sizeof(real))));
#undef ADD_PRODUCT
#define ADD_PRODUCT(sum, factors, factor) \\
    ((sum) = __builtin_ia32_vfmadd{x86}256((lanes)(factors), (factor) - (lanes){{0}}, (lanes)(sum)))
#endif
#ifdef __AVX512F__
typedef real wide __attribute__((VECTOR(2 * LANES * sizeof(real))));
#ifdef __clang__
#define ADD_WIDE(sum, factors, factor) ((sum) += (factors) * (factor))
#else
typedef real lanes2 __attribute__((vector_size(2 * LANES * sizeof(real))));
#define ADD_WIDE(sum, factors, factor) ((sum) = __builtin_ia32_vfmadd{x86}512_mask( \\
    (lanes2)(factors), (factor) - (lanes2){{0}}, (lanes2)(sum), -1, 4))
#endif
#define ZERO_WIDE {{0}}
#else
typedef struct {{ vec low, high; }} __attribute__((may_alias)) wide;
#endif
#define ALIGNED __attribute__((aligned(64)))
#else
typedef struct {{ real lane[LANES]; }} vec;
typedef struct {{ vec low, high; }} wide;
#define ADD_PRODUCT(sum, factors, factor) \\
    do {{ for (int e = 0; e < LANES; e++) (sum).lane[e] += (factors).lane[e] * (factor); }} while (0)
#define ZERO {{{{0}}}}
#define ALIGNED
#endif
#ifndef ADD_WIDE
#define ADD_WIDE(sum, factors, factor) \\
    do {{ ADD_PRODUCT((sum).low, (factors).low, factor); ADD_PRODUCT((sum).high, (factors).high, factor); }} while (0)
#define ZERO_WIDE {{ZERO, ZERO}}
#endif
#define LOAD(type, from) (*(const type *)(from))
#define STORE(type, to, v) (*(type *)(to) = (v))
"""
# GCC's own choice is 32 bytes, and a loop of those beside products of 64 waits for them
WIDE_LOOPS = """
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__) && !defined(WITHOUT_VECTORS)
#pragma GCC target("prefer-vector-width=512")
#endif
"""
BITS = """
INLINE {unsigned} bits_of(real v)
{{
    {unsigned} bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}}

INLINE real real_of({unsigned} bits)
{{
    real v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}}
"""
# not ?:, of which GCC makes branches, and then no vectors, unless flags of exceptions may be lost
CHOOSE = """
INLINE real choose(int condition, real yes, real no)
{{
    const {unsigned} all = -({unsigned})condition;
    return real_of((bits_of(yes) & all) | (bits_of(no) & ~all));
}}
"""


def preamble(real: Real, used: Collection[str], wide: bool = False) -> Iterator[str]:
    """The lines. used: the primitives and reductions that are called, and `choose`; wide: whether
    there are products of many units."""
    yield from ("#include <math.h>", "#include <stdint.h>", "#include <string.h>", "")
    upper = real.suffix.upper()
    yield PREAMBLE.format(word=real.word, lanes=real.lanes, suffix=real.suffix, upper=upper, x86=real.x86)
    if wide:
        yield WIDE_LOOPS.strip("\n") + "\n"
    lines = [*functions([n for n in used if n not in {*REDUCTIONS, "choose"}], real), *reductions(used, real)]
    chosen = "choose" in used or any("choose(" in line for line in lines)
    if chosen or any("bits_of(" in line or "real_of(" in line for line in lines):
        yield BITS.format(unsigned=real.unsigned).strip("\n")
    if chosen:
        yield CHOOSE.format(unsigned=real.unsigned)[:-1]
    yield from lines
