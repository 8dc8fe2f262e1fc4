"""Parameters packed once, for many calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import named
from rnnspec.engine.frozen import Frozen
from rnnspec.engine.groups import groups_of
from rnnspec.language.spec import Spec

T = TypeVar("T")
Key = tuple[Any, ...]


class Held(Frozen[str, Array]):
    """Arrays by name that nobody else has. shapes: of each, in the order of the spec."""

    __slots__ = ("shapes",)

    def __init__(self, spec: Spec, arrays: Mapping[str, Array]):
        super().__init__(arrays)
        self.shapes = tuple([arrays[name].shape for name in spec.parameters])

    def __reduce__(self) -> tuple[Any, ...]:
        return Frozen, (dict(self),)


class Idle:
    """What calls with the same weights, or of the same sizes, work in, between two of them, under
    at most so many keys. A copy or a pickle is empty."""

    def __init__(self, most: int = 16) -> None:
        self.most = most
        self._idle: dict[Key, list[Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Idle, (self.most,)

    def borrow(self, key: Key, make: Callable[[], T]) -> T:
        """What was given back under this key, for whoever borrowed it alone, or a new one."""
        try:
            idle: T = self._idle[key].pop()
        except (KeyError, IndexError):
            return make()
        return idle

    def give_back(self, key: Key, borrowed: object) -> None:
        """Leaves what was borrowed to the next who asks for it."""
        if len(self._idle) > self.most:
            self._idle.clear()
        self._idle.setdefault(key, []).append(borrowed)


class Weights:
    """A cell's parameters as its kernels read them: made by `kernel.pack(params)`, and goes
    wherever that kernel takes params, and those of other kernels of the same spec and dtype.

    held: name -> array, copies that can't be written to, for the kernels; `params` are the same
    numbers for others. So later changes of the arrays that were given are not seen, and a call with
    Weights never packs again what an earlier one has packed. groups: of weights by row, None where
    all rows have the same. idle: what single steps work in.
    Raises ShapeError for parameters that are missing or unknown, DtypeError for arrays of another
    dtype.
    """

    def __init__(self, spec: Spec, dtype: np.dtype, params: Mapping[str, Array]):
        self.spec, self.dtype = spec, dtype
        given = named("parameter", params, spec.parameters, dtype, required=True)
        copies = {name: array.copy() for name, array in given.items()}
        for array in copies.values():
            array.flags.writeable = False
        self.held, self.groups = Held(spec, copies), groups_of(copies, spec.parameters)
        self._packed: dict[Key, Any] = {}
        self.idle = Idle()

    def __repr__(self) -> str:
        return f"Weights({self.spec.name}, {sum(a.size for a in self.held.values())} numbers)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Weights, (self.spec, self.dtype, dict(self.held)))

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters, name -> array that can't be written to: array objects of the caller's,
        whose shape and dtype may be assigned without harm."""
        return Frozen({name: array.view() for name, array in self.held.items()})

    def packed(self, key: Key, pack: Callable[[Mapping[str, Array]], T]) -> T:
        """What `pack(params)` gave when it was first asked for under this key. Two threads at once
        may both pack: no harm."""
        packed: T | None = self._packed.get(key)
        if packed is None:
            packed = self._packed[key] = pack(self.held)
        return packed
