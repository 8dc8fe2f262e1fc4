"""Keeps the memory of somebody else's arrays where it is while it is read or written.

In: arrays that were handed over. Out: references; for as long as these live nobody can resize one
of the arrays: `ndarray.resize` refuses an array that a weak reference leads to, even where it is
told (refcheck=False) not to look at the other references. Nothing is copied, and no array is kept
alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from numpy import ndarray as Array

References = list["weakref.ref[Array]"]


def pinned(arrays: Iterable[Array]) -> References:
    """References that pin these arrays."""
    ref = weakref.ref
    return [ref(b if (b := a.base).__class__ is Array and b.base is None else _owner(a)) for a in arrays]


class Pins:
    """While this object lives, or its block runs, these arrays are pinned."""

    __slots__ = ("references",)

    def __init__(self, arrays: Iterable[Array]):
        self.references = pinned(arrays)

    def __enter__(self) -> Pins:
        return self

    def __exit__(self, *_: object) -> None:
        self.references.clear()


def _owner(array: Array) -> Array:
    """The array that has the memory, or the last one on the way to whatever else has it."""
    while isinstance(array.base, Array):
        array = array.base
    return array
