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

/* A product and a sum: one instruction where the machine has it. */
#ifdef FP_FAST_FMA{upper}
#define FMA(a, b, c) fma{suffix}(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* LANES numbers at once. */
#if defined(__GNUC__) && !defined(WITHOUT_VECTORS)
typedef real vec __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));
#define ALIGNED __attribute__((aligned(64)))
#define LOAD(from) (*(const vec *)(from))
#define STORE(to, v) (*(vec *)(to) = (v))
#define ADD_PRODUCT(sum, factors, factor) ((sum) += (factors) * (factor))
#define ZERO {{0}}
#else
typedef struct {{ real lane[LANES]; }} vec;
#define ALIGNED
#define LOAD(from) (*(const vec *)(from))
#define STORE(to, v) (*(vec *)(to) = (v))
#define ADD_PRODUCT(sum, factors, factor) \\
    do {{ for (int e = 0; e < LANES; e++) (sum).lane[e] += (factors).lane[e] * (factor); }} while (0)
#define ZERO {{{{0}}}}
#endif
"""
BITS = """
static inline {unsigned} bits_of(real v)
{{
    {unsigned} bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}}

static inline real real_of({unsigned} bits)
{{
    real v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}}
"""


def preamble(real: Real, used: Collection[str]) -> Iterator[str]:
    """The lines. used: the primitives and reductions that are called."""
    yield from ("#include <math.h>", "#include <stdint.h>", "#include <string.h>", "")
    upper = real.suffix.upper()
    yield PREAMBLE.format(word=real.word, lanes=real.lanes, suffix=real.suffix, upper=upper)
    lines = [*functions([n for n in used if n not in REDUCTIONS], real), *reductions(used, real)]
    if any("bits_of(" in line or "real_of(" in line for line in lines):
        yield BITS.format(unsigned=real.unsigned).strip("\n")
    yield from lines
