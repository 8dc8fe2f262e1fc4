"""Which of our parameters a package's parameter is made of, as text: the same for torch and JAX.

"W_i W_f W_g W_o"     one under another
"(W_i W_f).T"         that, transposed
"W_i.T"               transposed
"-W_f"                with the other sign
"W_h+U_h"             beside one another: [W_h, U_h]
"0", "1.5"            filled with a number
"0 0 c_n"             a word 0 is a vector of zeros, [H]; I is the identity, [H, H]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Join = Callable[[list[Any], int], Any]  # arrays and an axis -> one array


def packed(text: str, params: Mapping[str, Any], join: Join) -> Any:
    """One array, from parameters by name; a KeyError where one isn't there."""
    if text.endswith(".T"):
        return packed(text[:-2].strip("()"), params, join).T
    parts = [_beside(word, params, join) for word in text.split()]
    return parts[0] if len(parts) == 1 else join(parts, 0)


def _beside(word: str, params: Mapping[str, Any], join: Join) -> Any:
    parts = [-params[name[1:]] if name.startswith("-") else params[name] for name in word.split("+")]
    return parts[0] if len(parts) == 1 else join(parts, -1)


def number(text: str) -> float | None:
    """The number that the whole array is filled with, None where it is made of parameters."""
    try:
        return float(text)
    except ValueError:
        return None
