"""Reductions of a row as functions of C: one function for all sums of a file, as the code of each
would be as long as that of a product."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from rnnspec.backends.c.numbers import Real

# function -> what an empty row gives, and the statement that takes a value in; NaN stays
REDUCTIONS = MappingProxyType(
    {
        "sum_of": (0.0, "{target} += {value};"),
        "max_of": (-float("inf"), "{target} = {value} > {target} || {value} != {value} ? {value} : {target};"),
    }
)
# in as many parts as a vector has lanes, which don't wait for each other
TEXT = """
static {word} {name}(const {word} *v, int count)
{{
    const int whole = count < 2 * LANES ? 0 : count / LANES * LANES;
    {word} total = {start}, parts[LANES] = {{{starts}}};
    for (int i = 0; i < whole; i += LANES) {{
        for (int e = 0; e < LANES; e++)
            {part}
    }}
    for (int e = 0; e < LANES; e++)
        {parts}
    for (int i = whole; i < count; i++)
        {rest}
    return total;
}}"""


def reductions(used: Collection[str], real: Real) -> list[str]:
    """The lines of those of the functions that are used."""
    lines: list[str] = []
    for name, (empty, taken) in REDUCTIONS.items():
        if name in used:
            start = real.constant(empty)
            values = {"part": ("parts[e]", "v[i + e]"), "parts": ("total", "parts[e]"), "rest": ("total", "v[i]")}
            made = {key: taken.format(target=target, value=value) for key, (target, value) in values.items()}
            starts = ", ".join([start] * real.lanes)
            lines += TEXT.format(word=real.word, name=name, start=start, starts=starts, **made).splitlines()
    return lines
