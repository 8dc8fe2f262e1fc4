"""What the arrays of a check are: each is known by its kind and the user's name for it.

A message puts both together ("gradient of input x"); nothing reads a kind back from a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from numpy import ndarray as Array


class ArrayKind(Enum):
    """What an array is. The value is what a message has before the array's name."""

    OUTPUT = "output"  # [T, B, ...]
    STATE = ""  # after every step, [T, B, ...]: its name says enough
    FINAL = "final"  # [B, ...]
    PARAM_GRADIENT = "gradient of"
    INPUT_GRADIENT = "gradient of input"  # [T, B, ...]
    STATE_GRADIENT = "gradient of initial"  # [B, ...]
    OUTPUT_TANGENT = "direction of output"  # [K, T, B, ...]
    FINAL_TANGENT = "direction of final"  # [K, B, ...]
    PARAM_HVP = "direction of the gradient of"  # [K, ...]
    INPUT_HVP = "direction of the gradient of input"  # [K, T, B, ...]
    STATE_HVP = "direction of the gradient of initial"  # [K, B, ...]
    JACOBIAN = "Jacobian of"  # [T, B, ...after, ...before]
    # what a run is given, by the names that a Case has for it
    PARAM = "params"
    INPUT = "inputs"
    INITIAL = "states"
    OUTPUT_WEIGHT = "d_outputs"
    FINAL_WEIGHT = "d_final"

    @property
    def is_gradient(self) -> bool:
        return self in GRADIENTS


GRADIENTS = frozenset({ArrayKind.PARAM_GRADIENT, ArrayKind.INPUT_GRADIENT, ArrayKind.STATE_GRADIENT})
GRADIENTS |= {ArrayKind.PARAM_HVP, ArrayKind.INPUT_HVP, ArrayKind.STATE_HVP}
GRADIENTS |= {ArrayKind.OUTPUT_TANGENT, ArrayKind.FINAL_TANGENT, ArrayKind.JACOBIAN}
GIVEN = (ArrayKind.PARAM, ArrayKind.INPUT, ArrayKind.INITIAL, ArrayKind.OUTPUT_WEIGHT, ArrayKind.FINAL_WEIGHT)
PER_ROW = (ArrayKind.OUTPUT, ArrayKind.FINAL, ArrayKind.INPUT_GRADIENT, ArrayKind.STATE_GRADIENT)
TIMED = (ArrayKind.OUTPUT, ArrayKind.INPUT_GRADIENT)

Values = Mapping[ArrayKind, Mapping[str, Array]]


class Key(NamedTuple):
    """One array of Values. Its text is for messages."""

    kind: ArrayKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".lstrip()


def flat(values: Values) -> dict[Key, Array]:
    """All arrays beside one another, in the order of their kinds and names."""
    return {Key(kind, name): array for kind, arrays in values.items() for name, array in arrays.items()}


def per_row(values: Values) -> dict[ArrayKind, Mapping[str, Array]]:
    """The kinds of which each row of the batch has its own part."""
    return {kind: arrays for kind, arrays in values.items() if kind in PER_ROW}


def summed(values: Values) -> dict[ArrayKind, Mapping[str, Array]]:
    """The gradients that are sums over rows."""
    return {kind: arrays for kind, arrays in values.items() if kind not in PER_ROW}
