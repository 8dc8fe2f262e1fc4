"""Keeps the memory of somebody else's arrays where it is while it is read or written.

In: arrays that were handed over. Out: `Pins`, for as long as they live nobody can resize one of
them. Nothing is copied, and no array is kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from numpy import ndarray as Array


class Pins:
    """While this object lives, or its block runs, the memory of these arrays neither moves nor
    goes: `ndarray.resize` refuses an array that a weak reference leads to, even where it is told
    (refcheck=False) not to look at the other references."""

    __slots__ = ("references",)

    def __init__(self, arrays: Iterable[Array]):
        self.references = [weakref.ref(_owner(array)) for array in arrays]

    def __enter__(self) -> Pins:
        return self

    def __exit__(self, *_: object) -> None:
        self.references.clear()


def _owner(array: Array) -> Array:
    """The array that has the memory, or the last one on the way to whatever else has it."""
    while isinstance(array.base, Array):
        array = array.base
    return array
