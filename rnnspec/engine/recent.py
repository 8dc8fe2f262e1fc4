"""Weights that are the same as in the calls before, found by looking at them.

Nothing tells that a NumPy array was written to, so weights that are not packed by the caller are
packed in every call. Where they are few, it costs less to compare them, bit by bit, with copies of
those of the last calls: what was packed for these serves as long as they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cpu.launch.memory import address
from rnnspec.backends.memo import Memo

T = TypeVar("T")
MOST_BYTES = 1 << 20  # of what is compared: copies of it are kept
PATIENCE = 2  # sights of equal weights before they are packed for more than a call: training changes them in each
MOST_BLIND = 16  # calls in a row in which weights that keep changing are not looked at


@dataclass
class Seen(Generic[T]):
    """Weights of a call, shapes and bytes, how often they were met again, and what was made of
    them. changes: how often in a row they had changed; blind: calls to come in which they are not
    looked at, nor kept."""

    content: list[tuple[tuple[int, ...], bytearray]]
    again: int = 0
    made: T | None = None
    changes: int = 0
    blind: int = 0

    def same(self, arrays: Iterable[Array]) -> bool:
        """Whether arrays, in the same order, have these shapes and bits."""
        return all(map(_same, self.content, arrays))


class Recent(Generic[T]):
    """The weights of the last calls, by where they lie. A copy or a pickle of it is empty."""

    def __init__(self) -> None:
        self._seen: Memo[Any, Seen[T]] = Memo(8)
        # by the first of the caller's arrays: a reference to it would forbid its owner to resize it
        self._checked: Memo[int, tuple[Sequence[tuple[str, np.dtype]], Seen[T]]] = Memo(8)

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, ()

    def again(self, given: Mapping[str, Any]) -> T | None:
        """What was made of arrays equal to the caller's in an earlier call, which checked their
        names and shapes; None where these are not arrays like those."""
        names, seen = self._checked.get(id(next(iter(given.values()), None)), ((), None))
        if seen is None or len(given) != len(names):
            return None
        arrays = []
        for name, dtype in names:
            array = given.get(name)
            if type(array) is not Array or array.dtype is not dtype:
                return None
            arrays.append(array)
        return seen.made if seen.same(arrays) else None

    def find(
        self,
        arrays: Mapping[str, Array],
        make: Callable[[dict[str, Array]], T],
        given: Mapping[str, Any] | None = None,
    ) -> T | None:
        """What was made of arrays equal to these; None where none were met lately, or there are too
        many to look.

        arrays: by name, of any strides. make: makes it of equal arrays, which it copies; what it
        makes must hold for equal arrays at any time. given: what the caller has given as these, for
        `again`.
        """
        seen = self.met(arrays, make)
        if seen is None or seen.made is None:
            return None
        if given is not None and given.keys() == arrays.keys() and all(type(a) is Array for a in given.values()):
            first = id(next(iter(given.values())))
            self._checked.keep(first, ([(n, given[n].dtype) for n in arrays], seen))
        return seen.made

    def met(self, arrays: Mapping[str, Array], make: Callable[[dict[str, Array]], T]) -> Seen[T] | None:
        """What `find` looks up, with the numbers that it is of: for who finds the same arrays again
        and compares these alone."""
        if not few(arrays):
            return None
        key = address(next(iter(arrays.values()))), *arrays
        seen = self._seen.get(key)
        if seen is not None and seen.blind:
            seen.blind -= 1
            return None
        if seen is None or not seen.content:
            content = [(a.shape, bytearray(a.tobytes())) for a in arrays.values()]
            self._seen.keep(key, Seen(content, changes=0 if seen is None else seen.changes))
            return None
        if not seen.same(arrays.values()):
            changes = min(seen.changes + 1, MOST_BLIND)
            self._seen.keep(key, Seen([], changes=changes, blind=changes - 1))
            return None
        if seen.made is None:
            seen.again += 1
            if seen.again < PATIENCE:  # in training forward and backward have the same ones
                return None
            seen.changes = 0
            kept = zip(arrays.items(), seen.content)
            seen.made = make({n: np.frombuffer(data, a.dtype).reshape(shape) for (n, a), (shape, data) in kept})
        return seen


def few(arrays: Mapping[str, Array]) -> bool:
    """Whether there are so few numbers that it pays to compare them."""
    return bool(arrays) and sum([a.nbytes for a in arrays.values()]) <= MOST_BYTES


def _same(kept: tuple[tuple[int, ...], bytearray], array: Array) -> bool:
    """Whether an array has this shape and these bits."""
    shape, content = kept
    if array.shape != shape:
        return False
    if array.flags.c_contiguous:  # a bytearray is compared with the memory itself
        return content.__eq__(array) is True
    return content == array.tobytes()
