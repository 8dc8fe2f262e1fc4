"""Identifiers that a step's text can't have for a value: words of C, and what its file uses."""

from __future__ import annotations

WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Complex
_Imaginary asm typeof bool true false
"""
USED = """
a b bits bits_of block built_in c cell copysign copysignf cos cosf e fabs fabsf factor fma fmaf gradients i j k main
memcpy memset n panel parts real real_of s sin sinf size_t sqrt sqrtf steps t total uint32_t uint64_t v vec w weights
"""
KEYWORDS, OURS = frozenset(WORDS.split()), frozenset(USED.split())
MACROS = frozenset({"ADD_PRODUCT", "ALIGNED", "FMA", "INFINITY", "LANES", "LOAD", "NAN", "NULL", "STORE", "errno"})
