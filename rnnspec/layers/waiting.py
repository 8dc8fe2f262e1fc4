"""Which calls of a layer still wait for their backward pass, of those whose outputs are alive.

A layer keeps one tape, that of its last call. Who calls it twice and then goes backwards for the
first call would get gradients of the second one: that is noticed here.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

ONE_TAPE = (
    "A layer keeps the tape of its last call alone: call backward before the next call, run what needs no gradient by"
    " layer.infer, or keep several runs by layer.stack.forward(layer.params, x) and layer.stack.backward(run, dy)."
)


class Waiting:
    """The outputs of calls that no backward pass has followed; they are not kept alive."""

    def __init__(self) -> None:
        self.outputs: list[weakref.ref[Array]] = []

    def add(self, outputs: Mapping[str, Array]) -> None:
        """A call was made, and gave these outputs."""
        self.outputs = [r for r in self.outputs if r() is not None]
        self.outputs += [weakref.ref(_owner(a)) for a in outputs.values()]

    def clear(self) -> None:
        """A backward pass was made: what went before waits no longer."""
        self.outputs.clear()

    def check(self, last: Mapping[str, Array], of: Any) -> None:
        """Warns (RuntimeWarning) where a backward pass may be meant for another call than the last,
        and raises RuntimeError where `of` says that it is.

        last: the outputs of that call. of: the y that the caller means. Where that is None, another
        call may be meant if an output of it is alive, which none of the last one's gradients would
        fail to fit; not if the last call repeated one of those, for then it was made on purpose.
        """
        own = list(last.values())
        if of is None:
            if len(self.outputs) == len(own):  # those of the last call alone
                return
            owners = list(map(_owner, own))
            alive = [a for r in self.outputs if (a := r()) is not None and all(a is not o for o in owners)]
            mistakable = [a for a in alive if any(a.shape == o.shape for o in owners)]
            repeated = any(np.array_equal(a, o, equal_nan=True) for a in mistakable for o in owners)
            if mistakable and not repeated:
                text = (
                    "backward is for the last call, and an earlier one, whose y is still alive, has had none."
                    f" {ONE_TAPE} If the last call is meant, say so: backward(dy, of=y)."
                )
                warnings.warn(text, RuntimeWarning, stacklevel=4)
            return
        given = of if isinstance(of, tuple) else (of,)
        if len(given) != len(own) or not all(_is_of(a, b) for a, b in zip(given, own)):
            raise RuntimeError(f"of is not the y of the last call. {ONE_TAPE}")


def _owner(array: Array) -> Array:
    """The array that has the memory."""
    return array if array.base is None else array.base


def _is_of(given: object, own: Array) -> bool:
    return isinstance(given, np.ndarray) and (own.size == 0 or np.shares_memory(given, own))
