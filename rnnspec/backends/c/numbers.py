"""How numbers are written in C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Real:
    """A floating point type of C. name: as NumPy has it; word: C's; suffix: of constants and of the
    functions of libm; unsigned: the whole number of as many bits; lanes: of a vector of 32
    bytes; x86: the ending of that machine's instructions for such vectors."""

    name: str
    word: str
    suffix: str
    unsigned: str
    format: str
    lanes: int
    x86: str

    def constant(self, number: float) -> str:
        """The number, rounded to the type, as C reads it back: the shortest decimal that is rounded
        to the same."""
        with np.errstate(over="ignore"):
            rounded = np.dtype(self.name).type(number)
        if np.isnan(rounded):
            return "NAN"
        if np.isinf(rounded):
            return "INFINITY" if rounded > 0 else "-INFINITY"
        text = str(rounded)
        return f"{text}{'' if '.' in text or 'e' in text else '.0'}{self.suffix}"


REALS = {
    "float32": Real("float32", "float", "f", "uint32_t", "f32", 8, "ps"),
    "float64": Real("float64", "double", "", "uint64_t", "f64", 4, "pd"),
}
